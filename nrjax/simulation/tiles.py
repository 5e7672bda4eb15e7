"""The loop of one device over trials of equal length: whole paths and custom trials.

Trials that stop at different steps are run by `blocks` and `lanes`.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.keys import key_for, trial_key
from nrjax.engine.path import run_path

Derived = tuple[tuple[str, Callable[[Any], Array]], ...]
"""Named functions of a trial's outcome, path or custom result, run when the trial ends."""


_WRITTEN_OUT = 4
"""Steps that are written out on an accelerator. XLA fuses them, but compiles 16 for long."""


class Options(NamedTuple):
    """The options of a device's run: batch sizes, and the results that are kept.

    Attributes:
        tile: number of trials that are assessed, or run, together.
        fields: names of the fields of an outcome, a path or a custom result; None keeps all.
        derived: further results by name.
        lanes: number of trials that run at a time; 0 if it is one tile.
        inner_steps: number of steps between two checks for trials that have ended.
        length: number of steps of whole paths.
        capacity: rows of results per device; rows without a trial stay blank.
        accelerated: whether the device is an accelerator, where each kernel costs a launch, so
            that XLA should make few kernels.
    """

    tile: int
    fields: Sequence[str] | None
    derived: Derived
    lanes: int = 0
    inner_steps: int = 0
    length: int | None = None
    capacity: int = 0
    accelerated: bool = False

    @property
    def unroll(self) -> int:
        """The number of steps of a block that are written out, one after another."""
        return min(self.inner_steps, _WRITTEN_OUT) if self.accelerated else 1

    @property
    def exact(self) -> bool:
        """Whether a trial's last utility must be exact, even if bounds decide the answer."""
        return bool(self.derived) or not {"utility", "hypothesis"}.isdisjoint(self.fields or ())

    def select_fields(self, result: Any, trial: Any = None) -> dict[str, Any]:
        """Return the fields and derived results to keep of one outcome, path or custom result."""
        kept = {name: getattr(result, name) for name in self.fields or ()}
        derived = {name: derive(function, result, trial) for name, function in self.derived}
        return kept | jax.tree.map(jnp.asarray, derived)


class OfTrial(abc.ABC):
    """A function of an outcome, path or custom result that takes the trial as well."""

    @abc.abstractmethod
    def __call__(self, result: Any, trial: Any, /) -> Array:
        """Return the derived result of one trial."""


def derive(function: Callable[..., Any], result: Any, trial: Any) -> Any:
    """Return a derived result. A function of the class `OfTrial` takes the trial as well."""
    return function(result, trial) if isinstance(function, OfTrial) else function(result)


class CustomTrial(Protocol):
    """A custom trial: a pytree with a method `run`, such as `nrjax.counts.CountRelease`."""

    def run(self, key: Array) -> Any:
        """Run one trial, and return a NamedTuple of arrays."""
        ...


def run(trial: Any, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Run trials `first` to `first + count`, which are whole paths or custom trials."""

    def run_trial(number: Array) -> dict[str, Any]:
        own_key, length = trial_key(key, first + number), options.length
        if length is None:
            result = trial.run(key_for(trial, own_key))
        else:
            result = run_path(trial, own_key, length)
        return options._replace(fields=options.fields or result._fields).select_fields(result)

    return run_batches(jax.vmap(run_trial), count, options.tile, options.capacity)


def run_batches(batch: Callable[[Array], Any], count: Array, size: int, capacity: int) -> Any:
    """Run `count` trials with `batch`, a function of `size` trial numbers (uint32)."""
    form = jax.eval_shape(batch, jax.ShapeDtypeStruct((size,), jnp.uint32))
    buffers = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), form)

    def run_batch(turn: Array, buffers: Any) -> Any:
        start = turn * size
        rows = batch(start.astype(jnp.uint32) + jnp.arange(size, dtype=jnp.uint32))
        return jax.tree.map(
            lambda buffer, row: jax.lax.dynamic_update_slice_in_dim(buffer, row, start, 0),
            buffers,
            rows,
        )

    return jax.lax.fori_loop(0, (count + (size - 1)) // size, run_batch, buffers)


def where_wanted(
    wanted: Array,
    tile: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    current: Any,
) -> Any:
    """Return `current` with the wanted rows replaced by `function` of rows of `arguments`.

    The wanted rows are gathered into as few tiles as possible.
    """
    order = jnp.argsort(~wanted, stable=True)

    def run_tile(number: Array, current: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * tile, tile)
        rows = function(*jax.tree.map(lambda leaf: leaf[chosen], arguments))
        # The last tile is filled up with rows that are not wanted, which are dropped here.
        place = jnp.where(wanted[chosen], chosen, wanted.shape[0])
        return jax.tree.map(
            lambda buffer, rows: buffer.at[place].set(rows, mode="drop"), current, rows
        )

    tiles = (jnp.sum(wanted, dtype=jnp.int32) + (tile - 1)) // tile
    return jax.lax.fori_loop(0, tiles, run_tile, current)
