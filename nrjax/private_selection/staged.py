"""Private selection in stages of Poisson numbers of runs, paid by the stage of the stop."""

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
from nrjax._validation import check, check_numbers
from nrjax.guarantees._rounding import round_up
from nrjax.keys import check_key
from nrjax.private_selection.costs import advantage, repetition
from nrjax.private_selection.runs import Candidate, Selected, Simulated, published, run_stages
from nrjax.pytrees import Pytree, static

_MARGIN = 24
"""Number of machine epsilons, and one per stage, by which costs are rounded up."""


class PoissonSelection(Pytree):
    """A private selection in stages, which costs little if an early stage succeeds.

    Stage i runs a base mechanism up to K_i times, where K_i is Poisson of mean `means[i]`, at the
    privacy `epsilons[i]`. The first stage with a success publishes its first success, or its best
    one. A success is a run whose score reaches a public threshold. Use `RepeatedSelection` if you
    know which epsilon is enough: it has one stage, and a cost that is fixed in advance.

    With `T = tanh(epsilon/2)` at each stage, publishing at stage i costs (`docs/frontier.md`):

    * the first success: `epsilon_i + h(mean_i, epsilon_i) + sum_(j < i) mean_j T_j`, where h is at
      most `epsilon_i` and at most `mean_i T_i/2`;
    * the best success: `epsilon_i + mean_i T_i + sum_(j < i) mean_j T_j`;
    * nothing, after the last stage: `sum_j mean_j T_j`.

    If the base reports the ex-post epsilon of each run, as a noise-reduction run does, that epsilon
    replaces `epsilon_i`. Only a run that costs at most `epsilons[i]`, its cap, can be a success.

    The costs cover the stage and the published candidate only. Never publish the number of runs or
    of failures, or the time taken. A simulation on one machine hides the time, a release does not.

        >>> def base(key, epsilon, values):  # a noisy value of one of three candidates
        ...     chosen, noise = jax.random.split(key)
        ...     number = jax.random.randint(chosen, (), 0, 3)
        ...     score = values[number] + jax.random.laplace(noise) / epsilon
        ...     return nrjax.private_selection.Candidate(score, number)
        >>> selection = nrjax.PoissonSelection(
        ...     base, epsilons=[0.25, 0.5, 1.0], means=2.0, threshold=9.0,
        ...     data=(jnp.asarray([4.0, 10.0, 7.0]),))
        >>> outcomes = jax.vmap(selection.run)(jax.random.split(jax.random.key(0), 1000))
        >>> bool(jnp.all(outcomes.epsilon <= selection.cost(3))), outcomes.result.shape
        (True, (1000,))

    Attributes:
        base: function `base(key, epsilon, *data)` of a key and the epsilon of the stage that
            returns a `Candidate`, in JAX (static).
        epsilons: pure epsilon of a run in each stage, shape (stages,). If the base reports its own
            epsilon, the largest of a success. From 1e-6 to 1000.
        means: mean number of runs in each stage, shape (stages,) or scalar, from 1e-6 to 1e6.
        threshold: least score of a success, public, scalar.
        data: further arguments of `base`, a tuple of pytrees of arrays.
        others: largest loss of a run that is not a success, shape (stages,) or scalar; infinite if
            there is no bound. None means `epsilons`.
        delta: probability with which the loss of one run may exceed its epsilon, scalar.
            `total_delta` is that of the selection.
        publish: "first" or "best" success of a stage (static). Of equal scores the first is best.
    """

    base: Callable[..., Candidate] = static()
    epsilons: Any
    means: Any
    threshold: Any = -np.inf
    data: tuple[Any, ...] = ()
    others: Any = None
    delta: Any = 0.0
    publish: Literal["first", "best"] = static(default="first")

    def __post_init__(self):
        check(callable(self.base), "base", self.base, "a function base(key, epsilon, *data)")
        check(self.publish in ("first", "best"), "publish", self.publish, "'first' or 'best'")
        for name in ("epsilons", "means", "others"):
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, name, np.asarray(value, float))
        for name, least, most in (("epsilons", 1e-6, 1e3), ("means", 1e-6, 1e6)):
            expected = f"from {least:g} to {most:g}"
            check_numbers(name, getattr(self, name), _between(least, most), expected)
        stages = np.shape(self.epsilons)
        check(len(stages) == 1 and stages[0] > 0, "epsilons", self.epsilons, "a non-empty vector")
        if self.others is not None:
            check_numbers("others", self.others, _between(1e-6, np.inf), "1e-6 or more")
        for name in ("means", "others"):
            value = 1.0 if getattr(self, name) is None else getattr(self, name)
            check(np.shape(value) in ((), stages), name, value, f"a number, or {stages[0]} numbers")
        check_numbers("threshold", self.threshold, lambda n: ~np.isnan(n), "a number")
        check_numbers("delta", self.delta, lambda n: (n >= 0) & (n < 1), "0 or more and below 1")

    @property
    def total_delta(self) -> Array:
        """Delta of the selection: that of one run times the mean number of runs, rounded up."""
        _, means, _, delta = self._numbers()
        return jnp.where(delta > 0, round_up(delta * jnp.sum(means), _MARGIN + means.size), 0)

    def cost(self, stage: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Return the ex-post epsilon of publishing at a stage, rounded up, elementwise.

        Args:
            stage: number of the stage, from 1; 0 if no stage succeeded. Traced numbers outside
                this range are clipped.
            epsilon: ex-post epsilon of the published run. None means the epsilon of its stage.

        Raises:
            ValueError: a concrete `stage` does not exist.
        """
        caps, means, others, delta = self._numbers()
        expected = f"from 0 to {caps.size}"
        check_numbers("stage", stage, lambda n: (n >= 0) & (n <= caps.size), expected)
        failing = means * advantage(caps, others, delta)
        if self.publish == "best":  # worse successes are among the others of a better one
            more = means * advantage(caps, jnp.maximum(caps, others), delta)
        else:
            more = repetition(means, caps, others, delta)
        before = jnp.concatenate([jnp.zeros_like(caps[:1]), jnp.cumsum(failing)])
        index = jnp.asarray(stage) - 1
        own = caps[index] if epsilon is None else jnp.asarray(epsilon, caps.dtype)
        success = own + more[index] + before[index]
        return round_up(jnp.where(index >= 0, success, before[-1]), _MARGIN + caps.size)

    def _numbers(self) -> tuple[Array, Array, Array, Array]:
        """Return the caps, means and bounds of each stage, and delta, in one dtype."""
        others = self.epsilons if self.others is None else self.others
        values = self.epsilons, self.means, others, self.delta
        dtype = jnp.promote_types(float_dtype(*values), jnp.float32)
        caps, *more, delta = (jnp.asarray(value, dtype) for value in values)
        return caps, *(jnp.broadcast_to(each, caps.shape) for each in more), delta

    def run(self, key: Array) -> Selected:
        """Run the selection with a random key, also under `jit` and `vmap`."""
        return self.simulate(key).public

    def simulate(self, key: Array) -> Simulated:
        """Return the public outcome of `run`, with the number of runs for a simulation's report."""
        key = ordinary(check_key(key))
        caps, means, _, _ = self._numbers()

        def run(key: Array, stage: Array) -> Candidate:
            return self.base(key, caps[stage], *self.data)

        def succeeds(candidate: Candidate, stage: Array) -> Array:
            good = candidate.score >= self.threshold
            return good if candidate.epsilon is None else good & (candidate.epsilon <= caps[stage])

        def gap(key: Array) -> Array:
            return jax.random.exponential(key, (), caps.dtype)

        ends, first = jnp.cumsum(means), self.publish == "first"
        return published(run_stages(key, run, succeeds, ends, gap, first), self.cost)


def _between(least: float, most: float) -> Callable[[Any], Any]:
    return lambda numbers: (numbers >= least) & (numbers <= most)
