"""Projection onto a ball, and how far from a point the result is at least."""

from typing import Any

import jax.numpy as jnp
from jax import Array


def project(release: Array, radius: Array) -> Array:
    """The release, scaled down to the ball if its norm is larger; shape (dimension,)."""
    norm = jnp.linalg.norm(release)
    # Not larger than the radius, zero included: left as it is.
    return jnp.where(norm > radius, release * (radius / norm), release)


def check_length(release: Array, length: int, what: str = "the noisy optimum") -> None:
    """Raise a `ValueError` unless a release, or the value it is of, is a vector so long."""
    if jnp.shape(release) != (length,):
        raise ValueError(
            f"value, or release, has shape {jnp.shape(release)}: must be {(length,)}, {what}; "
            "release the value that comes with this utility"
        )


def rounding(terms: int, dtype: Any) -> float:
    """Relative error of a sum of so many terms of one sign, and of a few operations more."""
    return (terms + 8) * float(jnp.finfo(dtype).eps)
