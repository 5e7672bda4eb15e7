"""What trials are folded into where only summaries are kept: the bins of each variable."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.interaction import Interaction
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.sketches import Fold, Sketch
from nrjax.study.case import STOPPED, Case, Quantity
from nrjax.types import Status

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


def judged(results: Mapping[str, Any], goal: Any, xp: Any = jnp) -> dict[str, Any]:
    """What is said of outcomes besides their own fields, by name; NaN where nothing is to be said.

    `stopping_epsilon` is the total epsilon, infinite if a trial did not stop or its cost is NaN,
    which would otherwise be left out of quantiles. `shortfall` is by how much the utility misses
    the goal, of the trials that stopped. `xp` is `jax.numpy`, or `numpy`.
    """
    stopped = results["status"] == Status.STOPPED
    epsilon, utility = results["epsilon"], results["utility"]
    known = stopped & ~xp.isnan(epsilon)
    missing = xp.maximum(xp.asarray(goal, utility.dtype) - utility, 0)
    return {
        "stopping_epsilon": xp.where(known, epsilon, xp.asarray(xp.inf, epsilon.dtype)),
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


def outcome_sketch(
    case: Case, width: float | None, shapes: Mapping[str, Any], kept: Mapping[str, Quantity]
) -> Sketch:
    """Of an interaction's outcomes, with bins of epsilon of such a `width`, as `plans` has it."""
    interaction = case.trial
    assert isinstance(interaction, Interaction)
    steps = int(interaction.schedule.max_steps)
    folds: dict[str, Fold] = {
        "status": Fold(bins=WholeBins(int(min(Status)), int(max(Status)))),
        "step": Fold(bins=whole_numbers(steps - 1, -1)),
        "stopped_step": Fold(bins=whole_numbers(steps - 1, 0, missing=True)),
        "privacy_loss": fold_of("privacy_loss", shapes["privacy_loss"], kept["privacy_loss"]),
        "stopped_utility": fold_of("utility", shapes["utility"], kept["utility"]),
    }
    if case.goal is not None:
        folds["shortfall"] = Fold(bins=LogBins(_SMALL - 10, _LARGE, DIGITS))
    if interaction.guarantee is not None:
        low, usual, high = case.epsilons or _epsilons(interaction)
        folds["stopping_epsilon"] = Fold(bins=epsilon_bins(low, usual, high, width))
        part = Fold(bins=LogBins.covering(low, high, DIGITS))
        folds |= {"stopped_mechanism_epsilon": part, "stopped_test_epsilon": part}
    for name in case.quantities:
        folds[name] = fold_of(name, shapes[name], kept[name])
        folds[STOPPED + name] = fold_of(name, shapes[name], kept[name], missing=True)
    goal = np.nan if case.goal is None else case.goal
    return Sketch(folds, np.asarray(goal, jnp.result_type(float)), _derive)


def fold_of(name: str, shape: Any, one: Quantity, *, missing: bool = False) -> Fold:
    """What is kept of a quantity; `missing`: of the trials that stopped only."""
    dims, bins = dims_of(name, shape, one), one.bins
    check(len(dims) <= 1, f"quantity {name}", shape.shape, "of at most one axis, to be summarised")
    if bins == "fitting" or (missing and isinstance(bins, WholeBins)):  # those have no NaN
        if shape.dtype == bool and not missing:
            bins = WholeBins(0, 1)
        elif np.dtype(shape.dtype).kind in "biu":
            bins = whole_numbers(2**31 - 1)
        else:
            bins = LogBins(_SMALL, _LARGE, DIGITS, signed=True)
    return Fold(bins=bins, dim=dims[0] if dims else None)


def dims_of(name: str, shape: Any, one: Quantity) -> tuple[tuple[str, int], ...]:
    """Name and size of each axis of a quantity after the trials'."""
    names = one.dims or tuple(f"{name}_{axis}" for axis in range(len(shape.shape)))
    right = f"a name for each of its {len(shape.shape)} axes after the trials'"
    check(len(names) == len(shape.shape), f"dims of {name}", names, right)
    return tuple(zip(names, shape.shape, strict=True))


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
    """Bins of the total epsilon from `low` to `high`, none wider than 2^-12 of its values.

    Up to `usual`, which trials hardly exceed, no wider than `width`, if 2^20 are enough for that.

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
