"""Private threshold tests at one privacy level: AboveThreshold, for fixed and for private queries.

Of all noes and the one yes only the yes is paid for: the noes depend on the data through the
threshold noise alone, which is drawn once.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.keys import step_key
from nrjax.processes.laplace import Laplace, laplace, random_bits
from nrjax.stopping._thresholds import ThresholdRule, noise_scale


class AboveThresholdState(NamedTuple):
    """Threshold noise, in units of the utility, and the number of the next step."""

    noise: Array
    step: Array


class AboveThreshold(ThresholdRule):
    """Stop at the first `utility + Lap(4 Delta/eps) >= threshold + Lap(2 Delta/eps)`.

    The threshold noise is drawn once, the query noise anew each time (Dwork and Roth 2014; Ligett
    2017, Algorithm 2; Lyu et al. 2017). For queries that do not depend on the data except through
    their answers: then the whole transcript costs `epsilon`. For the utilities of releases made
    from the same data see `InteractiveAboveThreshold`, which has the same law.

    Why the cost holds: shift the threshold noise by Delta, which costs `eps/2`; then no answer is
    less likely to be a no under the neighbour, and the yes needs a shift of 2 Delta in the query
    noise, which costs the other `eps/2`. Without a yes the first half is all.

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
        scale = threshold_scale(self.sensitivity, self.epsilon, dtype)
        return AboveThresholdState(first_noise(key, scale).value, jnp.int32(0))

    def step(
        self, key: Array, state: AboveThresholdState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[AboveThresholdState, Array]:
        """Answer one query; `epsilon` is not used."""
        del epsilon
        dtype = state.noise.dtype
        scale = threshold_scale(self.sensitivity, self.epsilon, dtype)
        stop = self.reached(utility, state.step, query_noise(key, scale) - state.noise)
        return state._replace(step=state.step + 1), stop

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`self.epsilon` once the rule has said yes, half of it for any number of noes."""
        del answers
        dtype = float_dtype(epsilon, self.epsilon)
        own = jnp.asarray(self.epsilon, dtype)
        return jnp.where(stopped, own, own / 2) + jnp.zeros(jnp.shape(epsilon), dtype)


class InteractiveAboveThreshold(AboveThreshold):
    """AboveThreshold for queries that a private mechanism chooses (Ligett 2017, Lemma 2.8).

    The law, and what the test adds, are those of `AboveThreshold`; its theorem is not, since the
    queries ("how good is this release?") depend on the data themselves. What differs:

    * The total is `epsilon` plus the ex-post cost of the releases up to the last one, not of all
      that the mechanism might still have made: given the releases the queries are fixed, and
      whether the test stops at t does not depend on later ones.
    * `sensitivity` must hold for every release that can come out, not just for those that did:
      unprojected hypotheses usually have none.
    * The stopping time looks at the data. Where releases cost `(eps, delta)` with `delta > 0`, the
      bound must hold for all steps at once, as a boundary does. Lemma 2.8 is for pure bounds.
    * Without a yes Algorithm 2 hides its queries; here the releases are shown, and the total is
      `epsilon / 2` plus their cost. The Lemma's proof is silent on that outcome.

    Attributes:
        threshold: as in `AboveThreshold`.
        sensitivity: as in `AboveThreshold`, over all releases that can come out.
        epsilon: as in `AboveThreshold`; Ligett's eps_A, or eps_0 (see `nrjax.stopping.accuracy`).
    """


def threshold_scale(sensitivity: ArrayLike, epsilon: ArrayLike, dtype: Any) -> Array:
    """Scale `2 Delta/eps` of the threshold noise, rounded up."""
    return 2 * noise_scale(sensitivity, epsilon, dtype)


def first_noise(key: Array, scale: Array) -> Any:
    """Threshold noise at the start: the state of a scalar Laplace process."""
    return Laplace(()).init(step_key(key, 0), scale)


def query_noise(key: Array, scale: Array) -> Array:
    """Fresh noise, twice as wide as the threshold's."""
    return 2 * scale * laplace(random_bits(key, (), scale.dtype), scale.dtype)
