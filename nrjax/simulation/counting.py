"""Trials that are counted in histograms and then dropped, for studies of any size.

An ordinary program runs the trials, and each device puts its results into bins and counts them.
Bins are fixed and sums exact, so counts and moments do not depend on how trials are split over
calls, files and devices.
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

from nrjax._base.modes import neutral_config
from nrjax._base.outcome import Status
from nrjax._base.validation import check
from nrjax.simulation.bins import Bins, WholeBins
from nrjax.simulation.moments import (
    MOMENTS,
    exact_sum,
    finite_floats,
    finite_values,
    merge_moments,
    moments_of_whole_numbers,
    piece_sums,
    stack_moments,
    sums_of_pieces,
    sums_with_squares,
)
from nrjax.simulation.program import Launch, Program

_ROWS = 2**16
"""Number of rows whose moments NumPy computes at a time, in the cache."""

_COPIES = 64
"""Number of copies of a histogram that an accelerator adds to."""

COUNTS_END, MOMENTS_END = "_counts", "_moments"
"""Suffixes of the names of arrays of counts and of moments."""


class HistogramSpec(NamedTuple):
    """A description of the histogram of one variable, hashable.

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
"""Pairs of the name of a variable and its histogram."""


def derived_columns(
    outcomes: Mapping[str, Any], goal: Any, xp: Any, only: str | None = None
) -> dict[str, Any]:
    """Return arrays computed from the fields of outcomes, by name, or `only` the one of a name.

    `stopped` is whether the trial stopped. `stopping_epsilon` is the total epsilon, infinite if the
    trial did not stop or the epsilon is NaN (quantiles would leave NaN out). `shortfall` is how far
    the utility of a stopped trial is below the goal, at least 0, and NaN for other trials. `xp` is
    `jax.numpy` or `numpy`.
    """
    stopped = outcomes["status"] == Status.STOPPED
    epsilon, utility = outcomes["epsilon"], outcomes["utility"]
    infinity, nan = xp.asarray(xp.inf, epsilon.dtype), xp.asarray(xp.nan, utility.dtype)
    goal = xp.asarray(goal, utility.dtype)
    columns = {
        "stopped": lambda: stopped,
        "stopping_epsilon": lambda: xp.where(stopped & ~xp.isnan(epsilon), epsilon, infinity),
        "shortfall": lambda: xp.where(stopped, xp.maximum(goal - utility, 0), nan),
    }
    return {name: column() for name, column in columns.items() if only in (None, name)}


@partial(jax.jit, static_argnames=("specs", "mesh"))
def _bin_indices(results: Any, goal: Any, *, specs: Specs, mesh: Mesh) -> dict[str, Array]:
    """Return the index of each result's bin, by variable, on the device that has the result."""

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


def count(
    values: np.ndarray, index: Any, counted: np.ndarray, spec: HistogramSpec
) -> tuple[Any, np.ndarray]:
    """Return the histogram counts and the moments of the trials marked in `counted`.

    Counts are int64 numbers, or None if there are no bins.

    Args:
        values: one number, or one row of numbers, per trial.
        index: index of each value's bin; None if there are no bins.
        counted: whether each trial is counted, shape (trials,).
        spec: description of the histogram.
    """
    counts = None
    if spec.bins is not None:
        counts = _bincount(index, counted, spec)
        if _are_exact(spec, len(values)) and not counts[[0, -2]].any():  # all are in a bin
            return counts, moments_of_whole_numbers(spec.bins.lowest, counts[1:-2])
    counted = counted.reshape(-1, *(1 for _ in spec.shape))
    is_short = values.dtype.kind == "f" and values.dtype.itemsize <= 4 and values.ndim == 1
    blocks, squares, rest = [], [], []
    for at in range(0, max(len(values), 1), _ROWS):
        chosen = slice(at, at + _ROWS)
        x, others = finite_floats(values[chosen], counted[chosen])
        sums = sums_with_squares(x, *others[1:3]) if is_short else map(piece_sums, (x, x * x))
        for terms, more in zip((blocks, squares), sums, strict=True):
            terms += more
        rest.append(others)
    number, smallest, largest, above, below = map(np.stack, zip(*rest, strict=True))
    sums = (exact_sum(np.stack(terms)) for terms in (blocks, squares))
    ends = smallest.min(axis=0) + 0.0, largest.max(axis=0) + 0.0  # 0 without a sign
    infinite = above.sum(axis=0), below.sum(axis=0)
    return counts, stack_moments(number.sum(axis=0), *sums, *ends, *infinite)


