"""The experiments on counts by group under Skellam noise (Whitehouse 2022, appendix E).

Counts are released under noise that is reduced until the counts are accurate enough. With Skellam
and discrete Laplace noise, noisy counts are whole numbers, so no floating-point residue depends on
the data. Skellam noise has no published guarantee, so the study measures the realised privacy loss
against a neighbouring data set, when trials end and at each noise level. Discrete Laplace noise
(statement 7 of `docs/proofs`), Laplace noise and Brownian noise have guarantees. All mechanisms
have the same standard deviations.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax._base.validation import check
from nrjax.counts import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.datasets import Counts, load_counts
from nrjax.papers.skellam_counts.report import LossReporting
from nrjax.papers.skellam_counts.settings import Settings
from nrjax.processes._counts import largest_count
from nrjax.simulation import montecarlo
from nrjax.study.study import Study

reporting = LossReporting()

_TARGET_SHARE = 0.1  # default fraction of groups whose counts may be inaccurate
_ABOVE_TARGET = 10.0  # default first standard deviation, as a multiple of a target mean error
_LOWEST = 0.5  # default last standard deviation
_SPACINGS = 17.0
"""Least standard deviation of the noise, in floating-point spacings of the largest count."""

_RATE = 0.5
"""Rate of both Poisson processes of Skellam noise, whose variance then equals its time."""

_FAR = 10.0  # noise is assumed to be within this many standard deviations
_BATCHING = montecarlo.Batching(tile=256, lanes=256)
"""Batch sizes with few lanes, since idle lanes draw noise, too, which is slow.

The tile can be large, as no sum in the utilities depends on it."""

_ALONG_PATH = nrjax.LogBins(-10, 10, 7, signed=True)
"""Bins of the loss at each noise level, over the range that the figure shows."""


def realised_loss(outcome: nrjax.Outcome) -> Array:
    """Return a trial's realised privacy loss in nats, infinite if the noise overflowed."""
    loss = outcome.privacy_loss
    broken = jnp.isnan(loss) | (outcome.status == nrjax.Status.OVERFLOW)
    return jnp.where(broken, jnp.inf, loss)


def exp_minus_loss(outcome: nrjax.Outcome) -> Array:
    """Return exp(-realised loss), a likelihood ratio whose mean is 1."""
    return jnp.exp(-realised_loss(outcome))


def loss_along(path: nrjax.Path) -> Array:
    """Return the realised loss at each noise level, infinite where the noise overflowed."""
    return jnp.where(jnp.isnan(path.privacy_loss), jnp.inf, path.privacy_loss)


_QUANTITIES = {
    "realised_loss": nrjax.Quantity(realised_loss, units="nat"),
    "exp_minus_loss": nrjax.Quantity(exp_minus_loss, nrjax.LogBins(-20, 20, 7)),
}
_CURVE = {"privacy_loss_along": nrjax.Quantity(loss_along, _ALONG_PATH, units="nat")}


def _neighbours(settings: Settings, data: Counts) -> dict[str, tuple[Neighbour, list[str]]]:
    """Return, for each relation, the neighbour and the names of the groups that differ."""
    groups = len(data.items)
    ok = groups > 1 or "replace" not in settings.neighbour
    check(ok, "neighbour", "replace", f"remove, as the counts of {data.name} have one group")
    for name in settings.groups:
        expected = f"the names of two groups of {data.name}, such as {data.items[0]!r}"
        check(name in data.items, "groups", name, expected)
    pair = [data.items.index(name) for name in settings.groups]
    pair = pair or np.argsort(-data.counts, kind="stable")[:2].tolist()
    taken = {"replace": pair, "remove": pair[:1]}
    return {
        name: (getattr(Neighbour, name)(groups, *taken[name]), [data.items[i] for i in taken[name]])
        for name in settings.neighbour
    }


def _utility(settings: Settings, data: Counts) -> tuple[ShareOutside | MeanAbsoluteError, float]:
    """Return the utility and the target error."""
    if settings.criterion == "relative":
        utility = ShareOutside.relative(data.counts, settings.relative_error)
        default = _TARGET_SHARE
    else:
        utility = MeanAbsoluteError(data.counts)
        default = settings.relative_error * float(data.counts.mean())
    return utility, default if settings.target_loss is None else settings.target_loss


