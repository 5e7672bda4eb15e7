"""What one device does with its share of the trials.

A `vmap` of a stopping loop runs every lane as long as the slowest. Here a fixed number of lanes
take a few masked steps at a time; lanes whose trial has ended are written out and refilled with
the next trials. Releases are assessed in tiles of a fixed number of trials, so that a trial's bits
do not depend on how many others there are: a matrix product differs in the last bits between
batch sizes, not between places in a batch (of a power of two: in odd ones it was seen to).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.engine import TrialState
from nrjax.interaction import Interaction
from nrjax.keys import is_key, trial_key
from nrjax.types import Outcome, Status

Derived = tuple[tuple[str, Callable[[Outcome], Array]], ...]
"""Results by name that are made of one trial's outcome, when it ends."""


class Session(Protocol):
    """A pytree whose trials run by themselves, such as `nrjax.counts.CountRelease`."""

    def run(self, key: Array) -> Any:
        """One trial: a NamedTuple of arrays."""
        ...


class Lanes(NamedTuple):
    """Trials under way on one device, and the outcomes of those that ended."""

    state: TrialState
    trial: Array
    """Number of each lane's trial within the share, int32."""
    occupied: Array
    late: Array
    """Whether the last release was judged by its ceiling. If it ends the trial it is assessed."""
    following: Array
    """Number of the next trial to start, int32."""
    outcomes: dict[str, Any]


def _tiled(trial: Interaction, state: TrialState, wanted: Array, tile: int) -> tuple[Any, Array]:
    """Hypothesis and utility of the wanted lanes, gathered into as few tiles as hold them.

    The other lanes keep those they have.
    """
    assess = jax.vmap(lambda step, process: engine.assess(trial, step, process))
    order = jnp.argsort(~wanted, stable=True)

    def serve(number: Array, found: tuple[Any, Array]) -> tuple[Any, Array]:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * tile, tile)
        step, process = jax.tree.map(lambda leaf: leaf[chosen], (state.step, state.process))
        # The last tile is filled up with lanes that are not wanted: those are dropped.
        place = jnp.where(wanted[chosen], chosen, wanted.shape[0])
        return jax.tree.map(
            lambda buffer, rows: buffer.at[place].set(rows, mode="drop"),
            found,
            assess(step, process),
        )

    found = (state.hypothesis, state.utility)
    if wanted.shape[0] == tile:
        # Not a loop: XLA would take what does not depend on the tile's number, that is all of it,
        # out of the loop, and do it also when no lane wants it.
        return jax.lax.cond(jnp.any(wanted), lambda: serve(jnp.int32(0), found), lambda: found)
    tiles = (jnp.sum(wanted, dtype=jnp.int32) + (tile - 1)) // tile
    return jax.lax.fori_loop(0, tiles, serve, found)


def _assessed(
    trial: Interaction, state: TrialState, running: Array, late: Array, tile: int
) -> tuple[Any, Array, Array]:
    """What the rule is to judge, and which lanes still have to be assessed when they end.

    Where the rule would say no to the ceiling of the utility, the ceiling stands for the utility.
    Lanes that have ended and are `late` are assessed with the others: one copy of what may be a
    large program.
    """
    never = jnp.zeros_like(running)
    if not engine.has_ceiling(trial):
        if running.shape[0] == tile:
            assess = jax.vmap(lambda step, process: engine.assess(trial, step, process))
            return *assess(state.step, state.process), never
        return *_tiled(trial, state, running, tile), never
    declined, ceiling = jax.vmap(lambda state: engine.decline(trial, state))(state)
    hypothesis, utility = _tiled(trial, state, (running & ~declined) | late, tile)
    return hypothesis, jnp.where(running & declined, ceiling, utility), running & declined


def _running(carry: Lanes) -> Array:
    return carry.occupied & (carry.state.status == Status.RUNNING)


def _ended(carry: Lanes) -> Array:
    return carry.occupied & ~_running(carry)


def _stepped(trial: Interaction, carry: Lanes, late: Array, tile: int) -> tuple[TrialState, Array]:
    """State, and who is late, after a step of the lanes whose trials run.

    The `late` ones given, which have ended, are assessed.
    """
    at_work = _running(carry)
    hypothesis, utility, declined = _assessed(trial, carry.state, at_work, late, tile)

    def lane(state: TrialState, hypothesis: Any, utility: Array, late: Array) -> TrialState:
        state = engine.advance(trial, engine.judge(trial, state, hypothesis, utility))
        if not engine.has_ceiling(trial):
            return state
        found = state._replace(hypothesis=hypothesis, utility=utility)
        return jax.tree.map(lambda new, old: jnp.where(late, new, old), found, state)

    state = jax.vmap(lane)(carry.state, hypothesis, utility, late)
    return state, jnp.where(at_work, declined, carry.late & ~late)


def _unset(shapes: Any, key: Array) -> Any:
    """A pytree of these shapes and dtypes that stands for nothing; `key` where keys are."""
    return jax.tree.map(
        lambda leaf: (
            jnp.broadcast_to(key, leaf.shape) if is_key(leaf) else jnp.zeros(leaf.shape, leaf.dtype)
        ),
        shapes,
    )


