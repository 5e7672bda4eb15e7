"""Private selections: in stages of Poisson numbers of runs, and the published baselines."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import abstract_key
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import static
from nrjax._base.validation import (
    as_float_table,
    check,
    check_choice,
    check_numbers,
    check_positive,
)
from nrjax.guarantees._rounding import round_up
from nrjax.private_selection.costs import advantage, repetition
from nrjax.private_selection.loop import Plan, Selection

_MARGIN = 24
"""Number of machine epsilons, and one per stage, by which costs are rounded up."""


class PoissonSelection(Selection):
    """A private selection in stages, which costs little if an early stage succeeds.

    Stage i runs a base mechanism up to K_i times, where K_i is Poisson of mean `means[i]`, at the
    privacy `epsilons[i]`. The first stage with a success publishes its first success, or its best
    one. A success is a run whose score reaches a public threshold. If a run rarely succeeds, many
    runs per stage are needed, and `RepeatedSelection` costs less.

    With `T_i = tanh(epsilon_i/2)`, publishing at stage i costs (statement 37 of `docs/proofs`):

    * the first success: `epsilon_i + h(mean_i, epsilon_i) + sum_(j < i) mean_j T_j`, where h is at
      most `epsilon_i` and at most `mean_i T_i/2`;
    * the best success: `epsilon_i + mean_i T_i + sum_(j < i) mean_j T_j`;
    * nothing, after the last stage: `sum_j mean_j T_j`.

    If the base reports the ex-post epsilon of each run, as a noise-reduction run does, that epsilon
    replaces the first term. Only a run that costs at most `epsilons[i]`, its cap, can be a success.

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
        means: mean number of runs in each stage, shape (stages,) or scalar, from 1e-6 to 10000.
        threshold: least score of a success, public, scalar.
        data: further arguments of `base`, a tuple of pytrees of arrays.
        others: largest loss of a run that is not a success, shape (stages,) or scalar; infinite if
            there is no bound. None means `epsilons`. It must be given if the base reports its own
            epsilon, since a run may then cost more than its cap.
        delta: probability with which the loss of one run may exceed its epsilon, scalar.
            `total_delta` is that of the selection.
        publish: "first" or "best" success of a stage (static). Of equal scores the first is best.
    """

    epsilons: Any
    means: Any
    threshold: Any = -np.inf
    data: tuple[Any, ...] = ()
    others: Any = None
    delta: Any = 0.0
    publish: Literal["first", "best"] = static(default="first")

    @neutral_config()
    def __post_init__(self):
        super().__post_init__()
        check_choice("publish", self.publish, ("first", "best"))
        limits = {"epsilons": (1e-6, 1e3), "means": (1e-6, 1e4), "others": (1e-6, np.inf)}
        for name, (least, most) in limits.items():
            value = as_float_table(getattr(self, name))
            object.__setattr__(self, name, value)
            if value is None and name == "others":
                continue
            _check_between(name, value, least, most)
            fits = np.shape(getattr(self, name)) in (np.shape(self.epsilons), ())
            check(fits, name, value, f"a number, or one per stage ({np.size(self.epsilons)})")
        stages = np.shape(self.epsilons)
        check(len(stages) == 1 and stages[0] > 0, "epsilons", self.epsilons, "a non-empty vector")
        check_numbers("delta", self.delta, lambda n: (n >= 0) & (n < 1), "0 or more and below 1")
        if self.others is None:
            made = jax.eval_shape(self._candidate, abstract_key(), self._numbers()[0][0])
            expected = "given for a base that reports its own epsilon, since a run may cost more"
            hint = "Pass the largest epsilon of a run, or np.inf if there is no bound."
            check(made.epsilon is None, "others", None, expected, hint)

    @property
    @neutral_config()
    def total_delta(self) -> Array:
        """Delta of the selection: that of one run times the mean number of runs, rounded up."""
        _, means, _, delta = self._numbers()
        total = delta * jnp.sum(_most_runs(means))
        return jnp.where(delta > 0, round_up(total, _MARGIN + means.size), 0)

    @neutral_config()
    def cost(self, stage: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Return the ex-post epsilon of publishing at a stage, rounded up, elementwise.

        It is NaN if a traced field is out of range.

        Args:
            stage: number of the stage, from 1; 0 if no stage succeeded.
            epsilon: ex-post epsilon of the published run. None means the epsilon of its stage.

        Raises:
            ValueError: a concrete `stage` does not exist.
        """
        caps, means, others, delta = self._numbers()
        means = _most_runs(means)
        _check_between("stage", stage, 0, caps.size)
        failing = means * advantage(caps, others, delta)
        if self.publish == "best":  # worse successes are among the others of a better one
            more = means * advantage(caps, jnp.maximum(caps, others), delta)
        else:
            more = repetition(means, caps, others, delta)
        before = jnp.concatenate([jnp.zeros_like(caps[:1]), jnp.cumsum(failing)])
        index = jnp.asarray(stage) - 1
        own = caps[index] if epsilon is None else jnp.asarray(epsilon, caps.dtype)
        total = jnp.where(index >= 0, own + more[index] + before[index], before[-1])
        ok = (caps > 0) & (means > 0) & (others > 0) & (delta >= 0) & (delta < 1)
        return jnp.where(jnp.all(ok), round_up(total, _MARGIN + caps.size), jnp.nan)

    def plan(self, key: Array) -> Plan:
        """Return the limits of the stages, on the clock of a Poisson process of rate 1."""
        del key
        caps, means, _, _ = self._numbers()

        def gap(key: Array) -> Array:
            return jax.random.exponential(key, (), caps.dtype)

        return Plan(caps, jnp.cumsum(means), gap, self.publish == "first")

    def _numbers(self) -> tuple[Array, Array, Array, Array]:
        """Return the caps, means and bounds of each stage, and delta, in one dtype."""
        others = self.epsilons if self.others is None else self.others
        values: Any = self.epsilons, self.means, others, self.delta
        dtype = float_dtype(*values)
        caps, means, others, delta = (jnp.asarray(value, dtype) for value in values)
        return caps, jnp.broadcast_to(means, caps.shape), others, delta


