"""The mixture privacy boundaries of the Brownian mechanism, two-sided and one-sided.

With `z = W/sqrt(t + rho)` the mixture martingale is `M = sqrt(rho/(t + rho)) exp(h(z))`: for the
drift mixed over N(0, 1/rho), `h = z^2/2`; over its absolute value, `h = z^2/2 + log(2 Phi(z))`. It
exceeds 1/delta with probability at most delta, so W stays below
`u(t) = z sqrt(t + rho)`, `h(z) = log(1/delta) + log1p(t/rho)/2`.
"""

import abc
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import numbers
from nrjax.guarantees._rounding import (
    GaussianGuarantee,
    check_time,
    divisor,
    host_or_trace,
    round_up,
    safe_epsilon,
    safe_time,
)

# Machine epsilons by which epsilon is rounded up. The formula loses at most about 6 and the cast of
# the sensitivity to another dtype 1; the rest is for approximate division on accelerators.
_MARGIN = 12
# Newton steps, unrolled so that XLA fuses them; enough for float64 at every delta, rho and epsilon
# that the tests draw.
_TIME_STEPS = 8
_TUNE_STEPS = 16
_HEIGHT_STEPS = 4

_HOST_ERF = np.vectorize(math.erf, otypes=[float])


def _log_twice_phi(z: Any, xp: Any) -> tuple[Any, Any]:
    """`log(2 Phi(z))` for z >= 0, and its derivative. As log1p(erf) it is exact near 0 too."""
    erf = (_HOST_ERF if xp is np else jax.lax.erf)(z * math.sqrt(0.5))
    return xp.log1p(erf), math.sqrt(2 / math.pi) * xp.exp(-0.5 * z * z) / (1 + erf)


