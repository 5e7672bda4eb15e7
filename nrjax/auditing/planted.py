"""Planted faults: how much too small the noise must be for an audit to refute the guarantee."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import key_for
from nrjax.engine.interaction import Interaction
from nrjax.types import NoiseProcess, overrides

FRACTION = 0.75
"""Fraction of an audit's trials with which a planted fault must be refuted, to leave a margin."""

FIRSTS = (2**30, 2**30 + 2**28, 2**30 + 2**29)
"""Numbers of the first trials of each run with a planted fault. No verdict uses these trials."""

_GRID = 100
"""The number of multiples of the noise scale that are tried, in equal steps up to 1."""

_LEAST = 5
"""The smallest of these multiples, in steps."""

_LAWS = ("gaussian", "laplace", "discrete laplace", "spherical laplace")
"""Noise whose realised loss, times the time, depends on the noise and the shift only."""


class Scaled(NoiseProcess):
    """Noise of another time than the stated one, whose realised loss assumes the stated one.

    Attributes:
        process: the process that draws the noise.
        factor: ratio of the time of the noise to the stated time. At 1 nothing changes.
    """

    process: NoiseProcess
    factor: Array

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the noise."""
        return self.process.shape

    @property
    def noise(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The stated distribution of the noise."""
        return self.process.noise

    def init(self, key: Array, time: Any) -> Any:
        """Draw the noise at the first time, times the factor."""
        return self.process.init(key_for(self.process, key), self.factor * time)

    def rewind(self, key: Array, state: Any, time: Any) -> Any:
        """Draw the noise at a smaller time, times the factor."""
        return self.process.rewind(key_for(self.process, key), state, self.factor * time)

    def value(self, state: Any) -> Array:
        """Return the noise of a state."""
        return self.process.value(state)

    def privacy_loss(self, state: Any, shift: Any) -> Array:
        """Return the realised loss for noise of the stated time."""
        return self.factor * self.process.privacy_loss(state, shift)

    def equivalent_time(self, state: Any, time: Array) -> Array:
        """Return the stated time of the single release that costs as much as all so far."""
        if not overrides(self.process, NoiseProcess, "equivalent_time"):
            return time
        return self.process.equivalent_time(state, self.factor * time) / self.factor

    def status(self, state: Any) -> Array:
        """Return the status of the process."""
        return self.process.status(state)


def has_known_loss(process: NoiseProcess) -> bool:
    """Return whether `Scaled` computes the realised loss of a process correctly."""
    return process.noise in _LAWS


def with_scale(interaction: Interaction, scale: float = 1.0) -> Interaction:
    """Return the interaction with noise of a multiple of its stated scale."""
    process, dtype = interaction.process, interaction.dtype
    process = process.process if isinstance(process, Scaled) else process
    ends = np.asarray(process.deviation(jnp.asarray([1.0, 4.0], dtype)), float)
    power = 2 if np.isclose(ends[1], 2 * ends[0]) else 1  # the time of Gaussian noise is a variance
    planted = copy.copy(interaction)
    scaled = Scaled(process, jnp.asarray(scale**power, dtype))
    object.__setattr__(planted, "process", scaled)
    return planted


def refutable_scale(refutes: Callable[[float, int], bool]) -> float:
    """Return the largest multiple of the noise scale that every run refutes, or 0 if none is.

    `refutes(scale, first)` runs trials from the number `first` on.
    """

    def all_refute(number: int) -> bool:
        return all(refutes(number / _GRID, first) for first in FIRSTS)

    # Trials with noise of a smaller scale may fail, and so refute nothing.
    starts = (_LEAST, 2 * _LEAST, _GRID // 4, _GRID // 2, 3 * _GRID // 4, 9 * _GRID // 10)
    low, high = next((start for start in starts if all_refute(start)), 0), _GRID
    if not low:
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if all_refute(middle) else (low, middle)
    return low / _GRID