def _deviations(settings: Settings, data: Counts, target: float) -> np.ndarray:
    """Return the standard deviation of the noise at each level, in falling order."""
    first, last = settings.highest_deviation, settings.lowest_deviation
    if last is None:
        spacing = np.spacing(data.counts.max().astype(jnp.result_type(float)))
        last = max(_LOWEST, _SPACINGS * float(spacing))
    if first is None:
        usual = settings.relative_error * float(data.counts.mean())
        first = usual if settings.criterion == "relative" else _ABOVE_TARGET * target
    expected = f"above the last level, {last:g}, but for these counts it is {first:g}"
    hint = "Give --highest-deviation and --lowest-deviation."
    check(first > last, "highest_deviation", settings.highest_deviation, expected, hint)
    return np.geomspace(first, last, settings.levels)


def _check_exact(settings: Settings, data: Counts, deviation: float) -> None:
    """Check that noisy counts are exact in JAX's default floating-point precision."""
    dtype = jnp.result_type(float)
    most, noise = largest_count(dtype), _FAR * deviation
    name, value = "highest_deviation", float(deviation)
    hint = f"{dtype} is exact up to {most:.0f}; JAX_ENABLE_X64=1 allows more."
    largest = float(data.counts.max())
    expected = f"so small that the largest count, {largest:.0f}, stays exact under the noise"
    check(largest + noise <= most, name, value, expected, hint)
    if "skellam" in settings.mechanism:
        expected = f"at most {(most / _RATE) ** 0.5 - _FAR / _RATE:.0f} for Skellam noise"
        check(_RATE * deviation**2 + noise <= most, name, value, expected, hint)
    if "discrete_laplace" in settings.mechanism:
        process = nrjax.DiscreteLaplace(())
        longest = process.largest_time(dtype)
        expected = f"at most {float(process.deviation(longest)):.0f} for discrete Laplace noise"
        hint = f"{dtype} cannot separate neighbouring probabilities; JAX_ENABLE_X64=1 allows more."
        check(bool(process.time_of_deviation(deviation) <= longest), name, value, expected, hint)


def _mechanism(
    name: str,
    neighbour: Neighbour,
    levels: np.ndarray,
    shape: tuple[int, ...],
    tight_at: float,
    delta: float,
) -> tuple[nrjax.NoiseProcess, nrjax.LinearBoundary | nrjax.PureGuarantee | None, np.ndarray]:
    """Return a mechanism's process, guarantee (None for Skellam), and time of each level."""
    if name == "discrete_laplace":
        process = nrjax.DiscreteLaplace(shape)
        times = np.asarray(process.time_of_deviation(levels), float)
        return process, nrjax.DiscretePureGuarantee(neighbour.l1_sensitivity), times
    if name == "laplace":
        process, guarantee = nrjax.Laplace(shape), nrjax.PureGuarantee(neighbour.l1_sensitivity)
        return process, guarantee, levels / float(process.deviation(1.0))
    process, guarantee = nrjax.Skellam(shape, _RATE, _RATE), None
    if name == "brownian":
        sensitivity = neighbour.l2_sensitivity
        guarantee = nrjax.LinearBoundary.tight_at_time(tight_at**2, sensitivity, delta)
        process = nrjax.Brownian(shape)
    return process, guarantee, (levels / float(process.deviation(1.0))) ** 2


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the counts and return every case by name.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the counts.
    """
    data = load_counts(settings.data)
    utility, target = _utility(settings, data)
    levels = _deviations(settings, data, target)
    first, last = float(levels[0]), float(levels[-1])
    _check_exact(settings, data, first)
    tight_at = settings.tight_at
    if tight_at is None:
        tight_at = float(np.sqrt(levels[0] * levels[-1]))
    some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
    built = {}
    for relation, (neighbour, groups) in _neighbours(settings, data).items():
        for mechanism in settings.mechanism:
            process, guarantee, times = _mechanism(
                mechanism, neighbour, levels, (len(data.items),), tight_at, settings.delta
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
            along = {"deviation": levels[some].tolist()}
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
            built[f"counts-{mechanism}-{relation}"] = nrjax.Case(
                trial=nrjax.Interaction(**parts, schedule=nrjax.Grid(times), rule=rule),
                labels=labels,
                quantities=_QUANTITIES,
                curves={"curve": nrjax.Curve(never, _CURVE, along)},
                batching=_BATCHING,
            )
    return built


def study(settings: Settings) -> Study:
    """Load the counts and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the counts.
    """
    name = "skellam_counts"
    return Study(
        name,
        cases(settings),
        reporting=reporting,
        settings=settings,
        source=name,
        compares_relations=True,
    )
