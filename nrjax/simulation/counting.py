"""Trials that are counted in histograms and then dropped, so that a study of any size fits.

The ordinary program runs the trials. Its results are put into bins on the devices that have them,
and counted. Bins are fixed, so counts do not depend on how trials are split.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from nrjax._modes import neutral_config
from nrjax._validation import check
from nrjax.outcome import Status
from nrjax.simulation.bins import Bins
from nrjax.simulation.program import Program

MOMENTS = ("finite", "mean", "squares", "smallest", "largest", "above", "below")
"""Moments of a variable, float64: the number of its finite values, their mean, the sum of their
squared distances from the mean, the smallest and the largest (NaN without any), and the numbers of
infinite and minus infinite values. NaN is not counted."""

COUNTS_END, MOMENTS_END = "_counts", "_moments"
"""Ends of the names of arrays."""


class HistogramSpec(NamedTuple):
    """A description of the histogram of one variable.

    It is hashable.

    Attributes:
        column: name of the results that are counted.
        bins: bins of the histogram, or None for moments only.
        dim: name and size of the variable's axis after the axis of trials, or None.
        stopped: whether only trials that stopped are counted.
    """

    column: str
    bins: Bins | None
    dim: tuple[str, int] | None = None
    stopped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the variable in one trial."""
        return () if self.dim is None else self.dim[1:]


Specs = tuple[tuple[str, HistogramSpec], ...]
"""The histograms of a pass, by the name of the variable."""


def derived_columns(outcomes: Mapping[str, Any], goal: Any, xp: Any) -> dict[str, Any]:
    """Return what follows from the fields of outcomes: an array per name.

    `stopped` is whether the trial stopped. `stopping_epsilon` is the total epsilon, infinite if the
    trial did not stop or its cost is NaN, which quantiles would leave out. `shortfall` is the
    utility that a stopped trial lacks to the goal, NaN for other trials. `xp` is `jax.numpy` or
    `numpy`.
    """
    stopped = outcomes["status"] == Status.STOPPED
    epsilon, utility = outcomes["epsilon"], outcomes["utility"]
    missing = xp.maximum(xp.asarray(goal, utility.dtype) - utility, 0)
    return {
        "stopped": stopped,
        "stopping_epsilon": xp.where(
            stopped & ~xp.isnan(epsilon), epsilon, xp.asarray(xp.inf, epsilon.dtype)
        ),
        "shortfall": xp.where(stopped, missing, xp.asarray(xp.nan, utility.dtype)),
    }


@partial(jax.jit, static_argnames=("specs", "mesh"))
def _bin_indices(results: Any, goal: Any, *, specs: Specs, mesh: Mesh) -> dict[str, Array]:
    """Return the bin of each result, by variable, on the device that has the result."""

    def local(results: dict[str, Array], goal: Any) -> dict[str, Array]:
        columns = results if goal is None else results | derived_columns(results, goal, jnp)
        indices = {}
        for name, spec in specs:
            values = jnp.asarray(columns[spec.column])
            expected = f"{spec.shape}, after the axis of trials"
            shape = values.shape[1:]
            check(shape == spec.shape, f"shape of {name}", shape, expected)
            if spec.bins is not None:
                first = jnp.arange(math.prod(shape), dtype=jnp.int32) * spec.bins.size
                indices[name] = spec.bins.index(values) + first.reshape(shape)
        return indices

    everywhere, split = PartitionSpec(), PartitionSpec("trials")
    return jax.shard_map(
        local, mesh=mesh, in_specs=(split, everywhere), out_specs=split, check_vma=False
    )(results, goal)


def count(values: Any, index: Any, counted: Any, spec: HistogramSpec, xp: Any) -> tuple[Any, Any]:
    """Return the counts and the moments of some trials.

    Counts are of int64, and None without bins.

    Args:
        values: one number, or one row of numbers, per trial.
        index: the bin of each value; None without bins.
        counted: which trials are counted, of shape (trials,).
        spec: what is counted.
        xp: `numpy`, or `jax.numpy` with 64-bit numbers.
    """
    counts, counted = None, counted.reshape(-1, *(1 for _ in spec.shape))
    if spec.bins is not None:
        size = spec.bins.size * math.prod(spec.shape)
        index = xp.where(counted, index, size).ravel()
        counts = xp.bincount(index, minlength=size + 1)[:size].astype(xp.int64)
        counts = counts.reshape(*spec.shape, spec.bins.size)
    x = values.astype(xp.float64)
    above, below = (xp.sum((x == end) & counted, axis=0) for end in (xp.inf, -xp.inf))
    finite = xp.isfinite(x) & counted
    number, x = xp.sum(finite, axis=0), xp.where(finite, x, 0.0)
    mean = xp.sum(x, axis=0) / xp.maximum(number, 1)
    squares = xp.sum(xp.where(finite, x - mean, 0.0) ** 2, axis=0)
    smallest = xp.min(xp.where(finite, x, xp.inf), axis=0, initial=xp.inf)
    largest = xp.max(xp.where(finite, x, -xp.inf), axis=0, initial=-xp.inf)
    moments = number, mean, squares, smallest, largest, above, below
    return counts, xp.stack(moments, axis=-1)


