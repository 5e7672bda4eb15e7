"""A step of Laplace noise in which few of many coordinates move: they are found, not asked.

A coordinate stays where its uniform draw is above its probability of moving. So those whose draw is
above the largest of these probabilities stay, wherever they are; the others are successes of
independent trials, with geometric gaps between them, and their draws are uniform below it.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.keys import step_key
from nrjax.processes._kernel import moving, random_bits, rewound, uniform, uniforms

_LEAST, _MOST = 1024, 2**21
"""Coordinates from which on, and below which, those that move are looked for."""

_SHARE = 1 / 6
"""Largest probability of moving above which all coordinates draw."""

_SLOTS = 512
"""Most places that one turn finds; else a power of two, from an eighth of the coordinates down: XLA
vectorises no odd numbers."""


def few_move(shape: tuple[int, ...]) -> bool:
    """Whether a process of this shape looks for the coordinates that move."""
    return _LEAST <= math.prod(shape) < _MOST


@jax.custom_batching.custom_vmap
def move_few(key: Array, value: Array, now: Array, time: Array) -> Array:
    """`rewound` of coordinates, shape (size,), of noise `now`, at `time`; exact at all times."""
    return _move(key[None], value[None], now[None], time[None])[0]


@move_few.def_vmap
def _lanes(size: int, batched: list[Any], *arguments: Array) -> tuple[Array, bool]:
    """Many trials take their turns together: under `vmap` all state would be selected at each."""
    many = [
        argument if one else jnp.broadcast_to(argument, (size, *argument.shape))
        for argument, one in zip(arguments, batched, strict=True)
    ]
    return _move(*many), True


def _move(key: Array, value: Array, now: Array, time: Array) -> Array:
    """Of many trials: shapes (lanes,), (lanes, size), (lanes,) and (lanes,)."""
    size, dtype = value.shape[1], value.dtype
    share = moving(jnp.max(jnp.abs(value), axis=1), now, time)
    few = share <= _SHARE  # not if NaN
    rate = -jnp.log1p(-jnp.where(few, share, _SHARE))[:, None]
    slots = min(1 << (size // 8).bit_length() - 1, _SLOTS)

    def bits(turn: Array, shape: tuple[int, ...]) -> Array:
        return jax.vmap(lambda key: random_bits(step_key(key, turn), shape, dtype))(key)

    def draw(turn: Array, last: Array) -> tuple[Array, Array]:
        """The next places after the last, and their draws."""
        words = bits(turn, (2, slots))
        wait, rest = uniforms(words[:, 0], dtype)
        wait = jnp.where(wait < 0.5, -jnp.log1p(-wait), -jnp.log(rest))
        gap = jnp.where(wait < rate * size, jnp.floor(wait / rate), size).astype(jnp.int32)
        places = last[:, None] + jnp.cumsum(gap + 1, axis=1)
        return places, share[:, None] * uniform(words[:, 1], dtype)

    def each(draw: Array, rest: Array, value: Array) -> Array:
        return rewound(draw, rest, value, now[:, None], time[:, None])

    def find(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        turn, last, new = loop
        wanted = jnp.any(last < size)
        places, draws = _apart(wanted, draw, turn, last)
        before = _apart(wanted, _taken, value, places)
        after = _apart(wanted, lambda draws, before: each(draws, 1 - draws, before), draws, before)
        # Lanes that are done go on with the others, and must not count for ever.
        last = jnp.minimum(places[:, -1], size)
        return turn + 1, last, jax.vmap(_put)(new, places, after)

    def ask(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        turn, wanted, new = loop
        asked = each(*uniforms(bits(turn, (size,)), dtype), new)
        return turn + 1, wanted & False, jnp.where(wanted[:, None], asked, new)

    turn, last = jnp.int32(0), jnp.where(few, -1, size).astype(jnp.int32)
    new = jax.lax.while_loop(lambda loop: jnp.any(loop[1] < size - 1), find, (turn, last, value))[2]
    return jax.lax.while_loop(lambda loop: jnp.any(loop[1]), ask, (turn, ~few, new))[2]


def _taken(value: Array, places: Array) -> Array:
    return jnp.take_along_axis(value, places, axis=1, mode="clip")


def _put(value: Array, places: Array, new: Array) -> Array:
    put = {"mode": "drop", "unique_indices": True, "indices_are_sorted": True}
    return value.at[places].set(new, **put)


def _apart(wanted: Array, function: Callable[..., Any], *inputs: Array) -> Any:
    """`function(*inputs)` in a loop of one turn, if `wanted`, which XLA does not know to be true.

    In one kernel with a gather or a scatter it would be vectorised no more.
    """
    unset = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *inputs)
    )

    def turn(loop: tuple[Array, tuple[Array, ...], Any]) -> tuple[Array, tuple[Array, ...], Any]:
        return jnp.bool_(False), loop[1], function(*loop[1])

    return jax.lax.while_loop(lambda loop: loop[0], turn, (wanted, inputs, unset))[2]
