"""Descriptions of the cases of a study, and of the numbers to keep of each trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jax import Array

from nrjax._base.format import representation
from nrjax._base.notions import notion_of
from nrjax._base.sensitivities import relation_of
from nrjax._base.validation import as_data, check
from nrjax.engine.interaction import MADE_BY, Interaction
from nrjax.engine.steps import check_single
from nrjax.simulation.batching import Batching
from nrjax.simulation.bins import Bins
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import CustomTrial
from nrjax.study.checks import (
    RESERVED,
    check_folders,
    check_goal,
    check_mapping,
    check_name,
    strict_json,
)
from nrjax.types import Outcome, Status, StoppingRule

FIELDS: dict[str, dict[str, Any]] = {
    "step": {"long_name": "number of the last step"},
    "time": {"long_name": "noise level of the last release"},
    "utility": {"long_name": "utility of the last hypothesis"},
    "mechanism_epsilon": {"long_name": "ex-post epsilon of the releases", "units": "nat"},
    "test_epsilon": {"long_name": "ex-post epsilon of the test", "units": "nat"},
    "epsilon": {"long_name": "ex-post epsilon of what was shown", "units": "nat"},
    "privacy_loss": {"long_name": "realised loss of the releases", "units": "nat"},
    "status": {
        "long_name": "how the trial ended",
        "flag_values": [int(status) for status in Status],
        "flag_meanings": " ".join(status.name.lower() for status in Status),
    },
}
"""The fields to keep of the outcome of every interaction, with their stored descriptions."""

STOPPED = "stopped_"
"""The prefix of a quantity's name that restricts the quantity to trials that stopped."""

RESERVED_LABELS = (
    *("case", "trials", "goal", "stopped", "stopped_interval", "status", "met", "met_interval"),
    *("shortfall", "epsilon", "stopping_epsilon", "stopping_epsilon_interval", "stopped_epsilon"),
    *("quartile_distance", "band", "resolution", "step", "stopped_at_first_step"),
    *("privacy_loss", "seconds", "notion", "relation", "public_test"),
)
"""The keys of a case in summary.json, and `epsilon`, which the labels of a case may not use."""