_MULTIPLES = {"first": 2, "geometric": 3, "logarithmic": 2}
"""By method: cost of a stage as a multiple of the epsilon of one run."""


class RepeatedSelection(Selection):
    """A private selection from random numbers of runs that cost the same: published baselines.

    Use it if you know which epsilon is enough, or if a run rarely succeeds. With several stages,
    the next stage starts if no run of a stage succeeded, and the costs of the stages add up. With K
    the number of runs of a stage, the methods are:

    * "first": publish the first success. After each failure, a stage ends with probability `stop`.
      A stage costs `2 epsilon` (Liu and Talwar 2019, Theorem 3.1).
    * "geometric": publish the best of K runs, `P(K > k) = (1 - stop)^k`. A stage costs `3 epsilon`.
    * "logarithmic": publish the best of K runs, `P(K = k)` proportional to `(1 - stop)^k/k`. A
      stage costs `2 epsilon` (both: Papernot and Steinke 2022, Corollary 3).

    The cost is pure. It does not cover the number of runs, which must stay secret.

        >>> def base(key, epsilon):
        ...     number = jax.random.randint(key, (), 0, 3)
        ...     return nrjax.private_selection.Candidate(-jnp.abs(number - 1.0), number)
        >>> selection = nrjax.private_selection.RepeatedSelection(base, 0.5, stop=0.1)
        >>> int(selection.run(jax.random.key(0)).stage), bool(selection.cost(1) >= 1.0)
        (1, True)

    Attributes:
        base: as for `PoissonSelection`, without an epsilon of its own (static).
        epsilons: pure epsilon of a run in each stage, > 0, shape (stages,), or scalar for one.
        stop: parameter of the distribution of K, scalar, from 1e-6 to below 1.
        threshold: least score of a success, public, scalar.
        data: further arguments of `base`, a tuple of pytrees of arrays.
        method: "first", "geometric" or "logarithmic" (static).
    """

    epsilons: Any
    stop: Any
    threshold: Any = -np.inf
    data: tuple[Any, ...] = ()
    method: Literal["first", "geometric", "logarithmic"] = static(default="first")

    @neutral_config()
    def __post_init__(self):
        super().__post_init__()
        check_choice("method", self.method, _MULTIPLES)
        object.__setattr__(self, "epsilons", as_float_table(self.epsilons))
        check_positive("epsilons", self.epsilons)
        check(np.ndim(self.epsilons) < 2, "epsilons", self.epsilons, "a number, or a vector")
        check_numbers("stop", self.stop, lambda n: (n >= 1e-6) & (n < 1), "from 1e-6 to below 1")

    @neutral_config()
    def cost(self, stage: ArrayLike, epsilon: None = None) -> Array:
        """Return the epsilon of publishing at a stage, rounded up, where stage 0 is nothing."""
        expected = "None: every run costs the epsilon of its stage"
        check(epsilon is None, "epsilon of a candidate", epsilon, expected)
        epsilons, _ = self._numbers()
        _check_between("stage", stage, 0, epsilons.size)
        # Index -1 is that of all stages, after which nothing was published.
        total = jnp.cumsum(_MULTIPLES[self.method] * epsilons)[jnp.asarray(stage) - 1]
        return round_up(total, 4 + epsilons.size)

    def plan(self, key: Array) -> Plan:
        """Draw K of each stage."""
        length, level = jax.random.split(key)
        epsilons, stop = self._numbers()
        shape, dtype = epsilons.shape, epsilons.dtype
        again = jnp.log1p(-stop)
        if self.method == "logarithmic":  # geometric with a random parameter (Kemp 1981)
            again = jnp.log(-jnp.expm1(jax.random.uniform(level, shape, dtype) * jnp.log(stop)))
        counts = 1 + jnp.floor(jax.random.exponential(length, shape, dtype) / -again)
        return Plan(epsilons, jnp.cumsum(counts), None, self.method == "first")

    def _numbers(self) -> tuple[Array, Array]:
        """Return the epsilons of the stages and the parameter of K, in one dtype."""
        dtype = float_dtype(self.epsilons, self.stop)
        return jnp.atleast_1d(jnp.asarray(self.epsilons, dtype)), jnp.asarray(self.stop, dtype)


def _most_runs(means: Array) -> Array:
    """Return the mean number of runs of each stage, rounded up for a clock in floats.

    The clock of a stage has steps of up to `eps end`, and its gaps have steps of eps near 0. Gaps
    that are rounded to multiples of a step s are shorter by a factor of up to `1 + s^2/24`.
    """
    eps, end = float(jnp.finfo(means.dtype).eps), jnp.cumsum(means)
    return jnp.where(means > 0, means * (1 + (eps * end) ** 2) + 4 * eps * (1 + end), jnp.nan)


def _check_between(name: str, value: Any, least: float, most: float) -> None:
    """Check that numbers are in an interval, if they are concrete."""
    expected = f"from {least:g} to {most:g}" if most < np.inf else f"{least:g} or more"
    check_numbers(name, value, lambda n: (n >= least) & (n <= most), expected)
