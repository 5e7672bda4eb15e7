"""Private threshold tests: at one privacy level, at rising ones, and with a price for each answer.

Of all noes and the one yes of an AboveThreshold only the yes is paid for: the noes depend on the
data through the threshold noise alone, which is drawn once.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, concrete_or_none
from nrjax.keys import step_key
from nrjax.processes import Exponential, Laplace
from nrjax.pytrees import static
from nrjax.stopping.thresholds import ThresholdRule, noise_scale
from nrjax.types import Status

# Machine epsilons by which an epsilon may seem to fall: a guarantee's is right to 24 or so, and
# the noise was drawn with more to spare (`noise_scale`). Beyond it is a fall.
_ROUNDING = 32

# Machine epsilons by which the cost of many answers is rounded up: their number as a float, its
# product with epsilon, and the sum with what the releases cost lose half of one each.
_COST_MARGIN = 3

_NOISES: dict[str, Any] = {"laplace": Laplace, "exponential": Exponential}


class NoisyThreshold(ThresholdRule):
    """What the tests with one threshold noise for all queries share: their law, and its split.

    Of an epsilon the threshold noise takes a `share` s and has scale `Delta/(s eps)`; the query
    noise has `2 Delta/((1 - s) eps)`, or half of it where a row moves all utilities in the same
    direction (`monotone`). Exponential noise, added on both sides, has the same costs as Laplace
    noise and smaller errors (`docs/frontier.md`).

    Attributes:
        noise: "laplace", or "exponential" (static).
        share: s, from 0.05 to 0.95; what noes alone cost of epsilon (static).
        monotone: whether, from any data to any neighbour, all utilities move in the same direction
            (static); counts do if rows are added or removed, not if they are replaced.
    """

    noise: str = static(default="laplace", kw_only=True)
    share: float = static(default=0.5, kw_only=True)
    monotone: bool = static(default=False, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        check(self.noise in _NOISES, "noise", self.noise, f"one of {tuple(_NOISES)}")
        fits = isinstance(self.share, (int, float)) and 0.05 <= self.share <= 0.95
        check(fits, "share", self.share, "a number from 0.05 to 0.95")
        object.__setattr__(self, "share", float(self.share))  # one of NumPy's would widen float32
        check(isinstance(self.monotone, bool), "monotone", self.monotone, "True or False")

    @property
    def _multiples(self) -> tuple[float, float]:
        """Of Delta/epsilon: scales of the threshold's and of the queries' noise."""
        return 1 / self.share, (1 if self.monotone else 2) / (1 - self.share)

    @property
    def max_noise_multiple(self) -> float:
        """The larger of both."""
        return max(self._multiples)

    def _scales(self, epsilon: ArrayLike, dtype: Any) -> tuple[Array, Array]:
        sensitivity: Any = self.sensitivity
        base = noise_scale(sensitivity, epsilon, dtype, self.max_noise_multiple)
        first, rest = self._multiples
        return first * base, rest * base

    def _process(self) -> Any:
        """That of the threshold noise, a scalar; a query's noise is one of its own at the start."""
        return _NOISES[self.noise](())


class AboveThresholdState(NamedTuple):
    """Threshold noise, in units of the utility, and the number of the next step."""

    noise: Array
    step: Array