def _are_exact(spec: HistogramSpec, trials: int) -> bool:
    """Return whether the bins of a variable determine its moments: each has a whole number."""
    bins = spec.bins
    if not isinstance(bins, WholeBins) or spec.shape:
        return False
    return max(-bins.lowest, bins.highest) <= 2**15 and trials <= 2**22


def _bincount(index: np.ndarray, counted: np.ndarray, spec: HistogramSpec) -> np.ndarray:
    """Return the counts of the bins, int64, on a CPU."""
    assert spec.bins is not None
    size = spec.bins.size * math.prod(spec.shape)
    index = (index if counted.all() else index[counted]).ravel()
    shape = (*spec.shape, spec.bins.size)
    if index.size and index.min() == index.max():  # additions to one bin wait for each other
        counts = np.zeros(size, np.int64)
        counts[index[0]] = index.size
        return counts.reshape(shape)
    return np.bincount(index, minlength=size).astype(np.int64).reshape(shape)


@partial(jax.jit, static_argnames=("specs", "mesh"))
def _count_on_devices(
    results: Any, indices: Any, trials: Any, goal: Any, *, specs: Specs, mesh: Mesh
) -> tuple[Any, Any, Any]:
    """Count on each device, and return all results, with one row per device.

    They are the counts of bins by variable, the other results of `finite_values`, shape (devices,
    5, columns), and the `sums_of_pieces` of all columns, followed by those of their squares. A
    column is one number of a trial, and the columns of the variables follow each other.
    """

    def local(results: Any, indices: Any, trials: Array, goal: Any) -> tuple[Any, Any, Any]:
        columns = results if goal is None else results | derived_columns(results, goal, jnp)
        counts, rest, finite = {}, [], []
        for name, spec in specs:
            values = jnp.asarray(columns[spec.column])
            counted = jnp.arange(len(values)) < trials[0]
            if spec.stopped:
                counted &= columns["stopped"]
            counted = counted.reshape(-1, *(1 for _ in spec.shape))
            if spec.bins is not None:
                counts[name] = _histogram(indices[name], counted, spec)
            x, others = finite_values(values, counted, jnp)
            rest.append(jnp.stack([other.astype(x.dtype).ravel() for other in others]))
            finite.append(x.reshape(len(x), -1).T)
        x = jnp.concatenate(finite)
        sums = sums_of_pieces(jnp.concatenate([x, x * x]))
        numbers = counts, jnp.concatenate(rest, axis=1), sums
        return jax.tree.map(lambda leaf: leaf[None], numbers)

    everywhere, split = PartitionSpec(), PartitionSpec("trials")
    count_all = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(split, split, split, everywhere),
        out_specs=split,
        check_vma=False,
    )
    return count_all(results, indices, trials, goal)


