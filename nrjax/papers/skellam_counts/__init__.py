"""Counts by group in whole numbers: Skellam noise (Whitehouse 2022, Appendix E), and others.

Counts are released under noise that is taken away until they are good enough. Skellam and discrete
Laplace noise leave whole numbers, so that no floating-point residue tells of the data. The latter
has a pure guarantee (`docs/frontier.md`), Skellam noise no published one: what is reported is the
realised privacy loss against a neighbour, at the stop and along the path. Brownian and Laplace
noise go through the same standard deviations, with the guarantees they have.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax._validation import check
from nrjax.counts import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.datasets import Counts, load_counts
from nrjax.papers.skellam_counts.findings import Findings
from nrjax.papers.skellam_counts.settings import Settings
from nrjax.processes._counts import largest_count
from nrjax.simulation import montecarlo
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

reporting = Findings()

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

_ALONG_PATH = nrjax.LogBins(-10, 10, 7, signed=True)
"""Of the loss at each level: nothing smaller or larger is seen in a figure."""


def realised_loss(outcome: nrjax.Outcome) -> Array:
    """Realised loss where a trial ended, in nats; infinite where the noise lost its law."""
    loss = outcome.privacy_loss
    broken = jnp.isnan(loss) | (outcome.status == nrjax.Status.OVERFLOW)
    return jnp.where(broken, jnp.inf, loss)


def exp_minus_loss(outcome: nrjax.Outcome) -> Array:
    """A likelihood ratio, whose mean is 1."""
    return jnp.exp(-realised_loss(outcome))


def loss_along(path: nrjax.Path) -> Array:
    """The loss at each level, infinite where the noise lost its law."""
    return jnp.where(jnp.isnan(path.privacy_loss), jnp.inf, path.privacy_loss)


_QUANTITIES = {
    "realised_loss": nrjax.Quantity(realised_loss, units="nat"),
    "exp_minus_loss": nrjax.Quantity(exp_minus_loss, nrjax.LogBins(-20, 20, 7)),
}
_CURVE = {"privacy_loss_along": nrjax.Quantity(loss_along, _ALONG_PATH, units="nat")}


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
    taken = {"replace": pair, "remove": pair[:1]}
    return {
        name: (getattr(Neighbour, name)(groups, *taken[name]), [data.items[i] for i in taken[name]])
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
    if "discrete_laplace" in settings.mechanism:
        process = nrjax.DiscreteLaplace(())
        longest = process.largest_time(dtype)
        right = (
            f"at most {float(process.deviation(longest)):.0f} for discrete Laplace noise, of which "
            f"{dtype} does not tell neighbouring probabilities apart (JAX_ENABLE_X64=1 gives more)"
        )
        ok = bool(process.time_of_deviation(deviation) <= longest)
        check(ok, "highest_deviation", float(deviation), right)


def _mechanism(
    name: str,
    neighbour: Neighbour,
    deviations: np.ndarray,
    shape: tuple[int, ...],
    tight_at: float,
    delta: float,
) -> tuple[nrjax.NoiseProcess, nrjax.LinearBoundary | nrjax.PureGuarantee | None, np.ndarray]:
    """Process, its guarantee if it has one, and the times of these standard deviations."""
    if name == "discrete_laplace":
        process = nrjax.DiscreteLaplace(shape)
        times = np.asarray(process.time_of_deviation(deviations), float)
        return process, nrjax.DiscretePureGuarantee(neighbour.l1_sensitivity), times
    if name == "laplace":
        process, guarantee = nrjax.Laplace(shape), nrjax.PureGuarantee(neighbour.l1_sensitivity)
        return process, guarantee, deviations / float(process.deviation(1.0))
    process, guarantee = nrjax.Skellam(shape, _RATE, _RATE), None
    if name == "brownian":
        sensitivity = neighbour.l2_sensitivity
        guarantee = nrjax.LinearBoundary.tight_at_time(tight_at**2, sensitivity, delta)
        process = nrjax.Brownian(shape)
    return process, guarantee, (deviations / float(process.deviation(1.0))) ** 2


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the counts and build every case, by name.

    Raises:
        FileNotFoundError, ValueError: as `nrjax.datasets.load_counts`, or the settings do not suit
            the counts.
    """
    data = load_counts(settings.data)
    utility, target = _utility(settings, data)
    deviations = _deviations(settings, data, target)
    _check_room(settings, data, deviations[0])
    first, last = float(deviations[0]), float(deviations[-1])
    tight_at = settings.tight_at
    if tight_at is None:
        tight_at = float(np.sqrt(deviations[0] * deviations[-1]))
    some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
    found = {}
    for relation, (neighbour, groups) in _neighbours(settings, data).items():
        for mechanism in settings.mechanism:
            process, guarantee, times = _mechanism(
                mechanism, neighbour, deviations, (len(data.items),), tight_at, settings.delta
            )
            labels = {
                "task": "counts",
                "mechanism": mechanism,
                "test": "public",
                "data": data.name,
                "optimum": 0.0,
                "target": target,
                "neighbour": relation,
                "groups": groups,
                "rows": int(data.counts.sum()),
                "dimension": len(data.items),
                "unit": data.unit,
                "highest_deviation": first,
                "lowest_deviation": last,
            }
            if data.remarks:
                labels["remarks"] = list(data.remarks)
            along = {"deviation": deviations[some].tolist()}
            if guarantee is not None:
                along["epsilon"] = np.asarray(guarantee.epsilon(times[some]), float).tolist()
                labels["sensitivity"] = float(np.asarray(guarantee.sensitivity))
                labels["delta"] = float(guarantee.delta)
            if mechanism == "brownian":
                labels["tight_at"] = tight_at
            parts = {
                "value": data.counts,
                "process": process,
                "guarantee": guarantee,
                "utility": utility,
                "shift": neighbour.shift,
            }
            never = nrjax.Interaction(
                **parts, schedule=nrjax.Grid(times[some]), rule=nrjax.PublicThreshold(np.inf)
            )
            rule = nrjax.PublicThreshold(utility.threshold(target))
            found[f"counts-{mechanism}-{relation}"] = nrjax.Case(
                trial=nrjax.Interaction(**parts, schedule=nrjax.Grid(times), rule=rule),
                labels=labels,
                quantities=_QUANTITIES,
                curves={"curve": nrjax.Curve(never, _CURVE, along)},
                batching=_BATCHING,
            )
    return found


def study(settings: Settings) -> Study:
    """The study; loads the counts.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    name = "skellam_counts"
    return Study(name, cases(settings), reporting=reporting, settings=settings, source=name)
