"""Dtypes, concreteness and checks that the doors of the package share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike


def float_dtype(*values: ArrayLike) -> Any:
    """Floating dtype of a computation on `values`; Python numbers adopt the default precision."""
    return jnp.result_type(*values, float)


def concrete(value: Any) -> np.ndarray | None:
    """`value` as a NumPy array, or None where it has no numbers (tracers, None, sentinels)."""
    if isinstance(value, Tracer):
        return None
    if isinstance(value, (bool, int, float, np.generic, np.ndarray, jax.Array)):
        return np.asarray(value)
    return None


def door(value: Any) -> np.ndarray | None:
    """As `concrete`, for constructors: device arrays are skipped too.

    Constructors run again at every `vmap` and `tree.map`, where they must not wait for a device.
    """
    return None if isinstance(value, jax.Array) else concrete(value)


def check(ok: Any, name: str, value: Any, right: str) -> None:
    """Raise a `ValueError` that names the argument, its value and what would be right."""
    if not np.all(ok):
        shown = repr(value)
        if len(shown) > 200:
            shown = f"{shown[:120]} ... {shown[-40:]}"
        raise ValueError(f"{name} = {shown}: must be {right}")


def check_positive(name: str, value: Any) -> None:
    """Constructor check: positive and finite, where `value` has numbers."""
    number = door(value)
    if number is not None:
        check(np.isfinite(number) & (number > 0), name, value, "positive and finite")


def check_probability(name: str, value: Any) -> None:
    """Constructor check: strictly between 0 and 1, where `value` has numbers."""
    number = door(value)
    if number is not None:
        check((number > 0) & (number < 1), name, value, "strictly between 0 and 1")


def check_shape(name: str, shape: Any) -> None:
    """Constructor check: a tuple of non-negative integers."""
    ok = isinstance(shape, tuple) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0 for n in shape
    )
    check(ok, name, shape, "a tuple of non-negative integers, such as () or (38,)")
