"""Privacy boundaries of the Brownian mechanism: a line, and two mixtures.

For Brownian motion W and `z = W/sqrt(t + rho)`, a mixture of exponential martingales is
`M = sqrt(rho/(t + rho)) exp(h(z))`. If the drift is mixed over N(0, 1/rho), then `h = z^2/2`. If it
is mixed over |N(0, 1/rho)|, then `h = z^2/2 + log(2 Phi(z))`. M ever exceeds 1/delta with
probability at most delta (Ville's inequality). Otherwise W stays below `u(t) = z sqrt(t + rho)`,
where z solves `h(z) = log(1/delta) + log1p(t/rho)/2`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.validation import OTHER_UNIT, check, check_normal, concrete_or_none
from nrjax.guarantees._priors import Objective, accept_prior_from, check_prior
from nrjax.guarantees._rounding import SafeGuarantee, check_time, host_or_trace, round_up
from nrjax.guarantees.grid import GridBoundary
from nrjax.types import Guarantee, Schedule

# Numbers of Newton steps, unrolled so that XLA fuses them. They suffice in float64 for every delta,
# rho and epsilon that the tests draw.
_TIME_STEPS = 8
_TUNE_STEPS = 16
_HEIGHT_STEPS = 4

_HOST_ERF = np.vectorize(math.erf, otypes=[float])


class Boundary(SafeGuarantee):
    """A curve `u(t)` that Brownian motion ever exceeds with probability at most delta.

    The loss of the Brownian mechanism at time t is `v^2/(2t) + (v/t) W_t` with `v <= D2`. So the
    loss ever exceeds the epsilon `psi(t) = D2^2/(2t) + (D2/t) u(t)` with probability at most delta.
    Subclasses add fields for the shape of the curve: positive numbers that decide where the curve
    is tight.
    """

    delta: Array | float
    noise: ClassVar[str] = "gaussian"

    @classmethod
    @abc.abstractmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Callable[[Any, Any, Any], Any]]:
        """Return the least `c = u(t)/sqrt(t)` of the family, `c^2`, and a function of time.

        `level` is log(1/delta). The function returns the shape that reaches c at a time. Its
        arguments are two numbers whose quotient is the square root of the time, and the time.
        """

    @abc.abstractmethod
    def _curve(self, *numbers: Any, **_: Any) -> Array:
        """Return the curve `u(time)` before rounding, given the time and the shape."""

    @classmethod
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """Return the boundary of this family with the smallest epsilon at `time` (> 0).

        The result is computed on the host in float64 if the arguments are concrete. It is valid at
        all times if it is fixed before the first release, but not if it is tuned again at each
        time.
        """
        xp, (t, _, d), convert = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        shape = cls._tightest(-xp.log(d), xp)[2](xp.sqrt(t), 1, t)
        return cls._of_shape(map(convert, shape), sensitivity, delta, "time", time)

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """Return the boundary of this family that reaches `epsilon` (> 0) at the smallest time.

        That time is `(D2/x)^2`, where `x^2/2 + c x = epsilon` and c, the least `u(t)/sqrt(t)`,
        depends only on delta. The result is computed on the host in float64 if the arguments are
        concrete.
        """
        xp, (e, s, d), convert = host_or_trace(
            epsilon=epsilon, sensitivity=sensitivity, delta=delta
        )
        c, square, shape_at = cls._tightest(-xp.log(d), xp)
        with np.errstate(all="ignore"):  # the shape is checked
            # The root of the quadratic, in the form that does not cancel.
            x = 2 * e / (c + xp.sqrt(square + 2 * e))
            shape = shape_at(s, x, (s / x) ** 2)
        return cls._of_shape(map(convert, shape), sensitivity, delta, "epsilon", epsilon)

    @classmethod
    def _of_shape(
        cls, shape: Iterable[Any], sensitivity: Any, delta: Any, name: str, argument: Any
    ) -> Self:
        """Return the boundary of a shape that was tuned to an argument."""
        values, given = tuple(shape), (argument, sensitivity)
        fields = [f.name for f in dataclasses.fields(cls) if not f.metadata.get("static", False)]
        for field, number in zip(fields[2:], values, strict=True):
            what, number = f"such that {field} is", concrete_or_none(number)
            check_normal(f"({name}, sensitivity)", given, number, what, OTHER_UNIT)
        return cls(sensitivity, delta, *values)

    @classmethod
    @accept_prior_from
    def design(
        cls,
        times: ArrayLike,
        weights: ArrayLike,
        sensitivity: float,
        delta: float,
        objective: Objective = "log",
    ) -> Self:
        """Return the boundary of this family with the smallest mean epsilon over a prior.

        The result is tight at a time between the smallest and the largest of `times`. Its `on`
        lowers it for a grid. Only the mean depends on the prior, not the guarantee. Times and
        weights must come from public knowledge, or from a mechanism whose cost is paid for.

        Args:
            times: times of the prior, shape (n,).
            weights: weights of the prior, positive, shape (n,), `log_uniform` for example.
            sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
            delta: probability with which the loss may exceed the stated epsilon.
            objective: "log" for the mean of log(epsilon), "mean" for the mean of epsilon.

        Raises:
            ValueError: an argument is traced or out of range.
        """
        from scipy.optimize import minimize_scalar  # slow to import

        times, prior = check_prior(times, weights, objective)
        log_times, argument = np.log(times), jnp.asarray(times)

        def tight(log_time: float) -> Self:
            return cls.tight_at_time(float(np.exp(log_time)), sensitivity, delta)

        def cost(log_time: float) -> float:
            epsilons = np.asarray(tight(log_time).epsilon(argument), float)
            return float(prior @ (np.log(epsilons) if objective == "log" else epsilons))

        bounds, options = (log_times.min(), log_times.max()), {"xatol": 1e-3}
        found: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options=options)
        return tight(found.x)

    @neutral_config()
    def on(self, schedule: Schedule) -> Guarantee:
        """Return the `GridBoundary` of this curve, tightened for the times of a schedule.

        If the schedule has no concrete times, the boundary itself is returned. A grid of 1000 times
        takes about 10 s.

        Raises:
            ValueError: the times are not as `GridBoundary` requires.
        """
        times = concrete_or_none(schedule.times)
        if times is None:
            return self
        return GridBoundary.of(self, np.unique(times.astype(float_dtype()))[::-1])

    @neutral_config()
    def curve(self, time: ArrayLike) -> Array:
        """Return the curve `u(time)` (time > 0), rounded up, elementwise."""
        check_time(time)
        time, _, *shape = self._parameters(time)
        return jnp.where(time > 0, round_up(self._curve(time, *shape), self.margin), jnp.nan)


class LinearBoundary(Boundary):
    """The linear boundary `psi(t) = (D2/t)(D2/2 + b) + D2 a` (Whitehouse 2022, Theorem 3.6).

    Use it to reproduce the papers, or if trials stop near one known time; over a wide range of
    times `OneSidedMixtureBoundary` costs less. W crosses the line `a t + b` with probability at
    most `exp(-2ab)`, so `2ab >= log(1/delta)` is required. Every time costs more than `D2 a`, the
    floor of the boundary. If the constructor cannot check `2ab` (traced fields), or a cast makes
    `2ab` too small, b is raised to `log(1/delta)/(2a)`.

        >>> boundary = nrjax.LinearBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=1e-6)
        >>> round(float(boundary.time(0.3)), 1)  # noise level at which a stop costs 0.3
        310.3

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the loss may exceed the stated epsilon.
        a: slope of the line, > 0, in units of noise over time.
        b: intercept of the line, > 0, in units of the noise.
    """

    a: ArrayLike
    b: ArrayLike
    margin: ClassVar[int] = 8  # the formula loses 5

    def __post_init__(self):
        super().__post_init__()
        delta, a, b = (concrete_or_none(value) for value in (self.delta, self.a, self.b))
        if delta is None or a is None or b is None:
            return
        dtypes = [n.dtype for n in (delta, a, b) if n.dtype.kind == "f"]
        slack = 8 * max([np.finfo(float).eps, *(float(np.finfo(dtype).eps) for dtype in dtypes)])
        least = -np.log(delta.astype(float))
        with np.errstate(over="ignore"):
            product = 2 * a.astype(float) * b.astype(float)
        expected = f"at least log(1/delta) = {least} for delta = {delta}"
        check(product >= least * (1 - slack), "2 a b", product, expected)

    @classmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Any]:
        half = xp.sqrt(level / 2)
        return 2 * half, 4 * half**2, lambda n, d, _: (half * d / n, half * n / d)

    def _parameters(self, argument: ArrayLike) -> list[Array]:
        """Return the argument, the sensitivity, a, and a large enough b, in one dtype."""
        argument, sensitivity, level, a, b = super()._parameters(argument)
        a = jnp.where(a > 0, a, jnp.nan)  # a traced slope is not checked before
        return [argument, sensitivity, a, jnp.maximum(b, level / (2 * a))]

    def _curve(self, time: Array, a: Array, b: Array) -> Array:
        return a * time + b

    def _epsilon(self, time: Array, sensitivity: Array, a: Array, b: Array) -> Array:
        return sensitivity / time * (0.5 * sensitivity + b) + sensitivity * a

    def _time(self, target: Array, sensitivity: Array, a: Array, b: Array) -> Array:
        # The margin is subtracted from epsilon, whose errors are magnified near the floor.
        target = target * (1 - 2 * self.margin * float(jnp.finfo(target.dtype).eps))
        floor = sensitivity * a
        raw = sensitivity * (0.5 * sensitivity + b) / (target - floor)
        return jnp.where(target > floor, raw, jnp.inf)

    def _reachable(self, dtype: Any) -> tuple[str, str]:
        floor = np.asarray(jnp.asarray(self.sensitivity, dtype) * jnp.asarray(self.a, dtype))
        expected = f"finite and above sensitivity * a = {floor}, the floor of this boundary"
        hint = "Tune the boundary for a smaller epsilon, or use OneSidedMixtureBoundary"
        return expected, f"{hint}, which has no floor."


class _Mixture(Boundary):
    """A mixture boundary, defined by the exponent h of its martingale and the inverse of h."""

    rho: ArrayLike
    margin: ClassVar[int] = 12  # the formula loses about 7

    @staticmethod
    @abc.abstractmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        """Return the exponent `h(z)` at z >= 0, and its first two derivatives."""

    @classmethod
    @abc.abstractmethod
    def _height(cls, level: Array) -> Array:
        """Return the number z >= 0 that solves `h(z) = level`."""

    @classmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Any]:
        # At the optimum `k = t/rho = z h'(z)`, so that z solves
        # `h(z) - log1p(z h'(z))/2 = log(1/delta)`. For two sides k is `-W_{-1}(-delta^2/e) - 1`.
        # Newton steps from above the solution decrease towards it.
        z = xp.sqrt(2 * level + 2 * xp.sqrt(level))
        for _ in range(_TUNE_STEPS):
            h, slope, bend = cls._exponent(z, xp)
            gap = h - 0.5 * xp.log1p(z * slope) - level
            z = z - gap / (slope - 0.5 * (slope + z * bend) / (1 + z * slope))
        ratio = z * cls._exponent(z, xp)[1]
        c = z * xp.sqrt(1 + 1 / ratio)
        return c, c * c, lambda _numerator, _denominator, time: (time / ratio,)

    def _curve(self, time: Array, level: Array, rho: Array) -> Array:
        return self._height(level + 0.5 * jnp.log1p(time / rho)) * jnp.sqrt(time + rho)

    def _epsilon(self, time: Array, sensitivity: Array, level: Array, rho: Array) -> Array:
        z = self._height(level + 0.5 * jnp.log1p(time / rho))
        # In units of 1/sqrt(t), so that extreme times do not leave the range of the dtype.
        x = sensitivity / jnp.sqrt(time)
        return jnp.where(time == jnp.inf, 0, x * (0.5 * x + z * jnp.sqrt(1 + rho / time)))

    def _time(self, epsilon: Array, sensitivity: Array, level: Array, rho: Array) -> Array:
        """Return the time by Newton steps in log(time), or infinity if the result fails a check."""
        eps = float(jnp.finfo(epsilon.dtype).eps)
        target = epsilon * (1 - (2 * self.margin + 8) * eps)

        # Start from two curves below psi, with z or with 1 + rho/t replaced by its least value.
        z = self._height(level)
        x = 2 * target / (z + jnp.sqrt(z * z + 2 * target))
        below = sensitivity / target * (0.5 * sensitivity + z * jnp.sqrt(rho))
        raw = jnp.maximum((sensitivity / x) ** 2, below)
        for _ in range(_TIME_STEPS):
            fraction = raw / (raw + rho)
            z = self._height(level + 0.5 * jnp.log1p(raw / rho))
            x = sensitivity / jnp.sqrt(raw)
            line = z * jnp.sqrt(1 + rho / raw)
            # `-fall/size` is d log psi / d log t with psi = x (x/2 + line). It is between -1 and 0.
            bend = 1 + 1 / (z * self._exponent(z, jnp)[1])
            fall = 0.5 * x + line * (1 - 0.5 * fraction * bend)
            size = 0.5 * x + line
            raw = raw * (x * size / target) ** (size / jnp.maximum(fall, 0.005 * size))
        # `epsilon` refuses a concrete time that is not positive.
        solved = self.epsilon(jnp.where(raw > 0, raw, jnp.inf)) * (1 + 4 * eps) <= epsilon
        return jnp.where(solved, raw, jnp.inf)


class MixtureBoundary(_Mixture):
    """The two-sided mixture boundary, for |W| (Whitehouse 2022, Theorem 3.6 and Lemma A.3).

    Use it to reproduce the paper. `OneSidedMixtureBoundary` costs less at every time, since the
    loss needs a bound on one side of W only. `psi(t) = D2^2/(2t) + (D2/t) u(t)` with
    `u(t) = sqrt(2 (t + rho) log(sqrt((t + rho)/rho)/delta))` falls to 0 as t grows, so that every
    epsilon is reached.

        >>> boundary = nrjax.MixtureBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=1e-6)
        >>> round(float(boundary.time(0.3)), 1)
        360.0

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the loss may exceed the stated epsilon.
        rho: time that decides where the boundary is tight, > 0.
    """

    @staticmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        return 0.5 * z * z, z, 1.0

    @classmethod
    def _height(cls, level: Array) -> Array:
        return jnp.sqrt(2 * level)


class OneSidedMixtureBoundary(_Mixture):
    """The one-sided mixture boundary, with drift mixed over |N(0, 1/rho)|, not in the papers.

    Use it if you do not know in advance when trials will stop. It reaches every epsilon, and costs
    less than `MixtureBoundary` with the same rho at every time. A `LinearBoundary` costs up to 5 %
    less within a factor of 2 of the time at which it is tightest.
    `psi(t) = D2^2/(2t) + (D2/t) u(t)`, where u solves
    `2 sqrt(rho/(t + rho)) exp(u^2/(2(t + rho))) Phi(u/sqrt(t + rho)) = 1/delta`.

        >>> kind = nrjax.OneSidedMixtureBoundary
        >>> boundary = kind.tight_at_epsilon(0.3, sensitivity=1.0, delta=1e-6)
        >>> round(float(boundary.time(0.3)), 1)
        344.1

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the loss may exceed the stated epsilon.
        rho: time that decides where the boundary is tight, > 0.
    """

    @staticmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        # log(2 Phi(z)) = log1p(erf(z/sqrt(2))), which is accurate near 0 too, and its derivative.
        erf = (_HOST_ERF if xp is np else jax.lax.erf)(z * math.sqrt(0.5))
        log_twice_phi = xp.log1p(erf)
        hazard = math.sqrt(2 / math.pi) * xp.exp(-0.5 * z * z) / (1 + erf)
        return 0.5 * z * z + log_twice_phi, z + hazard, 1 - hazard * (z + hazard)

    @classmethod
    def _height(cls, level: Array) -> Array:
        # h is convex and at least z^2/2 and h'(0) z, so that Newton steps decrease from above.
        z = jnp.minimum(jnp.sqrt(2 * level), math.sqrt(math.pi / 2) * level)
        for _ in range(_HEIGHT_STEPS):
            h, slope, _ = cls._exponent(z, jnp)
            z = z - (h - level) / slope
        return z
