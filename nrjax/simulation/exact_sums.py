"""Sums of floating-point numbers that depend neither on order nor on grouping."""

import math
from typing import Any

import numpy as np

PARTS = 4
"""Number of floats that hold a sum: about 200 bits of it."""

_WIDTH = 31
"""Bits of a piece of a number. Sums of 2^22 pieces at one power of two are exact in 53 bits."""

_ROWS = 2**22
"""Most rows that are added at a time."""

_LARGEST = 2.0**900
"""Bound below which numbers are added exactly."""


def exact_sum(values: Any, xp: Any) -> np.ndarray:
    """Return the sum of finite float64 numbers along the first axis, shape (PARTS, ...).

    The sum is that of the returned parts, the largest first, up to 2^-200 of its largest number.
    Numbers are cut into pieces at fixed powers of two, and pieces at one power add up exactly,
    after Demmel & Nguyen 2013. Sums of sums are therefore the same bits however numbers are
    grouped. A sum with a number beyond 2^900 is rounded in order of its numbers.

    Args:
        values: float64 numbers, at least one axis.
        xp: `numpy`, or `jax.numpy` with 64-bit numbers, outside `jit`.
    """
    if len(values) > _ROWS:
        blocks = [exact_sum(values[at : at + _ROWS], xp) for at in range(0, len(values), _ROWS)]
        return exact_sum(np.concatenate(blocks), np)
    largest = float(xp.max(xp.abs(values), initial=0.0))
    if largest >= _LARGEST:
        total = np.asarray(xp.sum(values, axis=0))
        return np.stack([total, *(np.zeros_like(total) for _ in range(PARTS - 1))])
    sums = [np.zeros(values.shape[1:])]
    index = math.frexp(largest)[1] // _WIDTH
    while largest > 0:
        shift = 1.5 * 2.0 ** (_WIDTH * index + 52)  # rounds to multiples of 2^(_WIDTH * index)
        pieces = (values + shift) - shift
        sums.append(np.asarray(xp.sum(pieces, axis=0)))
        values, index = values - pieces, index - 1
        largest = float(xp.max(xp.abs(values)))
    return np.apply_along_axis(_parts, 0, np.stack(sums))


def _parts(numbers: np.ndarray) -> list[float]:
    """Return floats that add up to the exact sum of numbers, each the rest rounded."""
    terms, parts = numbers.tolist(), []
    for _ in range(PARTS):
        parts.append(math.fsum(terms))
        terms.append(-parts[-1])
    return parts
