"""The privacy boundaries of the Brownian mechanism: linear, and two mixtures.

With `z = W/sqrt(t + rho)` the mixture martingale is `M = sqrt(rho/(t + rho)) exp(h(z))`: for the
drift mixed over N(0, 1/rho), `h = z^2/2`; over its absolute value, `h = z^2/2 + log(2 Phi(z))`. It
exceeds 1/delta with probability at most delta, so W stays below
`u(t) = z sqrt(t + rho)`, `h(z) = log(1/delta) + log1p(t/rho)/2`.
"""

import abc
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import concrete_or_none
from nrjax.guarantees._rounding import Boundary

# Newton steps, unrolled so that XLA fuses them; enough for float64 at every delta, rho and epsilon
# that the tests draw.
_TIME_STEPS = 8
_TUNE_STEPS = 16
_HEIGHT_STEPS = 4

_HOST_ERF = np.vectorize(math.erf, otypes=[float])


class LinearBoundary(Boundary):
    """`psi(t) = (D2/t)(D2/2 + b) + D2 a`, with `2ab >= log(1/delta)` (Whitehouse 2022, Thm 3.6).

    The loss of the Brownian mechanism at time t is `v^2/(2t) + (v/t) W_t`, `v = |f(x) - f(x')|`,
    and W crosses the line `a t + b` with probability at most `exp(-2ab)`, whatever times are
    chosen. No time costs as little as the floor `D2 a`. Where casting, or a caller whose numbers
    the constructor cannot see (device arrays, traces), leaves `2ab < log(1/delta)`, b is raised to
    `log(1/delta)/(2a)`.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        a: slope of the line, > 0, in units of noise over time.
        b: intercept of the line, > 0, in units of the noise.
    """

    a: ArrayLike
    b: ArrayLike
    margin: ClassVar[int] = 8  # 5 are lost

    def __post_init__(self):
        super().__post_init__()
        delta, a, b = (concrete_or_none(value) for value in (self.delta, self.a, self.b))
        if delta is None or a is None or b is None:
            return
        kinds = [n.dtype for n in (delta, a, b) if n.dtype.kind == "f"]
        slack = 8 * max([np.finfo(float).eps, *(float(np.finfo(kind).eps) for kind in kinds)])
        need, have = -np.log(delta.astype(float)), 2 * a.astype(float) * b.astype(float)
        if not np.all(have >= need * (1 - slack)):
            raise ValueError(
                f"a = {a}, b = {b}, delta = {delta}: 2ab = {have} must be at least "
                f"log(1/delta) = {need}"
            )

    @classmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Any]:
        half = xp.sqrt(level / 2)
        return (
            2 * half,
            4 * half**2,
            lambda over, under, _: (half * under / over, half * over / under),
        )

    def _parameters(self, argument: ArrayLike) -> list[Array]:
        """Argument, sensitivity, a and a sufficient b in one dtype."""
        argument, sensitivity, level, a, b = super()._parameters(argument)
        a = jnp.where(a > 0, a, jnp.nan)  # a traced one: no other line is a boundary
        return [argument, sensitivity, a, jnp.maximum(b, level / (2 * a))]

    def _curve(self, time: Array, a: Array, b: Array) -> Array:
        return a * time + b

    def _epsilon(self, time: Array, sensitivity: Array, a: Array, b: Array) -> Array:
        return sensitivity / time * (0.5 * sensitivity + b) + sensitivity * a

    def _time(self, asked: Array, sensitivity: Array, a: Array, b: Array) -> Array:
        # All of the rounding goes into epsilon: near the floor an error there is what is magnified.
        target = asked * (1 - 2 * self.margin * float(jnp.finfo(asked.dtype).eps))
        floor = sensitivity * a
        raw = sensitivity * (0.5 * sensitivity + b) / (target - floor)
        return jnp.where(target > floor, raw, jnp.inf)

    def _reachable(self, dtype: Any) -> str:
        floor = np.asarray(jnp.asarray(self.sensitivity, dtype) * jnp.asarray(self.a, dtype))
        return (
            f"finite and above sensitivity * a = {floor}, the least that this boundary reaches "
            "(tune it for a smaller epsilon, or for a larger time)"
        )