RESERVED_QUANTITIES = (*RESERVED, "stopped", "stopping_epsilon", "shortfall")
"""The names that the results of an interaction use, which quantities may not have."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number, or an array of numbers, to keep of each trial.

    You can pass a plain function of an `Outcome` in place of a `Quantity`. Use this class to set
    bins, a unit or names of axes.

    Attributes:
        of: function, written in JAX and defined at module level, that returns the quantity. Its
            argument is the trial's `Outcome`; in a curve, the `nrjax.Path`; for a custom
            trial, the trial's result. None keeps the field that has the quantity's name.
        bins: bins of the histogram for `keep="summary"`: `nrjax.LogBins` or `nrjax.WholeBins`,
            None to keep moments only, or "fitting" to choose bins by the quantity's dtype.
        units: unit of the quantity, such as "nat".
        dims: name of each axis of the quantity after the axis of trials.

    Raises:
        ValueError: an argument is of the wrong kind.

    Example:
        >>> def error(outcome):
        ...     return jnp.abs(outcome.release - 3.0)
        >>> nrjax.Quantity(error, units="m")
        Quantity(of=error, bins='fitting', units='m', dims=())
    """

    of: Callable[[Any], Array] | None = None
    bins: Bins | Literal["fitting"] | None = "fitting"
    units: str = ""
    dims: tuple[str, ...] = ()

    __repr__ = representation

    def __post_init__(self):
        check(self.of is None or callable(self.of), "of", self.of, "a function, or None")
        is_named = isinstance(self.bins, str) and self.bins == "fitting"
        is_bins = is_named or isinstance(self.bins, Bins | None)
        expected = "nrjax.LogBins, nrjax.WholeBins, None or 'fitting'"
        check(is_bins, "bins", self.bins, expected)
        check(isinstance(self.units, str), "units", self.units, "text, such as 'nat'")
        is_names = isinstance(self.dims, (tuple, list)) and all(
            isinstance(name, str) for name in self.dims
        )
        check(is_names, "dims", self.dims, "a tuple of names, such as ('level',)")
        object.__setattr__(self, "dims", tuple(self.dims))


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A set of quantities to keep at every level of an interaction's schedule.

    Use it for plots along the levels. It is expensive, because each trial evaluates all levels and
    never stops.

    Attributes:
        interaction: interaction to run, on all levels of its schedule. Trials continue after the
            rule accepts a release, and `epsilon` includes the cost of the rule.
        quantities: quantities to keep at each level, by name. With `keep="summary"` only moments
            of a quantity are kept, unless the quantity sets `bins`.
        along: coordinates by name, one number per level, such as the epsilon of each level.
        resolution: accuracy of the utility, in units of utility. If the lower and upper bound of a
            level's utility are at most this far apart, their midpoint replaces the utility, which
            is cheaper and wrong by at most half the resolution. None evaluates every level.

    Raises:
        ValueError: `resolution` is not positive and finite; the utility has no bounds although
            `resolution` is set; `along` does not have one number per level; or a quantity has an
            invalid name or is not an `nrjax.Quantity`.

    Example:
        >>> def score(release):
        ...     return -jnp.abs(release - 3.0)
        >>> interaction = nrjax.laplace(3.0, sensitivity=1.0).until(score, at_least=-0.5)
        >>> curve = nrjax.Curve(interaction, {"utility": nrjax.Quantity()})
        >>> case = nrjax.Case(trial=interaction, curves={"utility": curve})
    """

    interaction: Interaction
    quantities: Mapping[str, Quantity]
    along: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    resolution: float | None = None

    __repr__ = representation

    def __post_init__(self):
        is_interaction = isinstance(self.interaction, Interaction)
        check(is_interaction, "interaction", self.interaction, "an nrjax.Interaction")
        levels, steps = self.interaction.schedule.max_steps, self.interaction.max_steps
        whole = steps is None or steps >= levels
        hint = "Give the interaction a shorter schedule."
        check(whole, "max_steps", steps, f"at least {levels}, the levels of the schedule", hint)
        check_mapping("quantities", self.quantities, "nrjax.Quantity")
        for name, quantity in self.quantities.items():
            check_name("quantity", name, RESERVED)
            expected = "an nrjax.Quantity, such as Quantity(function)"
            check(isinstance(quantity, Quantity), f"quantities[{name!r}]", quantity, expected)
        check_mapping("along", self.along, "numbers along the levels")
        expected = f"{levels} numbers, one per level"
        for name, numbers in self.along.items():
            as_data(f"along[{name!r}]", numbers, lambda n: n.shape == (levels,), expected)
        self.resolved  # noqa: B018, for its checks

    @property
    def resolved(self) -> Interaction | Resolved:
        """The interaction to run, which uses bounds of the utility if there is a `resolution`."""
        if self.resolution is None:
            return self.interaction
        return Resolved(self.interaction, self.resolution)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One simulated setting of a study, with its labels and the numbers to keep.

    You can pass a plain `nrjax.Interaction` in place of a `Case`. Use this class to set
    labels, a goal, quantities or curves.

    Attributes:
        trial: an `nrjax.Interaction`; or a custom trial, a pytree with a method `run(key)` that
            returns a NamedTuple of arrays with any names.
        labels: descriptions of the case for tables and the summary, as strict JSON. NumPy's
            numbers are converted.
        goal: utility that a trial should reach. None takes the threshold of the stopping rule if
            the threshold is one finite number; otherwise the case has no goal.
        quantities: quantities to keep in addition to the fields of `Outcome`, by name, as an
            `nrjax.Quantity` or a function of an `Outcome`. For a custom trial, the only
            quantities to keep; if empty, all fields of the trial's result.
        coordinates: numbers along axes of the quantities: a pair (axis, numbers) for each name of
            a coordinate.
        curves: quantities at every level of the schedule, by name. Each curve runs separately.
        batching: lanes, tiles and devices; None chooses them automatically.

    Raises:
        ValueError: an attribute is of the wrong kind, such as a `goal` that is not finite; or a
            name is reserved: fields of `Outcome` for quantities, keys of the summary for labels,
            and "outcome" for curves.

    Example:
        >>> def score(release):
        ...     return -jnp.abs(release - 3.0)
        >>> interaction = nrjax.laplace(3.0, sensitivity=1.0).until(score, at_least=-0.5)
        >>> case = nrjax.Case(trial=interaction, labels={"mechanism": "laplace"})
        >>> case.goal  # the threshold of the stopping rule
        -0.5
        >>> nrjax.Study("mean", {"laplace": case})
        Study mean: laplace
    """

    trial: Interaction | CustomTrial
    labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    goal: float | None = None
    quantities: Mapping[str, Quantity | Callable[[Any], Array]] = dataclasses.field(
        default_factory=dict
    )
    coordinates: Mapping[str, tuple[str, Sequence[float]]] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Curve] = dataclasses.field(default_factory=dict)
    batching: Batching | None = None

    __repr__ = representation

    def __post_init__(self):
        is_custom = callable(getattr(self.trial, "run", None))
        expected = "an nrjax.Interaction, or a pytree with a method run(key)"
        is_trial = isinstance(self.trial, Interaction) or is_custom
        check(is_trial, "trial", self.trial, expected, MADE_BY)
        interaction = self.trial if isinstance(self.trial, Interaction) else None
        if interaction is not None:
            check_single("trial", interaction)
        check_mapping("labels", self.labels, "descriptions")
        reserved = ("case", "trials", "seconds") if interaction is None else RESERVED_LABELS
        reserved = sorted(set(self.labels) & set(reserved))
        check(not reserved, "labels", reserved, "of other names than those of the summary")
        labels = {
            name: strict_json(f"labels[{name!r}]", value) for name, value in self.labels.items()
        }
        object.__setattr__(self, "labels", labels)
        check_mapping("quantities", self.quantities, "functions or nrjax.Quantity")
        for name, quantity in self.quantities.items():
            check_name("quantity", name, RESERVED if interaction is None else RESERVED_QUANTITIES)
            is_quantity = isinstance(quantity, Quantity) or callable(quantity)
            expected = "a function of a trial, or an nrjax.Quantity"
            check(is_quantity, f"quantities[{name!r}]", quantity, expected)
        expected = "an axis and numbers along it"
        check_mapping("coordinates", self.coordinates, expected)
        for name, pair in self.coordinates.items():
            ok = isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)
            check(ok, f"coordinates[{name!r}]", pair, expected)
            as_data(f"coordinates[{name!r}]", pair[1], lambda n: n.ndim == 1, expected)
        check_mapping("curves", self.curves, "nrjax.Curve")
        check_folders("curve", self.curves, ("outcome",))
        for name, curve in self.curves.items():
            check(isinstance(curve, Curve), f"curves[{name!r}]", curve, "an nrjax.Curve")
        is_batching = self.batching is None or isinstance(self.batching, Batching)
        check(is_batching, "batching", self.batching, "an nrjax.Batching, or None")
        if self.goal is not None:
            check_goal("goal", self.goal)
            object.__setattr__(self, "goal", _decimal(self.goal))
        if interaction is None:
            return
        fields = sorted(set(self.quantities) & set(Outcome._fields))
        check(not fields, "quantities", fields, "of other names than fields of an Outcome")
        prefixed = sorted(name for name in self.quantities if name.startswith(STOPPED))
        check(not prefixed, "quantities", prefixed, f"of names that do not start with {STOPPED!r}")
        if self.goal is None:
            object.__setattr__(self, "goal", _goal_of(interaction.rule))


