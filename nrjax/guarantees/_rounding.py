"""What the guarantees share: checks of their arguments, and rounding to the safe side."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import (
    check,
    check_numbers,
    check_positive,
    check_probability,
    concrete,
    float_dtype,
    largest_divisor,
)
from nrjax.sensitivities import check_norm
from nrjax.types import Guarantee


class GaussianGuarantee(Guarantee):
    """A guarantee for Gaussian noise; what a subclass adds is positive and finite."""

    sensitivity: ArrayLike
    delta: Array | float
    noise: ClassVar[str] = "gaussian"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            (check_probability if field.name == "delta" else check_positive)(field.name, value)
        check_norm(self.sensitivity, self.noise)

    def _parameters(self, argument: ArrayLike) -> list[Array]:
        """Argument, sensitivity, log(1/delta), and the other fields, in one dtype."""
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        values = [argument, *fields]
        dtype = float_dtype(*values)
        argument, sensitivity, delta, *rest = (jnp.asarray(value, dtype) for value in values)
        return [argument, sensitivity, -jnp.log(delta), *rest]


def check_time(time: ArrayLike) -> None:
    """Method check: positive, where `time` has numbers. Infinity is the limit of much noise."""
    check_numbers("time", time, lambda number: number > 0, "positive")


def divisor(time: ArrayLike, dtype: Any) -> Array:
    """`time`, or a smaller one, which costs more, where XLA might take its reciprocal for 0."""
    time = jnp.asarray(time, dtype)
    return jnp.where(time < jnp.inf, jnp.minimum(time, largest_divisor(dtype)), time)


def round_up(value: Array, ulps: int) -> Array:
    """`value >= 0`, enlarged by `ulps` machine epsilons, and never rounded down to zero."""
    limits = jnp.finfo(value.dtype)
    return jnp.maximum(value * (1 + ulps * float(limits.eps)), float(limits.tiny))


def safe_epsilon(raw: Array, time: Array, sensitivity: Array, ulps: int) -> Array:
    """`raw` rounded up by `ulps` machine epsilons; NaN unless time and sensitivity are positive."""
    # Out of the range of the dtype (a time 1e38 times rho, say) the formula may give NaN.
    raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
    return jnp.where((time > 0) & (sensitivity > 0), round_up(raw, ulps), jnp.nan)


def safe_time(raw: Array, asked: Array, epsilon: ArrayLike, right: Callable[[], str]) -> Array:
    """`raw` where `epsilon` is reachable, else infinity, or an error if the numbers are there.

    Args:
        raw: solution; not finite where there is none.
        asked: epsilon in the dtype of `raw`.
        epsilon: the same as the caller gave it, for the error message.
        right: says, for the error message, what `epsilon` must be.
    """
    limits = jnp.finfo(raw.dtype)
    found = (asked > 0) & (asked < jnp.inf) & jnp.isfinite(raw)
    time = jnp.where(found, jnp.maximum(raw, float(limits.tiny)), jnp.inf)
    numbers = concrete(time)
    if numbers is not None and not np.all(np.isfinite(numbers)):
        given = np.broadcast_to(np.asarray(epsilon), numbers.shape)[~np.isfinite(numbers)].tolist()
        check(False, "epsilon", given if numbers.ndim else given[0], right())
    return time


def host_or_trace(**values: ArrayLike) -> tuple[Any, list[Any], Callable[[Any], Any]]:
    """The array module to compute in, the values cast for it, and how to hand a result back.

    NumPy in float64 where all values have numbers (results are then Python floats, or arrays of
    the dtype of the inputs where one of these is an array), else `jax.numpy` in that dtype.
    `delta` must be a probability, everything else positive and finite.
    """
    for name, value in values.items():
        (check_probability if name == "delta" else check_positive)(name, value)
    dtype = float_dtype(*values.values())
    known = [concrete(value) for value in values.values()]
    if any(number is None for number in known):
        return jnp, [jnp.asarray(value, dtype) for value in values.values()], lambda result: result
    host = [np.asarray(number, np.float64) for number in known]
    if all(np.ndim(v) == 0 and not isinstance(v, jax.Array) for v in values.values()):
        return np, host, float
    return np, host, lambda result: jnp.asarray(result, dtype)
