"""What the guarantees share: their arguments in one dtype, and rounding to the safe side."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype, largest_divisor
from nrjax._validation import (
    as_numeric,
    check,
    check_numbers,
    check_positive,
    check_probability,
    concrete_or_none,
)
from nrjax.sensitivities import Sensitivity, check_norm
from nrjax.types import Guarantee, Schedule


class SafeGuarantee(Guarantee):
    """A guarantee that rounds to the safe side, by a formula and its inverse.

    `margin` is how many machine epsilons of its dtype epsilon is rounded up by: what the formula
    loses, and what a cast of the parameters to that dtype does (for `delta <= 1/2`); the rest is
    for approximate division on accelerators.
    """

    sensitivity: ArrayLike
    margin: ClassVar[int]

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_parameter(field.name, getattr(self, field.name))
        check_norm(self.sensitivity, str(self.noise))

    def _parameters(self, argument: ArrayLike) -> list[Array]:
        """Argument and fields in one dtype, log(1/delta) in place of delta."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        # At least float32: half precision would change a small delta by more than the margin.
        dtype = jnp.promote_types(float_dtype(argument, *values.values()), jnp.float32)
        cast = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        if "delta" in cast:
            cast["delta"] = -jnp.log(cast["delta"])
        return [jnp.asarray(argument, dtype), *cast.values()]

    @abc.abstractmethod
    def _epsilon(self, *numbers: Any, **_: Any) -> Array:
        """Epsilon, not yet rounded, of a time and the parameters as `_parameters` has them."""

    @abc.abstractmethod
    def _time(self, *numbers: Any, **_: Any) -> Array:
        """The time of an epsilon likewise, rounded up; not finite where there is none."""

    def _reachable(self, dtype: Any) -> str:
        """What epsilon must be, for an error message."""
        return f"finite and above 0, with its time within {dtype}"

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at `time` (> 0, or infinite), rounded up; elementwise."""
        check_time(time)
        time, *parameters = self._parameters(time)
        # Or a smaller one, which costs more, where XLA might take its reciprocal for 0.
        least = jnp.minimum(time, largest_divisor(time.dtype))
        time = jnp.where(time < jnp.inf, least, time)
        raw = self._epsilon(time, *parameters)
        # Out of the range of the dtype (a time 1e38 times rho, say) the formula may give NaN.
        raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
        sound = (time > 0) & (parameters[0] > 0)
        return jnp.where(sound, round_up(raw, self.margin), jnp.nan)

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time that costs at most `epsilon`, rounded to more noise; elementwise."""
        as_numeric("epsilon", epsilon, "finite and above 0")
        asked, *parameters = self._parameters(epsilon)
        raw = self._time(asked, *parameters)
        found = (asked > 0) & (asked < jnp.inf) & jnp.isfinite(raw)
        time = jnp.where(found, jnp.maximum(raw, float(jnp.finfo(raw.dtype).tiny)), jnp.inf)
        number = concrete_or_none(time)
        if number is not None and not np.all(np.isfinite(number)):
            bad = np.broadcast_to(np.asarray(epsilon), number.shape)[~np.isfinite(number)].tolist()
            shown = bad if number.ndim else bad[0]
            check(False, "epsilon", shown, self._reachable(asked.dtype))
        return time


class Boundary(SafeGuarantee):
    """A curve `u(t)` above which Brownian motion is with probability at most delta, at any time.

    Subclasses add its shape: positive numbers that depend on where it is tight.
    """

    delta: Array | float
    noise: ClassVar[str] = "gaussian"

    @classmethod
    @abc.abstractmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Callable[[Any, Any, Any], Any]]:
        """The least `c = u(t)/sqrt(t)` for log(1/delta) = level, and `c^2`.

        Also the shape for which c is reached at a time, from numbers whose quotient is the root of
        that time, and the time.
        """

    @abc.abstractmethod
    def _curve(self, *numbers: Any, **_: Any) -> Array:
        """`u(time)`, not yet rounded, of the time and the shape."""

    @classmethod
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The boundary of this family with the smallest epsilon at `time` (> 0).

        Computed on the host in float64 where the arguments have numbers. Any shape gives a valid
        boundary if it is frozen before the first release; choosing it anew at each time does not.
        """
        xp, (t, _, d), back = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        shape = cls._tightest(-xp.log(d), xp)[2](xp.sqrt(t), 1, t)
        return cls(sensitivity, delta, *map(back, shape))  # pyright: ignore[reportArgumentType]

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The boundary of this family that reaches `epsilon` (> 0) at the smallest time.

        That time is `(D2/x)^2`, where `x^2/2 + c x = epsilon` and c, the least `u(t)/sqrt(t)`,
        depends on delta alone. Computed on the host in float64 where the arguments have numbers.
        """
        xp, (e, s, d), back = host_or_trace(epsilon=epsilon, sensitivity=sensitivity, delta=delta)
        c, square, at = cls._tightest(-xp.log(d), xp)
        # The root of the quadratic, in the form that does not cancel.
        x = 2 * e / (c + xp.sqrt(square + 2 * e))
        shape = at(s, x, (s / x) ** 2)
        return cls(sensitivity, delta, *map(back, shape))  # pyright: ignore[reportArgumentType]

    def on(self, schedule: Schedule) -> Guarantee:
        """On a `Grid` of numbers a `GridBoundary`: this curve as low as its times allow; else this.

        A grid of 1000 times takes about 10 s. Raises what `GridBoundary.of` does.
        """
        from nrjax.guarantees.grid import GridBoundary  # which needs this file

        times = concrete_or_none(getattr(schedule, "times", None))
        if times is None:
            return self
        return GridBoundary.of(self, np.unique(times.astype(float_dtype()))[::-1])

    def curve(self, time: ArrayLike) -> Array:
        """The curve `u(time)` itself (time > 0), rounded up; elementwise."""
        check_time(time)
        time, _, *shape = self._parameters(time)
        return jnp.where(time > 0, round_up(self._curve(time, *shape), self.margin), jnp.nan)


def round_up(value: Array, ulps: int) -> Array:
    """`value >= 0`, enlarged by `ulps` machine epsilons, and never rounded down to zero."""
    limits = jnp.finfo(value.dtype)
    return jnp.maximum(value * (1 + ulps * float(limits.eps)), float(limits.tiny))


def _check_parameter(name: str, value: Any) -> None:
    right = "a plain number; a Sensitivity is given as sensitivity"
    check(name == "sensitivity" or not isinstance(value, Sensitivity), name, value, right)
    (check_probability if name == "delta" else check_positive)(name, value)


def check_time(time: ArrayLike) -> None:
    check_numbers("time", time, lambda number: number > 0, "positive")


def host_or_trace(**values: ArrayLike) -> tuple[Any, list[Any], Callable[[Any], Any]]:
    """The array module to compute in, the values cast for it, and how to hand a result back.

    NumPy in float64 where all values have numbers (results are then Python floats, or arrays of
    the dtype of the inputs where one of these is an array), else `jax.numpy` in that dtype.
    """
    for name, value in values.items():
        _check_parameter(name, value)
    dtype = float_dtype(*values.values())
    known = [concrete_or_none(value) for value in values.values()]
    if any(number is None for number in known):
        return jnp, [jnp.asarray(value, dtype) for value in values.values()], lambda result: result
    host = [np.asarray(number, np.float64) for number in known]
    if all(np.ndim(v) == 0 and not isinstance(v, jax.Array) for v in values.values()):
        return np, host, float
    return np, host, lambda result: jnp.asarray(result, dtype)
