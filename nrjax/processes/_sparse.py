"""Sparse update of Laplace noise: sample only the coordinates that can move.

A coordinate stays if its uniform draw exceeds its probability of moving. So a coordinate stays,
whatever its noise, if its draw exceeds the largest of these probabilities. The other coordinates
are like successes of independent trials: the gaps between them are geometric, and their draws are
uniform below the largest probability.

The sparse update makes ridge regression under Laplace noise 1.5 times as fast (`whitehouse2022`,
6006 coordinates, 1000 trials on two CPU cores: 28 s of CPU time, and 43 s with a draw for each
coordinate).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.keys import step_key
from nrjax.processes._kernel import (
    move_probability,
    random_bits,
    rewind_laplace,
    uniform,
    uniform_and_complement,
)

_LEAST, _MOST = 1024, 2**21
"""Limits for sparse steps: at least `_LEAST` and fewer than `_MOST` coordinates."""

_DENSE = 1 / 6
"""Largest probability of moving for which a step is sparse, not a draw per coordinate."""

_ROWS = 8
"""Minimum number of trials that draw for each coordinate together."""

_SLOTS = 512
"""Maximum number of coordinates that are sampled per pass.

With few coordinates the number is a power of two, at most an eighth of all coordinates.
"""


def is_sparse(shape: tuple[int, ...]) -> bool:
    """Return whether noise of this shape samples only the coordinates that can move."""
    return _LEAST <= math.prod(shape) < _MOST


@jax.custom_batching.custom_vmap
def rewind_sparse(key: Array, value: Array, now: Array, time: Array) -> Array:
    """Return Laplace noise at `time`, given its `value`, shape (size,), at time `now`."""
    return _rewind(key[None], value[None], now[None], time[None])[0]


@rewind_sparse.def_vmap
def _batched(size: int, batched: list[Any], *arguments: Array) -> tuple[Array, bool]:
    """Rewind all trials in one loop, since `vmap` of a loop copies all noise at each pass."""
    stacked = [
        argument if is_batched else jnp.broadcast_to(argument, (size, *argument.shape))
        for argument, is_batched in zip(arguments, batched, strict=True)
    ]
    return _rewind(*stacked), True


def _rewind(key: Array, value: Array, now: Array, time: Array) -> Array:
    """Return the Laplace noise of many trials at smaller times.

    The arguments have shapes (trials,), (trials, size), (trials,) and (trials,), in this order.
    """
    size, dtype = value.shape[1], value.dtype
    most = move_probability(jnp.max(jnp.abs(value), axis=1), now, time)
    sparse = most <= _DENSE  # False for NaN
    rate = -jnp.log1p(-jnp.where(sparse, most, _DENSE))[:, None]
    slots = min(1 << (size // 8).bit_length() - 1, _SLOTS)

    def words(number: Array, shape: tuple[int, ...]) -> Array:
        return jax.vmap(lambda key: random_bits(step_key(key, number), shape, dtype))(key)

    def sample(number: Array, last: Array) -> tuple[Array, Array]:
        """Return the next coordinates after `last` that can move, and their draws."""
        bits = words(number, (2, slots))
        wait, complement = uniform_and_complement(bits[:, 0], dtype)
        wait = jnp.where(wait < 0.5, -jnp.log1p(-wait), -jnp.log(complement))
        gap = jnp.where(wait < rate * size, jnp.floor(wait / rate), size).astype(jnp.int32)
        places = last[:, None] + jnp.cumsum(gap + 1, axis=1)
        return places, most[:, None] * uniform(bits[:, 1], dtype)

    def moved(draws: Array, value: Array) -> Array:
        return rewind_laplace(draws, 1 - draws, value, now[:, None], time[:, None])

    def sparse_pass(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, last, new = loop
        unfinished = jnp.any(last < size)
        places, draws = _isolated(unfinished, sample, number, last)
        before = _isolated(unfinished, _gather, value, places)
        after = _isolated(unfinished, moved, draws, before)
        # Finished trials wait for the others, and their last place must not overflow.
        last = jnp.minimum(places[:, -1], size)
        return number + 1, last, jax.vmap(_scatter)(new, places, after)

    number, last = jnp.int32(0), jnp.where(sparse, -1, size).astype(jnp.int32)
    loop = (number, last, value)
    new = jax.lax.while_loop(lambda loop: jnp.any(loop[1] < size - 1), sparse_pass, loop)[2]
    return _rewind_dense(~sparse, new, key, now, time)


def _rewind_dense(dense: Array, value: Array, *arguments: Array) -> Array:
    """Return the noise after each coordinate of the trials marked in `dense` was drawn.

    `value` has shape (trials, size). `arguments` are the keys, the times now and the next times,
    each with an axis of trials. The marked trials are gathered, a few at a time, because most steps
    have some and few steps have many.
    """
    trials, size = value.shape
    rows, count = min(trials, max(_ROWS, trials // 8)), jnp.sum(dense, dtype=jnp.int32)
    order = jnp.pad(jnp.argsort(~dense, stable=True).astype(jnp.int32), (0, -trials % rows))

    def draw(value: Array, key: Array, now: Array, time: Array) -> Array:
        bits = random_bits(step_key(key, 0), (size,), value.dtype)
        return rewind_laplace(*uniform_and_complement(bits, value.dtype), value, now, time)

    def dense_pass(loop: tuple[Array, Array]) -> tuple[Array, Array]:
        first, new = loop
        chosen = jax.lax.dynamic_slice_in_dim(order, first, rows)
        before = _isolated(count > 0, lambda new, chosen: new[chosen], new, chosen)
        after = jax.vmap(draw)(before, *(argument[chosen] for argument in arguments))
        # The last pass is filled up with other trials, which are dropped here.
        place = jnp.where(first + jnp.arange(rows) < count, chosen, trials)
        return first + rows, new.at[place].set(after, mode="drop")

    loop = (jnp.int32(0), value)
    return jax.lax.while_loop(lambda loop: loop[0] < count, dense_pass, loop)[1]


def _gather(value: Array, places: Array) -> Array:
    return jnp.take_along_axis(value, places, axis=1, mode="clip")


def _scatter(value: Array, places: Array, new: Array) -> Array:
    options = {"mode": "drop", "unique_indices": True, "indices_are_sorted": True}
    return value.at[places].set(new, **options)


def _isolated(unfinished: Array, function: Callable[..., Any], *inputs: Array) -> Any:
    """Return `function(*inputs)`, computed in a loop of one pass if `unfinished`.

    The loop keeps XLA from fusing the function with a gather or a scatter, which would prevent
    vectorisation.
    """
    blank = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *inputs)
    )

    def once(loop: tuple[Array, tuple[Array, ...], Any]) -> tuple[Array, tuple[Array, ...], Any]:
        return jnp.bool_(False), loop[1], function(*loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], once, (unfinished, inputs, blank))[2]
