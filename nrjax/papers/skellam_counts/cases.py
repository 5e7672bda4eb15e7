"""The cases of `skellam_counts`, built from its settings: data, neighbours, noise, passes."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from nrjax import montecarlo
from nrjax._numerics import check
from nrjax.counts import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.datasets import Counts, load_counts
from nrjax.guarantees import LinearBoundary, PureGuarantee
from nrjax.interaction import Interaction
from nrjax.papers.skellam_counts.settings import Settings
from nrjax.papers.skellam_counts.sketch import curve_sketch, outcome_sketch
from nrjax.processes import Brownian, Laplace, Skellam
from nrjax.processes._counts import largest_count
from nrjax.program import Program
from nrjax.schedules import Grid
from nrjax.sketches import Sketch
from nrjax.stopping import PublicThreshold
from nrjax.studies import common
from nrjax.study.folds import folded
from nrjax.study.sketched import sketch_pass
from nrjax.study.store import Case, Coordinate, Pass, Variable
from nrjax.types import NoiseProcess, Outcome

_TARGET_SHARE = 0.1
"""Share of the groups that may be off, unless asked otherwise."""

_ABOVE_TARGET = 10.0
"""For a mean error, the noise begins at this many times its target, unless asked otherwise."""

_LOWEST = 0.5
"""Standard deviation of the last noise, unless asked otherwise."""

_SPACINGS = 17.0
"""What the engine asks a standard deviation to span beside the largest count, and some."""

_RATE = 0.5
"""Of both counts of Skellam noise: unbiased, and its time is its variance."""

_FAR = 10.0
"""Standard deviations that the noise is taken never to exceed, when room is made for it."""

_BATCHING = montecarlo.Batching(tile=256, lanes=256)
"""Idle lanes draw too, which costs much; no sum in these utilities depends on the tile."""

FIELDS = tuple(name for name in Outcome._fields if name not in ("release", "hypothesis"))


@dataclasses.dataclass(frozen=True)
class Setup:
    """One case, ready to run."""

    case: Case
    interactions: dict[str, Interaction]
    """By pass: "outcome", and "curve", where the loss is measured at each noise level."""
    sketches: dict[str, Sketch] = dataclasses.field(default_factory=dict)
    """By pass: what is kept of its trials; nothing where all of it is."""


def _neighbours(settings: Settings, data: Counts) -> dict[str, tuple[Neighbour, list[str]]]:
    """By relation: the neighbour, and the names of the groups that differ."""
    groups = len(data.items)
    ok = groups > 1 or "replace" not in settings.neighbour
    right = f"remove: the counts of {data.name} have one group only"
    check(ok, "neighbour", "replace", right)
    for name in settings.groups:
        right = f"the names of two groups of {data.name}, such as {data.items[0]!r}"
        check(name in data.items, "groups", name, right)
    pair = [data.items.index(name) for name in settings.groups]
    pair = pair or np.argsort(-data.counts, kind="stable")[:2].tolist()
    made = {"replace": Neighbour.replace, "remove": Neighbour.remove}
    taken = {"replace": pair, "remove": pair[:1]}
    return {
        name: (made[name](groups, *taken[name]), [data.items[i] for i in taken[name]])
        for name in settings.neighbour
    }


def _utility(settings: Settings, data: Counts) -> tuple[ShareOutside | MeanAbsoluteError, float]:
    """The utility, and the error to reach."""
    if settings.criterion == "relative":
        utility = ShareOutside.relative(data.counts, settings.relative_error)
        default = _TARGET_SHARE
    else:
        utility = MeanAbsoluteError(data.counts)
        default = settings.relative_error * float(data.counts.mean())
    return utility, default if settings.target_loss is None else settings.target_loss


def _deviations(settings: Settings, data: Counts, target: float) -> np.ndarray:
    """Standard deviation of the noise at each level, falling."""
    first, last = settings.highest_deviation, settings.lowest_deviation
    if last is None:
        spacing = np.spacing(data.counts.max().astype(jnp.result_type(float)))
        last = max(_LOWEST, _SPACINGS * float(spacing))
    if first is None:
        usual = settings.relative_error * float(data.counts.mean())
        first = usual if settings.criterion == "relative" else _ABOVE_TARGET * target
    right = f"above {last:g}, that of the last level, but for these counts is {first:g}; give both"
    check(first > last, "highest_deviation", settings.highest_deviation, right)
    return np.geomspace(first, last, settings.levels)


def _check_room(settings: Settings, data: Counts, deviation: float) -> None:
    """All counts that will occur are exact."""
    dtype = jnp.result_type(float)
    most = largest_count(dtype)
    largest = float(data.counts.max())
    noise = _FAR * deviation
    advice = f"{dtype} holds whole numbers up to {most:.0f} (JAX_ENABLE_X64=1 gives more)"
    if largest + noise > most:
        raise ValueError(
            f"the largest count of {data.name} is {largest:.0f} and noise of standard deviation "
            f"{deviation:g} comes on top: must fit, as {advice}"
        )
    if "skellam" in settings.mechanism:
        right = f"at most {(most / _RATE) ** 0.5 - _FAR / _RATE:.0f} for Skellam noise: {advice}"
        check(_RATE * deviation**2 + noise <= most, "highest_deviation", float(deviation), right)


def _mechanism(
    name: str, groups: int, neighbour: Neighbour, tight_at: float, delta: float
) -> tuple[NoiseProcess, LinearBoundary | PureGuarantee | None, float]:
    """Process, its guarantee if it has one, and the power p in `time = (deviation/unit)^p`."""
    shape = (groups,)
    if name == "skellam":
        return Skellam(shape, _RATE, _RATE), None, 2.0
    if name == "brownian":
        boundary = LinearBoundary.tight_at_time(tight_at**2, neighbour.l2_sensitivity, delta)
        return Brownian(shape), boundary, 2.0
    return Laplace(shape), PureGuarantee(neighbour.l1_sensitivity), 1.0


def _passes(
    settings: Settings, deviations: np.ndarray, epsilons: np.ndarray | None
) -> dict[str, Pass]:
    """The layout of both passes; `deviations`, and what is stated there, are the curve's."""
    dtype = str(jnp.result_type(float))
    chunk = common.chunk_size(settings)
    outcome = {name: Variable("int32" if name in ("step", "status") else dtype) for name in FIELDS}
    curve = {"privacy_loss": Variable(dtype, (("level", deviations.size),), {"unit": "nat"})}
    along = {"deviation": Coordinate("level", tuple(deviations.tolist()), {"unit": "counts"})}
    if epsilons is not None:
        along["epsilon"] = Coordinate("level", tuple(epsilons.tolist()), {"unit": "nat"})
    return {
        "outcome": Pass(settings.trials, chunk, outcome),
        "curve": Pass(settings.trials, chunk, curve, along),
    }


