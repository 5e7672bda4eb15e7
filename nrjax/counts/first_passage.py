"""The release of one count on its own: where noise reduction stops, in a few draws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_integer, check_numbers, check_positive, float_dtype
from nrjax.counts.brownian import BrownianPassage
from nrjax.counts.laplace import LaplacePassage
from nrjax.counts.passages import OnLevels
from nrjax.counts.relative_error import RelativeError
from nrjax.keys import check_key

_KINDS: dict[str, type[Any]] = {"brownian": BrownianPassage, "laplace": LaplacePassage}

MOST = 2**24
"""Levels, or marks: beyond it float32 numbers skip integers."""


class FirstPassage(NamedTuple):
    """Where the release of a count ended. Scalars."""

    step: Array
    """Number of the level, from 0; the last one if none was accepted. int32."""
    time: Array
    """Time (noise level) there."""
    release: Array
    """The count plus noise, there."""
    accepted: Array
    """Whether the rule accepted it (bool)."""
    draws: Array
    """How many draws that took. int32."""


def release_count(
    key: Array,
    count: ArrayLike,
    accuracy: RelativeError,
    smallest: ArrayLike,
    largest: ArrayLike,
    levels: int = 1000,
    method: str = "brownian",
) -> FirstPassage:
    """Release a count by noise reduction: the first level at which it is accurate enough.

    The law is that of `nrjax.run_until` on the grid of all levels, with the rule's `utility` and
    `PublicThreshold(0)` (for Brownian noise up to a probability of 1e-12), without looking at each
    of them. For one trial; works under `jit` and `vmap`.

    Args:
        key: random key.
        count: the true count, scalar, >= 0.
        accuracy: when a noisy count is good enough.
        smallest: squared privacy parameter of the first level: `1/t` for Brownian noise, `1/t^2`
            for Laplace noise; > 0.
        largest: that of the last level; at least `smallest`.
        levels: how many levels, equally spaced between the two (static), at least 2.
        method: "brownian" or "laplace" (static).

    Raises:
        ValueError: an argument is out of range, where it has numbers, or is not a scalar.
    """
    key = check_key(key)
    check(
        isinstance(method, str) and method in _KINDS, "method", method, f"one of {sorted(_KINDS)}"
    )
    check_integer("levels", levels, 2, MOST)
    for name, value in {"count": count, "smallest": smallest, "largest": largest}.items():
        check(np.shape(value) == (), name, value, "a scalar; use vmap for several")
    right = "finite and not negative"
    check_numbers("count", count, lambda number: np.isfinite(number) & (number >= 0), right)
    low, high = check_smallest(smallest), check_positive("largest", largest)
    if low is not None and high is not None:
        check(high >= low, "largest", largest, f"at least smallest = {smallest!r}")
    return follow(key, count, _KINDS[method](accuracy, smallest, levels), largest)


def check_smallest(smallest: Any) -> np.ndarray | None:
    """Constructor check: a positive number that is not so small that JAX takes it for 0."""
    check_positive("smallest", smallest)
    tiny = float(jnp.finfo(jnp.result_type(float)).tiny)
    right = f"at least {tiny:.2g}, below which numbers of this precision are taken for 0"
    return check_numbers("smallest", smallest, lambda number: number >= tiny, right)


@jax.jit
def follow(key: Array, count: ArrayLike, passage: OnLevels, largest: ArrayLike) -> FirstPassage:
    """Where a passage ends, draw by draw; arguments as for `release_count`."""
    dtype = float_dtype(count, passage.smallest, largest)
    count, largest = jnp.asarray(count, dtype), jnp.asarray(largest, dtype)
    square_root = isinstance(passage, LaplacePassage)
    last_time = 1 / (jnp.sqrt(largest) if square_root else largest)
    state = passage.init(jnp.minimum(last_time, passage.first_time(dtype)))
    never = jnp.asarray(False)

    def draw(carry: Any) -> Any:
        state, _, _, draws = carry
        drawn = passage.draws(jax.random.fold_in(key, draws), 1, dtype)[0]
        return *passage.move(state, count, drawn), draws + 1

    state, _, accepted, draws = jax.lax.while_loop(
        lambda carry: ~carry[1], draw, (state, never, never, jnp.int32(0))
    )
    return FirstPassage(state.level, state.time, count + state.noise, accepted, draws)
