"""What a study simulates and keeps: its cases, their quantities, and the passes over them."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax import engine
from nrjax._numerics import check
from nrjax.interaction import Interaction
from nrjax.simulation import montecarlo
from nrjax.simulation.batching import Batching
from nrjax.simulation.bins import Bins, LogBins, WholeBins
from nrjax.simulation.program import Program
from nrjax.simulation.sketches import Fold, Sketch
from nrjax.simulation.sketching import sketches
from nrjax.simulation.tiles import Session
from nrjax.study.layout import Coordinate, Pass, Variable
from nrjax.study.sketched import sketch_pass
from nrjax.types import Outcome, Status, StoppingRule

FIELDS = tuple(name for name in Outcome._fields if name not in ("release", "hypothesis"))
"""What is kept of the outcome of every interaction."""

_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "step": {"long_name": "number of the last step"},
    "time": {"long_name": "noise level of the last release"},
    "status": {
        "long_name": "how the trial ended",
        "flag_values": [int(one) for one in Status],
        "flag_meanings": " ".join(one.name.lower() for one in Status),
    },
    "utility": {"long_name": "utility of the last hypothesis"},
    "epsilon": {"long_name": "ex-post epsilon of what was shown", "units": "nat"},
    "mechanism_epsilon": {"long_name": "ex-post epsilon of the releases", "units": "nat"},
    "test_epsilon": {"long_name": "ex-post epsilon of the test", "units": "nat"},
    "privacy_loss": {"long_name": "realised loss of the releases", "units": "nat"},
}

EPSILON_DIGITS = 12
"""An epsilon is known to within 2^-12 of its value where summaries are kept."""

DIGITS = 7
"""Other numbers are known to within 2^-7 of their value."""

_FINEST = 2**20
"""Most bins of an epsilon: counts of four bytes each, for each chunk of trials."""

_SMALL, _LARGE = -20, 20
"""Exponents of two beyond which numbers of no known range share a bin."""

_WHOLE = 4096
"""Whole numbers up to here have a bin each; with more of them bins grow."""

_DEARER, _USUAL = 64.0, 4.0
"""A trial pays at most about so many times the last level of a grid, for tests and for releases
before the last; and nearly always at most so many."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number, or an array of them, that is kept of each trial.

    Attributes:
        of: a function of the trial's `Outcome` (of a curve: its `nrjax.engine.Path`; of a session:
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