def setups(settings: Settings) -> list[Setup]:
    """Load the counts and build every case.

    Raises:
        FileNotFoundError, ValueError: as `nrjax.datasets.load_counts`, or the settings do not suit
            the counts.
    """
    data = load_counts(settings.data)
    utility, target = _utility(settings, data)
    deviations = _deviations(settings, data, target)
    _check_room(settings, data, deviations[0])
    tight_at = settings.tight_at
    if tight_at is None:
        tight_at = float(np.sqrt(deviations[0] * deviations[-1]))
    some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
    found = []
    for relation, (neighbour, groups) in _neighbours(settings, data).items():
        for mechanism in settings.mechanism:
            process, guarantee, power = _mechanism(
                mechanism, len(data.items), neighbour, tight_at, settings.delta
            )
            times = (deviations / float(process.deviation(1.0))) ** power
            attributes = {
                "task": "counts",
                "mechanism": mechanism,
                "test": "public",
                "data": data.name,
                "trials": settings.trials,
                "optimum": 0.0,
                "target": target,
                "neighbour": relation,
                "groups": groups,
                "rows": int(data.counts.sum()),
                "dimension": len(data.items),
                "unit": data.unit,
                "highest_deviation": float(deviations[0]),
                "lowest_deviation": float(deviations[-1]),
            }
            epsilons = None
            if guarantee is not None:
                epsilons = np.asarray(guarantee.epsilon(times[some]), float)
                attributes["sensitivity"] = float(np.asarray(guarantee.sensitivity))
                attributes["delta"] = float(guarantee.delta)
            if mechanism == "brownian":
                attributes["tight_at"] = tight_at
            parts = {
                "value": data.counts,
                "process": process,
                "guarantee": guarantee,
                "utility": utility,
                "shift": neighbour.shift,
            }
            never = PublicThreshold(np.inf)
            rule = PublicThreshold(utility.threshold(target))
            interactions = {
                "outcome": Interaction(**parts, schedule=Grid(times), rule=rule),
                "curve": Interaction(**parts, schedule=Grid(times[some]), rule=never),
            }
            passes = _passes(settings, deviations[some], epsilons)
            case = Case(f"counts-{mechanism}-{relation}", attributes, passes)
            found.append(Setup(case, interactions))
    return [_summarised(settings, one) for one in found] if settings.keep == "summary" else found


def _summarised(settings: Settings, setup: Setup) -> Setup:
    """The same with summaries of its trials kept."""
    kept = {
        "outcome": outcome_sketch(
            setup.interactions["outcome"], settings.levels, settings.bin_width
        ),
        "curve": curve_sketch(settings.curve_levels),
    }
    passes = {
        name: sketch_pass(layout.trials, layout.chunk, kept[name], layout.coordinates)
        for name, layout in setup.case.passes.items()
    }
    case = dataclasses.replace(setup.case, passes=passes)
    return Setup(case, setup.interactions, kept)


def programs(cases: Sequence[Setup]) -> dict[str, dict[str, Program]]:
    """The programs that fill a store, by case and pass."""

    def program(setup: Setup, name: str) -> Program:
        layout, interaction = setup.case.passes[name], setup.interactions[name]
        if name == "outcome":
            found = montecarlo.outcomes(interaction, layout.largest, FIELDS, _BATCHING)
        else:
            found = montecarlo.paths(interaction, layout.largest, ("privacy_loss",), _BATCHING)
        return folded(found, layout, setup.sketches.get(name))

    return {
        setup.case.name: {name: program(setup, name) for name in setup.interactions}
        for setup in cases
    }
