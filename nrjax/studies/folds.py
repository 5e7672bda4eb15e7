"""What studies keep of trials that are folded (`--keep summary`): variables and their bins."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check
from nrjax.bins import LogBins, WholeBins
from nrjax.interaction import Interaction
from nrjax.program import Program
from nrjax.schedules import Grid
from nrjax.sketches import Fold, Sketch
from nrjax.sketching import SketchProgram, sketches
from nrjax.studies.layout import Pass
from nrjax.types import Status

EPSILON_DIGITS = 12
"""An epsilon is known to within 2^-12 of its value."""

DIGITS = 7
"""Other numbers are known to within 2^-7 of their value."""

_MOST_BINS = 2**20
"""Of an epsilon; counts of four bytes each, for each chunk of trials."""

_LARGEST = 20
"""Exponent of two beyond which losses and utilities share a bin."""

_SMALLEST = -20
"""Exponent of two below which they do."""

_WHOLE = 4096
"""Whole numbers up to here have a bin each; with more of them bins grow."""


def folded(program: Program, layout: Pass, sketch: Sketch | None) -> Program:
    """The program that fills a pass: `program` itself where its trials are kept."""
    if sketch is None:
        return program
    # Whatever the number of trials, so that more of them need no other program.
    return sketches(program, sketch, layout.chunk)


def again(program: Program, trial: Any, sketch: Sketch | None) -> Program:
    """A program that `folded` gave, for another trial and sketch; `Program.of`."""
    if isinstance(program, SketchProgram):
        return program.of(trial, sketch)
    return program.of(trial)


def of_outcome(results: dict[str, Array], parameters: Any) -> dict[str, Array]:
    """What `nrjax.studies.variables.distribution_of` makes of the fields of outcomes.

        `epsilon` is infinite where a trial did not stop; a name with `stopped_` before it is of the
    trials that stopped, others having NaN or, of integers, a number too small; `has_epsilon` is
    whether there was a number.
    """
    del parameters
    stopped = results["status"] == Status.STOPPED
    epsilon = results["epsilon"]
    known = ~jnp.isnan(epsilon)
    found = {**results, "epsilon": jnp.where(stopped & known, epsilon, jnp.inf)}
    for name, values in results.items():
        none = jnp.nan if jnp.issubdtype(values.dtype, jnp.floating) else -2
        found[f"stopped_{name}"] = jnp.where(stopped, values, jnp.asarray(none, values.dtype))
    return {**found, "has_epsilon": known}


def grid_ends(interaction: Interaction) -> tuple[float, float, int] | None:
    """First and last epsilon of a case on a grid, and the number of levels; None without any."""
    guarantee, schedule = interaction.guarantee, interaction.schedule
    assert isinstance(schedule, Grid)
    if guarantee is None:
        return None
    times = np.asarray(schedule.times)
    low, high = np.asarray(guarantee.epsilon(times[[0, -1]]), float).tolist()
    return low, high, times.size


def epsilon_folds(
    low: float, high: float, width: float | None = None, usual: float | None = None
) -> dict[str, Fold]:
    """Of the total epsilon.

    Args:
        low: first edge of the bins.
        high: their last.
        width: as wide as bins up to `usual` may be, if 2^20 of them are enough for that; none is
            wider than 2^-12 of its values.
        usual: what trials hardly exceed; by default `high`.

    Raises:
        ValueError: even the narrowest bin is wider than `width`.
    """
    bins = LogBins.covering(low, high, EPSILON_DIGITS)
    if width is not None:
        # Values up to `usual` are below 2^(top + 1), where bins are 2^(top - digits) wide.
        top = int(np.frexp(high if usual is None else usual)[1]) - 1
        most = int(np.log2(_MOST_BINS // (bins.highest - bins.lowest)))
        digits = min(max(EPSILON_DIGITS, top - math.floor(math.log2(width))), most)
        bins = dataclasses.replace(bins, digits=digits)
        narrowest = 2.0 ** (bins.lowest - digits)
        right = f"at least {narrowest:.3g}, the width of the narrowest bin of its histogram"
        check(narrowest <= width, "until_se", width, f"{right}; or keep trials (--keep trials)")
    return {"epsilon": Fold(bins=bins), "has_epsilon": Fold(bins=WholeBins(0, 1))}


def ending_folds(steps: int) -> dict[str, Fold]:
    """Of how and at which of `steps` steps trials ended; step -1 is that of no release."""
    return {
        "status": Fold(bins=WholeBins(int(min(Status)), int(max(Status)))),
        "step": Fold(bins=whole_numbers(steps - 1, -1)),
        "stopped_step": Fold(bins=whole_numbers(steps - 1, 0, missing=True)),
    }


def signed(thresholds: tuple[float, ...] = (), dim: tuple[str, int] | None = None) -> Fold:
    """Of a number of either sign, such as a utility or a privacy loss."""
    return Fold(thresholds, LogBins(_SMALLEST, _LARGEST, DIGITS, signed=True), dim)


def positive(low: float = 2.0**_SMALLEST, high: float = 2.0**_LARGEST) -> Fold:
    """Of a number that is not negative."""
    return Fold(bins=LogBins.covering(low, high, DIGITS))


def whole_numbers(most: int, least: int = 0, *, missing: bool = False) -> WholeBins | LogBins:
    """Bins of the whole numbers `least` to `most`; one each, unless there are thousands.

    Raises:
        ValueError: there are thousands, and `missing` asks for what only single bins have.
    """
    if most - least < _WHOLE or missing:
        return WholeBins(least, most, missing)
    # Closed above: up to `_WHOLE` each number ends a bin of its own.
    digits = int(np.log2(_WHOLE)) - 1
    return LogBins(0, int(most).bit_length() + 1, digits, signed=True)
