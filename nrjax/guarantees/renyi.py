"""The Rényi guarantee of the Brownian mechanism, in hockey-stick form."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.notions import Notion
from nrjax._base.validation import check_numbers
from nrjax.guarantees._rounding import SafeGuarantee, host_or_trace

TERM_MARGIN = 12
"""Number of machine epsilons by which each term is rounded up.

The number allows 4 for the formula, 2 for casts, and the rest for approximate division.
"""
_BISECTIONS = 32


class RenyiBoundary(SafeGuarantee):
    """The ex-post cost of Brownian noise by its Rényi divergence (not in the papers).

        eps(t) = A D2^2/(2t) + log(1 - 1/A) + (log(1/delta) - log A)/(A - 1)

    Use it if a hockey-stick guarantee suffices: it costs less than the other boundaries. Under the
    others the realised loss exceeds epsilon with probability at most delta. Here the probability
    may be larger.

    Brownian noise that is stopped at any time t has the ex-post Rényi cost `A D2^2/(2t)` of order
    A. So `P(S) <= int_S exp(eps(t)) dP' + delta` for every set S of transcripts (proof in
    statement 13 of `docs/proofs`). This notion is preserved by post-processing that keeps eps(t),
    adds up under adaptive composition, and is (epsilon, delta)-DP if epsilon is a constant.

    The order must be fixed before the first release. Every time costs more than the floor, which is
    the sum of the last two terms of eps(t). Epsilon is rounded up by 12 machine epsilons of each
    term, which covers casts of the parameters (for `delta <= 1/2`).

        >>> boundary = nrjax.RenyiBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=1e-6)
        >>> round(float(boundary.order), 1)
        62.7

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: upper bound on the hockey-stick divergence at epsilon.
        order: order A of the Rényi divergence, above 1.
    """

    delta: ArrayLike  # pyright: ignore[reportIncompatibleVariableOverride]
    order: ArrayLike
    noise: ClassVar[str] = "gaussian"
    margin: ClassVar[int] = 2  # for the sum; each term has its own margin
    notion: ClassVar[str] = Notion.HOCKEY_STICK

    def __post_init__(self):
        super().__post_init__()
        check_numbers("order", self.order, lambda n: n > 1, "above 1 and finite")

    @classmethod
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """Return the guarantee whose order gives the smallest epsilon at `time` (> 0).

        The order is computed on the host in float64 if the arguments are concrete.
        """
        xp, (t, s, d), convert = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        with np.errstate(over="ignore"):
            # From 1e30 on the order is the lowest.
            half = xp.minimum(0.5 * (s / xp.sqrt(t)) ** 2, 1e30)
        order = convert(1 + _root(lambda less: _slope(less, d, xp) - half, xp))
        return cls(sensitivity, delta, order)  # pyright: ignore[reportArgumentType]

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """Return the guarantee whose order reaches `epsilon` (> 0) at the smallest time.

        The order is computed on the host in float64 if the arguments are concrete.
        """
        xp, (e, d), convert = host_or_trace(epsilon=epsilon, delta=delta)

        def excess(less: Any) -> Any:
            return _floor(less, -xp.log(d), xp)[0] + (1 + less) * _slope(less, d, xp) - e

        order = convert(1 + _root(excess, xp))
        return cls(sensitivity, delta, order)  # pyright: ignore[reportArgumentType]

    def _epsilon(self, time: Array, sensitivity: Array, level: Array, order: Array) -> Array:
        raw = sensitivity / time * (0.5 * order * sensitivity)
        raw = raw * (1 + TERM_MARGIN * float(jnp.finfo(raw.dtype).eps)) + _least(level, order)
        return jnp.maximum(raw, 0)  # a negative epsilon would claim more than is true

    def _time(self, target: Array, sensitivity: Array, level: Array, order: Array) -> Array:
        eps = float(jnp.finfo(target.dtype).eps)
        rest = target * (1 - 8 * eps) - _least(level, order)
        raw = sensitivity * (0.5 * order * sensitivity) / rest * (1 + 2 * TERM_MARGIN * eps)
        return jnp.where(rest > 0, raw, jnp.inf)

    def _reachable(self, dtype: Any) -> tuple[str, str]:
        _, _, level, order = self._parameters(jnp.ones((), dtype))
        expected = f"finite and above {np.asarray(_least(level, order))}, the floor of this order"
        return expected, "Tune the boundary for a smaller epsilon, or for a larger time."


def _least(level: Array, order: Array) -> Array:
    """Return the floor of epsilon, rounded up."""
    floor, size = _floor(order - 1, level, jnp)
    return floor + TERM_MARGIN * float(jnp.finfo(floor.dtype).eps) * size


def _floor(less: Any, level: Any, xp: Any) -> tuple[Any, Any]:
    """Return the floor of epsilon at order 1 + `less`, and the sum of its terms' sizes."""
    first, second = -xp.log1p(1 / less), xp.log1p(less)
    return first + (level - second) / less, xp.abs(first) + (level + second) / less


def _slope(less: Any, delta: Any, xp: Any) -> Any:
    """Return minus the derivative of the floor of epsilon in the order, at order 1 + `less`."""
    return (-xp.log(delta) - xp.log1p(less)) / (less * less)


def _root(falling: Any, xp: Any) -> Any:
    """Return the root of a falling function of `order - 1`, by bisection on a log scale.

    The result need not be exact, since every order is valid.
    """
    low, high = xp.log(1e-4) + 0 * falling(1.0), xp.log(1e8) + 0 * falling(1.0)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        above = falling(xp.exp(middle)) > 0
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    return xp.exp(low)
