"""Private threshold tests: at one privacy level, at rising levels, or paid per answer.

The tests with one threshold noise for all queries (AboveThreshold) pay once, for the final positive
answer. Their negative answers cost a fraction of a positive answer, however many there are.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import step_key
from nrjax._base.modes import neutral_config
from nrjax._base.outcome import Status
from nrjax._base.pytrees import static
from nrjax._base.validation import check, check_choice, concrete_or_none
from nrjax.processes import Exponential, Laplace
from nrjax.stopping.thresholds import FALL_TOLERANCE, ThresholdRule

_SUM_MARGIN = 3
"""Number of machine epsilons by which the cost of several answers is rounded up.

Half a machine epsilon each is lost in the cast of the number of answers, in its product with
epsilon, and in the sum with the cost of the releases.
"""

_PROCESSES: dict[str, Any] = {"laplace": Laplace, "exponential": Exponential}


class NoisyThreshold(ThresholdRule):
    """A test with one threshold noise for all queries, and new noise for each query.

    The threshold noise takes a fraction s of epsilon (`share`) and has scale `Delta/(s eps)`. The
    query noise has scale `2 Delta/((1 - s) eps)`, or half that scale if a change of one row moves
    all utilities in the same direction (`monotone`; Lyu et al. 2017). Exponential noise on both
    threshold and queries costs as much as Laplace noise, with smaller errors (statement 19 of
    `docs/proofs`).

    Attributes:
        noise: "laplace" or "exponential" (static).
        share: s, from 0.05 to 0.95, which is also the fraction of epsilon that negative answers
            cost (static).
        monotone: whether all utilities move in the same direction from any data set to any
            neighbour (static). Counts do if rows are added or removed, but not if rows are
            replaced. An interaction therefore needs the relation "add-remove".
    """

    noise: str = static(default="laplace", kw_only=True)
    share: float = static(default=0.5, kw_only=True)
    monotone: bool = static(default=False, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        check_choice("noise", self.noise, _PROCESSES)
        ok = isinstance(self.share, (int, float)) and 0.05 <= self.share <= 0.95
        check(ok, "share", self.share, "a number from 0.05 to 0.95")
        object.__setattr__(self, "share", float(self.share))  # a NumPy number would widen float32
        check(isinstance(self.monotone, bool), "monotone", self.monotone, "True or False")

    @property
    def _multiples(self) -> tuple[float, float]:
        """The scales of threshold noise and query noise, as multiples of Delta/epsilon."""
        return 1 / self.share, (1 if self.monotone else 2) / (1 - self.share)

    @property
    def max_noise_multiple(self) -> float:
        """The larger scale of threshold noise and query noise, as a multiple of Delta/epsilon."""
        return max(self._multiples)

    def _scales(self, epsilon: ArrayLike, dtype: Any) -> tuple[Array, Array]:
        """Return the scales of the threshold noise and of the query noise."""
        base = self._noise_scale(epsilon, dtype, self.max_noise_multiple)
        threshold, query = self._multiples
        return threshold * base, query * base

    def _process(self) -> Any:
        """Return the scalar noise process of the threshold, or of one query."""
        return _PROCESSES[self.noise](())


class AboveThresholdState(NamedTuple):
    """The threshold noise, in units of the utility, and the number of the next step."""

    noise: Array
    step: Array


class AboveThreshold(NoisyThreshold):
    """Stop at the first `utility + Lap(4 Delta/eps) >= threshold + Lap(2 Delta/eps)`.

    Use it to test utilities of private data at a cost known in advance; `ReducedAboveThreshold`
    tests at the cost of the releases instead. The threshold noise is drawn once, the query noise
    for each query (Dwork and Roth 2014; Ligett 2017, Algorithm 2; Lyu et al. 2017). The test costs
    `epsilon`, or `share * epsilon` if there is no positive answer.

    If the queries depend on the data only through earlier answers, the cost of the test is the cost
    of the whole transcript. The queries of noise reduction ("how good is this release?") depend on
    the data themselves. The total is then the cost of the test plus the ex-post cost of the
    releases up to the last one (Ligett 2017, Lemma 2.8, under the name `InteractiveAboveThreshold`;
    proof in statement 16 of `docs/proofs`). If the releases cost `(eps, delta)` with `delta > 0`,
    their guarantee must hold for all steps at once, as a boundary does.

        >>> rule = nrjax.AboveThreshold(100.0, sensitivity=1.0, epsilon=0.5)
        >>> nrjax.stopping.first_yes(jax.random.key(0), rule, [3.0, 250.0, 80.0])
        FirstYes(step=1, cost=0.5, status=STOPPED)

    Attributes:
        threshold: tau, in units of the utility: a scalar, or one number for each query, shape
            (steps,). After the last query the rule never stops a trial.
        sensitivity: Delta, the largest change of any utility between neighbours, in units of the
            utility. It must hold for all releases that can occur, not only for those of a run.
            Hypotheses without a projection usually have no such bound.
        epsilon: privacy level of the test, independent of the cost of the releases (eps_A or eps_0
            in Ligett 2017; see `nrjax.stopping.accuracy`).
        noise: "laplace", or "exponential", which has smaller errors at the same cost (static).
        share: fraction of epsilon for the threshold noise, from 0.05 to 0.95 (static).
        monotone: whether a change of one row moves all utilities in the same direction, which
            halves the scale of the query noise (static).
    """

    sensitivity: Any
    epsilon: Any
    fixed_price: ClassVar[bool] = True

    def init(self, key: Array, epsilon: ArrayLike) -> AboveThresholdState:
        """Draw the threshold noise, in the dtype of the releases' `epsilon`."""
        dtype = float_dtype(epsilon, self.epsilon, self.sensitivity)
        scale, _ = self._scales(self.epsilon, dtype)
        noise = self._process().init(step_key(key, 0), scale)
        return AboveThresholdState(noise.value, jnp.int32(0))

    def step(
        self, key: Array, state: AboveThresholdState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[AboveThresholdState, Array]:
        """Answer one query (`epsilon` is not used)."""
        del epsilon
        _, scale = self._scales(self.epsilon, state.noise.dtype)
        noise = self._process().init(key, scale).value
        stop = self.reached(utility, state.step, noise - state.noise)
        return state._replace(step=state.step + 1), stop

    @neutral_config()
    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return `self.epsilon` if `stopped`, or else the fraction `share` of it."""
        del answers
        dtype = float_dtype(epsilon, self.epsilon)
        cost = jnp.asarray(self.epsilon, dtype)
        return jnp.where(stopped, cost, cost * self.share) + jnp.zeros(jnp.shape(epsilon), dtype)


InteractiveAboveThreshold = AboveThreshold
"""An alias of `AboveThreshold` for queries that depend on the data (Ligett 2017)."""


class ReducedState(NamedTuple):
    """The state of `ReducedAboveThreshold`.

    Attributes:
        key: key of the threshold noise.
        noise: threshold noise, a state of its process.
        epsilon: largest epsilon so far.
        step: number of the next step.
        status: a `Status`.
    """

    key: Array
    noise: Any
    epsilon: Array
    step: Array
    status: Array


class ReducedAboveThreshold(NoisyThreshold):
    """AboveThreshold at the privacy level of the releases (Whitehouse 2022, Algorithm 1).

    Use it if the test should cost as much as the releases: a trial that stops early then also has a
    cheap test. Step n stops if `utility + Lap(4 Delta/eps_n) >= threshold + Z(2 Delta/eps_n)`,
    where `eps_n` is the cost of the releases up to step n, and Z is a scalar Laplace process
    (`nrjax.Laplace`) that is rewound at each step. A stop at step N adds the cost `eps_N` (Theorem
    5.1). With Brownian releases and a boundary psi the total is `2 psi(T_N)` (Corollary 5.2). K
    negative answers add `share * eps_K`. If all epsilons are equal, the rule makes the same draws
    and decisions as `AboveThreshold`.

    The epsilons may depend on the releases, but must not fall, since removed noise cannot be added
    again. Concrete epsilons that fall, or are not positive and finite, raise a ValueError. For such
    epsilons under a trace the rule never stops the trial, and its status is `Status.INVALID_TIME`.

        >>> rule = nrjax.ReducedAboveThreshold(threshold=-0.5, sensitivity=0.01)
        >>> float(rule.cost(0.3, stopped=True)) == float(jnp.asarray(0.3))  # as the releases
        True

    Attributes:
        threshold: tau, as in `AboveThreshold`.
        sensitivity: Delta, as in `AboveThreshold`.
        noise: "laplace" or "exponential" (static).
        share: as in `AboveThreshold` (static).
        monotone: as in `AboveThreshold` (static).
    """

    sensitivity: Any
    uses_epsilon: ClassVar[bool] = True

    def init(self, key: Array, epsilon: ArrayLike) -> ReducedState:
        """Draw the threshold noise at the first epsilon."""
        _check_epsilon(epsilon)
        epsilon = jnp.asarray(epsilon, float_dtype(epsilon, self.sensitivity))
        scale, query_scale = self._scales(epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale, query_scale)
        scale = jnp.where(valid, scale, jnp.ones_like(scale))
        noise = self._process().init(step_key(key, 0), scale)
        status = jnp.where(valid, Status.RUNNING, Status.INVALID_TIME).astype(jnp.int32)
        return ReducedState(key, noise, epsilon, jnp.int32(0), status)

    def step(
        self, key: Array, state: ReducedState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[ReducedState, Array]:
        """Answer one query at the privacy level `epsilon`, the cost of the releases."""
        _check_epsilon(epsilon, state.epsilon)
        epsilon = jnp.asarray(epsilon, state.epsilon.dtype)
        scale, query_scale = self._scales(epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale, query_scale) & (epsilon >= _least(state.epsilon))
        status = jnp.where(valid, state.status, Status.INVALID_TIME).astype(jnp.int32)
        running = status == Status.RUNNING
        now = state.noise.time
        # If epsilon falls by rounding, both scales stay as they were.
        follows = running & (scale <= now)
        query_scale = jnp.where(follows, query_scale, now * (query_scale / scale))
        scale = jnp.where(running, jnp.minimum(scale, now), now)
        # `key` is for the query noise; the threshold noise has its own stream, `state.key`.
        noise = self._process().rewind(step_key(state.key, state.step + 1), state.noise, scale)
        difference = self._process().init(key, query_scale).value - noise.value
        stop = running & self.reached(utility, state.step, difference)
        epsilon = jnp.where(running, jnp.maximum(epsilon, state.epsilon), state.epsilon)
        return ReducedState(state.key, noise, epsilon, state.step + 1, status), stop

    @neutral_config()
    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return `epsilon` if `stopped`, or else the fraction `share` of it."""
        del answers
        epsilon = jnp.asarray(epsilon, float_dtype(epsilon))
        return jnp.where(stopped, epsilon, epsilon * self.share)

    def status(self, state: ReducedState) -> Array:
        """Return `Status.INVALID_TIME` after an invalid epsilon, else `Status.RUNNING`."""
        return state.status


class LaplaceTests(ThresholdRule):
    """Stop at the first `utility + Lap(Delta/eps) >= threshold`, with new noise for each test.

    Use it as the test of the doubling method (Ligett 2017, Algorithm 4). Each test is the Laplace
    mechanism on one utility, so a negative answer costs `eps` too, and k answers cost `k eps`
    (composition, Theorem A.2). `AboveThreshold` pays once for all answers. If the utilities are
    those of releases of the same data, the cost of the releases is added.

        >>> rule = nrjax.LaplaceTests(threshold=-0.5, sensitivity=0.01, epsilon=0.1)
        >>> round(float(rule.cost(1.0, answers=3)), 4)
        0.3

    Attributes:
        threshold: tau, as in `AboveThreshold`.
        sensitivity: Delta, as in `AboveThreshold`.
        epsilon: privacy level of one test.
    """

    sensitivity: Any
    epsilon: Any

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Answer one query, in the dtype of the releases' `epsilon`."""
        dtype = float_dtype(epsilon, self.epsilon, self.sensitivity)
        scale = self._noise_scale(self.epsilon, dtype)
        return state + 1, self.reached(utility, state, Laplace(()).init(key, scale).value)

    @neutral_config()
    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return `answers` times `self.epsilon`, rounded up."""
        del stopped
        dtype = float_dtype(epsilon, self.epsilon)
        total = jnp.asarray(self.epsilon, dtype) * jnp.asarray(answers, dtype)
        total = total * (1 + _SUM_MARGIN * float(jnp.finfo(dtype).eps))
        return total + jnp.zeros(jnp.shape(epsilon), dtype)


def _is_usable(epsilon: Array, scale: Array, query_scale: Array) -> Array:
    """Return whether epsilon and both scales of the noise are positive and finite."""
    noise = (scale > 0) & jnp.isfinite(scale) & jnp.isfinite(query_scale)
    return (epsilon > 0) & jnp.isfinite(epsilon) & noise


def _least(epsilon: Any) -> Any:
    """Return the smallest next epsilon that does not count as a fall."""
    return epsilon * (1 - FALL_TOLERANCE * float(jnp.finfo(epsilon.dtype).eps))


def _check_epsilon(epsilon: ArrayLike, last: Array | None = None) -> None:
    number, last_number = concrete_or_none(epsilon), concrete_or_none(last)
    if number is None:
        return
    check(np.isfinite(number) & (number > 0), "epsilon", number.tolist(), "positive and finite")
    if last_number is not None:
        expected = f"at least {last_number.tolist()!r}, the epsilon before: it must not fall"
        check(number >= _least(last_number), "epsilon", number.tolist(), expected)
