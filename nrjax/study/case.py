"""What a user writes: the cases of a study, and what is kept of their trials."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.interaction import Interaction
from nrjax.simulation.batching import Batching
from nrjax.simulation.bins import Bins
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.tiles import Session
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
        "flag_values": [int(one) for one in Status],
        "flag_meanings": " ".join(one.name.lower() for one in Status),
    },
}
"""What is kept of the outcome of every interaction, and how a store describes it."""

STOPPED = "stopped_"
"""Before the name of a quantity: over the trials that stopped."""

SAID = (
    *("case", "trials", "goal", "stopped", "stopped_interval", "status", "met", "met_interval"),
    *("shortfall", "epsilon", "epsilon_interval", "quartile_distance", "band", "resolution"),
    *("stopped_epsilon", "step", "stopped_at_first_step", "privacy_loss", "seconds", "notion"),
)
"""What the summary says of the outcomes of a case."""

TAKEN = (*RESERVED, "stopped", "stopping_epsilon", "shortfall")
"""Names that results of interactions have for something else."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number, or an array of them, that is kept of each trial.

    Attributes:
        of: a function of the trial's `Outcome` (of a curve: its `nrjax.Path`; of a session:
            what it returns), written in JAX and taken on the device; define it at module level.
            None for the field of the quantity's name.
        bins: of its histogram where only summaries are kept (`nrjax.LogBins`,
            `WholeBins`); None for moments alone; "fitting" chooses by its dtype.
        units: its unit, such as "nat".
        dims: a name for each of its axes after the trials'.
    """

    of: Callable[[Any], Array] | None = None
    bins: Bins | Literal["fitting"] | None = "fitting"
    units: str = ""
    dims: tuple[str, ...] = ()

    def __post_init__(self):
        check(self.of is None or callable(self.of), "of", self.of, "a function, or None")
        right = "nrjax.LogBins, nrjax.WholeBins, None or 'fitting'"
        ok = isinstance(self.bins, Bins) or self.bins in (None, "fitting")
        check(ok, "bins", self.bins, right)
        check(isinstance(self.units, str), "units", self.units, "text, such as 'nat'")
        ok = isinstance(self.dims, (tuple, list)) and all(isinstance(one, str) for one in self.dims)
        check(ok, "dims", self.dims, "a tuple of names, such as ('level',)")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Whole paths of an interaction, stopped or not, along the levels of its schedule.

    Attributes:
        interaction: what is run; its rule plays no part.
        quantities: what is kept at each level, by name; such as `{"utility": nrjax.Quantity()}`.
            Without `bins` only moments where summaries are kept.
        along: numbers along the levels, by name, such as the epsilon of each.
        resolution: where bounds of a level's utility (`Utility.bounds`) are at most this far
            apart, in units of the utility, their middle stands for it: wrong by at most half of
            that, and much cheaper. None evaluates all.

    Raises:
        ValueError: `resolution` is not positive and finite, or the utility has no bounds; or a
            quantity has no name, or is no `nrjax.Quantity`.
    """

    interaction: Interaction
    quantities: Mapping[str, Quantity]
    along: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    resolution: float | None = None

    def __post_init__(self):
        ok = isinstance(self.interaction, Interaction)
        check(ok, "interaction", self.interaction, "a nrjax.Interaction")
        check_mapping("quantities", self.quantities, "nrjax.Quantity")
        for name, one in self.quantities.items():
            check_name("quantity", name, RESERVED)
            ok = isinstance(one, Quantity)
            check(ok, f"quantities[{name!r}]", one, "a nrjax.Quantity, such as Quantity(function)")
        check_mapping("along", self.along, "numbers along the levels")
        self.resolved  # noqa: B018, made to be checked

    @property
    def resolved(self) -> Interaction | Resolved:
        """What is run."""
        if self.resolution is None:
            return self.interaction
        return Resolved(self.interaction, self.resolution)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that a study simulates.

    Attributes:
        trial: an `nrjax.Interaction`; or a session, a pytree with a method `run(key)` that returns
            a NamedTuple of arrays, whatever their names.
        labels: what it is, for tables and the summary; strict JSON, or NumPy's numbers.
        goal: utility that it should reach; None for the rule's threshold, if that is one number.
        quantities: what is kept of a trial besides the usual, by name; functions of an `Outcome`
            will do. Of a session: what of it is kept, by default all fields.
        coordinates: numbers along axes of the quantities: name of the axis, and its numbers.
        curves: further passes, by name.
        batching: lanes, tiles and devices.

    Raises:
        ValueError: a field is of another kind, such as a `goal` that is no finite number; or a name
            is taken: a quantity's by a field of `Outcome`, a label's by the summary, a curve's by
            the trials themselves ("outcome").
    """

    trial: Interaction | Session
    labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    goal: float | None = None
    quantities: Mapping[str, Quantity | Callable[[Any], Array]] = dataclasses.field(
        default_factory=dict
    )
    coordinates: Mapping[str, tuple[str, Sequence[float]]] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Curve] = dataclasses.field(default_factory=dict)
    batching: Batching | None = None

    def __post_init__(self):
        session = callable(getattr(self.trial, "run", None))
        right = "a nrjax.Interaction, or a session: a pytree with a method run(key)"
        check(isinstance(self.trial, Interaction) or session, "trial", self.trial, right)
        interaction = self.trial if isinstance(self.trial, Interaction) else None
        check_mapping("labels", self.labels, "what they say")
        said = ("case", "trials", "seconds") if interaction is None else SAID
        said = sorted(set(self.labels) & set(said))
        check(not said, "labels", said, "names that the summary has no other meaning for")
        labels = {name: strict_json(f"labels[{name!r}]", of) for name, of in self.labels.items()}
        object.__setattr__(self, "labels", labels)
        check_mapping("quantities", self.quantities, "functions or nrjax.Quantity")
        for name, one in self.quantities.items():
            check_name("quantity", name, RESERVED if interaction is None else TAKEN)
            right = "a function of a trial, or a nrjax.Quantity"
            check(isinstance(one, Quantity) or callable(one), f"quantities[{name!r}]", one, right)
        check_mapping("coordinates", self.coordinates, "an axis and numbers along it")
        check_mapping("curves", self.curves, "nrjax.Curve")
        check_folders("curve", self.curves, ("outcome",))
        for name, one in self.curves.items():
            check(isinstance(one, Curve), f"curves[{name!r}]", one, "a nrjax.Curve")
        right = "a nrjax.Batching, or None"
        ok = self.batching is None or isinstance(self.batching, Batching)
        check(ok, "batching", self.batching, right)
        if self.goal is not None:
            check_goal("goal", self.goal)
            object.__setattr__(self, "goal", _written(self.goal))
        if interaction is None:
            return
        taken = sorted(set(self.quantities) & set(Outcome._fields))
        check(not taken, "quantities", taken, "names that an Outcome does not have")
        taken = sorted(name for name in self.quantities if name.startswith(STOPPED))
        check(not taken, "quantities", taken, f"names that do not begin with {STOPPED!r}")
        if self.goal is None:
            object.__setattr__(self, "goal", _goal_of(interaction.rule))


def _goal_of(rule: StoppingRule) -> float | None:
    """The utility that a rule looks for, where that is one number."""
    threshold = np.asarray(getattr(rule, "threshold", np.nan))
    known = threshold.ndim == 0 and np.isfinite(threshold)
    return _written(threshold) if known else None


def _written(number: Any) -> float:
    """As it was written, not as float32 has it."""
    return float(str(np.asarray(number)))
