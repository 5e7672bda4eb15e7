"""The private value in the dtype of a run, with the rounding error of the cast."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.format import format_value
from nrjax._base.numerics import two_sum
from nrjax._base.validation import as_numeric, as_table, check, concrete_or_none


class Value(NamedTuple):
    """A private value, as its rounding to the dtype of the run plus the rounding error.

    A cast alone can move the values of neighbours further apart than the stated sensitivity. For
    ridge regression on n rows, a float32 cast adds up to n 2^-24 of the sensitivity: 0.6 % on
    100,000 rows. With the rounding error kept, a release is the exact sum of value and noise,
    rounded once. It is post-processing of the sum that the guarantee is for.

    Attributes:
        number: the value, rounded to the dtype of the run.
        rest: the value minus `number`. None in float64, except for a traced integer.
    """

    number: Array
    rest: Array | None

    def plus(self, noise: Array) -> Array:
        """Return the value plus noise, rounded once."""
        if self.rest is None:
            return self.number + noise
        total, error = two_sum(self.number, noise)
        return total + (error + self.rest)

    def whole(self) -> Any:
        """Return the value as one array: `number`, unless `rest` is concrete and not 0.

        In that case it is a float64 array, or an int64 array if every entry is an integer.
        """
        number, rest = map(concrete_or_none, self)
        if number is None or rest is None or not np.any(rest):
            return self.number
        value = number.astype(np.float64) + rest
        return value.astype(np.int64) if np.all(value == np.round(value)) else value

    def __repr__(self) -> str:
        return format_value(self.number)


def check_array(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """Check that a value or shift is finite and has the process's shape, and return it."""
    check(0 not in shape, f"shape of {name}", shape, "that of at least one number")
    value = as_table(value)
    is_text = isinstance(value, (str, bytes))
    is_text |= isinstance(value, np.ndarray) and value.dtype.kind in "SU"
    hint = "Convert it, for example by np.asarray(text, float)."
    check(not is_text, name, value, "numbers, not text", hint)
    number = as_numeric(name, value, "numbers, in an array of the process's shape")
    expected = f"{shape}, the process's shape"
    check(jnp.shape(value) == shape, f"shape of {name}", jnp.shape(value), expected)
    if number is not None:
        check(np.isfinite(number), name, value, "finite")
    return value


def split_value(value: Any, dtype: Any, sensitivity: Any, integral: bool = False) -> Value:
    """Cast a value to the dtype of the run, and keep the rounding error as `Value.rest`.

    Args:
        value: from `check_array`.
        dtype: float32 or float64.
        sensitivity: stated sensitivity of the value, or None.
        integral: whether the noise is integer-valued. Releases would then reveal a fraction of the
            value, so a traced value with a fraction becomes NaN.
    """
    single, number = dtype == jnp.float32, concrete_or_none(value)
    whole = jnp.issubdtype(value.dtype if number is None else number.dtype, jnp.integer)
    if number is None:
        if integral and not whole:
            value = jnp.where(value == jnp.round(value), value, jnp.nan)
        if not single and not whole:
            return Value(value.astype(dtype), None)
        low = value & (255 if single else 2047) if whole else jnp.zeros_like(value)
        return Value((value - low).astype(dtype), low.astype(dtype))
    exact = number.astype(np.float64)
    if whole:
        largest = 47 if single else 53
        check(np.abs(exact) <= 2**largest, "value", value, f"integers up to 2^{largest}")
    with np.errstate(over="ignore"):
        cast = exact.astype(dtype) + dtype.type(0)  # + 0: a release would show the sign of -0
    check(np.isfinite(cast), "value", value, f"within {np.dtype(dtype).name}")
    if not single:
        return Value(cast, None)
    stated = concrete_or_none(sensitivity)
    if stated is not None and not whole and number.dtype != dtype:
        # `number` and `rest` have 48 bits together, for this value and for a neighbour's.
        error = 2.0**-47 * float(np.sum(np.abs(exact)))
        expected = f"below 2^24 times the sensitivity {stated.min():.3g}, or of integers"
        hint = "Subtract a public centre, or use float64 (JAX_ENABLE_X64=1)."
        check(error <= 2.0**-23 * stated.min(), "value", value, expected, hint)
    return Value(cast, (exact - cast.astype(np.float64)).astype(dtype))
