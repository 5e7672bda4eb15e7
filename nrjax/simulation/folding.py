"""Trials folded into a sketch on the device that runs them, some at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._numerics import check
from nrjax.simulation.batching import bytes_of, power_of_two
from nrjax.simulation.bins import WholeBins
from nrjax.simulation.sketches import BLOCK, Sketch

_BYTES = 2**23
"""Results of the trials that a device holds before it folds them."""


class Blocks(NamedTuple):
    """Moments of blocks of `BLOCK` trials, each of shape (blocks, ..., variables)."""

    finite: Array
    """Values that are neither infinite nor NaN. int32."""
    mean: Array
    rest: Array
    """What the sum of the finite values is above `finite * mean`, by rounding."""
    squares: Array
    """Of the distances from the mean before `rest` is added to it."""


class Folded(NamedTuple):
    """What one device made of its share, for one group of variables."""

    counts: Array
    """Shape (..., counts), int32."""
    blocks: Blocks
    ends: Array
    """Smallest and largest finite value, shape (2, ..., variables); (inf, -inf) without any."""
    strange: Array
    """How many values are infinite, minus infinite and NaN, shape (3, ..., variables), int32."""


def run(
    given: tuple[Any, Sketch],
    key: Array,
    first: Array,
    count: Array,
    *,
    work: Callable[..., dict[str, Any]],
    inner: tuple[tuple[str, Any], ...],
    chunk: int,
    share: int,
) -> dict[str, Folded]:
    """Sketch of trials `first` to `first + count`, by group, each with a leading axis of one.

    Some trials at a time are run by `work`, which has the options `inner`, and folded: the memory
    does not grow with `count`, except by the blocks' moments, which keep their first axis. A device
    has at most `share` of the `chunk`, a power of two, of all devices.
    """
    trial, sketch = given
    groups = sketch.groups
    dtype = jnp.result_type(float)
    options = dict(inner)
    # The same for any number of devices, for blocks to be the same.
    rows = max(BLOCK, options["tile"])  # both powers of two
    results = jax.eval_shape(partial(work, **options, capacity=rows), trial, key, first, count)
    one = max(bytes_of(results) // rows, 1)
    rows = max(rows, min(power_of_two(_BYTES // one, 1, _BYTES), chunk))

    def blank(group: Sketch) -> Folded:
        shape = (*group.shape, len(group.folds))
        blocks = -(-share // rows) * rows // BLOCK
        some = jnp.zeros((blocks, *shape), dtype)
        return Folded(
            jnp.zeros((*group.shape, group.size), jnp.int32),
            Blocks(some.astype(jnp.int32), some, some, some),
            jnp.stack([jnp.full(shape, jnp.inf, dtype), jnp.full(shape, -jnp.inf, dtype)]),
            jnp.zeros((3, *shape), jnp.int32),
        )

    def serve(number: Array, total: dict[str, Folded]) -> dict[str, Folded]:
        at = number * rows
        here = jnp.clip(count - at, 0, rows)
        results = work(trial, key, first + at.astype(jnp.uint32), here, capacity=rows, **options)
        variables = sketch.variables(results)
        valid = jnp.arange(rows, dtype=jnp.int32) < here
        return {
            name: _added(total[name], group, variables, valid, number * (rows // BLOCK))
            for name, group in groups.items()
        }

    total = {name: blank(group) for name, group in groups.items()}
    total = jax.lax.fori_loop(0, (count + (rows - 1)) // rows, serve, total)
    return {
        name: one._replace(counts=one.counts[None], ends=one.ends[None], strange=one.strange[None])
        for name, one in total.items()
    }


def _added(
    total: Folded, group: Sketch, variables: dict[str, Array], valid: Array, block: Array
) -> Folded:
    """The same with one batch of trials more, whose blocks begin at number `block`."""
    mask = valid.reshape(valid.shape + (1,) * len(group.shape))
    counts, floats = [], []
    for name, fold in group.folds.items():
        values = jnp.asarray(variables[name])
        right = f"{group.shape}, after the axis of trials"
        check(values.shape[1:] == group.shape, f"shape of {name}", values.shape[1:], right)
        number = values.astype(jnp.result_type(float))
        if isinstance(fold.bins, WholeBins):
            number = jnp.where(fold.bins.absent(values), jnp.nan, number)
        if fold.bins is not None:
            counts.append(_histogram(fold.bins.index(values), mask, fold.bins.size))
        thresholds = jnp.asarray(fold.thresholds)
        if thresholds.shape[0]:
            above = (number[..., None] > thresholds) & mask[..., None]
            counts.append(jnp.sum(above, axis=0, dtype=jnp.int32))
        floats.append(number)
    values = jnp.stack(floats, axis=-1)
    mask = mask[..., None]
    finite = jnp.isfinite(values) & mask
    kinds = (jnp.isposinf, jnp.isneginf, jnp.isnan)
    strange = [jnp.sum(kind(values) & mask, axis=0, dtype=jnp.int32) for kind in kinds]
    low = jnp.min(jnp.where(finite, values, jnp.inf), axis=0)
    high = jnp.max(jnp.where(finite, values, -jnp.inf), axis=0)
    blocks = jax.tree.map(
        lambda buffer, rows: jax.lax.dynamic_update_slice_in_dim(buffer, rows, block, 0),
        total.blocks,
        _moments(values, finite),
    )
    return Folded(
        total.counts + (jnp.concatenate(counts, axis=-1) if counts else 0),
        blocks,
        jnp.stack([jnp.minimum(total.ends[0], low), jnp.maximum(total.ends[1], high)]),
        total.strange + jnp.stack(strange),
    )


def _histogram(index: Array, mask: Array, size: int) -> Array:
    """How often each bin occurs, by all axes but the first; int32."""
    shape = index.shape[1:]
    places = jnp.arange(max(1, index[0].size), dtype=jnp.int32).reshape(shape) * size
    flat = jnp.where(mask, index + places, places.size * size)
    counts = jnp.zeros(places.size * size, jnp.int32).at[flat].add(1, mode="drop")
    return counts.reshape(*shape, size)


def _moments(values: Array, finite: Array) -> Blocks:
    """Of each block, twice through it: the mean, then what is left."""
    shape = (-1, BLOCK, *values.shape[1:])
    finite = finite.reshape(shape)
    values = jnp.where(finite, values.reshape(shape), 0)
    number = jnp.sum(finite, axis=1, dtype=jnp.int32)
    safe = jnp.maximum(number, 1).astype(values.dtype)
    mean = _sum(values) / safe
    apart = jnp.where(finite, values - mean[:, None], 0)
    return Blocks(number, mean, _sum(apart), _sum(apart * apart))


def _sum(values: Array) -> Array:
    """Over the second axis, by halves: one order of adding, whatever the program around it."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] + values[:, half:]
    return values[:, 0]