class _Mixture(GaussianGuarantee):
    """What the two have in common; they differ in `_exponent` and in its inverse `_height`."""

    rho: ArrayLike

    @staticmethod
    @abc.abstractmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        """`h(z)` for z >= 0 and its first two derivatives."""

    @classmethod
    @abc.abstractmethod
    def _height(cls, level: Array) -> Array:
        """The z >= 0 with `h(z) = level`."""

    @classmethod
    def _ratio_and_height(cls, level: Any, xp: Any) -> tuple[Any, Any]:
        """`k = t*/rho` of the rho with the smallest `u(t*)`, and `c = u(t*)/sqrt(t*)`.

        At the optimum `k = z h'(z)`, so that z solves `h(z) - log1p(z h'(z))/2 = log(1/delta)`. In
        the two-sided family that is `rho = t*/(-W_{-1}(-delta^2/e) - 1)`.
        """
        # Above the solution; Newton steps then go down to it.
        z = xp.sqrt(2 * level + 2 * xp.sqrt(level))
        for _ in range(_TUNE_STEPS):
            h, slope, bend = cls._exponent(z, xp)
            gap = h - 0.5 * xp.log1p(z * slope) - level
            z = z - gap / (slope - 0.5 * (slope + z * bend) / (1 + z * slope))
        ratio = z * cls._exponent(z, xp)[1]
        return ratio, z * xp.sqrt(1 + 1 / ratio)

    @classmethod
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The boundary of this family with the smallest epsilon at `time` (> 0).

        Computed on the host in float64 where the arguments have numbers. Any rho gives a valid
        boundary if it is frozen before the first release; choosing it anew at each time does not.
        """
        xp, (t, _, d), back = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        ratio, _ = cls._ratio_and_height(-xp.log(d), xp)
        return cls(sensitivity, delta, rho=back(t / ratio))  # pyright: ignore[reportArgumentType]

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The boundary of this family that reaches `epsilon` (> 0) at the smallest time.

        That time is `(D2/x)^2`, where `x^2/2 + c x = epsilon` and c, the least `u(t)/sqrt(t)`,
        depends on delta alone. Computed on the host in float64 where the arguments have numbers.
        """
        xp, (e, s, d), back = host_or_trace(epsilon=epsilon, sensitivity=sensitivity, delta=delta)
        ratio, c = cls._ratio_and_height(-xp.log(d), xp)
        # The root of the quadratic, in the form that does not cancel.
        x = 2 * e / (c + xp.sqrt(c * c + 2 * e))
        return cls(sensitivity, delta, rho=back((s / x) ** 2 / ratio))  # pyright: ignore[reportArgumentType]

    def curve(self, time: ArrayLike) -> Array:
        """The curve u(t) itself, above which W is with probability at most delta; rounded up."""
        check_time(time)
        time, _, level, rho = self._parameters(time)
        u = self._height(level + 0.5 * jnp.log1p(time / rho)) * jnp.sqrt(time + rho)
        return jnp.where(time > 0, round_up(u, _MARGIN), jnp.nan)

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon `psi(time)` of stopping at `time`, rounded up; elementwise."""
        check_time(time)
        time, sensitivity, level, rho = self._parameters(time)
        time = divisor(time, time.dtype)
        z = self._height(level + 0.5 * jnp.log1p(time / rho))
        # In units of 1/sqrt(t), where neither large nor small times leave the range of the dtype.
        x = sensitivity / jnp.sqrt(time)
        raw = x * (0.5 * x + z * jnp.sqrt(1 + rho / time))
        return safe_epsilon(jnp.where(time == jnp.inf, 0, raw), time, sensitivity, _MARGIN)

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time with `psi(time) <= epsilon`, rounded to more noise; elementwise.

        Newton steps in log(time), and a check of the solution: where it failed the result is
        infinite.
        """
        numbers("epsilon", epsilon, "finite and above 0")
        asked, sensitivity, level, rho = self._parameters(epsilon)
        margin = float(jnp.finfo(asked.dtype).eps)
        target = asked * (1 - (2 * _MARGIN + 8) * margin)

        # Two curves below psi, which give times that are too small: z and 1 + rho/t at their least.
        z = self._height(level)
        x = 2 * target / (z + jnp.sqrt(z * z + 2 * target))
        below = sensitivity / target * (0.5 * sensitivity + z * jnp.sqrt(rho))
        start = jnp.maximum((sensitivity / x) ** 2, below)

        def newton(time):
            share = time / (time + rho)
            z = self._height(level + 0.5 * jnp.log1p(time / rho))
            x = sensitivity / jnp.sqrt(time)
            line = z * jnp.sqrt(1 + rho / time)
            # d log psi / d log t, from psi = x (x/2 + line); between -1 and 0.
            fall = 0.5 * x + line * (1 - 0.5 * share * (1 + 1 / (z * self._exponent(z, jnp)[1])))
            size = 0.5 * x + line
            return time * (x * size / target) ** (size / jnp.maximum(fall, 0.005 * size))

        raw = start
        for _ in range(_TIME_STEPS):
            raw = newton(raw)
        # Under a trace this never raises, and eagerly `raw` is positive wherever it is a number.
        solved = self.epsilon(jnp.where(raw > 0, raw, jnp.inf)) * (1 + 4 * margin) <= asked
        return safe_time(
            jnp.where(solved, raw, jnp.inf),
            asked,
            epsilon,
            lambda: f"finite and above 0, with its time within {asked.dtype}",
        )


class MixtureBoundary(_Mixture):
    """The mixture boundary for |W| (Whitehouse 2022, Theorem 3.6 and Lemma A.3).

    `psi(t) = D2^2/(2t) + (D2/t) sqrt(2 (t + rho) log(sqrt((t + rho)/rho)/delta))`. It falls to 0 as
    t grows: every epsilon is reached. The loss needs only one of its two sides; prefer
    `OneSidedMixtureBoundary`, which is smaller at every time.

    The stated epsilon is rounded up by 12 machine epsilons of the dtype it is computed in, which
    covers that parameters were cast to that dtype (for `delta <= 1/2`).

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
    it is below `MixtureBoundary` at every time. Rounded as that is.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        rho: where the boundary is tight, in units of time; > 0.
    """

    @staticmethod
    def _exponent(z: Any, xp: Any) -> tuple[Any, Any, Any]:
        log_twice_phi, hazard = _log_twice_phi(z, xp)
        return 0.5 * z * z + log_twice_phi, z + hazard, 1 - hazard * (z + hazard)

    @classmethod
    def _height(cls, level: Array) -> Array:
        # h is convex and at least z^2/2 and h'(0) z: Newton steps go down from above.
        z = jnp.minimum(jnp.sqrt(2 * level), math.sqrt(math.pi / 2) * level)
        for _ in range(_HEIGHT_STEPS):
            h, slope, _ = cls._exponent(z, jnp)
            z = z - (h - level) / slope
        return z
