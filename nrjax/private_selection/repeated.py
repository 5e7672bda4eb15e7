"""Private selection with one stage and a cost that is fixed in advance: the published baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._threefry import ordinary
from nrjax._validation import check, check_numbers, check_positive
from nrjax.guarantees._rounding import round_up
from nrjax.keys import check_key
from nrjax.private_selection.runs import Candidate, Selected, Simulated, published, run_stages
from nrjax.pytrees import Pytree, static

_MULTIPLES = {"first": 2, "geometric": 3, "logarithmic": 2}
"""By method: cost as a multiple of the epsilon of one run."""


class RepeatedSelection(Pytree):
    """A private selection from a random number K of runs at one epsilon.

    Use it to compare `PoissonSelection` with, or if you know which epsilon is enough. The methods:

    * "first": publish the first success. After each failure, the selection ends with probability
      `stop`. It costs `2 epsilon` (Liu and Talwar 2019, Theorem 3.1).
    * "geometric": publish the best of K runs, `P(K > k) = (1 - stop)^k`. It costs `3 epsilon`.
    * "logarithmic": publish the best of K runs, `P(K = k)` proportional to `(1 - stop)^k/k`. It
      costs `2 epsilon` (both: Papernot and Steinke 2022, Corollary 3).

    The cost is pure, and also covers a selection that publishes nothing. It does not cover the
    number of runs, which must stay secret.

        >>> def base(key, epsilon):
        ...     number = jax.random.randint(key, (), 0, 3)
        ...     return nrjax.private_selection.Candidate(-jnp.abs(number - 1.0), number)
        >>> selection = nrjax.private_selection.RepeatedSelection(base, 0.5, stop=0.1)
        >>> int(selection.run(jax.random.key(0)).stage), bool(selection.cost(1) >= 1.0)
        (1, True)

    Attributes:
        base: function `base(key, epsilon, *data)` that returns a `Candidate` without an epsilon of
            its own, in JAX (static).
        epsilon: pure epsilon of a run, scalar, > 0.
        stop: parameter of the distribution of K, scalar, above 0 and below 1.
        threshold: least score of a success, public, scalar.
        data: further arguments of `base`, a tuple of pytrees of arrays.
        method: "first", "geometric" or "logarithmic" (static).
    """

    base: Callable[..., Candidate] = static()
    epsilon: Any
    stop: Any
    threshold: Any = -np.inf
    data: tuple[Any, ...] = ()
    method: Literal["first", "geometric", "logarithmic"] = static(default="first")

    def __post_init__(self):
        check(callable(self.base), "base", self.base, "a function base(key, epsilon, *data)")
        check(self.method in _MULTIPLES, "method", self.method, f"one of {tuple(_MULTIPLES)}")
        check_positive("epsilon", self.epsilon)
        check_numbers("stop", self.stop, lambda n: (n > 0) & (n < 1), "above 0 and below 1")

    def cost(self, stage: ArrayLike = 1, epsilon: ArrayLike | None = None) -> Array:
        """Return the epsilon of the selection, rounded up, whatever it publishes.

        Args:
            stage: 1, or 0 if nothing was published; the cost is the same.
            epsilon: epsilon of one run; None means that of the selection.
        """
        own = jnp.asarray(self.epsilon if epsilon is None else epsilon, self._dtype)
        return round_up(_MULTIPLES[self.method] * own + jnp.zeros(jnp.shape(stage), own.dtype), 4)

    @property
    def _dtype(self) -> Any:
        return jnp.promote_types(float_dtype(self.epsilon, self.stop), jnp.float32)

    def run(self, key: Array) -> Selected:
        """Run the selection with a random key, also under `jit` and `vmap`."""
        return self.simulate(key).public

    def simulate(self, key: Array) -> Simulated:
        """Return the public outcome of `run`, with the number of runs for a simulation's report."""
        key, length, level = jax.random.split(ordinary(check_key(key)), 3)
        epsilon, stop = (jnp.asarray(each, self._dtype) for each in (self.epsilon, self.stop))
        again = jnp.log1p(-stop)
        if self.method == "logarithmic":  # geometric with a random parameter (Kemp 1981)
            again = jnp.log(-jnp.expm1(jax.random.uniform(level, (), self._dtype) * jnp.log(stop)))
        count = 1 + jnp.floor(jax.random.exponential(length, (), self._dtype) / -again)

        def run(key: Array, stage: Array) -> Candidate:
            del stage
            candidate = self.base(key, epsilon, *self.data)
            own, expected = candidate.epsilon, "None: every run costs the epsilon of the selection"
            check(own is None, "epsilon of the candidate", own, expected)
            return candidate

        def succeeds(candidate: Candidate, stage: Array) -> Array:
            del stage
            return candidate.score >= self.threshold

        first = self.method == "first"
        return published(run_stages(key, run, succeeds, count[None], None, first), self.cost)
