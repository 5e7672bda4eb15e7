"""The linear privacy boundary of the Brownian mechanism."""

from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import concrete, numbers
from nrjax.guarantees._rounding import (
    GaussianGuarantee,
    check_time,
    divisor,
    host_or_trace,
    round_up,
    safe_epsilon,
    safe_time,
)

# Machine epsilons by which epsilon is rounded up. The formula loses at most 4 and the cast of the
# sensitivity to another dtype 1; the rest is for approximate division on accelerators.
_MARGIN = 8


class LinearBoundary(GaussianGuarantee):
    """`psi(t) = (D2/t)(D2/2 + b) + D2 a`, with `2ab >= log(1/delta)` (Whitehouse 2022, Thm 3.6).

    The loss of the Brownian mechanism at time t is `v^2/(2t) + (v/t) W_t`, `v = |f(x) - f(x')|`,
    and W crosses the line `a t + b` with probability at most `exp(-2ab)`, whatever times are
    chosen. No time costs as little as the floor `D2 a`.

    The stated epsilon is rounded up by 8 machine epsilons of the dtype it is computed in, which
    covers that parameters were cast to that dtype (for `delta <= 1/2`). Where casting, or a caller
    whose numbers the constructor cannot see (device arrays, traces), leaves `2ab < log(1/delta)`,
    b is raised to `log(1/delta)/(2a)`.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        a: slope of the line, > 0, in units of noise over time.
        b: intercept of the line, > 0, in units of the noise.
    """

    a: ArrayLike
    b: ArrayLike

    def __post_init__(self):
        super().__post_init__()
        delta, a, b = (concrete(value) for value in (self.delta, self.a, self.b))
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
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The line with the smallest epsilon at `time` (> 0).

        `b = sqrt(t L/2)`, `a = sqrt(L/(2t))`, `L = log(1/delta)`. Computed on the host in float64
        where the arguments have numbers.
        """
        xp, (t, _, d), back = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        half = xp.sqrt(-xp.log(d) / 2)
        root = xp.sqrt(t)
        return cls(sensitivity, delta, a=back(half / root), b=back(half * root))  # pyright: ignore[reportArgumentType]

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The line that reaches `epsilon` (> 0) at the smallest time.

        That time is `(D2/x)^2`, where `x^2/2 + x sqrt(2 log(1/delta)) = epsilon`. Computed on the
        host in float64 where the arguments have numbers.
        """
        xp, (e, s, d), back = host_or_trace(epsilon=epsilon, sensitivity=sensitivity, delta=delta)
        half = xp.sqrt(-xp.log(d) / 2)
        # The root of the quadratic, in the form that does not cancel.
        x = 2 * e / (2 * half + xp.sqrt(4 * half**2 + 2 * e))
        return cls(sensitivity, delta, a=back(half * x / s), b=back(half * s / x))  # pyright: ignore[reportArgumentType]

    def _line(self, argument: ArrayLike) -> tuple[Array, Array, Array, Array]:
        """Argument, sensitivity, a and b in one dtype."""
        argument, sensitivity, level, a, b = self._parameters(argument)
        return argument, sensitivity, a, jnp.maximum(b, level / (2 * a))

    def curve(self, time: ArrayLike) -> Array:
        """The line `a t + b`, above which W is with probability at most delta; rounded up."""
        check_time(time)
        time, _, a, b = self._line(time)
        return jnp.where(time > 0, round_up(a * time + b, _MARGIN), jnp.nan)

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon `psi(time)` of stopping at `time`, rounded up; elementwise."""
        check_time(time)
        time, sensitivity, a, b = self._line(time)
        time = divisor(time, time.dtype)
        raw = sensitivity / time * (0.5 * sensitivity + b) + sensitivity * a
        return safe_epsilon(raw, time, sensitivity, _MARGIN)

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time with `psi(time) <= epsilon`, which must be above the floor `D2 a`."""
        numbers("epsilon", epsilon, "finite and above 0")
        asked, sensitivity, a, b = self._line(epsilon)
        # All of the rounding goes into epsilon: near the floor an error there is what is magnified.
        target = asked * (1 - 2 * _MARGIN * float(jnp.finfo(asked.dtype).eps))
        floor = sensitivity * a
        raw = sensitivity * (0.5 * sensitivity + b) / (target - floor)
        raw = jnp.where(target > floor, raw, jnp.inf)
        return safe_time(
            raw,
            asked,
            epsilon,
            lambda: (
                f"finite and above sensitivity * a = {np.asarray(floor)}, the least that this "
                "boundary reaches (tune it for a smaller epsilon, or for a larger time)"
            ),
        )