@dataclasses.dataclass(frozen=True)
class Curve:
    """Whole paths of an interaction, stopped or not, along the levels of its schedule.

    Attributes:
        interaction: what is run; its rule plays no part.
        quantities: what is kept at each level, by name; such as `{"utility": nrjax.Quantity()}`.
            Without `bins` only moments where summaries are kept.
        along: numbers along the levels, by name, such as the epsilon of each.
    """

    interaction: Interaction
    quantities: Mapping[str, Quantity]
    along: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that a study simulates.

    Attributes:
        trial: an `nrjax.Interaction`; or a session, a pytree with a method `run(key)` that returns
            a NamedTuple of arrays.
        labels: what it is, for tables and the summary; strict JSON.
        goal: utility that it should reach; None for the rule's threshold, if that is one number.
        quantities: what is kept of a trial besides the usual, by name; functions of an `Outcome`
            will do. Of a session: what of it is kept, by default all fields.
        coordinates: numbers along axes of the quantities: name of the axis, and its numbers.
        curves: further passes, by name.
        epsilons: smallest, usual and largest epsilon that trials can pay, for histograms; None
            takes them from the guarantee and the schedule, where that is a grid.
        batching: lanes, tiles and devices.

    Raises:
        ValueError: `trial` is neither, or a quantity is called like a field of `Outcome`, or a
            label like something that the summary says.
    """

    trial: Interaction | Session
    labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    goal: float | None = None
    quantities: Mapping[str, Quantity | Callable[[Any], Array]] = dataclasses.field(
        default_factory=dict
    )
    coordinates: Mapping[str, tuple[str, Sequence[float]]] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Curve] = dataclasses.field(default_factory=dict)
    epsilons: tuple[float, float, float] | None = None
    batching: Batching | None = None

    def __post_init__(self):
        session = callable(getattr(self.trial, "run", None))
        right = "a nrjax.Interaction, or a session: a pytree with a method run(key)"
        check(isinstance(self.trial, Interaction) or session, "trial", self.trial, right)
        if isinstance(self.trial, Interaction):
            names = set(self.quantities)
            taken = sorted(names & {*Outcome._fields, *TAKEN})
            check(not taken, "quantities", taken, "names that an Outcome does not have")
            said = sorted(set(self.labels) & set(SAID))
            check(not said, "labels", said, "names that the summary has no other meaning for")
            taken = sorted(name for name in names if name.startswith(STOPPED))
            check(not taken, "quantities", taken, f"names that do not begin with {STOPPED!r}")
            if self.goal is None:
                object.__setattr__(self, "goal", goal_of(self.trial.rule))

    def kept(self) -> dict[str, Quantity]:
        """The quantities, each as such."""
        given = self.quantities.items()
        return {name: q if isinstance(q, Quantity) else Quantity(q) for name, q in given}


STOPPED = "stopped_"
"""Before the name of a quantity: over the trials that stopped."""

SAID = (
    *("case", "trials", "goal", "stopped", "stopped_interval", "status", "met", "met_interval"),
    *("shortfall", "epsilon", "epsilon_interval", "quartile_distance", "band", "resolution"),
    *("stopped_epsilon", "step", "stopped_at_first_step", "privacy_loss", "seconds"),
)
"""What the summary says of the outcomes of a case."""

TAKEN = ("trial", "chunk", "seconds", "stopped", "stopping_epsilon", "shortfall")
"""Names that results have for something else."""


def goal_of(rule: StoppingRule) -> float | None:
    """The utility that a rule looks for, where that is one number."""
    threshold = np.asarray(getattr(rule, "threshold", np.nan))
    known = threshold.ndim == 0 and np.isfinite(threshold)
    return float(str(threshold)) if known else None  # as it was written, not as float32 has it


class Plan(NamedTuple):
    """One pass over a case: where its results go, and what computes them."""

    layout: Pass
    make: Callable[[], Program]
    meaning: tuple[Any, Any]
    """A function of one trial's key that gives what is kept, and its numbers; for fingerprints."""


def plans(case: Case, trials: int, chunk: int, keep: str, width: float | None) -> dict[str, Plan]:
    """The passes over a case, by name.

    Args:
        case: what is simulated.
        trials: of each pass.
        chunk: trials of a chunk.
        keep: "trials", or "summary".
        width: how wide the bins of epsilon may be; None for the usual ones.

    Raises:
        ValueError: a quantity is not what it should be; or bins would have to be too narrow.
    """
    one = _plan_outcomes if isinstance(case.trial, Interaction) else _plan_sessions
    found = {"outcome": one(case, trials, chunk, keep, width)}
    for name, curve in case.curves.items():
        found[name] = _plan_curve(case, curve, trials, chunk, keep)
    return found


def _plan_outcomes(case: Case, trials: int, chunk: int, keep: str, width: float | None) -> Plan:
    interaction, quantities = case.trial, case.kept()
    assert isinstance(interaction, Interaction)
    shapes = _shapes(_one_outcome, interaction, quantities)
    derived = tuple((name, one.of) for name, one in quantities.items() if one.of is not None)
    missing = [name for name, one in quantities.items() if one.of is None]
    check(not missing, "quantities", missing, "functions of an Outcome")
    meaning = (_Meaning(_one_outcome, derived), interaction)
    coordinates = _coordinates(case)
    if keep == "trials":
        layout = Pass(trials, chunk, _variables(shapes, quantities), coordinates)
        fields, sketch = FIELDS, None
    else:
        fields = tuple(name for name in FIELDS if name != "time")
        sketch = _outcome_sketch(case, shapes, quantities, width)
        layout = sketch_pass(trials, chunk, sketch, coordinates)

    def make() -> Program:
        program = montecarlo.outcomes(
            interaction, layout.largest, fields, case.batching, derived=derived
        )
        return _folded(program, sketch, chunk)

    return Plan(layout, make, meaning)


