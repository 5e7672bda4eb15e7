"""A simpler loop for trials with a single release, without bounds and refilled lanes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.interaction import Interaction
from nrjax.simulation.families import Trials, as_family
from nrjax.simulation.lanes import share_of
from nrjax.simulation.tiles import Options


def applies(trials: Trials, options: Options) -> bool:
    """Return whether trials end at their first release and should be run by this module.

    They should not if bounds can replace a utility that is not among the results, or if a tile is
    one trial, since a rule may round differently for a single trial.
    """
    family = as_family(trials)
    trial = family.member(family.select(jnp.int32(0)))
    spared = trial._uses_bounds and not options.exact
    return trial.schedule.max_steps == 1 and options.tile > 1 and not spared


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Run trials `first` to `first + count` on one device, and return their outcomes.

    Outcomes are bit-for-bit identical to those of `lanes.run`, which starts as many trials together
    and assesses them in the same tiles.
    """
    share = share_of(trials, key, first, count, options)
    lanes, rows = share.lanes, share.rows

    def end(trial: Interaction, state: engine.TrialState, assessed: Any) -> dict[str, Any]:
        outcome = engine.finish(trial, engine.judge(trial, state, *assessed))
        return options.select_fields(outcome, trial)

    def outcomes_of(number: Array) -> dict[str, Any]:
        varied, state = jax.vmap(share.start)(number)
        assessed = jax.lax.map(
            lambda lane: engine.assess(share.family.member(lane[0]), *lane[1:]),
            (varied, state.step, state.process),
            batch_size=options.tile,
        )
        # Always true. Without a branch XLA would fuse start and end, and round differently.
        return jax.lax.cond(
            jnp.any(number < share.size),
            lambda: share.vmap(end, varied, state, assessed),
            lambda: share.blank_rows(lanes),
        )

    def run_batch(batch: Array, outcomes: dict[str, Any]) -> dict[str, Any]:
        number = batch * lanes + jnp.arange(lanes, dtype=jnp.int32)
        place = jnp.where(number < share.size, number, rows)
        return jax.tree.map(
            lambda buffer, row: buffer.at[place].set(row, mode="drop"),
            outcomes,
            outcomes_of(number),
        )

    batches = (share.size + (lanes - 1)) // lanes
    return share.split_by_point(jax.lax.fori_loop(0, batches, run_batch, share.blank_rows(rows)))