def _goal_of(rule: StoppingRule) -> float | None:
    """Return the threshold of a rule, or None if it is not one finite number."""
    threshold = np.asarray(np.nan if rule.threshold is None else rule.threshold)
    is_number = threshold.ndim == 0 and np.isfinite(threshold)
    return _decimal(threshold) if is_number else None


def _decimal(number: Any) -> float:
    """Return the shortest decimal of a number as a float, such as 0.1 for float32(0.1)."""
    return float(str(np.asarray(number)))


def stated_facts(case: Case) -> dict[str, Any]:
    """Return the goal of a case, and facts about its epsilon, for the stored description."""
    notion = notion_of(getattr(case.trial, "guarantee", None))
    facts = {
        "goal": case.goal,
        "notion": notion and str(notion),
        "relation": stated_relation(case),
        "public_test": _has_public_test(case.trial),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def stated_relation(case: Case) -> str | None:
    """Return the relation of neighbours that a case's trial, or the label of that name, states."""
    return relation_of(case.trial) or case.labels.get("relation")


def _has_public_test(trial: Any) -> bool | None:
    """Return whether a trial decides at a level by a public test, or None for a custom trial."""
    if not isinstance(trial, Interaction):
        return None
    several = min(trial.schedule.max_steps, int(trial.steps)) > 1
    return several and trial.rule.sensitivity is None
