"""Common base class of guarantees: parameters in one dtype, and conservative rounding."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype, widened
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import largest_divisor
from nrjax._base.pytrees import field_names
from nrjax._base.sensitivities import Sensitivity, check_norm
from nrjax._base.validation import (
    OTHER_UNIT,
    as_numeric,
    check,
    check_normal,
    check_positive,
    check_probability,
    concrete_or_none,
    float_if_large,
)
from nrjax.types import Guarantee


class SafeGuarantee(Guarantee):
    """A guarantee that rounds epsilons up, and rounds times up to more noise.

    Subclasses define the formula of epsilon, its inverse, and `margin`, the number of machine
    epsilons by which epsilon is rounded up. The margin covers the rounding of the formula, the
    casts of the parameters, and approximate division on accelerators. A delta above 1/2 is first
    rounded down to a number of the run's dtype, since the cast would change log(1/delta) by more.
    """

    sensitivity: ArrayLike
    margin: ClassVar[int]

    def __post_init__(self):
        for name in field_names(type(self))[0]:
            value = getattr(self, name)
            _check_parameter(name, value)
            if name == "delta":
                value = _rounded_down(value)
            object.__setattr__(self, name, widened(float_if_large(value)))
        check_norm(self.sensitivity, str(self.noise))

    @np.errstate(over="ignore", under="ignore")  # numbers beyond the dtype become infinite
    def _parameters(self, argument: ArrayLike) -> list[Array]:
        """Return the argument and the fields in one dtype, with log(1/delta) for delta."""
        values = {name: getattr(self, name) for name in field_names(type(self))[0]}
        dtype = float_dtype(argument, *values.values())
        cast = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        if "delta" in cast:
            cast["delta"] = -jnp.log(cast["delta"])
        return [jnp.asarray(argument, dtype), *cast.values()]

    @abc.abstractmethod
    def _epsilon(self, *numbers: Any, **_: Any) -> Array:
        """Return epsilon before it is rounded up, given the results of `_parameters(time)`."""

    @abc.abstractmethod
    def _time(self, *numbers: Any, **_: Any) -> Array:
        """Return the time of an epsilon, rounded up, or a non-finite number if there is none."""

    def _reachable(self, dtype: Any) -> tuple[str, str]:
        """Return two texts for an error: which epsilons can be reached in the dtype, and a hint."""
        stated = concrete_or_none(self.sensitivity)
        at = "" if stated is None else f" at sensitivity {np.max(stated):.3g}"
        return f"finite and above 0, with its time within {dtype}{at}", OTHER_UNIT

    @neutral_config()
    def epsilon(self, time: ArrayLike) -> Array:
        """Return the ex-post epsilon of stopping at `time`, rounded up, elementwise.

        Raises:
            ValueError: a concrete time is not positive, or is subnormal. For a traced time that is
                not positive the result is NaN.
        """
        check_time(time)
        number = concrete_or_none(time)
        time, *parameters = self._parameters(time)
        # A larger time may overflow, or its reciprocal may become 0; a smaller time costs more.
        reduced = jnp.minimum(time, largest_divisor(time.dtype))
        time = jnp.where((time if number is None else number) < np.inf, reduced, time)
        raw = self._epsilon(time, *parameters)
        # The formula may give NaN outside the dtype's range (a time of 1e38 rho, for example).
        raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
        valid = (time > 0) & (parameters[0] > 0)
        return jnp.where(valid, round_up(raw, self.margin), jnp.nan)

    @neutral_config()
    def time(self, epsilon: ArrayLike) -> Array:
        """Return the smallest time that costs at most `epsilon`, rounded up, elementwise.

        Raises:
            ValueError: every time costs more than a concrete epsilon, or the time is too small for
                the dtype. For a traced epsilon the result is then infinite, or the smallest normal
                number.
        """
        as_numeric("epsilon", epsilon, "finite and above 0")
        target, *parameters = self._parameters(epsilon)
        raw = self._time(target, *parameters)
        reached = (target > 0) & (target < jnp.inf) & jnp.isfinite(raw)
        tiny = float(jnp.finfo(raw.dtype).tiny)
        time = jnp.where(reached, jnp.maximum(raw, tiny), jnp.inf)
        number, exact = concrete_or_none(time), concrete_or_none(raw)
        if number is None or exact is None:
            return time
        wrong = ~np.isfinite(number) | ~(exact >= tiny)
        if np.any(wrong):
            refused = np.broadcast_to(np.asarray(epsilon), number.shape)[wrong]
            value = refused.tolist() if number.ndim else refused.item()
            check(False, "epsilon", value, *self._reachable(target.dtype))
        return time


def round_up(value: Array, ulps: int) -> Array:
    """Return `value >= 0` enlarged by `ulps` machine epsilons, and never rounded down to 0."""
    limits = jnp.finfo(value.dtype)
    return jnp.maximum(value * (1 + ulps * float(limits.eps)), float(limits.tiny))


def _rounded_down(delta: ArrayLike) -> ArrayLike:
    """Return a probability above 1/2 rounded down to the float dtype of JAX, others unchanged."""
    number, dtype = concrete_or_none(delta), float_dtype()
    if number is None or not np.any(number > 0.5):
        return delta
    cast = number.astype(dtype)
    cast = np.where(cast > number, np.nextafter(cast, cast.dtype.type(0)), cast)
    lower = np.where(number > 0.5, cast, number)
    return lower if np.ndim(delta) else float(lower)


def _check_parameter(name: str, value: Any) -> None:
    ok = name == "sensitivity" or not isinstance(value, Sensitivity)
    check(ok, name, value, "a plain number", "Only `sensitivity` takes a nrjax.Sensitivity.")
    if name == "delta":
        check(value is not None, name, None, "given for Gaussian noise", "For example delta=1e-6.")
        check_probability(name, value)
    else:
        check_positive(name, value)


def check_time(time: ArrayLike) -> None:
    """Check that a concrete time is positive and not subnormal."""
    number = as_numeric("time", time, "positive")
    if number is not None:
        check(number > 0, "time", time, "positive")  # none at all is valid
        check_normal("time", time, np.minimum(number, 1))


def host_or_trace(**values: ArrayLike) -> tuple[Any, list[Any], Callable[[Any], Any]]:
    """Check arguments, and choose NumPy if all are concrete, else `jax.numpy`.

    Returns:
        The array module, the arguments cast for it, and a function that converts results. With
        concrete arguments the computation is in NumPy and float64. Its results are Python floats,
        or arrays of the arguments' dtype if an argument is an array.
    """
    for name, value in values.items():
        _check_parameter(name, value)
    if "delta" in values:
        values["delta"] = _rounded_down(values["delta"])
    dtype = float_dtype(*values.values())
    numbers = [concrete_or_none(value) for value in values.values()]
    if any(number is None for number in numbers):
        return jnp, [jnp.asarray(value, dtype) for value in values.values()], lambda result: result
    host = [np.asarray(number, np.float64) for number in numbers]
    if all(np.ndim(v) == 0 and not isinstance(v, jax.Array) for v in values.values()):
        return np, host, float
    return np, host, lambda result: jnp.asarray(result, dtype)