class _Mixture(Boundary):
    """What the two have in common; they differ in `_exponent` and in its inverse `_height`."""

    rho: ArrayLike
    margin: ClassVar[int] = 12  # about 7 are lost

    @staticmethod
    @abc.abstractmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        """`h(z)` for z >= 0 and its first two derivatives."""

    @classmethod
    @abc.abstractmethod
    def _height(cls, level: Array) -> Array:
        """The z >= 0 with `h(z) = level`."""

    @classmethod
    def _tightest(cls, level: Any, xp: Any) -> tuple[Any, Any, Any]:
        # At the optimum `k = t/rho = z h'(z)`, so that z solves
        # `h(z) - log1p(z h'(z))/2 = log(1/delta)`; two-sided, k is `-W_{-1}(-delta^2/e) - 1`.
        # From above the solution Newton steps go down to it.
        z = xp.sqrt(2 * level + 2 * xp.sqrt(level))
        for _ in range(_TUNE_STEPS):
            h, slope, bend = cls._exponent(z, xp)
            gap = h - 0.5 * xp.log1p(z * slope) - level
            z = z - gap / (slope - 0.5 * (slope + z * bend) / (1 + z * slope))
        ratio = z * cls._exponent(z, xp)[1]
        c = z * xp.sqrt(1 + 1 / ratio)
        return c, c * c, lambda over, under, time: (time / ratio,)

    def _curve(self, time: Array, level: Array, rho: Array) -> Array:
        return self._height(level + 0.5 * jnp.log1p(time / rho)) * jnp.sqrt(time + rho)

    def _epsilon(self, time: Array, sensitivity: Array, level: Array, rho: Array) -> Array:
        z = self._height(level + 0.5 * jnp.log1p(time / rho))
        # In units of 1/sqrt(t), where neither large nor small times leave the range of the dtype.
        x = sensitivity / jnp.sqrt(time)
        return jnp.where(time == jnp.inf, 0, x * (0.5 * x + z * jnp.sqrt(1 + rho / time)))

    def _time(self, asked: Array, sensitivity: Array, level: Array, rho: Array) -> Array:
        """By Newton steps in log(time), and a check of the solution: infinite where they failed."""
        eps = float(jnp.finfo(asked.dtype).eps)
        target = asked * (1 - (2 * self.margin + 8) * eps)

        # Two curves below psi, which give times that are too small: z and 1 + rho/t at their least.
        z = self._height(level)
        x = 2 * target / (z + jnp.sqrt(z * z + 2 * target))
        below = sensitivity / target * (0.5 * sensitivity + z * jnp.sqrt(rho))
        raw = jnp.maximum((sensitivity / x) ** 2, below)
        for _ in range(_TIME_STEPS):
            share = raw / (raw + rho)
            z = self._height(level + 0.5 * jnp.log1p(raw / rho))
            x = sensitivity / jnp.sqrt(raw)
            line = z * jnp.sqrt(1 + rho / raw)
            # d log psi / d log t, from psi = x (x/2 + line); between -1 and 0.
            fall = 0.5 * x + line * (1 - 0.5 * share * (1 + 1 / (z * self._exponent(z, jnp)[1])))
            size = 0.5 * x + line
            raw = raw * (x * size / target) ** (size / jnp.maximum(fall, 0.005 * size))
        # Under a trace this never raises, and eagerly `raw` is positive wherever it is a number.
        solved = self.epsilon(jnp.where(raw > 0, raw, jnp.inf)) * (1 + 4 * eps) <= asked
        return jnp.where(solved, raw, jnp.inf)


class MixtureBoundary(_Mixture):
    """The mixture boundary for |W| (Whitehouse 2022, Theorem 3.6 and Lemma A.3).

    `psi(t) = D2^2/(2t) + (D2/t) sqrt(2 (t + rho) log(sqrt((t + rho)/rho)/delta))`. It falls to 0 as
    t grows: every epsilon is reached. The loss needs only one of its two sides; prefer
    `OneSidedMixtureBoundary`, which is smaller at every time.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        rho: where the boundary is tight, in units of time; > 0.
    """

    @staticmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        return 0.5 * z * z, z, 1.0

    @classmethod
    def _height(cls, level: Array) -> Array:
        return jnp.sqrt(2 * level)


class OneSidedMixtureBoundary(_Mixture):
    """The mixture boundary for W alone: drift mixed over |N(0, 1/rho)|. Not in the papers.

    `psi(t) = D2^2/(2t) + (D2/t) u(t)`, where u solves
    `2 sqrt(rho/(t + rho)) exp(u^2/(2(t + rho))) Phi(u/sqrt(t + rho)) = 1/delta`. For the same rho
    it is below `MixtureBoundary` at every time.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        rho: where the boundary is tight, in units of time; > 0.
    """

    @staticmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        # log(2 Phi(z)) and its derivative; as log1p(erf) it is exact near 0 too.
        erf = (_HOST_ERF if xp is np else jax.lax.erf)(z * math.sqrt(0.5))
        log_twice_phi = xp.log1p(erf)
        hazard = math.sqrt(2 / math.pi) * xp.exp(-0.5 * z * z) / (1 + erf)
        return 0.5 * z * z + log_twice_phi, z + hazard, 1 - hazard * (z + hazard)

    @classmethod
    def _height(cls, level: Array) -> Array:
        # h is convex and at least z^2/2 and h'(0) z: Newton steps go down from above.
        z = jnp.minimum(jnp.sqrt(2 * level), math.sqrt(math.pi / 2) * level)
        for _ in range(_HEIGHT_STEPS):
            h, slope, _ = cls._exponent(z, jnp)
            z = z - (h - level) / slope
        return z