def run(
    trial: Interaction,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    lanes: int,
    inner_steps: int,
    capacity: int,
    fields: tuple[str, ...],
    derived: Derived = (),
) -> dict[str, Any]:
    """Outcomes of trials `first` to `first + count` on one device; `capacity` rows, rest unset."""
    start = jax.vmap(lambda k: engine.start(trial, k))
    keys = jax.vmap(lambda number: trial_key(key, number))

    def finish(state: TrialState) -> dict[str, Any]:
        outcome = engine.finish(trial, state)
        kept = {name: getattr(outcome, name) for name in fields}
        return kept | {name: jnp.asarray(function(outcome)) for name, function in derived}

    blank = jax.eval_shape(lambda k: finish(engine.start(trial, k)), key)
    outcomes = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), blank)

    def refill(carry: Lanes) -> Lanes:
        """Write out the lanes that have ended and start the next trials in them."""
        written = _ended(carry) & ~carry.late
        free = written | ~carry.occupied
        rows = jnp.where(written, carry.trial, capacity)
        finished = jax.vmap(finish)(carry.state)
        outcomes = jax.tree.map(
            lambda buffer, row: buffer.at[rows].set(row, mode="drop"), carry.outcomes, finished
        )
        number = carry.following + jnp.cumsum(free, dtype=jnp.int32) - 1
        taken = free & (number < count)
        fresh = start(keys(first + number.astype(jnp.uint32)))

        # Lanes without a trial get a state too, as good as any: they take steps with the others.
        def pick(new: Array, old: Array) -> Array:
            return jnp.where(free.reshape(free.shape + (1,) * (new.ndim - 1)), new, old)

        return Lanes(
            state=jax.tree.map(pick, fresh, carry.state),
            trial=jnp.where(taken, number, carry.trial),
            occupied=(carry.occupied & ~free) | taken,
            late=carry.late & ~free,
            following=carry.following + jnp.sum(taken, dtype=jnp.int32),
            outcomes=outcomes,
        )

    def company(ended: Array, carry: Lanes) -> Array:
        """Whether enough lanes have ended: starting a trial can cost as much as many steps."""
        enough = jnp.sum(ended, dtype=jnp.int32) >= max(1, lanes // 8)
        return enough & (carry.following < count)

    def take_step(_: Array, carry: Lanes) -> Lanes:
        at_work, ended = _running(carry), _ended(carry)
        # Without trials to start, ended lanes wait for the last one to end.
        late = ended & carry.late & (company(ended, carry) | ~jnp.any(at_work))
        state, late = jax.lax.cond(
            jnp.any(at_work | late),
            lambda: _stepped(trial, carry, late, tile),
            lambda: (carry.state, carry.late),
        )
        return carry._replace(state=state, late=late)

    def body(carry: Lanes) -> Lanes:
        carry = jax.lax.fori_loop(0, inner_steps, take_step, carry)
        ended = _ended(carry)
        under_way = _running(carry) | (ended & carry.late)
        enough = company(ended & ~carry.late, carry)
        return jax.lax.cond(enough | ~jnp.any(under_way), refill, lambda carry: carry, carry)

    nobody = jnp.zeros((lanes,), jnp.int32)
    nothing = jnp.zeros((lanes,), bool)
    state = jax.eval_shape(lambda: start(keys(nobody.astype(jnp.uint32))))
    carry = Lanes(_unset(state, key), nobody, nothing, nothing, jnp.int32(0), outcomes)

    # A lane is occupied until its outcome is written, also if its trial failed at the start.
    def unfinished(carry: Lanes) -> Array:
        return jnp.any(carry.occupied) | (carry.following < count)

    return jax.lax.while_loop(unfinished, body, carry).outcomes


def paths(
    trial: Interaction,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    capacity: int,
    length: int,
    fields: tuple[str, ...],
) -> dict[str, Any]:
    """Whole paths of trials `first` to `first + count`, a tile at a time."""

    def one(number: Array) -> dict[str, Any]:
        records = engine.path(trial, trial_key(key, first + number), length)
        return {name: getattr(records, name) for name in fields}

    return _by_tiles(one, count, tile, capacity)


def sessions(
    trial: Session, key: Array, first: Array, count: Array, *, tile: int, capacity: int
) -> dict[str, Any]:
    """Results of trials `first` to `first + count` that run by themselves, a tile at a time."""

    def one(number: Array) -> dict[str, Any]:
        return trial.run(trial_key(key, first + number))._asdict()

    return _by_tiles(one, count, tile, capacity)


def _by_tiles(
    one: Callable[[Array], dict[str, Any]], count: Array, tile: int, capacity: int
) -> dict[str, Any]:
    """`one` of the numbers below `count`, `tile` at a time; `capacity` rows, the rest unset."""
    blank = jax.eval_shape(one, jnp.uint32(0))
    buffers = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), blank)

    def serve(tile_number: Array, buffers: dict[str, Any]) -> dict[str, Any]:
        at = tile_number * tile
        rows = jax.vmap(one)(at.astype(jnp.uint32) + jnp.arange(tile, dtype=jnp.uint32))
        return jax.tree.map(
            lambda buffer, row: jax.lax.dynamic_update_slice_in_dim(buffer, row, at, 0),
            buffers,
            rows,
        )

    return jax.lax.fori_loop(0, (count + (tile - 1)) // tile, serve, buffers)
