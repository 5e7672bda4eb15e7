"""The hockey-stick guarantee of the Brownian mechanism by a mixture of Rényi orders."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.notions import Notion
from nrjax._base.validation import as_float_table, as_floats, check, check_numbers
from nrjax.guarantees._fixed_times import certified_number
from nrjax.guarantees._priors import Objective, accept_prior_from, check_prior
from nrjax.guarantees._rounding import SafeGuarantee
from nrjax.guarantees.renyi import TERM_MARGIN, RenyiBoundary

_POINT_STEPS = 5
"""Number of Newton steps for the point at which orders are weighed. Any point is valid."""
_TIME_STEPS = 8
_DESIGN_STEPS = 200


class RenyiMixture(SafeGuarantee):
    """The ex-post cost of Brownian noise by several Rényi orders at once (not in the papers).

        eps(t) = log max_m [m - delta sum_i w_i m^A_i exp(-A_i (A_i - 1) D2^2/(2t))]

    Use it if a hockey-stick guarantee suffices, and the times are not known in advance. With one
    order it is `RenyiBoundary`. With three, epsilon is 12 % smaller over a factor of 10 in epsilon
    (at delta = 1e-6 and epsilon = 0.3), and nowhere much larger.

    The sum is a mixture of martingales with mean at most delta, so that stopping anywhere gives
    `P(S) <= int_S exp(eps(t)) dP' + delta` for every set S of transcripts (proof in
    statement 14 of `docs/proofs`). Any orders and weights are valid if they are fixed before the
    first release. Every time costs more than the floor `eps(inf)`.

    The maximum is bounded from above by `sum_i q_i exp(eps_i(t))`, eps_i the epsilon of order A_i
    at delta w_i/q_i, for every q with sum 1, and with equality at the best q. So an inexact q costs
    epsilon and no privacy. Each term is rounded up by 12 units of rounding of the numbers in
    it.

    >>> times = np.geomspace(2000.0, 20.0, 50)
    >>> mixture = nrjax.RenyiMixture.design(times, np.ones(50), sensitivity=1.0, delta=1e-6)
    >>> one = nrjax.RenyiBoundary.tight_at_time(200.0, sensitivity=1.0, delta=1e-6)
    >>> [round(float(guarantee.epsilon(2000.0)), 2) for guarantee in (mixture, one)]
    [0.1, 0.16]

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: upper bound on the hockey-stick divergence at epsilon.
        orders: orders A_i of the Rényi divergence, above 1, shape (n,).
        weights: weights w_i of the orders, positive, shape (n,). They are divided by their sum.
    """

    delta: ArrayLike  # pyright: ignore[reportIncompatibleVariableOverride]
    orders: Any
    weights: Any
    noise: ClassVar[str] = "gaussian"
    margin: ClassVar[int] = 2  # for the sum; each term has its own margin
    notion: ClassVar[str] = Notion.HOCKEY_STICK

    def __post_init__(self):
        for name in ("orders", "weights"):
            object.__setattr__(self, name, as_float_table(getattr(self, name)))
        super().__post_init__()
        check_numbers("orders", self.orders, lambda n: n > 1, "above 1 and finite")
        check(np.ndim(self.orders) > 0, "orders", self.orders, "a vector")
        same = np.shape(self.weights) == np.shape(self.orders)
        check(same, "weights", self.weights, f"of shape {np.shape(self.orders)}")

    @classmethod
    @accept_prior_from
    def design(
        cls,
        times: ArrayLike,
        weights: ArrayLike,
        sensitivity: float,
        delta: float,
        orders: ArrayLike | None = None,
        objective: Objective = "log",
    ) -> Self:
        """Return the mixture whose epsilon has the smallest mean over a prior of stopping times.

        Only the mean depends on the prior: the guarantee holds wherever trials stop. Times and
        weights must come from public knowledge, or from a mechanism whose cost is paid for.

        Args:
            times: times of the prior, shape (n,).
            weights: weights of the prior, positive, shape (n,), `log_uniform` for example.
            sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
            delta: upper bound on the hockey-stick divergence at epsilon.
            orders: orders of the mixture. By default `A - 1` has three values: that of
                `RenyiBoundary` at the prior's mean log(time), its half, and its double.
            objective: "log" for the mean of log(epsilon), "mean" for the mean of epsilon.

        Raises:
            ValueError: an argument is traced or out of range.
        """
        times, prior = check_prior(times, weights, objective)
        size = certified_number("sensitivity", sensitivity)
        if orders is None:
            middle = float(np.exp(prior @ np.log(times)))
            best = float(RenyiBoundary.tight_at_time(middle, size, delta).order)  # pyright: ignore[reportArgumentType]
            orders = 1 + (best - 1) * np.asarray([0.5, 1.0, 2.0])
        orders = as_floats("orders", orders, lambda n: n.ndim == 1, "a vector of numbers")
        start = cls(sensitivity, delta, orders, np.ones_like(orders))
        found = _best_weights(start, times, prior, objective)
        return cls(sensitivity, delta, orders, np.asarray(found, float))

    def _epsilon(
        self, time: Array, sensitivity: Array, level: Array, orders: Array, weights: Array
    ) -> Array:
        raw = _bound(sensitivity / time * sensitivity, level, orders, weights)[0]
        return jnp.maximum(raw, 0)  # a negative epsilon would claim more than is true

    def _time(self, target: Array, *parameters: Array) -> Array:
        sensitivity, *rest = parameters
        ulp = float(jnp.finfo(target.dtype).eps)
        s = _solution(target * (1 - 8 * ulp), *rest)
        raw = sensitivity / s * sensitivity * (1 + 8 * ulp)
        solved = self.epsilon(jnp.where(raw > 0, raw, jnp.inf)) * (1 + 4 * ulp) <= target
        return jnp.where(solved & (s > 0), raw, jnp.inf)

    def _reachable(self, dtype: Any) -> tuple[str, str]:
        _, _, *parameters = self._parameters(jnp.ones((), dtype))
        floor = np.asarray(_bound(jnp.zeros((), dtype), *parameters)[0])
        hint = "Design the mixture for larger times."
        return f"finite and above {floor}, the floor of this mixture", hint


@jax.jit
def _bound(s: Array, level: Array, orders: Array, weights: Array) -> tuple[Array, Array]:
    """Return epsilon at `s = D2^2/t`, and the shares of the orders in it."""
    less, ulps = orders - 1, TERM_MARGIN * float(jnp.finfo(s.dtype).eps)
    log_weights, s = jnp.log(weights / jnp.sum(weights)), s[..., None]
    known = (level - log_weights - jnp.log(orders)) / less
    # The sum has slope 1 at a point m. It is at most the point of the order for which that is
    # least; Newton steps for log m, which start there, fall towards it.
    least = jnp.argmin(0.5 * orders * s + known, axis=-1)[..., None]
    excess = known - known[least] + 0.5 * s * (orders - orders[least])

    def step(_: Any, y: Array) -> Array:
        slopes = jnp.exp(less * (y - excess))  # at most 1
        total = jnp.sum(slopes, axis=-1, keepdims=True)
        return y - jnp.log(total) * total / jnp.sum(slopes * less, axis=-1, keepdims=True)

    y = jax.lax.fori_loop(0, _POINT_STEPS, step, jnp.zeros_like(s))
    log_q = jax.nn.log_softmax(less * (y - excess))
    each, last = 0.5 * orders * s, jnp.log1p(-1 / orders)
    size = each + (jnp.abs(log_q) + level - log_weights + jnp.log(orders)) / less - last
    each = each + (log_q / less + known) + last + ulps * size
    shares = jax.nn.softmax(log_q + each)
    each = jnp.where(shares > 1e-20, each, -jnp.inf)
    top = jnp.max(each, axis=-1)
    rest = jnp.sum(jnp.exp(log_q) * jnp.expm1(each - top[..., None]), axis=-1)
    # Far below the largest term, the largest is stated.
    rest = jnp.log1p(jnp.maximum((1 - ulps) * rest, -0.9))
    return top + (1 - ulps) * rest, shares


@jax.jit
def _solution(target: Array, level: Array, orders: Array, weights: Array) -> Array:
    """Return about the `s = D2^2/t` at which epsilon is `target`, or 0 if there is none.

    Epsilon is concave in s, so that Newton steps from the left rise towards the solution.
    """
    known = (level - jnp.log(weights / jnp.sum(weights) * orders)) / (orders - 1)
    single = (target[..., None] - known - jnp.log1p(-1 / orders)) / (0.5 * orders)
    start = jnp.maximum(jnp.max(single, axis=-1), 0)  # an order costs at least as much

    def step(_: Any, s: Array) -> Array:
        epsilon, shares = _bound(s, level, orders, weights)
        slope = 0.5 * jnp.sum(shares * orders, axis=-1)
        return jnp.maximum(s + (target - epsilon) / slope, 0)

    return jax.lax.fori_loop(0, _TIME_STEPS, step, start)


@functools.partial(jax.jit, static_argnames="objective")
def _best_weights(start: RenyiMixture, times: Array, prior: Array, objective: Objective) -> Array:
    """Return the weights with the smallest mean cost, by their fixed point.

    Epsilon has the derivative `-share_i/(A_i - 1)` in `log w_i`, so that at the optimum w_i is
    proportional to this derivative's mean over the prior (of the derivative divided by epsilon, if
    the objective is log(epsilon)).
    """
    _, sensitivity, level, orders, weights = start._parameters(times)

    def step(_: Any, weights: Array) -> Array:
        s = sensitivity / times * sensitivity
        epsilon, shares = _bound(s, level, orders, weights)
        gain = prior / jnp.maximum(epsilon, 1e-9) if objective == "log" else prior
        spent = gain @ shares / (orders - 1)
        return spent / jnp.sum(spent) + 1e-9  # none becomes 0

    return jax.lax.fori_loop(0, _DESIGN_STEPS, step, weights)
