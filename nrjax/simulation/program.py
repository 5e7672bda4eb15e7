"""A compiled program that runs trials by their numbers, sharded over devices."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from nrjax._modes import neutral_config
from nrjax._threefry import unrolled
from nrjax._validation import check, check_integer
from nrjax.keys import check_key


@partial(jax.jit, static_argnames=("work", "mesh", "options", "meaning"))
def _on_devices(
    trial: Any,
    key: Array,
    firsts: Array,
    counts: Array,
    *,
    work: Callable[..., Any],
    mesh: Mesh,
    options: Any,
    meaning: str = "",
) -> Any:
    """`work` on every device, each with its own `firsts` and `counts`; no communication.

    What has another `meaning` is traced anew: a function may refer to what has changed since.
    """
    del meaning

    def local(trial: Any, key: Array, first: Array, count: Array) -> Any:
        return work(trial, unrolled(key), first[0], count[0], options)

    everywhere, split = PartitionSpec(), PartitionSpec("trials")
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(everywhere, everywhere, split, split),
        out_specs=split,
        check_vma=False,
    )(trial, key, firsts, counts)


def _check_untraced(*given: Any) -> None:
    # Inside `jit` nothing that is computed has numbers, whatever it was made of.
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((given, jnp.zeros(())))):
        raise ValueError(
            "simulate and its kin run on the host and cannot be traced: "
            "under jit or vmap use nrjax.run_until"
        )


def _numbered(trials: int, first_trial: int) -> tuple[int, int]:
    trials = check_integer("trials", trials, 1)
    first_trial = check_integer("first_trial", first_trial, 0)
    last = first_trial + trials
    check(last <= 2**32, "first_trial + trials", last, "at most 2^32, the number of keys")
    return trials, first_trial


def share(trials: int, devices: int, unit: int = 1) -> int:
    """Trials of each device but the last, in whole units."""
    return -(-trials // (devices * unit)) * unit


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """One compiled program that runs any trials of one kind, up to `chunk` at a time.

    From `montecarlo.outcomes`, `paths` or `sessions`. Programs share a compilation where their
    trials differ in numbers alone and the rest is equal.

    Attributes:
        trial: what is run: a pytree.
        work: what a device does with its share: `work(trial, key, first, count, options)`, whose
            results have a leading axis of as many trials for each device.
        chunk: the most trials at a time.
        devices: those that share them.
        options: of `work`; hashable.
        meaning: what is traced, in a word; JAX knows functions by name, not by what they refer to.
    """

    trial: Any
    work: Callable[..., Any]
    chunk: int
    devices: tuple[Any, ...]
    options: Any
    meaning: str = ""
    unit: ClassVar[int] = 1

    def __post_init__(self):
        _check_untraced(self.trial)

    @property
    def batch(self) -> int:
        """Trials that fill all devices once: fewer of them take as long."""
        options = self.options
        return min(self.chunk, len(self.devices) * max(options.tile, options.lanes))

    @property
    def kind(self) -> Any:
        """What is compiled: programs equal in it, hashable, share a compilation."""
        leaves, structure = jax.tree.flatten(self.trial)
        types = tuple(map(jax.typeof, leaves))
        return self.work, self.devices, self.options, self.meaning, structure, types

    def _call(self, key: Array, firsts: np.ndarray, counts: np.ndarray, action: Any = None) -> Any:
        key = check_key(key)
        _check_untraced(key)
        mesh = Mesh(np.array(self.devices), ("trials",))
        arrays = (self.trial, key, firsts.astype(np.uint32), counts.astype(np.int32))
        static = {"work": self.work, "options": self.options, "meaning": self.meaning}
        with neutral_config(mesh):
            return (action or _on_devices)(*arrays, mesh=mesh, **static)

    def _idle(self, key: Array, action: Any = None) -> Any:
        """A call for no trials."""
        none = np.zeros(len(self.devices))
        return self._call(key, none, none, action)

    def compile(self, key: Array) -> None:
        """Compile, by a run of no trials; without it the first `run` compiles."""
        jax.block_until_ready(self._idle(key))

    def prepare(self, key: Array) -> None:
        """Compile without a run, for `compile` to find it done; another thread may do this."""
        self._idle(key, _on_devices.lower).compile()

    def run(self, key: Array, trials: int, first_trial: int = 0) -> Any:
        """Results of `trials` trials from `first_trial` on, at most `chunk` of them.

        Returns:
            NumPy arrays with a leading axis of trials.

        Raises:
            ValueError: the numbers are out of range, or `key` is not a key.
        """
        trials, first_trial = _numbered(trials, first_trial)
        check(trials <= self.chunk, "trials", trials, f"at most chunk = {self.chunk}")
        number = np.arange(len(self.devices))
        size = share(trials, len(self.devices), self.unit)
        counts = np.clip(trials - number * size, 0, size)
        # Devices without work get the first trial's number: past 2^32 there is none.
        firsts = first_trial + np.where(counts > 0, number * size, 0)
        return self._gathered(self._call(key, firsts, counts), counts)

    def _gathered(self, results: Any, counts: np.ndarray) -> Any:
        """Results of all devices, which had so many trials each, on the host."""

        def rows(leaf: Any) -> np.ndarray:
            each = leaf.shape[0] // counts.size
            used = [np.arange(count) + device * each for device, count in enumerate(counts)]
            return np.asarray(leaf)[np.concatenate(used)]

        return jax.tree.map(rows, results)

    def run_all(self, key: Array, trials: int, first_trial: int = 0, progress: Any = None) -> Any:
        """The same for any number of trials, chunk by chunk; `progress` advances after each."""
        trials, first_trial = _numbered(trials, first_trial)
        whole: Any = None
        begun = time.monotonic()
        for at in range(0, trials, self.chunk):
            size = min(self.chunk, trials - at)
            part = self.run(key, size, first_trial + at)
            if whole is None:  # allocated once: a list of parts would need twice the memory
                whole = jax.tree.map(
                    lambda leaf: np.empty((trials, *leaf.shape[1:]), leaf.dtype), part
                )
            for target, leaf in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
                target[at : at + size] = leaf
            if progress is not None:
                begun, before = time.monotonic(), begun
                progress.advance(size, begun - before)
        return whole