class AboveThreshold(NoisyThreshold):
    """Stop at the first `utility + Lap(4 Delta/eps) >= threshold + Lap(2 Delta/eps)`.

    The threshold noise is drawn once, the query noise anew each time (Dwork and Roth 2014; Ligett
    2017, Algorithm 2; Lyu et al. 2017). For queries that do not depend on the data except through
    their answers: then the whole transcript costs `epsilon`, `share` of it without a yes. For the
    utilities of releases made from the same data see `InteractiveAboveThreshold`.

    Attributes:
        threshold: tau, scalar; or one for each query, shape (steps,), past whose end the rule
            never says yes. In units of the utility.
        sensitivity: Delta, largest change of any of the utilities between neighbours; they may
            change in different directions. In units of the utility.
        epsilon: privacy level, whatever the releases cost.
    """

    sensitivity: Any
    epsilon: Any
    fixed_price: ClassVar[bool] = True

    def init(self, key: Array, epsilon: ArrayLike) -> AboveThresholdState:
        """Draw the threshold noise; `epsilon`, what the releases cost, gives only its dtype."""
        dtype = float_dtype(epsilon, self.epsilon, self.sensitivity)
        scale, _ = self._scales(self.epsilon, dtype)
        noise = self._process().init(step_key(key, 0), scale)
        return AboveThresholdState(noise.value, jnp.int32(0))

    def step(
        self, key: Array, state: AboveThresholdState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[AboveThresholdState, Array]:
        """Answer one query; `epsilon` is not used."""
        del epsilon
        _, scale = self._scales(self.epsilon, state.noise.dtype)
        noise = self._process().init(key, scale).value
        stop = self.reached(utility, state.step, noise - state.noise)
        return state._replace(step=state.step + 1), stop

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`self.epsilon` once the rule has said yes, `share` of it for any number of noes."""
        del answers
        dtype = float_dtype(epsilon, self.epsilon)
        own = jnp.asarray(self.epsilon, dtype)
        return jnp.where(stopped, own, own * self.share) + jnp.zeros(jnp.shape(epsilon), dtype)


class InteractiveAboveThreshold(AboveThreshold):
    """AboveThreshold for queries that a private mechanism chooses (Ligett 2017, Lemma 2.8).

    The law, and what the test adds, are those of `AboveThreshold`; its theorem is not, since the
    queries ("how good is this release?") depend on the data themselves. The total is `epsilon`, or
    `share` of it without a yes, plus the ex-post cost of the releases up to the last one. Where
    these cost `(eps, delta)` with `delta > 0`, the bound must hold for all steps at once, as a
    boundary does; `docs/mathematics.md` has the proof.

    Attributes:
        threshold: as in `AboveThreshold`.
        sensitivity: as in `AboveThreshold`, over all releases that can come out, not just those
            that did: unprojected hypotheses usually have none.
        epsilon: as in `AboveThreshold`; Ligett's eps_A, or eps_0 (see `nrjax.stopping.accuracy`).
    """


class ReducedState(NamedTuple):
    """Where the test stands: `key` is the stream of the threshold noise, `epsilon` the largest."""

    key: Array
    noise: Any
    epsilon: Array
    step: Array
    status: Array


class ReducedAboveThreshold(NoisyThreshold):
    """AboveThreshold at rising privacy levels (Whitehouse 2022, Algorithm 1).

    Step n stops if `utility + Lap(4 Delta/eps_n) >= threshold + Z(2 Delta/eps_n)`. `eps_n` is what
    the releases cost so far, Z one scalar Laplace process (`nrjax.Laplace`), rewound as they are.
    Adds `eps_N` where it says yes (Theorem 5.1; with Brownian releases and a boundary psi
    the total is `2 psi(T_N)`, Corollary 5.2), and `eps_K/2` after K noes. With a constant epsilon
    it is `AboveThreshold`, draw for draw.

    The epsilons may be chosen from the releases but must not fall: the noise has been removed.
    Falling epsilons, and those that are not positive and finite, raise where they are concrete;
    under a trace the rule never says yes from then on and its status is `Status.INVALID_TIME`.

    Attributes:
        threshold: tau, as in `AboveThreshold`.
        sensitivity: Delta, as in `InteractiveAboveThreshold`.
    """

    sensitivity: Any
    uses_epsilon: ClassVar[bool] = True

    def init(self, key: Array, epsilon: ArrayLike) -> ReducedState:
        """Draw the threshold noise at the first epsilon."""
        _check_epsilon(epsilon)
        epsilon = jnp.asarray(epsilon, float_dtype(epsilon, self.sensitivity))
        scale, wide = self._scales(epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale, wide)
        scale = jnp.where(valid, scale, jnp.ones_like(scale))
        noise = self._process().init(step_key(key, 0), scale)
        status = jnp.where(valid, Status.RUNNING, Status.INVALID_TIME).astype(jnp.int32)
        return ReducedState(key, noise, epsilon, jnp.int32(0), status)

    def step(
        self, key: Array, state: ReducedState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[ReducedState, Array]:
        """Answer one query at `epsilon`."""
        _check_epsilon(epsilon, state.epsilon)
        epsilon = jnp.asarray(epsilon, state.epsilon.dtype)
        scale, wide = self._scales(epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale, wide) & (epsilon >= _floor(state.epsilon))
        status = jnp.where(valid, state.status, Status.INVALID_TIME).astype(jnp.int32)
        running = status == Status.RUNNING
        now = state.noise.time
        # Where epsilon seems to fall by rounding, both noises stay as they were.
        wide = jnp.where(running & (scale <= now), wide, now * (wide / scale))
        scale = jnp.where(running, jnp.minimum(scale, now), now)
        # A stream of its own, so that `key` is left to the query noise; the first draw took 0.
        noise = self._process().rewind(step_key(state.key, state.step + 1), state.noise, scale)
        apart = self._process().init(key, wide).value - noise.value
        stop = running & self.reached(utility, state.step, apart)
        epsilon = jnp.where(running, jnp.maximum(epsilon, state.epsilon), state.epsilon)
        return ReducedState(state.key, noise, epsilon, state.step + 1, status), stop

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`epsilon` once the rule has said yes, `share` of it for noes up to there."""
        del answers
        epsilon = jnp.asarray(epsilon, float_dtype(epsilon))
        return jnp.where(stopped, epsilon, epsilon * self.share)

    def status(self, state: ReducedState) -> Array:
        """`Status.RUNNING`, or `Status.INVALID_TIME` once an epsilon was not one it can follow."""
        return state.status


class LaplaceTests(ThresholdRule):
    """Stop at the first `utility + Lap(Delta/eps) >= threshold`, with new noise for each test.

    The tests of the doubling method (Ligett 2017, Algorithm 4): each is the Laplace mechanism on
    one utility, and costs `eps`, a no as much as a yes; k answers cost `k eps` by composition
    (Theorem A.2). The utilities may be of releases made from the same data, whose cost comes on
    top.

    Attributes:
        threshold: tau, as in `AboveThreshold`.
        sensitivity: Delta, as in `InteractiveAboveThreshold`.
        epsilon: privacy level of one test.
    """

    sensitivity: Any
    epsilon: Any

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Answer one query; `epsilon`, what the releases cost, gives only the dtype."""
        dtype = float_dtype(epsilon, self.epsilon, self.sensitivity)
        scale = noise_scale(self.sensitivity, self.epsilon, dtype)
        return state + 1, self.reached(utility, state, Laplace(()).init(key, scale).value)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`answers` times `self.epsilon`, rounded up; yes and no cost the same."""
        del stopped
        dtype = float_dtype(epsilon, self.epsilon)
        total = jnp.asarray(self.epsilon, dtype) * jnp.asarray(answers, dtype)
        total = total * (1 + _COST_MARGIN * float(jnp.finfo(dtype).eps))
        return total + jnp.zeros(jnp.shape(epsilon), dtype)


def _is_usable(epsilon: Array, scale: Array, wide: Array) -> Array:
    """Positive and finite, as is the noise that goes with it."""
    noise = (scale > 0) & jnp.isfinite(scale) & jnp.isfinite(wide)
    return (epsilon > 0) & jnp.isfinite(epsilon) & noise


def _floor(epsilon: Any) -> Any:
    """The smallest epsilon that is no fall from this one."""
    return epsilon * (1 - _ROUNDING * float(jnp.finfo(epsilon.dtype).eps))


def _check_epsilon(epsilon: ArrayLike, last: Array | None = None) -> None:
    number, last_number = concrete_or_none(epsilon), concrete_or_none(last)
    if number is None:
        return
    shown = number.tolist()
    check(np.isfinite(number) & (number > 0), "epsilon", shown, "positive and finite")
    if last_number is not None:
        right = f"at least {last_number.tolist()!r}, the one before: epsilons must not fall"
        check(number >= _floor(last_number), "epsilon", shown, right)
