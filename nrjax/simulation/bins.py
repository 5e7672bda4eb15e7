"""Bins of histograms whose edges are fixed beforehand, and in which every count is exact."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check, check_integer


@dataclasses.dataclass(frozen=True)
class LogBins:
    """Bins `(edge, next edge]` that grow with the value, at edges which every float dtype has.

    Between two powers of two there are `2^digits` bins of equal width. The bin is read off the bits
    of a number. Values nearer to zero than `2^lowest` share a bin, and so do finite ones beyond
    `2^highest`; zero and the infinities have one each, NaN has the last.

    Attributes:
        lowest: exponent of the first edge above zero, at least -126.
        highest: exponent of the last finite edge but one, at most 127.
        digits: binary digits of a value that tell bins apart, from 0 to 20.
        signed: whether there are bins for negative values too. Without them zero's bin has all
            that is not positive.

    Raises:
        ValueError: a number is out of range.
    """

    lowest: int
    highest: int
    digits: int
    signed: bool = False

    def __post_init__(self):
        ranges = {"lowest": (-126, 126), "highest": (self.lowest + 1, 127), "digits": (0, 20)}
        for name, (least, most) in ranges.items():
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least, most))

    @classmethod
    def covering(cls, low: float, high: float, digits: int, *, signed: bool = False) -> "LogBins":
        """Bins with edges up to `low` and from `high` on, 0 < low < high."""
        check(0 < low < high < np.inf, "low and high", (low, high), "positive, finite and rising")
        # frexp gives value = m 2^e with m in [1/2, 1).
        lowest, highest = int(np.frexp(low)[1]) - 1, int(np.frexp(high)[1])
        return cls(max(lowest, -126), min(highest, 127), digits, signed)

    @property
    def resolution(self) -> float:
        """Largest width of a bin in units of its values."""
        return 2.0**-self.digits

    @property
    def _inner(self) -> int:
        return (self.highest - self.lowest) << self.digits

    @property
    def size(self) -> int:
        """Number of bins, NaN's included."""
        side = self._inner + 3  # towards zero, between the edges, beyond them, infinite
        return (2 * side if self.signed else side) + 2

    @functools.cached_property
    def upper(self) -> np.ndarray:
        """Upper edge of each bin but NaN's, which belongs to it; float64, rising to infinity."""
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
        """Lower edge of each bin but NaN's, which does not belong to it."""
        return np.concatenate([[-np.inf], self.upper[:-1]])

    def index(self, values: Array) -> Array:
        """The bin of each value; int32."""
        values = _not_below(jnp.asarray(values))
        wide = values.dtype == jnp.float64
        kind, mantissa, bias = (jnp.int64, 52, 1023) if wide else (jnp.int32, 23, 127)
        infinite = jnp.array(((2 * bias + 1) << mantissa), kind)
        bits = jax.lax.bitcast_convert_type(values, kind)
        size = bits & jnp.array(jnp.iinfo(kind).max, kind)
        shift, first = mantissa - self.digits, (bias + self.lowest) << self.digits
        inner = self._inner

        def place(size: Array, magnitude: Array) -> Array:
            """From 0, next to zero, to `inner + 2`, infinite."""
            inside = jnp.clip((magnitude >> shift) - first + 1, 0, inner + 1)
            return jnp.where(size == infinite, inner + 2, inside).astype(jnp.int32)

        # Bins are closed above: of magnitudes, open below for positive values and above for others.
        positive, zero = place(size, size - 1), inner + 3 if self.signed else 0
        found = jnp.where((bits > 0) & (size > 0), zero + 1 + positive, zero)
        if self.signed:
            negative = inner + 2 - place(size, size)
            found = jnp.where((bits < 0) & (size > 0), negative, found)
        return jnp.where(size > infinite, self.size - 1, found).astype(jnp.int32)


def _not_below(values: Array) -> Array:
    """Values as float32 or float64; what these do not hold is rounded up, and stays in its bin."""
    dtype = jnp.promote_types(jnp.result_type(values, float), jnp.float32)
    found = values.astype(dtype)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        return found
    # A float that is an integer of the dtype is below the value, or it is not.
    held = found < float(jnp.iinfo(values.dtype).max)
    back = jnp.where(held, found, 0).astype(values.dtype)
    return jnp.where(held & (back < values), jnp.nextafter(found, jnp.inf), found)


@dataclasses.dataclass(frozen=True)
class WholeBins:
    """A bin for each of the whole numbers `lowest` to `highest`, and one on either side of them.

    Attributes:
        lowest: first number with a bin of its own.
        highest: the last one.
        missing: whether a number below `lowest` says that a trial has no value.

    Raises:
        ValueError: there is no number between them.
    """

    lowest: int
    highest: int
    missing: bool = False

    def __post_init__(self):
        for name, least in (("lowest", -(2**31)), ("highest", self.lowest)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))

    @property
    def resolution(self) -> float:
        """Whole numbers are known exactly."""
        return 0.0

    @property
    def size(self) -> int:
        """Number of bins, the last of which (NaN's) holds what is missing."""
        return self.highest - self.lowest + 4

    @functools.cached_property
    def upper(self) -> np.ndarray:
        """Largest number in each bin but the last; float64."""
        inside = np.arange(self.lowest - 1, self.highest + 1, dtype=np.float64)
        return np.append(inside, np.inf)

    @functools.cached_property
    def lower(self) -> np.ndarray:
        """Smallest number in each bin but the last; float64."""
        return np.append(-np.inf, np.arange(self.lowest, self.highest + 2, dtype=np.float64))

    def index(self, values: Array) -> Array:
        """The bin of each value; int32."""
        values = jnp.asarray(values)
        right = "an integer or boolean one, for WholeBins"
        check(values.dtype.kind in "biu", "dtype", str(values.dtype), right)
        ends, most = jnp.iinfo(values.dtype if values.dtype != bool else jnp.int8), 2**31 - 1
        within = jnp.clip(values, max(ends.min, -most - 1), min(ends.max, most))
        number = within.astype(jnp.int32)
        inside = jnp.clip(number, self.lowest - 1, self.highest + 1) - (self.lowest - 1)
        return jnp.where(self.absent(values), self.size - 1, inside).astype(jnp.int32)

    def absent(self, values: Array) -> Array:
        """Which values stand for none; bool."""
        return (values < self.lowest) if self.missing else jnp.zeros(jnp.shape(values), bool)


Bins = LogBins | WholeBins
