"""Bins of histograms with fixed edges, so that counts can be added up exactly."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.validation import check, check_integer, check_number


@dataclasses.dataclass(frozen=True)
class LogBins:
    """A set of histogram bins for real numbers, of nearly constant relative width.

    Use it as `Quantity(bins=...)` of a study with `keep="summary"`; `WholeBins` is for integers. A
    bin is an interval `(edge, next edge]`. Between two powers of two there are `2^digits` bins of
    equal width, whose edges every float dtype represents exactly. All finite values closer to zero
    than `2^lowest` share a bin, and so do all beyond `2^highest`. Zero and each infinity have a
    separate bin, and the last bin is for NaN.

    Attributes:
        lowest: exponent of the smallest edge above zero, at least -126.
        highest: exponent of the largest edge that is a power of two, at most 127.
        digits: binary digits of a value that distinguish bins, from 0 to 20.
        signed: whether there are bins for negative values; if not, zero's bin holds them.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> nrjax.LogBins(lowest=-10, highest=10, digits=7).resolution  # relative width
        0.0078125
    """

    lowest: int
    highest: int
    digits: int
    signed: bool = False

    def __post_init__(self):
        least = check_integer("lowest", self.lowest, -126, 126) + 1
        ranges = {"lowest": (-126, 126), "highest": (least, 127), "digits": (0, 20)}
        check(isinstance(self.signed, bool), "signed", self.signed, "True or False")
        for name, (least, most) in ranges.items():
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least, most))

    @classmethod
    def covering(cls, low: float, high: float, digits: int, *, signed: bool = False) -> LogBins:
        """Return bins that cover the values from `low` to `high`, where 0 < low < high."""
        rising = check_number("low", low) < check_number("high", high)
        check(rising, "low and high", (low, high), "rising")
        # frexp gives value = m 2^e with m in [1/2, 1).
        lowest, highest = int(np.frexp(low)[1]) - 1, int(np.frexp(high)[1])
        return cls(max(lowest, -126), min(highest, 127), digits, signed)

    @property
    def resolution(self) -> float:
        """The largest width of a bin relative to its values."""
        return 2.0**-self.digits

    @property
    def _inner(self) -> int:
        return (self.highest - self.lowest) << self.digits

    @property
    def size(self) -> int:
        """The number of bins, including the bin for NaN."""
        side = self._inner + 3  # near zero, between the edges, beyond the edges, infinite
        return (2 * side if self.signed else side) + 2

    @functools.cached_property
    def upper(self) -> np.ndarray:
        """The upper edges of all bins except NaN's (float64). Each edge belongs to its bin."""
        step = np.arange(self._inner + 1)
        mantissa = 1 + (step % (1 << self.digits)) / (1 << self.digits)
        edges = np.ldexp(mantissa, self.lowest + (step >> self.digits))
        largest = np.finfo(np.float64).max
        positive = np.concatenate([[0.0], edges, [largest, np.inf]])
        if not self.signed:
            return positive
        tiny = np.nextafter(0.0, 1.0)
        return np.concatenate([[-np.inf], -edges[::-1], [-tiny], positive])

    @functools.cached_property
    def lower(self) -> np.ndarray:
        """The lower edges of all bins except NaN's (float64). No edge belongs to its bin."""
        return np.concatenate([[-np.inf], self.upper[:-1]])

    def index(self, values: Array) -> Array:
        """Return the index of each value's bin (int32), computed from the bits of the value."""
        values = _rounded_up(jnp.asarray(values))
        wide = values.dtype == jnp.float64
        kind, mantissa, bias = (jnp.int64, 52, 1023) if wide else (jnp.int32, 23, 127)
        infinite = jnp.array(((2 * bias + 1) << mantissa), kind)
        bits = jax.lax.bitcast_convert_type(values, kind)
        size = bits & jnp.array(jnp.iinfo(kind).max, kind)
        shift, first = mantissa - self.digits, (bias + self.lowest) << self.digits
        inner = self._inner

        def place(size: Array, magnitude: Array) -> Array:
            """Return a bin's place by magnitude: 0 next to zero, `inner + 2` for infinity."""
            inside = jnp.clip((magnitude >> shift) - first + 1, 0, inner + 1)
            return jnp.where(size == infinite, inner + 2, inside).astype(jnp.int32)

        # A bin includes its upper edge: the larger magnitude if positive, the smaller if negative.
        positive, zero = place(size, size - 1), inner + 3 if self.signed else 0
        index = jnp.where((bits > 0) & (size > 0), zero + 1 + positive, zero)
        if self.signed:
            negative = inner + 2 - place(size, size)
            index = jnp.where((bits < 0) & (size > 0), negative, index)
        return jnp.where(size > infinite, self.size - 1, index).astype(jnp.int32)


def _rounded_up(values: Array) -> Array:
    """Return values as float32 or float64, rounded up so that they stay in their bin."""
    dtype = jnp.promote_types(jnp.result_type(values, float), jnp.float32)
    floats = values.astype(dtype)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        return floats
    # Compare as integers if the float fits into the integer dtype.
    fits = floats < float(jnp.iinfo(values.dtype).max)
    back = jnp.where(fits, floats, 0).astype(values.dtype)
    return jnp.where(fits & (back < values), jnp.nextafter(floats, jnp.inf), floats)


@dataclasses.dataclass(frozen=True)
class WholeBins:
    """A set of histogram bins with one bin per integer from `lowest` to `highest`.

    All smaller integers share a bin, and so do all larger ones. Use it as `Quantity(bins=...)` of a
    study with `keep="summary"`, for integers and booleans. Use `LogBins` for real numbers and for
    more than some thousands of integers.

    Attributes:
        lowest: smallest integer with a separate bin.
        highest: largest integer with a separate bin.

    Raises:
        ValueError: `highest` is below `lowest`.

    Example:
        >>> nrjax.WholeBins(0, 3).size  # four numbers, smaller, larger, and the unused NaN
        7
    """

    lowest: int
    highest: int

    def __post_init__(self):
        for name, least in (("lowest", -(2**31)), ("highest", self.lowest)):
            number = check_integer(name, getattr(self, name), least, 2**31 - 1)
            object.__setattr__(self, name, number)

    @property
    def resolution(self) -> float:
        """The largest relative width of a bin: 0, since each integer has its own bin."""
        return 0.0

    @property
    def size(self) -> int:
        """The number of bins, including a last bin for NaN, which stays empty."""
        return self.highest - self.lowest + 4

    @functools.cached_property
    def upper(self) -> np.ndarray:
        """The largest number in each bin but the last (float64)."""
        inside = np.arange(self.lowest - 1, self.highest + 1, dtype=np.float64)
        return np.append(inside, np.inf)

    @functools.cached_property
    def lower(self) -> np.ndarray:
        """The smallest number in each bin but the last (float64)."""
        return np.append(-np.inf, np.arange(self.lowest, self.highest + 2, dtype=np.float64))

    def index(self, values: Array) -> Array:
        """Return the index of the bin of each integer or boolean (int32)."""
        values = jnp.asarray(values)
        expected = "an integer or boolean dtype, for WholeBins"
        check(values.dtype.kind in "biu", "dtype", str(values.dtype), expected, "Use LogBins.")
        info, most = jnp.iinfo(values.dtype if values.dtype != bool else jnp.int8), 2**31 - 1
        within = jnp.clip(values, max(info.min, -most - 1), min(info.max, most))
        number = within.astype(jnp.int32)
        first = self.lowest - 1
        return (jnp.clip(number, first, self.highest + 1) - first).astype(jnp.int32)


Bins = LogBins | WholeBins
