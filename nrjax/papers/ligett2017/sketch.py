"""What is kept of the trials of `ligett2017` where summaries are kept."""

from collections.abc import Sequence
from typing import Any

from jax import Array

from nrjax.interaction import Interaction
from nrjax.sketches import Fold, Sketch
from nrjax.study.folds import (
    ending_folds,
    epsilon_folds,
    grid_ends,
    of_outcome,
    positive,
    signed,
)

_DEARER = 64.0
"""A trial pays at most about so many times the last level of its grid: for tests, and for
releases before the last."""

_TESTED = 4.0
"""Nearly all trials pay no more than so many times the last level: it, and the tests."""


def derive(results: dict[str, Array], parameters: Any) -> dict[str, Array]:
    """As `of_outcome`, with `stopped_excess_risk`: minus the utility, of trials that stopped."""
    found = of_outcome(results, parameters)
    return {**found, "stopped_excess_risk": -found["stopped_utility"]}


def sketches_of(
    interactions: Sequence[Interaction], alphas: Sequence[float], width: float | None
) -> list[Sketch]:
    """For cases that share a program: their bins are the same, their goals are counted each.

    `width` is that of bins of epsilon, as `RunSettings.bin_width`.
    """
    ends = [one for one in map(grid_ends, interactions) if one is not None]
    low, last = min(low for low, _, _ in ends), max(high for _, high, _ in ends)
    high, usual = _DEARER * last, _TESTED * last
    steps = max(steps for _, _, steps in ends)
    folds: dict[str, Fold] = {
        **epsilon_folds(low, high, width, usual),
        **ending_folds(steps),
        "stopped_mechanism_epsilon": positive(low, high),
        "stopped_test_epsilon": positive(low, high),
        "stopped_norm": positive(),
    }
    return [
        Sketch({**folds, "stopped_excess_risk": signed((alpha,))}, derive=derive)
        for alpha in alphas
    ]
