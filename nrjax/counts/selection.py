"""The exponential mechanism that selects the largest counts, by one draw of noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import Pytree, static
from nrjax._base.validation import as_table, check, check_positive
from nrjax.composition.requests import BoundedRange
from nrjax.counts.groups import check_exact


class ExponentialMechanism(Pytree):
    """A private selection of the largest count, by Gumbel noise of scale `1/epsilon`.

    Neighbouring data sets differ by at most 1 in each count. Repeated selection without
    replacement, with fresh noise each time, has the same distribution as sorting the noisy counts
    of one draw (Durfee and Rogers 2019). It is the Plackett-Luce distribution with weights
    `exp(epsilon count)`. A filter charges one selection as a `BoundedRange` request.

        >>> mechanism = nrjax.counts.ExponentialMechanism(epsilon=0.1)
        >>> order = mechanism.order(jax.random.key(0), jnp.asarray([0.0, 1000.0, 500.0]))
        >>> order.tolist()  # the second count is selected first
        [1, 2, 0]

    Attributes:
        epsilon: privacy parameter of one selection, scalar, > 0.
        monotone: whether all counts change in the same direction between neighbours, as when a user
            is added or removed (static). The privacy loss of a selection has range `epsilon` if so,
            else `2 epsilon` (Rogers 2023, section 7.2; Cesar and Rogers 2021).
    """

    epsilon: ArrayLike
    monotone: bool = static(default=True)

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        is_bool = isinstance(self.monotone, (bool, np.bool_))
        check(is_bool, "monotone", self.monotone, "True or False")

    @property
    def request(self) -> BoundedRange:
        """The request that a filter charges for one selection.

        Counts that all change in the same direction are those of users who are added or removed.
        """
        if self.monotone:
            return BoundedRange(self.epsilon, relation="add-remove")
        return BoundedRange(2.0 * self.epsilon)  # a small integer could wrap

    @neutral_config()
    def scores(self, key: Array, counts: ArrayLike) -> Array:
        """Return `epsilon (count - largest)` plus standard Gumbel noise, shape (items,).

        Only differences between scores matter. Subtracting the largest count keeps the scores of
        likely winners small, so rounding does not lose their noise.
        """
        dtype = float_dtype(self.epsilon)
        check_exact("counts", as_table(counts))  # rounding would move neighbours apart
        counts = jnp.asarray(counts, dtype)
        below = counts - jnp.max(counts)
        # The default Gumbel draws in float32 are at most 16, too low for the winner of many items.
        noise = jax.random.gumbel(key, counts.shape, dtype, mode="high")
        return jnp.asarray(self.epsilon, dtype) * below + noise

    @neutral_config()
    def order(self, key: Array, counts: ArrayLike) -> Array:
        """Return the indices of the items in the order of selection, int32, shape (items,)."""
        return jnp.argsort(-self.scores(key, counts)).astype(jnp.int32)
