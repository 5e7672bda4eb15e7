"""The exponential mechanism that selects the next count, drawn once per trial."""

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
    """A private selection of the largest count: Gumbel noise of scale `1/epsilon` on each.

    Each count changes by at most one between neighbours. Repeated selection without replacement,
    with fresh noise each time, has the distribution of one draw of noise and the items in falling
    order (Durfee and Rogers 2019): the Plackett-Luce distribution with weights
    `exp(epsilon count)`. A selection is a `BoundedRange` request for a filter.

        order = ExponentialMechanism(epsilon=0.1).order(key, counts)  # the first is selected first

    Attributes:
        epsilon: privacy parameter of one selection, scalar, > 0.
        monotone: whether neighbours change all counts in the same direction, as adding or removing
            a user does (static). Then the privacy loss of a selection has range `epsilon`, else
            `2 epsilon` (Rogers 2023, section 7.2; Cesar and Rogers 2021).
    """

    epsilon: ArrayLike
    monotone: bool = static(default=True)

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        is_bool = isinstance(self.monotone, (bool, np.bool_))
        check(is_bool, "monotone", self.monotone, "True or False")

    @property
    def request(self) -> BoundedRange:
        """The request that one selection is charged as."""
        return BoundedRange(self.epsilon if self.monotone else 2 * self.epsilon)

    def scores(self, key: Array, counts: ArrayLike) -> Array:
        """Return `epsilon (count - largest)` plus standard Gumbel noise, shape (items,).

        Only differences of scores matter. Those to the largest count are small for the winners, so
        rounding does not lose the noise.
        """
        dtype = float_dtype(self.epsilon)
        counts = jnp.asarray(counts, dtype)
        below = counts - jnp.max(counts)
        # The usual float32 Gumbel draws end at 16, too low for the winner of many items.
        noise = jax.random.gumbel(key, counts.shape, dtype, mode="high")
        return jnp.asarray(self.epsilon, dtype) * below + noise

    def order(self, key: Array, counts: ArrayLike) -> Array:
        """Return the items in the order of repeated selection, int32, shape (items,)."""
        return jnp.argsort(-self.scores(key, counts)).astype(jnp.int32)
