"""Trials folded into sketches on the devices that run them: studies that do not fit."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.simulation.batching import bytes_of, power_of_two
from nrjax.simulation.bins import WholeBins
from nrjax.simulation.program import Program, share
from nrjax.simulation.sketches import BLOCK, Sketch, merge_moments
from nrjax.simulation.tiles import Options

_BYTES = 2**23
"""Results of the trials that a device holds before it folds them."""


class FoldingOptions(NamedTuple):
    """How a device folds its share of the trials; hashable."""

    work: Callable[..., dict[str, Any]]
    """What runs some of them,"""
    inner: Options
    """and its options; the capacity is found by `_run`."""
    chunk: int
    """Of all devices, rounded up to a power of two."""
    share: int
    """The most trials of a device."""


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


def sketches(program: Program, sketch: Sketch, chunk: int | None = None) -> "SketchProgram":
    """The program whose results are sketches of what another program gives of each trial.

    Args:
        program: from `montecarlo.outcomes`, `paths` or `sessions`; its results are the
            variables of the sketch, or what it derives them from.
        sketch: what to keep.
        chunk: trials at a time; None for those of `program`. The memory hardly depends on it.

    Raises:
        ValueError: `chunk` is above 2^30; or, when it is compiled, a variable of the sketch is
            not among the results, or of another shape.
    """
    chunk = program.chunk if chunk is None else chunk
    # Rounded up to whole batches it must still be an int32.
    check(chunk <= 2**30, "chunk", chunk, "at most 2^30")
    dtype = jnp.result_type(float)
    folds = {name: fold.placed(dtype) for name, fold in sketch.folds.items()}
    options = FoldingOptions(
        program.work,
        program.options._replace(capacity=0),
        chunk=1 << (chunk - 1).bit_length(),
        share=share(chunk, len(program.devices), BLOCK),
    )
    trial = program.trial, dataclasses.replace(sketch, folds=folds)
    return SketchProgram(trial, _run, chunk, program.devices, options)


class SketchProgram(Program):
    """A program whose results are sketches of its trials, from `sketches`.

    `run` gives by name, for the variables without an axis of their own, `counts`, shape (counts,),
    int32, and `moments`, shape (variables, len(MOMENTS)), float64; for those with an axis `level`,
    say, `level_counts` and `level_moments`, with the levels first; no array that would be empty.
    Variables are in alphabetical order; `nrjax.study.sketched` takes them apart again.

    Results are the same bits on any number of devices. Counts do not depend on anything else
    either; moments may in their last digits depend on where chunks begin, since blocks do.
    """

    unit = BLOCK

    @property
    def batch(self) -> int:
        """A whole chunk: its trials become one row of results."""
        return self.chunk

    def _gathered(self, results: Any, counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for prefix, one in jax.device_get(results).items():
            found[f"{prefix}moments"] = _moments(one, counts)
            if one.counts.size:
                found[f"{prefix}counts"] = one.counts.sum(axis=0, dtype=np.int32)
        return found


def _moments(folded: Folded, counts: np.ndarray) -> np.ndarray:
    """Of all trials of a call, in their order: the blocks of each device, one device after another.

    Shape (..., variables, len(MOMENTS)).
    """
    each = folded.blocks.finite.shape[0] // counts.size
    used = [np.arange(-(-count // BLOCK)) + device * each for device, count in enumerate(counts)]
    finite, mean, rest, squares = (
        np.asarray(leaf, np.float64)[np.concatenate(used)] for leaf in folded.blocks
    )
    shift = rest / np.maximum(finite, 1)
    zero = np.zeros_like(finite)
    blocks = [finite, mean + shift, squares - rest * shift, mean, mean, zero, zero, zero]
    merged = merge_moments(np.stack(blocks, axis=-1))
    none = merged[..., 0] == 0
    smallest, largest = folded.ends[:, 0].min(axis=0), folded.ends[:, 1].max(axis=0)
    merged[..., 3] = np.where(none, np.nan, smallest)
    merged[..., 4] = np.where(none, np.nan, largest)
    merged[..., 5:] = np.moveaxis(np.asarray(folded.strange).sum(axis=0, dtype=np.int64), 0, -1)
    return merged


def _run(
    given: tuple[Any, Sketch], key: Array, first: Array, count: Array, options: FoldingOptions
) -> dict[str, Folded]:
    """Sketch of trials `first` to `first + count`, by group, each with a leading axis of one.

    Some trials at a time are run and folded: the memory does not grow with `count`, except by the
    blocks' moments, which keep their first axis.
    """
    trial, sketch = given
    groups = sketch.groups
    dtype = jnp.result_type(float)
    # The same for any number of devices, for blocks to be the same.
    rows = max(BLOCK, options.inner.tile)  # both powers of two

    inner = options.inner._replace(capacity=rows)
    results = jax.eval_shape(lambda *given: options.work(*given, inner), trial, key, first, count)
    one = max(bytes_of(results) // rows, 1)
    rows = max(rows, min(power_of_two(_BYTES // one, 1, _BYTES), options.chunk))
    inner = inner._replace(capacity=rows)

    def blank(group: Sketch) -> Folded:
        shape = (*group.shape, len(group.folds))
        blocks = -(-options.share // rows) * rows // BLOCK
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
        results = options.work(trial, key, first + at.astype(jnp.uint32), here, inner)
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
        _blocks(values, finite),
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


def _blocks(values: Array, finite: Array) -> Blocks:
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
