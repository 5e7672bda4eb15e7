"""The Renyi guarantee of the Brownian mechanism, in hockey-stick form."""

from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check_numbers
from nrjax.guarantees._rounding import SafeGuarantee, host_or_trace

# Machine epsilons of each term by which epsilon is rounded up. The formula loses at most 4 of
# them, the casts of sensitivity and delta to another dtype 2.
_MARGIN = 12
_BISECTIONS = 32


class RenyiBoundary(SafeGuarantee):
    """`eps(t) = A D2^2/(2t) + log(1 - 1/A) + (log(1/delta) - log A)/(A - 1)`; not in the papers.

    Brownian noise stopped anywhere has the ex-post Renyi cost `A D2^2/(2t)` of order A, and so, for
    every set S of transcripts, `P(S) <= int_S exp(eps(t)) dP' + delta`: the hockey-stick notion
    (`docs/frontier.md`, with the proof). It is kept by post-processing that keeps eps(t), adds up
    under adaptive composition, and is (epsilon, delta)-DP where epsilon is a constant. It costs
    less than the boundaries, which bound the probability that the realised loss exceeds epsilon:
    here that probability may be above delta.

    The order is fixed before the first release. No time costs as little as the floor, the last two
    terms. The stated epsilon is rounded up by 12 machine epsilons of each term, which covers that
    parameters were cast (for `delta <= 1/2`).

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: what the hockey-stick divergence beyond epsilon is at most.
        order: A, above 1.
    """

    delta: ArrayLike  # pyright: ignore[reportIncompatibleVariableOverride]
    order: ArrayLike
    noise: ClassVar[str] = "gaussian"
    margin: ClassVar[int] = 2  # of the sum; each term has its own
    notion: ClassVar[str] = "hockey-stick"

    def __post_init__(self):
        super().__post_init__()
        check_numbers("order", self.order, lambda n: n > 1, "above 1 and finite")

    @classmethod
    def tight_at_time(cls, time: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The order with the smallest epsilon at `time` (> 0).

        Computed on the host in float64 where the arguments have numbers.
        """
        xp, (t, s, d), back = host_or_trace(time=time, sensitivity=sensitivity, delta=delta)
        half = 0.5 * (s / xp.sqrt(t)) ** 2
        return cls(sensitivity, delta, back(1 + _root(lambda less: _slope(less, d, xp) - half, xp)))  # pyright: ignore[reportArgumentType]

    @classmethod
    def tight_at_epsilon(cls, epsilon: ArrayLike, sensitivity: ArrayLike, delta: ArrayLike) -> Self:
        """The order that reaches `epsilon` (> 0) at the smallest time.

        Computed on the host in float64 where the arguments have numbers.
        """
        xp, (e, d), back = host_or_trace(epsilon=epsilon, delta=delta)

        def excess(less: Any) -> Any:
            return _floor(less, -xp.log(d), xp)[0] + (1 + less) * _slope(less, d, xp) - e

        return cls(sensitivity, delta, back(1 + _root(excess, xp)))  # pyright: ignore[reportArgumentType]

    def _epsilon(self, time: Array, sensitivity: Array, level: Array, order: Array) -> Array:
        raw = sensitivity / time * (0.5 * order * sensitivity)
        raw = raw * (1 + _MARGIN * float(jnp.finfo(raw.dtype).eps)) + _least(level, order)
        # Below 0 the statement would say more than is needed of any mechanism.
        return jnp.maximum(raw, 0)

    def _time(self, asked: Array, sensitivity: Array, level: Array, order: Array) -> Array:
        eps = float(jnp.finfo(asked.dtype).eps)
        target = asked * (1 - 8 * eps) - _least(level, order)
        raw = sensitivity * (0.5 * order * sensitivity) / target * (1 + 2 * _MARGIN * eps)
        return jnp.where(target > 0, raw, jnp.inf)

    def _reachable(self, dtype: Any) -> str:
        _, _, level, order = self._parameters(jnp.ones((), dtype))
        return (
            f"finite and above {np.asarray(_least(level, order))}, the least that this order "
            "reaches (tune it for a smaller epsilon, or for a larger time)"
        )


def _least(level: Array, order: Array) -> Array:
    """What epsilon has of terms that do not depend on the time, rounded up."""
    floor, size = _floor(order - 1, level, jnp)
    return floor + _MARGIN * float(jnp.finfo(floor.dtype).eps) * size


def _floor(less: Any, level: Any, xp: Any) -> tuple[Any, Any]:
    """`log(1 - 1/A) + (log(1/delta) - log A)/(A - 1)`, and the sizes of its terms, at A - 1."""
    first, second = -xp.log1p(1 / less), xp.log1p(less)
    return first + (level - second) / less, xp.abs(first) + (level + second) / less


def _slope(less: Any, delta: Any, xp: Any) -> Any:
    """How fast the floor falls in A, at A - 1."""
    return (-xp.log(delta) - xp.log1p(less)) / (less * less)


def _root(falling: Any, xp: Any) -> Any:
    """Where a falling function of A - 1 is 0, by bisection of the logarithm; any order is valid."""
    low, high = xp.log(1e-4) + 0 * falling(1.0), xp.log(1e8) + 0 * falling(1.0)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        above = falling(xp.exp(middle)) > 0
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    return xp.exp(low)
