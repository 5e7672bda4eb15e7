"""Trials that look once: their programs have no bounds, no next release and no lanes to refill."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.interaction import Interaction
from nrjax.simulation.lanes import Trials, share_of
from nrjax.simulation.tiles import Options


def suits(trials: Trials, options: Options) -> bool:
    """Whether every schedule has one time: each trial ends at its first release.

    Where bounds may stand for utilities that nobody asked for, the rows are better spared. A trial
    alone in its tile would be judged alone too, which may round otherwise.
    """
    one = trials.member(trials.at(jnp.int32(0)))
    spared = one._uses_bounds and not options.exact
    return one.schedule.max_steps == 1 and options.tile > 1 and not spared


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Outcomes of trials `first` to `first + count` on one device.

    To the same bits as `lanes.run`: as many trials are started together, and assessed in the same
    tiles.
    """
    share = share_of(trials, key, first, count, options)
    lanes, rows = share.lanes, share.rows

    def end(trial: Interaction, state: engine.TrialState, found: Any) -> dict[str, Any]:
        return options.kept_of(engine.finish(trial, engine.judge(trial, state, *found)))

    def served(number: Array) -> dict[str, Any]:
        varied, state = jax.vmap(share.start)(number)
        found = jax.lax.map(
            lambda one: engine.assess(trials.member(one[0]), *one[1:]),
            (varied, state.step, state.process),
            batch_size=options.tile,
        )
        # Always so, but in a branch: XLA would fuse start and end, and round otherwise.
        return jax.lax.cond(
            jnp.any(number < share.size),
            lambda: share.of_lanes(end, varied, state, found),
            lambda: share.unset(lanes),
        )

    def serve(batch: Array, outcomes: dict[str, Any]) -> dict[str, Any]:
        number = batch * lanes + jnp.arange(lanes, dtype=jnp.int32)
        place = jnp.where(number < share.size, number, rows)
        return jax.tree.map(
            lambda buffer, row: buffer.at[place].set(row, mode="drop"), outcomes, served(number)
        )

    turns = (share.size + (lanes - 1)) // lanes
    return share.by_point(jax.lax.fori_loop(0, turns, serve, share.unset(rows)))