def _plan_sessions(case: Case, trials: int, chunk: int, keep: str, width: float | None) -> Plan:
    del width  # it has no epsilon
    session: Any = case.trial
    quantities = case.kept()
    fields, derived = _split(quantities) if quantities else (None, ())
    shapes = _shapes(_one_session, session, quantities)
    coordinates = _coordinates(case)
    if keep == "trials":
        variables = _variables(shapes, quantities, {})  # names mean what the session says
        layout, sketch = Pass(trials, chunk, variables, coordinates), None
    else:
        folds = {name: _fold(name, shape, quantities.get(name)) for name, shape in shapes.items()}
        sketch = Sketch(folds)
        layout = sketch_pass(trials, chunk, sketch, coordinates)

    def make() -> Program:
        program = montecarlo.sessions(
            session, layout.largest, case.batching, fields, derived=derived
        )
        return _folded(program, sketch, chunk)

    return Plan(layout, make, (_Meaning(_one_session, derived), session))


def _plan_curve(case: Case, curve: Curve, trials: int, chunk: int, keep: str) -> Plan:
    interaction = curve.interaction
    fields, derived = _split(curve.quantities)
    shapes = _shapes(_one_path, interaction, curve.quantities)
    quantities = {
        name: dataclasses.replace(one, dims=("level", *one.dims))
        for name, one in curve.quantities.items()
    }
    along = {
        name: Coordinate("level", tuple(map(float, values)), {})
        for name, values in curve.along.items()
    }
    if keep == "trials":
        layout, sketch = Pass(trials, chunk, _variables(shapes, quantities), along), None
    else:
        folds = {}
        for name, one in quantities.items():
            bins = None if one.bins == "fitting" else one.bins
            folds[name] = _fold(name, shapes[name], dataclasses.replace(one, bins=bins))
        sketch = Sketch(folds)
        layout = sketch_pass(trials, chunk, sketch, along)

    def make() -> Program:
        program = montecarlo.paths(
            interaction, layout.largest, fields, case.batching, derived=derived
        )
        return _folded(program, sketch, chunk)

    return Plan(layout, make, (_Meaning(_one_path, derived), interaction))


def _split(quantities: Mapping[str, Quantity]) -> tuple[tuple[str, ...], Any]:
    """Fields that are kept as they are, and what is made of them."""
    fields = tuple(name for name, one in quantities.items() if one.of is None)
    return fields, tuple((name, one.of) for name, one in quantities.items() if one.of is not None)


def _folded(program: Program, sketch: Sketch | None, chunk: int) -> Program:
    # Whatever the number of trials, so that more of them need no other program.
    return program if sketch is None else sketches(program, sketch, chunk)


# One trial, for shapes and fingerprints.


def _one_outcome(interaction: Any, key: Array) -> Any:
    return engine.finish(interaction, engine.step(interaction, engine.start(interaction, key)))


def _one_path(interaction: Any, key: Array) -> Any:
    return engine.path(interaction, key, int(interaction.schedule.max_steps))


def _one_session(session: Any, key: Array) -> Any:
    return session.run(key)


@dataclasses.dataclass(frozen=True)
class _Meaning:
    """What is kept of one trial, as a function."""

    run: Callable[[Any, Array], Any]
    derived: tuple[tuple[str, Callable[[Any], Array]], ...]

    def __call__(self, trial: Any, key: Array) -> Any:
        found = self.run(trial, key)
        return found, {name: function(found) for name, function in self.derived}


