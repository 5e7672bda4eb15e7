"""The cases of a study, and the numbers to keep of their trials."""

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
        "flag_values": [int(status) for status in Status],
        "flag_meanings": " ".join(status.name.lower() for status in Status),
    },
}
"""Fields that are kept of the outcome of every interaction, and their description in a store."""

STOPPED = "stopped_"
"""Prefix of a quantity's name that restricts it to the trials that stopped."""

RESERVED_LABELS = (
    *("case", "trials", "goal", "stopped", "stopped_interval", "status", "met", "met_interval"),
    *("shortfall", "epsilon", "epsilon_interval", "quartile_distance", "band", "resolution"),
    *("stopped_epsilon", "step", "stopped_at_first_step", "privacy_loss", "seconds", "notion"),
)
"""Keys of a case in summary.json, which labels may not use."""

RESERVED_QUANTITIES = (*RESERVED, "stopped", "stopping_epsilon", "shortfall")
"""Names that results of interactions use themselves."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number, or an array of numbers, to keep of each trial.

    A plain function of an `Outcome` works where a `Quantity` does; use this class to set bins, a
    unit or names of axes.

    Attributes:
        of: function of the trial's `Outcome`, written in JAX and evaluated on the device. In a
            curve it is a function of the `nrjax.path.Path`, in a custom trial of its result.
            Define it at module level. None takes the field of the quantity's name.
        bins: bins of its histogram for `keep="summary"`: `nrjax.LogBins`, `nrjax.WholeBins`, None
            for moments only, or "fitting" to choose by its dtype.
        units: unit, such as "nat".
        dims: name of each axis after the trials'.

    Raises:
        ValueError: an argument is of the wrong kind.

    Example:
        >>> import jax.numpy as jnp
        >>> import nrjax
        >>> error = nrjax.Quantity(lambda outcome: jnp.abs(outcome.release - 3.0), units="m")
    """

    of: Callable[[Any], Array] | None = None
    bins: Bins | Literal["fitting"] | None = "fitting"
    units: str = ""
    dims: tuple[str, ...] = ()

    def __post_init__(self):
        check(self.of is None or callable(self.of), "of", self.of, "a function, or None")
        is_bins = isinstance(self.bins, Bins) or self.bins in (None, "fitting")
        expected = "nrjax.LogBins, nrjax.WholeBins, None or 'fitting'"
        check(is_bins, "bins", self.bins, expected)
        check(isinstance(self.units, str), "units", self.units, "text, such as 'nat'")
        is_names = isinstance(self.dims, (tuple, list)) and all(
            isinstance(name, str) for name in self.dims
        )
        check(is_names, "dims", self.dims, "a tuple of names, such as ('level',)")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Quantities at every level of an interaction's schedule, whether or not a trial stops.

    Use it for plots along the levels. It is expensive: all levels of each trial are evaluated.

    Attributes:
        interaction: interaction to run; its rule is ignored.
        quantities: quantities to keep at each level, by name. With `keep="summary"` only moments
            are kept, unless a quantity has `bins`.
        along: numbers along the levels, by name, such as the epsilon of each level.
        resolution: accuracy of the utility, in its unit. If bounds of a level's utility are at
            most this far apart, their middle is used, which is cheaper and wrong by at most half
            of it. None evaluates every level.

    Raises:
        ValueError: `resolution` is not positive and finite, or the utility has no bounds; or a
            quantity has no name, or is not an `nrjax.Quantity`.

    Example:
        >>> # With the interaction of the example of nrjax.Study.
        >>> curve = nrjax.Curve(interaction, {"utility": nrjax.Quantity()})
        >>> case = nrjax.Case(trial=interaction, curves={"utility": curve})
    """

    interaction: Interaction
    quantities: Mapping[str, Quantity]
    along: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    resolution: float | None = None

    def __post_init__(self):
        is_interaction = isinstance(self.interaction, Interaction)
        check(is_interaction, "interaction", self.interaction, "an nrjax.Interaction")
        check_mapping("quantities", self.quantities, "nrjax.Quantity")
        for name, quantity in self.quantities.items():
            check_name("quantity", name, RESERVED)
            expected = "an nrjax.Quantity, such as Quantity(function)"
            check(isinstance(quantity, Quantity), f"quantities[{name!r}]", quantity, expected)
        check_mapping("along", self.along, "numbers along the levels")
        self.resolved  # noqa: B018, for its checks

    @property
    def resolved(self) -> Interaction | Resolved:
        """The interaction that runs, which uses bounds if there is a `resolution`."""
        if self.resolution is None:
            return self.interaction
        return Resolved(self.interaction, self.resolution)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One simulated setting of a study, with its labels and the numbers to keep.

    A plain `nrjax.Interaction` works where a `Case` does; use this class for anything more.

    Attributes:
        trial: an `nrjax.Interaction`; or a custom trial, a pytree with a method `run(key)` that
            returns a NamedTuple of arrays with any names.
        labels: descriptions for tables and the summary, as strict JSON or NumPy's numbers.
        goal: utility that a trial should reach; None takes the rule's threshold, if it is one
            number.
        quantities: further quantities to keep of a trial, by name, as an `nrjax.Quantity` or a
            function of an `Outcome`. For a custom trial: the quantities to keep, by default all
            fields.
        coordinates: numbers along axes of the quantities: by name, the axis and its numbers.
        curves: further passes over the levels, by name.
        batching: lanes, tiles and devices; None chooses them.

    Raises:
        ValueError: an attribute is of the wrong kind, such as a `goal` that is not finite; or a
            name is reserved: a quantity's by a field of `Outcome`, a label's by the summary, a
            curve's by the trials themselves ("outcome").

    Example:
        >>> # With the interaction of the example of nrjax.Study.
        >>> case = nrjax.Case(trial=interaction, labels={"mechanism": "laplace"}, goal=-0.5)
        >>> study = nrjax.Study("mean", {"laplace": case})
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
        is_custom = callable(getattr(self.trial, "run", None))
        expected = "an nrjax.Interaction, or a pytree with a method run(key)"
        is_trial = isinstance(self.trial, Interaction) or is_custom
        check(is_trial, "trial", self.trial, expected)
        interaction = self.trial if isinstance(self.trial, Interaction) else None
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
        check_mapping("coordinates", self.coordinates, "an axis and numbers along it")
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
    """Return the threshold of a rule if it is one finite number."""
    threshold = np.asarray(getattr(rule, "threshold", np.nan))
    is_number = threshold.ndim == 0 and np.isfinite(threshold)
    return _decimal(threshold) if is_number else None


def _decimal(number: Any) -> float:
    """Return a number as it was written: 0.1 and not 0.10000000149 for float32."""
    return float(str(np.asarray(number)))
