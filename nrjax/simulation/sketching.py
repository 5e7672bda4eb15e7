"""Programs that fold their trials into sketches on the devices: studies that do not fit."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nrjax._numerics import check
from nrjax.simulation import folding
from nrjax.simulation.program import Program, share
from nrjax.simulation.sketches import BLOCK, Sketch, merge_moments


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
    options = {
        "work": program.work,
        "inner": tuple(option for option in program.options if option[0] != "capacity"),
        "chunk": 1 << (chunk - 1).bit_length(),
        "share": share(chunk, len(program.devices), BLOCK),
    }
    return SketchProgram(
        trial=(program.trial, dataclasses.replace(sketch, folds=folds)),
        work=folding.run,
        chunk=chunk,
        devices=program.devices,
        options=tuple(options.items()),
    )


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

    def _gathered(self, results: Any, counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for prefix, one in jax.device_get(results).items():
            found[f"{prefix}moments"] = _moments(one, counts)
            if one.counts.size:
                found[f"{prefix}counts"] = one.counts.sum(axis=0, dtype=np.int32)
        return found


def _moments(folded: folding.Folded, counts: np.ndarray) -> np.ndarray:
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