def _shapes(
    run: Callable[[Any, Array], Any], trial: Any, quantities: Mapping[str, Quantity]
) -> dict[str, Any]:
    """Shape and dtype of what is kept of a trial, by name."""
    whole = jax.eval_shape(run, trial, jax.eval_shape(lambda: jax.random.key(0)))
    if run is _one_outcome:
        names: Sequence[str] = FIELDS
    else:
        names = () if quantities else whole._fields
    found = {name: getattr(whole, name) for name in names}
    for name, one in quantities.items():
        if one.of is None:
            check(name in whole._fields, "quantities", name, f"one of {whole._fields}")
            found[name] = getattr(whole, name)
        else:
            found[name] = jax.eval_shape(lambda given, of=one.of: jnp.asarray(of(given)), whole)
    return found


def _variables(
    shapes: Mapping[str, Any],
    quantities: Mapping[str, Quantity],
    known: Mapping[str, dict[str, Any]] = _ATTRIBUTES,
) -> dict[str, Variable]:
    found = {}
    for name, shape in shapes.items():
        one = quantities.get(name)
        attributes = dict(known.get(name, {})) if one is None or one.of is None else {}
        if one is not None and one.units:
            attributes["units"] = one.units
        found[name] = Variable(shape.dtype.name, _dims(name, shape, one), attributes)
    return found


def _dims(name: str, shape: Any, one: Quantity | None) -> tuple[tuple[str, int], ...]:
    names = () if one is None else one.dims
    names = names or tuple(f"{name}_{axis}" for axis in range(len(shape.shape)))
    right = f"a name for each of its {len(shape.shape)} axes after the trials'"
    check(len(names) == len(shape.shape), f"dims of {name}", names, right)
    return tuple(zip(names, shape.shape, strict=True))


def _coordinates(case: Case) -> dict[str, Coordinate]:
    return {
        name: Coordinate(dim, tuple(map(float, values)))
        for name, (dim, values) in case.coordinates.items()
    }


# What is kept of trials that are folded.


def judged(results: Mapping[str, Any], goal: Any, xp: Any = jnp) -> dict[str, Any]:
    """What is said of trials besides their own fields, by name; NaN where nothing is to be said.

    `stopping_epsilon` is the total epsilon, infinite where a trial did not stop or has no number;
    `shortfall` is by how much the utility misses the goal, of the trials that stopped.

    Args:
        results: fields of outcomes.
        goal: the utility to reach.
        xp: `jax.numpy`, or `numpy`.
    """
    stopped = results["status"] == Status.STOPPED
    epsilon, utility = results["epsilon"], results["utility"]
    finite = stopped & ~xp.isnan(epsilon)
    missing = xp.maximum(xp.asarray(goal, utility.dtype) - utility, 0)
    return {
        "stopping_epsilon": xp.where(finite, epsilon, xp.asarray(xp.inf, epsilon.dtype)),
        "shortfall": xp.where(stopped, missing, xp.asarray(xp.nan, utility.dtype)),
    }


def _derive(results: dict[str, Array], goal: Any) -> dict[str, Array]:
    """The variables of a sketch; `stopped_` before a name is over the trials that stopped."""
    found = {**results, **judged(results, goal)}
    stopped = results["status"] == Status.STOPPED
    for name, values in results.items():
        mask = stopped.reshape(stopped.shape + (1,) * (values.ndim - 1))
        whole = name == "step"
        wide = values if whole else values.astype(jnp.result_type(values.dtype, float))
        none = jnp.asarray(-2 if whole else jnp.nan, wide.dtype)
        found[STOPPED + name] = jnp.where(mask, wide, none)
    return found


