"""Moments of variables, from exact sums that depend neither on order nor on grouping."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

PARTS = 4
"""Number of floats that represent a sum, with about 200 bits together."""

_WIDTH = 31
"""Number of bits of a piece of a number. A sum of 2^22 pieces of one scale fits 53 bits."""

_ROWS = 2**22
"""Largest number of rows that are added at a time."""

_FLOAT, _HALF, _PIECES = 24, 19, 3
"""Bits of a float32, and the bits and the largest number of pieces in `sums_with_squares`."""

_LARGEST = 2.0**900
"""Magnitude below which numbers are added exactly."""

_LOWEST = -1074 // _WIDTH
"""Power of the pieces of the smallest number, in units of `_WIDTH`."""

_SHIFTS = np.ldexp(1.5, _WIDTH * np.arange(_LOWEST, 900 // _WIDTH + 1) + 52)
"""Numbers that round another one to the pieces of a power if they are added and subtracted."""


def exact_sum(values: np.ndarray) -> np.ndarray:
    """Return the sum of finite float64 numbers along the first axis, as several floats.

    The result has shape (PARTS, ...). Its parts, the largest first, add up to the sum, with an
    error of at most 2^-200 of the largest part. Numbers are cut into pieces at fixed powers of two,
    and pieces at the same power add up exactly (after Demmel & Nguyen 2013). Sums of sums therefore
    have the same bits however numbers are grouped, if the parts hold the exact sums. If a number
    reaches 2^900, or is NaN, the sum of its column is an ordinary rounded one instead.

    Args:
        values: float64 numbers, with at least one axis.
    """
    if len(values) > _ROWS:
        blocks = [exact_sum(values[at : at + _ROWS]) for at in range(0, len(values), _ROWS)]
        return exact_sum(np.concatenate(blocks))
    largest = _largest(values)
    if not largest < _LARGEST:
        ordinary = ~(np.max(np.abs(values), axis=0) < _LARGEST)
        sums = exact_sum(np.where(ordinary, 0.0, values))
        with np.errstate(over="ignore", invalid="ignore"):
            sums[0] += np.sum(np.where(ordinary, values, 0.0), axis=0)
        return sums
    return np.apply_along_axis(_parts, 0, np.stack(_piece_sums(values, largest)))


def piece_sums(values: np.ndarray) -> list[np.ndarray]:
    """Return numbers whose sum is that of at most 2^22 rows, for a later call of `exact_sum`."""
    largest = _largest(values)
    return _piece_sums(values, largest) if largest < _LARGEST else [*exact_sum(values)]


def sums_with_squares(x: np.ndarray, low: float, high: float) -> tuple[list[Any], list[Any]]:
    """Return the `piece_sums` of floats and those of their squares, in fewer passes.

    Numbers are cut into pieces of `_HALF` bits. The sums of pieces are exact, and so are those of
    products of two pieces.

    Args:
        x: float64 numbers that float32 can hold, shape (n,), n at most 2^16.
        low: smallest number; any number if there are none.
        high: largest number.
    """
    largest = max(high, -low)
    if not len(x) or not largest:
        return [0.0], [0.0]
    top = math.frexp(largest)[1]
    nearest = low if low > 0 else max(-high, 0.0)  # to zero, if all have one sign
    lowest = math.frexp(nearest)[1] - _FLOAT if nearest else -math.inf  # power of the last bit
    pieces, rest, products = [], x, []
    for power in range(top - _HALF + 1, top - _HALF * _PIECES, -_HALF):
        if pieces and lowest >= power:
            piece = rest  # it has no lower bits
        else:
            shift = math.ldexp(1.5, power + 52)
            piece = rest + shift
            piece -= shift  # multiples of 2^power
        products += [2.0 * np.einsum("i,i->", piece, other) for other in pieces]
        products.append(np.einsum("i,i->", piece, piece))
        pieces.append(piece)
        rest = rest - piece if piece is not rest else rest[:0]
        if not np.einsum("i,i->", rest, rest):
            return [np.sum(piece) for piece in pieces], products
    return piece_sums(x), piece_sums(x * x)


def moments_of_whole_numbers(lowest: int, counts: np.ndarray) -> np.ndarray:
    """Return the `MOMENTS` of the whole numbers from `lowest` on, given how often each occurs.

    Args:
        lowest: the first number. All numbers are of magnitude at most 2^15.
        counts: how often each number occurs, shape (numbers,), at most 2^22 times.
    """
    numbers = np.arange(lowest, lowest + len(counts))
    found = numbers[counts > 0]
    ends = (found[0], found[-1]) if len(found) else (math.inf, -math.inf)
    sums = (exact_sum((numbers**power * counts).astype(float)) for power in (1, 2))
    return stack_moments(counts.sum(), *sums, *ends, 0, 0)


def _largest(values: np.ndarray) -> float:
    """Return the largest magnitude of any number, or NaN if there is one."""
    if not values.size:
        return 0.0
    return float(np.maximum(values.max(), -values.min()))


def _piece_sums(values: np.ndarray, largest: float) -> list[np.ndarray]:
    """Return exact sums along the first axis, one per power, of numbers up to `largest`."""
    sums, rest = [np.zeros(values.shape[1:])], values
    pieces, remainder = np.empty_like(values), np.empty_like(values)
    index = math.frexp(largest)[1] // _WIDTH - _LOWEST
    while largest > 0:
        np.add(rest, _SHIFTS[index], out=pieces)
        np.subtract(pieces, _SHIFTS[index], out=pieces)  # multiples of a power of two
        sums.append(np.sum(pieces, axis=0))
        rest = np.subtract(rest, pieces, out=remainder)
        largest, index = _largest(rest), index - 1
    return sums


def sums_of_pieces(columns: Array) -> Array:
    """Return sums of float64 numbers along the last axis, to be added up by `exact_sum`.

    Call it on accelerators, in `jit` with 64-bit numbers. The sums, shape (sums, columns), are
    exact, except for columns with numbers of 2^900 or more.
    """
    blocks = [columns[:, at : at + _ROWS] for at in range(0, max(columns.shape[1], 1), _ROWS)]
    return jnp.concatenate([_sums_of_block(block) for block in blocks])


def _sums_of_block(rest: Array) -> Array:
    largest = jnp.max(jnp.abs(rest), axis=1, initial=0.0)
    large = largest >= _LARGEST
    total = jnp.where(large, jnp.sum(rest, axis=1), 0.0)
    rest = jnp.where(large[:, None], 0.0, rest)
    first = jnp.frexp(largest)[1] // _WIDTH - _LOWEST
    shifts, turns = jnp.asarray(_SHIFTS), len(_SHIFTS)

    def cut(carry: Any) -> Any:
        turn, _, rest, sums = carry
        shift = shifts[jnp.clip(first - turn, 0, turns - 1)][:, None]
        pieces = (rest + shift) - shift
        rest = rest - pieces
        return turn + 1, jnp.any(rest != 0), rest, sums.at[turn].set(jnp.sum(pieces, axis=1))

    def left(carry: Any) -> Array:
        return (carry[0] < turns) & carry[1]

    first_carry = jnp.int32(0), jnp.bool_(True), rest, jnp.zeros((turns, len(rest)))
    sums = jax.lax.while_loop(left, cut, first_carry)[3]
    return jnp.concatenate([total[None], sums])


def _parts(numbers: np.ndarray) -> list[float]:
    """Split a sum into floats: the rounded sum, then the rounded error of the parts before."""
    terms, parts = numbers.tolist(), []
    for _ in range(PARTS):
        parts.append(math.fsum(terms))
        terms.append(-parts[-1])
    return parts


_SUMS = [f"{name}_{part}" for name in ("sum", "sum_of_squares") for part in range(PARTS)]

MOMENTS = ("finite", *_SUMS, "smallest", "largest", "above", "below")
"""Names of the moments of a variable, which are float64 numbers.