def _histogram(index: Array, counted: Array, spec: HistogramSpec) -> Array:
    """Return the counts of the bins, int64, on an accelerator."""
    assert spec.bins is not None
    size = spec.bins.size * math.prod(spec.shape)
    index = jnp.where(counted, index, size).ravel()
    # Additions to one bin wait for each other, so each bin has several copies.
    copies = max(1, min(_COPIES, 2**22 // size))
    copy = jnp.arange(index.size, dtype=jnp.int32) % copies
    counts = jnp.zeros((copies, size + 1), jnp.int32).at[copy, index].add(1)
    return counts.sum(axis=0, dtype=jnp.int64)[:size].reshape(*spec.shape, spec.bins.size)


def merge(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Combine the counts and moments of disjoint sets of trials."""
    merged: dict[str, Any] = {}
    moments: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for name, array in part.items():
            if name.endswith(MOMENTS_END):
                moments.setdefault(name, []).append(array)
            else:
                merged[name] = merged.get(name, 0) + array
    return merged | {name: merge_moments(np.stack(rows)) for name, rows in moments.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Tally(Program):
    """A program that counts its trials in histograms and drops them.

    It compiles the same trials as a `Program` does, and counts their results afterwards. There are
    two arrays per variable of `specs`: `NAME_counts`, if the variable has bins, and `NAME_moments`.
    Neither depends on how trials are split over calls and devices.

    Attributes:
        specs: names of variables with their histograms.
        goal: utility to reach, or NaN if there is no goal; None if the results are not outcomes.
    """

    specs: Specs = ()
    goal: float | None = None

    @property
    def kind(self) -> Any:
        """The cache key of the compilation, which programs with equal keys share."""
        return super().kind, self.specs, self.goal is None

    def compile(self, key: Array) -> None:
        """Compile by running no trials."""
        self.collect(self._counting(Launch(self._idle(key), np.zeros(len(self.devices), int))))

    def launch(self, key: Array, trials: int, first_trial: int = 0) -> Launch:
        """Start trials, and on accelerators their counting, without waiting for either."""
        return self._counting(super().launch(key, trials, first_trial))

    def run_all(
        self, key: Array, trials: int, first_trial: int = 0, progress: Any = None
    ) -> dict[str, np.ndarray]:
        """Run any number of trials, launch by launch, and return their counts and moments."""
        merged = {}
        for _, launch in self.launches(key, trials, first_trial):
            merged = merge([merged, self.collect(launch)])
        return merged

    def _counting(self, launch: Launch) -> Launch:
        """Return a launch with the bins of its results, or with their counts on accelerators."""
        results, mesh = launch.results, Mesh(np.array(self.devices), ("trials",))
        static = {"specs": self.specs, "mesh": mesh}
        with neutral_config(mesh):
            indices = _bin_indices(results, self.goal, **static)
        if _host_counts(self.devices[0].platform):
            return launch._replace(results=(results, indices))
        trials = launch.counts.astype(np.int32)
        with neutral_config(mesh), jax.enable_x64(True):
            numbers = _count_on_devices(results, indices, trials, self.goal, **static)
        return launch._replace(results=numbers)

    def collect(self, launch: Launch) -> dict[str, np.ndarray]:
        """Wait for trials, and return their counts and moments."""
        if not _host_counts(self.devices[0].platform):
            counts, rest, sums = jax.device_get(launch.results)
            return self._counted_by_xla(counts, rest, sums)
        results, indices = launch.results
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [
                self._count_by_numpy(_shard(results, device), _shard(indices, device), trials)
                for device, trials in zip(self.devices, launch.counts.tolist(), strict=True)
            ]
            return merge(parts)

    def _counted_by_xla(self, counts: Any, rest: Any, sums: Any) -> dict[str, Any]:
        """Return counts and moments from the results of `_count_on_devices`."""
        rows = []
        for (number, *ends), pieces in zip(rest, sums, strict=True):
            of_values, of_squares = np.split(exact_sum(pieces), 2, axis=1)
            rows.append(stack_moments(number, of_values, of_squares, *ends))
        moments = merge_moments(np.stack(rows))
        arrays, first = {}, 0
        for name, spec in self.specs:
            size = math.prod(spec.shape)
            arrays[name + MOMENTS_END] = moments[first : first + size].reshape(*spec.shape, -1)
            first += size
            if name in counts:
                arrays[name + COUNTS_END] = counts[name].sum(axis=0)
        return arrays

    def _count_by_numpy(self, results: Any, indices: Any, trials: int) -> dict[str, Any]:
        """Count the results of one device, of which the first `trials` rows are filled."""
        results, indices = jax.tree.map(lambda x: np.asarray(x)[:trials], (results, indices))
        columns = results
        if self.goal is not None:
            columns = results | derived_columns(results, self.goal, np)
        arrays: dict[str, Any] = {}
        found: dict[HistogramSpec, tuple[Any, np.ndarray]] = {}
        for name, spec in self.specs:
            counted = columns["stopped"] if spec.stopped else np.full(trials, True)
            of_all = found.get(spec._replace(stopped=False))
            if spec.column == "stopping_epsilon" and of_all is not None:
                # It is infinite in the trials that did not stop.
                found[spec] = _without_infinite(of_all, trials - int(counted.sum()))
            else:
                found[spec] = count(columns[spec.column], indices.get(name), counted, spec)
            counts, arrays[name + MOMENTS_END] = found[spec]
            if counts is not None:
                arrays[name + COUNTS_END] = counts
        return arrays


def _without_infinite(found: tuple[Any, np.ndarray], trials: int) -> tuple[Any, np.ndarray]:
    """Return counts and moments without a number of trials whose value is infinite."""
    counts, moments = found[0], found[1].copy()
    moments[MOMENTS.index("above")] -= trials
    if counts is not None:
        counts = counts.copy()
        counts[-2] -= trials  # the last bin is for NaN
    return counts, moments


def _host_counts(platform: str) -> bool:
    """Return whether NumPy counts: on a CPU it is 2.6 times as fast as XLA."""
    return platform == "cpu"


def _shard(arrays: dict[str, Any], device: Any) -> dict[str, Any]:
    """Return the rows of arrays that a device holds."""
    return {
        name: next(shard.data for shard in array.addressable_shards if shard.device == device)
        for name, array in arrays.items()
    }
