"""Which count is looked at next: the exponential mechanism, drawn once for a whole session."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, check_positive
from nrjax.composition.requests import BoundedRange
from nrjax.pytrees import Pytree, static


class ExponentialMechanism(Pytree):
    """The item of the largest count, privately: Gumbel noise of scale `1/epsilon` on each.

    Each count moves by at most one between neighbours. Taking the winner away and starting again
    with fresh noise has the law of one draw of noise and the items in its falling order
    (Durfee and Rogers 2019): both are the Plackett-Luce law with weights `exp(epsilon count)`.

    Attributes:
        epsilon: privacy parameter of one draw, scalar, > 0.
        monotone: whether neighbours move all counts the same way, as adding or removing a user
            does (static). Then the privacy loss of a draw has range `epsilon`, else
            `2 epsilon` (Rogers 2023, section 7.2; Cesar and Rogers 2021).
    """

    epsilon: ArrayLike
    monotone: bool = static(default=True)

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        ok = isinstance(self.monotone, (bool, np.bool_))
        check(ok, "monotone", self.monotone, "True or False")

    @property
    def request(self) -> BoundedRange:
        """What one draw is charged as."""
        return BoundedRange(self.epsilon if self.monotone else 2 * self.epsilon)

    def scores(self, key: Array, counts: ArrayLike) -> Array:
        """`epsilon (count - largest)` plus standard Gumbel noise; shape (items,).

        Only differences matter. Those to the largest count are small where the winners are, and so
        are not lost in rounding, as `epsilon count` plus the noise would be.
        """
        dtype = float_dtype(self.epsilon)
        counts = jnp.asarray(counts, dtype)
        below = counts - jnp.max(counts)
        # The usual float32 Gumbel draws end at 16: too early, with many items, for the winner's.
        noise = jax.random.gumbel(key, counts.shape, dtype, mode="high")
        return jnp.asarray(self.epsilon, dtype) * below + noise

    def order(self, key: Array, counts: ArrayLike) -> Array:
        """The items in the order in which repeated draws would take them, int32, by one draw."""
        return jnp.argsort(-self.scores(key, counts)).astype(jnp.int32)

    def peel(self, key: Array, counts: ArrayLike, draws: int) -> Array:
        """The first `draws` (static) of them by fresh noise for each, as printed: the slow oracle.

        Raises:
            ValueError: there are fewer items than `draws`.
        """
        items = np.shape(counts)[0]
        check(0 <= draws <= items, "draws", draws, f"in [0, {items}], the number of items")

        def take(gone: Array, number: Array) -> tuple[Array, Array]:
            scores = self.scores(jax.random.fold_in(key, number), counts)
            winner = jnp.argmax(jnp.where(gone, -jnp.inf, scores)).astype(jnp.int32)
            return gone.at[winner].set(True), winner

        return jax.lax.scan(take, jnp.zeros((items,), bool), jnp.arange(draws))[1]