def merge(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the counts and moments of all trials from those of parts of them."""
    merged: dict[str, Any] = {}
    moments: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for name, array in part.items():
            if name.endswith(MOMENTS_END):
                moments.setdefault(name, []).append(array)
            else:
                merged[name] = merged.get(name, 0) + array
    return merged | {name: merge_moments(np.stack(rows)) for name, rows in moments.items()}


def merge_moments(parts: np.ndarray) -> np.ndarray:
    """Return the moments of all trials, shape (..., 7), from parts, shape (parts, ..., 7).

    After Chan, Golub & LeVeque 1983, for many parts at once.
    """
    finite, mean, squares, smallest, largest, above, below = np.moveaxis(parts, -1, 0)
    number, mean = finite.sum(axis=0), np.where(finite > 0, mean, 0.0)
    total = np.maximum(number, 1)
    center = (finite * mean).sum(axis=0) / total
    center += (finite * (mean - center)).sum(axis=0) / total  # what rounding left out
    squares = squares.sum(axis=0) + (finite * (mean - center) ** 2).sum(axis=0)
    ends = np.fmin.reduce(smallest, axis=0), np.fmax.reduce(largest, axis=0)
    some = [np.where(number > 0, moment, np.nan) for moment in (center, *ends)]
    infinite = above.sum(axis=0), below.sum(axis=0)
    return np.stack([number, some[0], squares, *some[1:], *infinite], axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class Tally(Program):
    """A program that counts its trials in histograms and drops them.

    It compiles the same trials as a `Program` does, and counts their results afterwards. There are
    two arrays per variable of `specs`: `NAME_counts`, if the variable has bins, and `NAME_moments`.
    Counts do not depend on how trials are split over calls and devices. The last digits of moments
    do.

    Attributes:
        specs: the histograms.
        goal: the utility to reach, NaN without one. None unless the results are outcomes.
    """

    specs: Specs = ()
    goal: float | None = None

    @property
    def kind(self) -> Any:
        """The cache key of the compilation: programs with equal keys share one."""
        return super().kind, self.specs, self.goal is None

    def compile(self, key: Array) -> None:
        """Compile by a run of no trials."""
        self._gathered(self._idle(key), np.zeros(len(self.devices), int))

    def run_all(
        self, key: Array, trials: int, first_trial: int = 0, progress: Any = None
    ) -> dict[str, np.ndarray]:
        """Count any number of trials, chunk by chunk."""
        last, merged = first_trial + trials, {}
        for first in range(first_trial, last, self.chunk):
            merged = merge([merged, self.run(key, min(self.chunk, last - first), first)])
        return merged

    def _gathered(self, results: Any, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Count the results of all devices, where device i ran `counts[i]` trials."""
        mesh = Mesh(np.array(self.devices), ("trials",))
        with neutral_config(mesh):
            indices = _bin_indices(results, self.goal, specs=self.specs, mesh=mesh)
        xp = _namespace(self.devices[0].platform)
        with jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
            parts = [
                self._of_device(_shard(results, device), _shard(indices, device), trials, xp)
                for device, trials in zip(self.devices, counts.tolist(), strict=True)
            ]
            return merge(jax.device_get(parts))

    def _of_device(self, results: Any, indices: Any, trials: int, xp: Any) -> dict[str, Any]:
        """Count the results of one device, of which the first `trials` rows are filled."""
        if xp is np:
            results, indices = jax.tree.map(lambda x: np.asarray(x)[:trials], (results, indices))
        columns = results
        if self.goal is not None:
            columns = results | derived_columns(results, self.goal, xp)
        arrays = {}
        for name, spec in self.specs:
            values = columns[spec.column]
            counted = xp.arange(len(values)) < trials
            if spec.stopped:
                counted &= columns["stopped"]
            counts, moments = count(values, indices.get(name), counted, spec, xp)
            arrays[name + MOMENTS_END] = moments
            if counts is not None:
                arrays[name + COUNTS_END] = counts
        return arrays


def _namespace(platform: str) -> Any:
    """Return NumPy on a CPU, where it counts 2.6 times as fast as XLA, and else `jax.numpy`."""
    return np if platform == "cpu" else jnp


def _shard(arrays: dict[str, Any], device: Any) -> dict[str, Any]:
    """Return the rows of arrays that a device holds."""
    return {
        name: next(shard.data for shard in array.addressable_shards if shard.device == device)
        for name, array in arrays.items()
    }
