"""Compiled programs that run trials by their numbers, sharded over devices."""

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from nrjax._base.captured import captured
from nrjax._base.keys import check_key, without_keys
from nrjax._base.modes import neutral_config
from nrjax._base.placing import placed
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import check, check_integer


@partial(jax.jit, static_argnames=("work", "mesh", "options", "code_fingerprint"))
def _on_devices(
    trial: Any,
    key: Array,
    firsts: Array,
    counts: Array,
    *,
    work: Callable[..., Any],
    mesh: Mesh,
    options: Any,
    code_fingerprint: Hashable,
) -> Any:
    """Run `work` on every device, with its own entries of `firsts` and `counts`.

    `code_fingerprint` is part of the cache key. A new value forces a new trace, which is needed if
    a function refers to something that has changed.
    """
    del code_fingerprint

    def local(trial: Any, key: Array, first: Array, count: Array) -> Any:
        return without_keys(work(trial, unrolled_key(key), first[0], count[0], options))

    everywhere, split = PartitionSpec(), PartitionSpec("trials")
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(everywhere, everywhere, split, split),
        out_specs=split,
        check_vma=False,
    )(trial, key, firsts, counts)


def _check_untraced(*arguments: Any) -> None:
    # Inside `jit` every computed array is traced, also these zeros.
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, jnp.zeros(())))):
        raise ValueError(
            "simulate, sweep and programs run on the host and cannot be traced. "
            "Under jit or vmap use nrjax.run_until."
        )


def _check_range(trials: int, first_trial: int) -> tuple[int, int]:
    trials = check_integer("trials", trials, 1)
    first_trial = check_integer("first_trial", first_trial, 0)
    last = first_trial + trials
    check(last <= 2**32, "first_trial + trials", last, "at most 2^32, the number of keys")
    return trials, first_trial


@cache
def _keep_freed_memory() -> None:
    """Let the allocator keep freed memory for the next trials. Needed once per process.

    glibc gives freed memory back to the system, and small trials then spend a seventh of their time
    on its pages, unless a block as large (at most 32 MiB) was freed before. This one is never used.
    """
    np.empty(2**25 - 2**16, np.uint8)


