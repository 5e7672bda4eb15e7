"""One count by fresh Gaussian noise of ever larger privacy parameters, all paid for."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.composition.requests import BrownianReduction
from nrjax.counts.passages import Passage, Verdict, skip_quantile

_MOST_SKIPPED = 30
"""So that `2^skipped - 1` is an int32; tries beyond it are drawn, accepted or not."""


class DoublingState(NamedTuple):
    """A count whose next try has variance `time`."""

    time: Array


class DoublingPassage(Passage):
    """The baseline of Rogers 2023, section 7.1: the squared parameter doubles from try to try.

    A try is Gaussian noise of variance t, charged as a Brownian reduction that stops at its only
    time. The first tries are not drawn as long as the noise would have to be `skip_quantile`
    deviations off to be accepted; they are paid for in one sum, which is a geometric series. The
    squared privacy parameter is `1/t`; `levels` is the number of tries that `skip_quantile` allows
    for.
    """

    def first_request(self, dtype: Any) -> BrownianReduction:
        """The first try."""
        return BrownianReduction(1.0, 1 / jnp.asarray(self.smallest, dtype))

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, DoublingState]:
        """Pay for the tries that cannot be accepted, as many as the filter admits."""
        dtype, limits = count.dtype, jnp.finfo(count.dtype)
        first = jnp.asarray(self.smallest, dtype)
        quantile, accuracy = skip_quantile(max(self.levels, 64)), self.accuracy
        # Try k is out of the question if sqrt(first 2^k) count <= upper - quantile.
        hopeless = jnp.square((accuracy.upper - quantile) / count) / first
        safe = accuracy.upper > quantile
        safe &= accuracy.lower + count * jnp.sqrt(first) >= quantile
        wanted = jnp.where(safe & (hopeless >= 1), jnp.floor(jnp.log2(hopeless)) + 1, 0)
        # `number` tries cost `first (2^number - 1)`, which must fit into what is left.
        left = 1 / jnp.asarray(filter.smallest_time(spent, BrownianReduction), dtype)
        fits = jnp.floor(jnp.log2(1 + left / first * (1 - 16 * float(limits.eps))))
        number = jnp.clip(jnp.minimum(wanted, fits), 0, _MOST_SKIPPED).astype(jnp.int32)
        factor = jnp.left_shift(jnp.int32(1), number)
        skipped = jnp.maximum(factor - 1, 1).astype(dtype) * first
        # A time is rounded to more cost.
        time = (1 - 4 * float(limits.eps)) / skipped
        paid, admitted = filter.take(spent, BrownianReduction(1.0, time))
        # Logarithms round: without a sure yes all tries are drawn, which has the same law.
        some = (number > 0) & admitted
        spent = jax.tree.map(lambda new, old: jnp.where(some, new, old), paid, spent)
        return spent, DoublingState(1 / (first * jnp.where(some, factor, 1)))

    def step(
        self, filter: Any, spent: Any, state: DoublingState, count: Array, draw: Array
    ) -> tuple[Any, DoublingState, Verdict]:
        """The next try, unless the filter refuses to start it; `draw` is standard normal."""
        spent, admitted = filter.take(spent, BrownianReduction(1.0, state.time))
        deviation = jnp.sqrt(state.time)
        noise = deviation * draw
        accepted = admitted & self.accuracy.accepts(count + noise, deviation)
        verdict = Verdict(accepted | ~admitted, accepted, self.accuracy.precise(noise, count))
        return spent, DoublingState(state.time / 2), verdict
