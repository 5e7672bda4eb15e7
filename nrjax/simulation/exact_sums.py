"""Sums of floating-point numbers that depend neither on order nor on grouping."""

import math
from typing import Any

import numpy as np

PARTS = 4
"""Number of floats that represent a sum, with about 200 bits together."""

_WIDTH = 31
"""Number of bits of a piece of a number. A sum of 2^22 pieces of one scale fits 53 bits."""

_ROWS = 2**22
"""Largest number of rows that are added at a time."""

_LARGEST = 2.0**900
"""Magnitude below which numbers are added exactly."""


def exact_sum(values: Any, xp: Any) -> np.ndarray:
    """Return the sum of finite float64 numbers along the first axis, as several floats.

    The result has shape (PARTS, ...). Its parts, the largest first, add up to the sum, with an
    error of at most 2^-200 of the largest number. Numbers are cut into pieces at fixed powers of
    two, and pieces at the same power add up exactly (after Demmel & Nguyen 2013). Sums of sums
    therefore have the same bits however numbers are grouped. If a number exceeds 2^900, the sum is
    an ordinary rounded one instead.

    Args:
        values: float64 numbers, with at least one axis.
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
    """Split a sum into floats: the rounded sum, then the rounded error of the parts before."""
    terms, parts = numbers.tolist(), []
    for _ in range(PARTS):
        parts.append(math.fsum(terms))
        terms.append(-parts[-1])
    return parts