They are the number of finite values, the parts of the sum of these values and of the sum of their
squares (`exact_sum`), the smallest and the largest finite value (infinite if there is none), and
the numbers of infinite and minus infinite values. NaN is not counted.
"""


def finite_values(values: Any, counted: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return values with 0 where not finite or not counted, and `MOMENTS` without the sums.

    Args:
        values: numbers, the first axis of which is that of trials.
        counted: whether each trial is counted.
        xp: `jax.numpy` or `numpy`.
    """
    x = values.astype(xp.float64)
    above, below = (xp.sum((x == end) & counted, axis=0) for end in (xp.inf, -xp.inf))
    finite = xp.isfinite(x) & counted
    smallest = xp.min(xp.where(finite, x, xp.inf), axis=0, initial=xp.inf)
    largest = xp.max(xp.where(finite, x, -xp.inf), axis=0, initial=-xp.inf)
    return xp.where(finite, x, 0.0), (xp.sum(finite, axis=0), smallest, largest, above, below)


def finite_floats(values: np.ndarray, counted: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
    """Return what `finite_values` returns, in fewer passes. Values that are 0 may be left out."""
    if values.ndim > 1:
        return finite_values(values, counted, np)
    finite, above, below = np.isfinite(values), 0, 0
    if not finite.all():
        above, below = (np.count_nonzero((values == end) & counted) for end in (np.inf, -np.inf))
    finite &= counted
    x = (values if finite.all() else values[finite]).astype(float)
    ends = (x.min(), x.max()) if len(x) else (np.inf, -np.inf)
    return x, (len(x), *ends, above, below)


def stack_moments(number: Any, sums: np.ndarray, squares: np.ndarray, *rest: Any) -> np.ndarray:
    """Stack moments along a last axis, in the order of `MOMENTS`."""
    moments = number, *sums, *squares, *rest
    return np.stack([np.asarray(moment, float) for moment in moments], axis=-1)


def merge_moments(parts: np.ndarray) -> np.ndarray:
    """Combine the `MOMENTS` of disjoint sets of trials, one set per row of the first axis."""
    finite, *sums, smallest, largest, above, below = np.moveaxis(parts, -1, 0)
    merged = [exact_sum(np.concatenate(sums[at : at + PARTS])) for at in (0, PARTS)]
    ends = smallest.min(axis=0) + 0.0, largest.max(axis=0) + 0.0  # 0 without a sign
    counts = (count.sum(axis=0) for count in (finite, above, below))
    number, *infinite = counts
    return np.stack([number, *merged[0], *merged[1], *ends, *infinite], axis=-1)


def mean_and_variance(moments: np.ndarray) -> tuple[float, float]:
    """Return the mean and the variance of the finite values, from one row of `MOMENTS`.

    Both are NaN if there is no finite value. The numerator of the variance is exact, so that the
    variance keeps its digits however far the values lie from zero.
    """
    number = int(moments[0])
    sums = moments[1 : 1 + PARTS], moments[1 + PARTS : 1 + 2 * PARTS]
    if not number or not np.isfinite(sums).all():
        return (float(sums[0][0]) / number, math.inf) if number else (math.nan, math.nan)
    total, squares = (sum(map(Fraction, parts.tolist())) for parts in sums)
    variance = max(squares / number - (total / number) ** 2, 0)
    return float(total / number), float(variance)
