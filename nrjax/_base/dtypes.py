"""The floating dtype of a computation."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is an array, or a number with a dtype, of floats."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def is_narrow(leaf: Any) -> bool:
    """Return whether a leaf has floats of fewer than 32 bits."""
    return is_float(leaf) and leaf.dtype.itemsize < 4


def widened(tree: Any) -> Any:
    """Return a pytree with floats of fewer than 32 bits as float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if is_narrow(leaf) else leaf, tree)


def float_dtype(*values: ArrayLike) -> Any:
    """Return the floating dtype of a computation on `values`, float32 or float64.

    It is JAX's default float dtype if no value is a floating-point array. Noise and costs are never
    computed in fewer bits than those of float32.
    """
    # JAX promotes floats of 8 bits to no other dtype.
    wide: list[Any] = [jnp.float32 if is_narrow(value) else value for value in values]
    with jax.numpy_dtype_promotion("standard"):  # "strict" is for the user's own code
        return jnp.promote_types(jnp.result_type(*wide, float), jnp.float32)
