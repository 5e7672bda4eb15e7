"""Trials that look once: their programs have no bounds, no next release and no lanes to refill."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.simulation.lanes import Derived, Share, Trials, assess, exactly, in_points


def suits(trials: Trials, tile: int, fields: tuple[str, ...], derived: Derived) -> bool:
    """Whether every schedule has one time: each trial ends at its first release.

    Where bounds may stand for utilities that nobody asked for, the rows are better spared. A trial
    alone in its tile would be judged alone too, which may round otherwise.
    """
    one = trials.member(trials.at(jnp.int32(0)))
    spared = one.by_bounds and not exactly(fields, derived)
    return one.schedule.max_steps == 1 and tile > 1 and not spared


def run(
    trials: Trials,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    lanes: int,
    capacity: int,
    fields: tuple[str, ...],
    derived: Derived,
) -> dict[str, Any]:
    """Outcomes of trials `first` to `first + count` on one device; `capacity` rows, rest unset.

    To the same bits as `lanes.run`: as many trials are started together, and assessed in the same
    tiles.
    """
    points = math.prod(trials.axes)
    lanes, rows = min(lanes, max(capacity, 2)), capacity * points
    share = Share(trials, key, first, count * points, points, fields, derived)

    def end(varied: Any, state: engine.TrialState, found: Any) -> dict[str, Any]:
        return share.finish(varied, engine.judge(trials.member(varied), state, *found))

    def served(number: Array) -> dict[str, Any]:
        varied, state = jax.vmap(share.start)(number)
        parts = jax.tree.map(
            lambda leaf: leaf.reshape(-1, tile, *leaf.shape[1:]),
            (varied, state.step, state.process),
        )
        found = jax.lax.map(lambda part: assess(trials, *part), parts)
        found = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
        # Always so, but in a branch: XLA would fuse start and end, and round otherwise.
        return jax.lax.cond(
            jnp.any(number < share.size),
            lambda: jax.vmap(end)(varied, state, found),
            lambda: share.unset(lanes),
        )

    def serve(batch: Array, outcomes: dict[str, Any]) -> dict[str, Any]:
        number = batch * lanes + jnp.arange(lanes, dtype=jnp.int32)
        place = jnp.where(number < share.size, number, rows)
        return jax.tree.map(
            lambda buffer, row: buffer.at[place].set(row, mode="drop"), outcomes, served(number)
        )

    outcomes = jax.lax.fori_loop(0, (share.size + (lanes - 1)) // lanes, serve, share.unset(rows))
    return in_points(trials, outcomes, capacity)