def _outcome_sketch(
    case: Case, shapes: Mapping[str, Any], quantities: Mapping[str, Quantity], width: float | None
) -> Sketch:
    interaction = case.trial
    assert isinstance(interaction, Interaction)
    steps = int(interaction.schedule.max_steps)
    folds: dict[str, Fold] = {
        "status": Fold(bins=WholeBins(int(min(Status)), int(max(Status)))),
        "step": Fold(bins=whole_numbers(steps - 1, -1)),
        "stopped_step": Fold(bins=whole_numbers(steps - 1, 0, missing=True)),
        "privacy_loss": _fold("privacy_loss", shapes["privacy_loss"], None),
        "stopped_utility": _fold("utility", shapes["utility"], None),
    }
    if case.goal is not None:
        folds["shortfall"] = Fold((0.0,), LogBins(_SMALL - 10, _LARGE, DIGITS))
    if interaction.guarantee is not None:
        low, usual, high = case.epsilons or _epsilons(interaction)
        folds["stopping_epsilon"] = Fold(bins=epsilon_bins(low, usual, high, width))
        part = Fold(bins=LogBins.covering(low, high, DIGITS))
        folds |= {"stopped_mechanism_epsilon": part, "stopped_test_epsilon": part}
    for name, one in quantities.items():
        folds[name] = _fold(name, shapes[name], one)
        folds[STOPPED + name] = _fold(name, shapes[name], one, missing=True)
    goal = np.nan if case.goal is None else case.goal
    return Sketch(folds, np.asarray(goal, jnp.result_type(float)), _derive)


def _fold(name: str, shape: Any, one: Quantity | None, *, missing: bool = False) -> Fold:
    """What is kept of a quantity; `missing`: of the trials that stopped only."""
    dims = _dims(name, shape, one)
    check(len(dims) <= 1, f"quantity {name}", shape.shape, "of at most one axis, to be summarised")
    bins = "fitting" if one is None else one.bins
    whole = np.dtype(shape.dtype).kind in "biu"
    if bins == "fitting" or (missing and isinstance(bins, WholeBins)):  # those have no NaN
        bins = whole_numbers(2**31 - 1) if whole else LogBins(_SMALL, _LARGE, DIGITS, signed=True)
        bins = WholeBins(0, 1) if shape.dtype == bool and not missing else bins
    return Fold(bins=bins, dim=dims[0] if dims else None)


def _epsilons(interaction: Interaction) -> tuple[float, float, float]:
    """Smallest, usual and largest epsilon of an interaction."""
    times = np.asarray(getattr(interaction.schedule, "times", np.nan), float).ravel()
    guarantee = interaction.guarantee
    assert guarantee is not None
    if np.isfinite(times).all():
        ends = np.asarray(guarantee.epsilon(times[[0, -1]]), float)
        if np.isfinite(ends).all() and 0 < ends[0] <= ends[1]:
            return float(ends[0]), _USUAL * float(ends[1]), _DEARER * float(ends[1])
    return 2.0**_SMALL, 2.0 ** (_LARGE // 2), 2.0**_LARGE


def epsilon_bins(low: float, usual: float, high: float, width: float | None) -> LogBins:
    """Bins of the total epsilon, none wider than 2^-12 of its values.

    Args:
        low: first edge of the bins.
        usual: what trials hardly exceed.
        high: last edge.
        width: as wide as bins up to `usual` may be, if 2^20 of them are enough for that.

    Raises:
        ValueError: even the narrowest bin is wider than `width`.
    """
    bins = LogBins.covering(low, high, EPSILON_DIGITS)
    if width is None:
        return bins
    # Values up to `usual` are below 2^(top + 1), where bins are 2^(top - digits) wide.
    top = int(np.frexp(usual)[1]) - 1
    most = int(np.log2(_FINEST // (bins.highest - bins.lowest)))
    digits = min(max(EPSILON_DIGITS, top - math.floor(math.log2(width))), most)
    bins = dataclasses.replace(bins, digits=digits)
    narrowest = 2.0 ** (bins.lowest - digits)
    right = f"at least {narrowest:.3g}, the width of the narrowest bin of its histogram"
    check(narrowest <= width, "until_se", width, f"{right}; or keep trials (--keep trials)")
    return bins


def whole_numbers(most: int, least: int = 0, *, missing: bool = False) -> WholeBins | LogBins:
    """Bins of the whole numbers `least` to `most`; one each, unless there are thousands."""
    if most - least < _WHOLE or missing:
        return WholeBins(least, most, missing)
    # Closed above: up to `_WHOLE` each number ends a bin of its own.
    digits = int(np.log2(_WHOLE)) - 1
    return LogBins(0, int(most).bit_length() + 1, digits, signed=True)