def trials_per_device(trials: int, devices: int) -> int:
    """Return the number of trials of each device. The last devices may get fewer."""
    return -(-trials // devices)


class Launch(NamedTuple):
    """Trials that run on the devices.

    Attributes:
        results: arrays of results, with the rows of each device on that device.
        counts: number of trials of each device. Further rows of a device are unused.
    """

    results: Any
    counts: np.ndarray

    def empty(self, trials: int) -> Any:
        """Return NumPy arrays for the results of a number of trials."""
        return jax.tree.map(lambda x: np.empty((trials, *x.shape[1:]), x.dtype), self.results)

    def copy(self, arrays: Any, start: int) -> None:
        """Wait for the trials, and copy their results into arrays, from row `start`."""
        ends = start + np.cumsum(self.counts)
        leaves = [_shards(leaf) for leaf in jax.tree.leaves(self.results)]
        if any(device.platform != "cpu" for device in leaves[0][0].devices()):
            leaves = _in_pinned_memory(leaves, int(self.counts.max()))
        for array, shards in zip(jax.tree.leaves(arrays), leaves, strict=True):
            for shard, count, end in zip(shards, self.counts, ends, strict=True):
                array[end - count : end] = np.asarray(shard)[:count]


def _shards(leaf: Array) -> list[Array]:
    """Return the rows of each device, by their places in the array."""
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return [shard.data for shard in shards]


def _in_pinned_memory(shards: Any, rows: int) -> Any:
    """Copy an accelerator's arrays to pinned memory of the host, which NumPy reads directly.

    Of each array the first `rows` rows are copied, rounded up to a power of two since each length
    compiles a program. With the copy out of it, this takes a third of the time of a plain transfer.
    """
    most = 1 << max(rows - 1, 0).bit_length()
    shards = jax.tree.map(lambda shard: shard[:most] if most < len(shard) else shard, shards)
    places = jax.tree.map(lambda shard: shard.sharding.with_memory_kind("pinned_host"), shards)
    return jax.device_put(shards, places)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A compiled program that runs any trials of one kind, at most `launch_size` at a time.

    `montecarlo.outcomes`, `paths` and `custom_trials` make programs. Two programs share a
    compilation if their trials differ only in numbers and all other attributes are equal.

    Attributes:
        trial: an interaction, a `Family` of interactions or a custom trial: a pytree. Arrays that
            were placed on other devices are copied to those of the program.
        work: function `work(trial, key, first, count, options)` that runs the trials of one device.
            Its results have a leading axis of trials, of equal length on all devices.
        launch_size: largest number of trials at a time.
        devices: devices that share the trials.
        options: options of `work`; hashable.
        code_fingerprint: changes with what functions of the trial read, so that they are compiled
            again; by default made of what they read when the program is made.
    """

    trial: Any
    work: Callable[..., Any]
    launch_size: int
    devices: tuple[Any, ...]
    options: Any
    code_fingerprint: Hashable = None

    def __post_init__(self):
        _check_untraced(self.trial)
        object.__setattr__(self, "trial", placed(self.trial, self.devices))
        if self.code_fingerprint is None:
            read = captured((self.trial, self.options))
            object.__setattr__(self, "code_fingerprint", read)

    @property
    def batch(self) -> int:
        """The number of trials that fill all devices once. Fewer trials take as much time."""
        options = self.options
        return min(self.launch_size, len(self.devices) * max(options.tile, options.lanes))

    @property
    def kind(self) -> Any:
        """The cache key of the compilation, which programs with equal keys share."""
        leaves, structure = jax.tree.flatten(self.trial)
        types = tuple(map(jax.typeof, leaves))
        return self.work, self.devices, self.options, self.code_fingerprint, structure, types

    def _call(self, key: Array, firsts: np.ndarray, counts: np.ndarray, action: Any = None) -> Any:
        key = placed(check_key(key), self.devices)
        _check_untraced(key)
        mesh = Mesh(np.array(self.devices), ("trials",))
        arrays = (self.trial, key, firsts.astype(np.uint32), counts.astype(np.int32))
        static = {"work": self.work, "options": self.options}
        static["code_fingerprint"] = self.code_fingerprint
        with neutral_config(mesh):
            return (action or _on_devices)(*arrays, mesh=mesh, **static)

    def _idle(self, key: Array, action: Any = None) -> Any:
        """Call the program with no trials to run."""
        none = np.zeros(len(self.devices))
        return self._call(key, none, none, action)

    def compile(self, key: Array) -> None:
        """Compile by running no trials. Otherwise the first `run` compiles."""
        jax.block_until_ready(self._idle(key))

    def prepare(self, key: Array) -> None:
        """Compile without running, possibly in another thread, so that `compile` is quick."""
        self._idle(key, _on_devices.lower).compile()

    def run(self, key: Array, trials: int, first_trial: int = 0) -> Any:
        """Run at most `launch_size` trials, numbered from `first_trial`.

        Returns:
            Results as NumPy arrays with a leading axis of trials. Typed keys among them are arrays
            of their words, as `jax.random.key_data` returns.

        Raises:
            ValueError: the numbers are out of range, or `key` is not a key.
        """
        return self.collect(self.launch(key, trials, first_trial))

    def launch(self, key: Array, trials: int, first_trial: int = 0) -> Launch:
        """Start trials as `run` does, and return without waiting for their results."""
        trials, first_trial = _check_range(trials, first_trial)
        check(
            trials <= self.launch_size,
            "trials",
            trials,
            f"at most launch_size = {self.launch_size}",
        )
        _keep_freed_memory()
        number = np.arange(len(self.devices))
        size = trials_per_device(trials, len(self.devices))
        counts = np.clip(trials - number * size, 0, size)
        # Idle devices get a valid number of a trial: numbers stay below 2^32.
        firsts = first_trial + np.where(counts > 0, number * size, 0)
        return Launch(self._call(key, firsts, counts), counts)

    def collect(self, launch: Launch) -> Any:
        """Wait for trials, and return their results as `run` does."""
        arrays = launch.empty(int(launch.counts.sum()))
        launch.copy(arrays, 0)
        return arrays

    def launches(self, key: Array, trials: int, first_trial: int) -> Iterator[tuple[int, Launch]]:
        """Start any number of trials, and yield the place of each launch and the launch.

        The next launch runs while you collect one.
        """
        trials, first_trial = _check_range(trials, first_trial)
        running = None
        for start in range(0, trials, self.launch_size):
            size = min(self.launch_size, trials - start)
            started = start, self.launch(key, size, first_trial + start)
            if running is not None:
                yield running
            running = started
        if running is not None:
            yield running

    def run_all(self, key: Array, trials: int, first_trial: int = 0, progress: Any = None) -> Any:
        """Run any number of trials, launch by launch, and advance `progress` after each."""
        arrays: Any = None
        before = time.monotonic()
        for start, launch in self.launches(key, trials, first_trial):
            if arrays is None:  # allocated once: a list of parts would need twice the memory
                arrays = launch.empty(trials)
            launch.copy(arrays, start)
            if progress is not None:
                now = time.monotonic()
                progress.advance(int(launch.counts.sum()), now - before)
                before = now
        return arrays
