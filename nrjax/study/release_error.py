"""The error of a stopped release: noise given the stop does not have its usual distribution."""

from __future__ import annotations

import dataclasses
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.fields import explain_fields
from nrjax._base.outcome import Outcome
from nrjax._base.quantiles import order_statistics
from nrjax.engine.interaction import Interaction
from nrjax.simulation.tiles import OfTrial
from nrjax.study.case import STOPPED, Quantity
from nrjax.study.frame import Frame

_NAIVE = 1.96
"""Half the width of a 95 % interval of normal noise, in standard deviations."""


@dataclasses.dataclass(frozen=True)
class ReleaseError(OfTrial):
    """A statistic of the error of the last release, in standard deviations of its noise.

    Attributes:
        statistic: "largest" for the largest error of a coordinate, or "covered" for the fraction of
            coordinates whose error is at most 1.96.
    """

    statistic: Literal["largest", "covered"]

    def __call__(self, outcome: Outcome, interaction: Interaction) -> Array:
        """Return the statistic of each trial, NaN if the standard deviation is unknown."""
        value = jnp.asarray(interaction.value.number)
        deviation = jnp.asarray(interaction.process.deviation(outcome.time))
        axes = tuple(range(-value.ndim, 0))
        ratio = jnp.abs(outcome.release - value) / jnp.expand_dims(deviation, axes)
        if self.statistic == "largest":
            return jnp.max(ratio, axes)
        return jnp.mean(jnp.where(jnp.isnan(ratio), jnp.nan, ratio <= _NAIVE), axes)


RELEASE_ERROR = {
    "error_largest": Quantity(cast(Any, ReleaseError("largest"))),
    "error_covered": Quantity(cast(Any, ReleaseError("covered"))),
}
"""The quantities for `nrjax.Study(..., quantities=...)` whose report then states coverage."""


@explain_fields
class Coverage(NamedTuple):
    """How often an interval around a stopped release covers the private value.

    A trial stops because its release looks good, so that noise given the stop differs from the
    noise of a release at a time fixed in advance.

    Attributes:
        naive: fraction of coordinates that `release +- 1.96` standard deviations covers.
        multiple: least number of standard deviations that covers all coordinates of at least 95 %
            of the releases.
    """

    naive: float
    multiple: float

    def __str__(self) -> str:
        multiple = Decimal(self.multiple)  # rounded up, so that the sentence holds
        if multiple.is_finite():
            multiple = Context(prec=3, rounding=ROUND_CEILING).plus(multiple)
        return (
            "in 19 of 20 runs every released number is within "
            f"{float(multiple):.3g} standard deviations of the value without noise; within 1.96 "
            f"standard deviations are {self.naive:.1%} of the numbers"
        )


def coverage(interaction: Interaction, outcome: Outcome) -> Coverage | None:
    """Return the coverage in the trials that stopped.

    Args:
        interaction: interaction that the trials ran.
        outcome: outcomes of trials, with a leading axis of trials.

    Returns:
        None if no trial stopped, or if the process does not state its standard deviation.
    """
    stopped = np.asarray(outcome.stopped)
    largest, covered = (
        np.asarray(quantity.of(outcome, interaction), np.float64)[stopped]  # pyright: ignore
        for quantity in RELEASE_ERROR.values()
    )
    if not stopped.any() or np.isnan(largest).any():
        return None
    return Coverage(float(covered.mean()), order_statistics(largest, 0.95))


def remarks(frame: Frame) -> list[str]:
    """Return a sentence for each case that keeps `RELEASE_ERROR`."""
    lines = []
    for name in frame:
        if not set(RELEASE_ERROR) <= set(frame.scalars(name)):
            continue
        largest, covered = (frame.distribution_of(name, STOPPED + key) for key in RELEASE_ERROR)
        if largest.trials:
            lines.append(f"{name}: {Coverage(covered.mean, largest.quantile(0.95))}.")
    return lines
