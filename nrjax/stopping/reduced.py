"""Private threshold tests whose noise shrinks along with that of the releases."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, concrete, float_dtype
from nrjax.keys import step_key
from nrjax.processes.laplace import Laplace, LaplaceState
from nrjax.stopping._thresholds import ThresholdRule
from nrjax.stopping.above_threshold import first_noise, query_noise, threshold_scale
from nrjax.types import Status

# Machine epsilons by which an epsilon may seem to fall: a guarantee's is right to 24 or so, and
# the noise was drawn with more to spare (`threshold_scale`). Beyond it is a fall.
_ROUNDING = 32


class ReducedState(NamedTuple):
    """Where the test stands: `key` is the stream of the threshold noise, `epsilon` the largest."""

    key: Array
    noise: LaplaceState
    epsilon: Array
    step: Array
    status: Array


class ReducedAboveThreshold(ThresholdRule):
    """AboveThreshold at rising privacy levels (Whitehouse 2022, Algorithm 1).

    Step n stops if `utility + Lap(4 Delta/eps_n) >= threshold + Z(2 Delta/eps_n)`. `eps_n` is what
    the releases cost so far, Z one scalar Laplace process (`nrjax.Laplace`), rewound as they are.
    Adds `eps_N` where it says yes (Theorem 5.1; with Brownian releases and a boundary psi
    the total is `2 psi(T_N)`, Corollary 5.2), and `eps_K/2` after K noes: the threshold noises up
    to step n all move by Delta at the price of moving the last one, and only the yes costs more.
    With a constant epsilon it is `AboveThreshold`, draw for draw.

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
        scale = threshold_scale(self.sensitivity, epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale)
        noise = first_noise(key, jnp.where(valid, scale, jnp.ones_like(scale)))
        status = jnp.where(valid, Status.RUNNING, Status.INVALID_TIME).astype(jnp.int32)
        return ReducedState(key, noise, epsilon, jnp.int32(0), status)

    def step(
        self, key: Array, state: ReducedState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[ReducedState, Array]:
        """Answer one query at `epsilon`."""
        _check_epsilon(epsilon, state.epsilon)
        epsilon = jnp.asarray(epsilon, state.epsilon.dtype)
        scale = threshold_scale(self.sensitivity, epsilon, epsilon.dtype)
        valid = _is_usable(epsilon, scale) & (epsilon >= _floor(state.epsilon))
        status = jnp.where(valid, state.status, Status.INVALID_TIME).astype(jnp.int32)
        running = status == Status.RUNNING
        scale = jnp.where(running, jnp.minimum(scale, state.noise.time), state.noise.time)
        # A stream of its own, so that `key` is left to the query noise; the first draw took 0.
        noise = Laplace(()).rewind(step_key(state.key, state.step + 1), state.noise, scale)
        apart = query_noise(key, scale) - noise.value
        stop = running & self.reached(utility, state.step, apart)
        epsilon = jnp.where(running, jnp.maximum(epsilon, state.epsilon), state.epsilon)
        return ReducedState(state.key, noise, epsilon, state.step + 1, status), stop

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`epsilon` once the rule has said yes, half of it for noes up to there."""
        del answers
        epsilon = jnp.asarray(epsilon, float_dtype(epsilon))
        return jnp.where(stopped, epsilon, epsilon / 2)

    def status(self, state: ReducedState) -> Array:
        """`Status.RUNNING`, or `Status.INVALID_TIME` once an epsilon was not one it can follow."""
        return state.status


def _is_usable(epsilon: Array, scale: Array) -> Array:
    """Positive and finite, as is the noise that goes with it, twice as wide as `scale`."""
    return (epsilon > 0) & jnp.isfinite(epsilon) & (scale > 0) & jnp.isfinite(2 * scale)


def _floor(epsilon: Any) -> Any:
    """The smallest epsilon that is no fall from this one."""
    return epsilon * (1 - _ROUNDING * float(jnp.finfo(epsilon.dtype).eps))


def _check_epsilon(epsilon: ArrayLike, last: Array | None = None) -> None:
    number, last_number = concrete(epsilon), concrete(last)
    if number is None:
        return
    shown = number.tolist()
    check(np.isfinite(number) & (number > 0), "epsilon", shown, "positive and finite")
    if last_number is not None:
        right = f"at least {last_number.tolist()!r}, the one before: epsilons must not fall"
        check(number >= _floor(last_number), "epsilon", shown, right)
