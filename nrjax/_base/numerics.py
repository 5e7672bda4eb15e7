"""Exact floating-point arithmetic, and checks that it is exact."""

import os
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import is_float, is_narrow
from nrjax._base.validation import check, check_made_in


def check_uncast(name: str, tree: Any, made_in: str) -> None:
    """Check that all floats of a pytree have the dtype in which it was made and checked.

    `jax.tree.map` can cast them, and so round sensitivities, tables of costs or the private value.
    JAX does so itself, and says nothing, with what was made while x64 was enabled.
    """
    check_made_in(name, made_in, jax.dtypes.canonicalize_dtype(made_in))
    hint = "Leave the floats uncast, or make it from a value of that dtype."
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if is_float(leaf):
            found, field = leaf.dtype.name, f"{name}{jax.tree_util.keystr(path)}"
            check(found == made_in, field, found, f"of {made_in}, as it was made", hint)


def check_wide(name: str, tree: Any) -> None:
    """Check that no float of a pytree has fewer than 32 bits.

    Numbers that are given are widened, so that narrow floats show that a pytree was cast.
    """
    hint = "Leave the floats uncast."
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if is_narrow(leaf):
            check(False, f"{name}{jax.tree_util.keystr(path)}", leaf.dtype, "of 32 bits", hint)


def largest_divisor(dtype: Any) -> float:
    """Return the largest `x` for which XLA never flushes `1 / x` to zero."""
    return 1 / (4 * float(jnp.finfo(dtype).tiny))


def unit_of(size: Array) -> tuple[Array, Array]:
    """Return the power of two near `1/size`, and its inverse, near `size`, elementwise.

    XLA turns `(a/b)/c` into `a/(b c)`, and a norm squares its argument. Numbers that are multiplied
    by the unit keep all digits, and their products and squares stay within the dtype.
    """
    limits = jnp.finfo(size.dtype)
    one, kind = limits.nmant, f"int{limits.bits}"
    most = 2 * (limits.maxexp - 1)  # sum of the exponent fields of a number and its inverse
    field = jax.lax.bitcast_convert_type(size, kind) & (2 ** (limits.bits - 1) - 2**one)
    field = jnp.clip(field, 1 << one, (most - 1) << one)  # neither result is subnormal
    unit = jax.lax.bitcast_convert_type((most << one) - field, size.dtype)
    return unit, jax.lax.bitcast_convert_type(field, size.dtype)


def in_unit(number: Array, unit: Array) -> Array:
    """Return `number * unit` for a power of two, exactly, with 0 in place of subnormal results.

    It is a sum of exponents, which XLA does not rearrange. If two times are constants of a program,
    XLA turns `(t unit) (s unit)` into `(t s) (unit unit)`, which may overflow.
    """
    limits = jnp.finfo(number.dtype)
    one, kind, most = limits.nmant, f"int{limits.bits}", 2 * limits.maxexp - 1
    bits, factor = (jax.lax.bitcast_convert_type(x, kind) for x in (number, unit))
    own = (bits >> one) & most
    power = own + (factor >> one) - (limits.maxexp - 1)
    moved = (bits & ~(most << one)) | (power << one)
    sign = bits & ~(2 ** (limits.bits - 1) - 1)
    moved = jnp.where(
        power >= most, sign | (most << one), jnp.where((own > 0) & (power > 0), moved, sign)
    )
    # Infinite numbers and NaN stay what they are.
    return jnp.where(own == most, number, jax.lax.bitcast_convert_type(moved, number.dtype))


def scaled_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a float64 table, divided by powers of two, and the exponents.

    The largest entry of a scaled row is between 1/2 and 1, so that no norm overflows. The exponents
    have shape (rows, 1).
    """
    _, power = np.frexp(np.max(np.abs(table), axis=1, keepdims=True, initial=0))
    return np.ldexp(table, -power), power


def norm_of(vector: Any, order: int = 2) -> float:
    """Return the norm of a vector in float64, infinite only if it exceeds the dtype."""
    scaled, power = scaled_rows(np.asarray(vector, np.float64).reshape(1, -1))
    with np.errstate(over="ignore"):
        return float(np.ldexp(np.linalg.norm(scaled[0], order), power[0, 0]))


def noise_range(dtype: Any) -> tuple[float, float]:
    """Return the smallest and the largest time at which noise of a dtype keeps its distribution.

    Noise of a smaller scale would be flushed to 0 with a probability above `eps`. At a larger time
    t, a rate `(t - s)/t/s` of a reverse kernel would be flushed to 0 for close times s and t.
    """
    limits = jnp.finfo(dtype)
    least = 2 * float(limits.tiny) / float(limits.eps)
    return least, 1 / least


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded sum `fl(a + b)` and its rounding error (Knuth's TwoSum).

    Raises:
        ValueError: XLA computes floats by other rules than those of IEEE 754 (`check_floats`).
    """
    check_floats()
    return _two_sum(a, b)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    second = total - a
    first = total - second
    return total, (a - first) + (b - second)


def check_floats() -> None:
    """Check that XLA neither simplifies the rounding of sums nor loses NaN, as fast-math does.

    Sums of values and noise would be rounded twice, and so reveal more than stated. The check runs
    a small program, once per platform, since flags come from variables and from files.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    expected = "without fast-math, which ignores the rules of floating-point numbers"
    hint = "Remove xla_cpu_enable_fast_math and *_enable_fast_min_max from it."
    check(_follows_ieee(jax.default_backend()), "XLA_FLAGS", flags, expected, hint)


@cache
def _follows_ieee(platform: str) -> bool:
    """Return whether a compiled program keeps rounding errors and NaN on the default platform."""
    del platform  # the key of the cache

    def probe(one: Array, small: Array, infinity: Array) -> Array:
        nan = infinity - infinity
        kept = jnp.isnan(nan) & jnp.isnan(jnp.maximum(nan, one)) & jnp.isnan(jnp.minimum(one, nan))
        return (_two_sum(one, small)[1] == small) & kept

    numbers = np.array([1.0, 2.0**-30, np.inf], np.float32)
    with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"), jax.debug_nans(False):
        return bool(jax.jit(probe)(*numbers))


def exact_float(value: ArrayLike, dtype: Any) -> Array:
    """Cast `value` to a floating dtype, with NaN for integers that it may not hold exactly."""
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.integer):
        largest = 2 ** (jnp.finfo(dtype).nmant + 1)
        if jnp.iinfo(array.dtype).max > largest:
            exact = array <= largest
            if jnp.iinfo(array.dtype).min < 0:  # JAX would wrap -largest for unsigned dtypes
                exact &= array >= -largest
            return jnp.where(exact, array.astype(dtype), jnp.nan)
    return jnp.asarray(array.astype(dtype))


def holds(dtype: Any, number: int) -> bool:
    """Return whether a floating dtype represents an integer exactly."""
    return abs(number) <= float(jnp.finfo(dtype).max) and int(np.asarray(number, dtype)) == number


_BLOCK_SIZE = 2**22
"""Largest number of table entries that are processed at a time."""


def row_blocks(rows: int, columns: int) -> list[slice]:
    """Return slices that cover all rows of a table, each of at most 2^22 entries.

    Working block by block avoids a temporary copy as large as the table.
    """
    size = max(1, _BLOCK_SIZE // max(columns, 1))
    return [slice(start, start + size) for start in range(0, rows, size)]
