"""Programs that fold their trials into sketches on the devices: studies that do not fit."""

import copy
import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check
from nrjax.keys import check_key
from nrjax.simulation import folding
from nrjax.simulation.program import Program
from nrjax.simulation.sketches import BLOCK, Sketch, merge_moments

_BYTES = 2**23
"""Results of the trials that a device holds before it folds them."""


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
    return SketchProgram(program, sketch, program.chunk if chunk is None else chunk)


class SketchProgram(Program):
    """A program whose results are sketches of its trials, from `sketches`.

    Its results are the same bits on any number of devices. Counts do not depend on anything else
    either; moments may in their last digits depend on where chunks begin, since blocks do.
    """

    def __init__(self, program: Program, sketch: Sketch, chunk: int):
        self.__dict__.update(program.__dict__)  # but for what is asked of the devices
        self.chunk = chunk
        # Rounded up to whole batches it must still be an int32.
        check(self.chunk <= 2**30, "chunk", self.chunk, "at most 2^30")
        self._program, self._work = program, folding.run
        self._sketch = sketch
        self._trial = _given(program.trial, sketch)
        # Made when it is needed first, since it takes a trace; shared with what `of` gives.
        self._plan: dict[str, Any] = {}

    def _arguments(self, key: Array, firsts: np.ndarray, counts: np.ndarray) -> tuple[Any, Any]:
        if not self._plan:
            options = self._program.options
            inner = {name: value for name, value in options.items() if name != "capacity"}
            rows = _rows(self._program, self.chunk)
            most = -(-self._share(self.chunk, BLOCK) // rows)
            plan = {"work": self._program._work, "inner": tuple(inner.items())}
            plan |= {"rows": rows, "most": most}
            self._plan.update(plan)  # at once: another thread may be preparing
        self.options = dict(self._plan)
        return super()._arguments(key, firsts, counts)

    def of(self, trial: Any, sketch: Sketch | None = None) -> "SketchProgram":
        """The same for another trial, and another sketch of the same structure."""
        other = copy.copy(self)
        other._sketch = self._sketch if sketch is None else sketch
        other._trial = _given(trial, other._sketch)
        return other

    def run(self, key: Array, trials: int, first_trial: int = 0) -> dict[str, np.ndarray]:
        """The sketch of `trials` trials from `first_trial` on, at most `chunk` of them.

        Returns:
            By name, for the variables without an axis of their own `counts`, shape (counts,),
            int32, and `moments`, shape (variables, len(MOMENTS)), float64; for those with an axis
            `level`, say, `level_counts` and `level_moments`, with the levels first. Variables are
            in alphabetical order; `nrjax.study.sketched` takes them apart again. An array that
            would be empty is left out.

        Raises:
            ValueError: the numbers are out of range, or `key` is not a key.
        """
        key = check_key(key)
        firsts, counts = self._shares(trials, first_trial, BLOCK)
        folded = jax.device_get(self._call(key, firsts, counts))
        found = {}
        for prefix, one in folded.items():
            found[f"{prefix}moments"] = _moments(one, counts)
            if one.counts.size:
                found[f"{prefix}counts"] = one.counts.sum(axis=0, dtype=np.int32)
        return found


def _given(trial: Any, sketch: Sketch) -> tuple[Any, Sketch]:
    dtype = jnp.result_type(float)
    folds = {name: fold.placed(dtype) for name, fold in sketch.folds.items()}
    return trial, dataclasses.replace(sketch, folds=folds)


def _abstract_call() -> tuple[Any, Any, Any]:
    """Key, first trial and number of trials, without their values."""
    return (
        jax.eval_shape(lambda: jax.random.key(0)),
        jax.ShapeDtypeStruct((), jnp.uint32),
        jax.ShapeDtypeStruct((), jnp.int32),
    )


def _rows(program: Program, chunk: int) -> int:
    """Trials between two folds; the same for any number of devices, for blocks to be the same."""
    least = max(BLOCK, program.options["tile"])  # both powers of two
    options = {**program.options, "capacity": least}
    results = jax.eval_shape(partial(program._work, **options), program._trial, *_abstract_call())
    one = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(results)) // least
    most = 1 << max(_BYTES // max(one, 1), 1).bit_length() - 1
    return max(least, min(most, 1 << (chunk - 1).bit_length()))


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
