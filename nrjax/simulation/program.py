"""A compiled program that runs trials by their numbers, sharded over devices."""

import copy
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from nrjax._modes import set_aside
from nrjax._numerics import check
from nrjax._threefry import written_out
from nrjax.keys import check_key
from nrjax.simulation.batching import Batching, check_count

_TRIALS = 2**32
"""Trials are numbered by an unsigned 32-bit integer."""


@partial(jax.jit, static_argnames=("work", "mesh", "options", "fast"))
def _on_devices(
    trial: Any,
    key: Array,
    firsts: Array,
    counts: Array,
    *,
    work: Any,
    mesh: Mesh,
    options: tuple[tuple[str, Any], ...],
    fast: bool,
) -> Any:
    """`work` on every device, each with its own `firsts` and `counts`; no communication.

    `fast` keys give the same bits (`nrjax._threefry`).
    """

    def local(trial: Any, key: Array, first: Array, count: Array) -> Any:
        own = written_out(key) if fast else key
        return work(trial, own, first[0], count[0], **dict(options))

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
    trials = check_count("trials", trials, 1)
    first_trial = check_count("first_trial", first_trial, 0)
    last = first_trial + trials
    check(last <= _TRIALS, "first_trial + trials", last, "at most 2^32, the number of keys")
    return trials, first_trial


class Program:
    """One compiled program that runs any trials of one kind, up to `chunk` at a time.

    From `outcomes`, `paths` or `sessions`; studies that store their results chunk by chunk use it
    directly.
    """

    def __init__(self, trial: Any, work: Any, chunk: int, batching: Batching, options: Any):
        _check_untraced(trial)
        given = batching.devices
        self._devices = list(given) if given is not None else jax.local_devices()
        self._trial, self._work, self.chunk = trial, work, chunk
        # Rounded up to whole tiles and powers of two, so that nearby sizes share a program.
        most, tile = -(-chunk // len(self._devices)), options["tile"]
        self.capacity = -(-(2 ** (most - 1).bit_length()) // tile) * tile
        self._fast = True
        self.options = {"capacity": self.capacity, **options}

    def _arguments(self, key: Array, firsts: np.ndarray, counts: np.ndarray) -> tuple[Any, Any]:
        options = {
            "work": self._work,
            "mesh": Mesh(np.array(self._devices), ("trials",)),
            "options": tuple(self.options.items()),
            "fast": self._fast,
        }
        return (self._trial, key, firsts.astype(np.uint32), counts.astype(np.int32)), options

    def _call(
        self, key: Array, firsts: np.ndarray, counts: np.ndarray, action: Any = _on_devices
    ) -> Any:
        _check_untraced(self._trial, key)
        arrays, options = self._arguments(key, firsts, counts)
        with set_aside(options["mesh"]):
            try:
                return action(*arrays, **options)
            except NotImplementedError as error:
                # `jax.random.poisson` takes no keys but JAX's own, and says so by their name.
                if not self._fast or "threefry2x32" not in str(error):
                    raise
                self._fast = False
                return action(*arrays, **{**options, "fast": False})

    def of(self, trial: Any) -> "Program":
        """The same for another trial; parts alike in class and shape share a compilation.

        Batches stay as they were chosen for the first one.
        """
        other = copy.copy(self)
        other._trial = trial
        return other

    @property
    def trial(self) -> Any:
        """What is run: a pytree."""
        return self._trial

    def compile(self, key: Array) -> None:
        """Compile, by a run of no trials; without it the first `run` compiles."""
        none = np.zeros(len(self._devices))
        jax.block_until_ready(self._call(check_key(key), none, none))

    def prepare(self, key: Array) -> None:
        """Compile without a run, for `compile` to find it done; another thread may do this."""
        none = np.zeros(len(self._devices))
        self._call(check_key(key), none, none, _on_devices.lower).compile()

    def _shares(
        self, trials: int, first_trial: int, unit: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """First trial and number of trials of each device; all but the last have whole units."""
        trials, first_trial = _numbered(trials, first_trial)
        check(trials <= self.chunk, "trials", trials, f"at most chunk = {self.chunk}")
        number, share = np.arange(len(self._devices)), self._share(trials, unit)
        counts = np.clip(trials - number * share, 0, share)
        # Devices without work get the first trial's number: past 2^32 there is none.
        return first_trial + np.where(counts > 0, number * share, 0), counts

    def _share(self, trials: int, unit: int) -> int:
        return -(-trials // (len(self._devices) * unit)) * unit

    def run(self, key: Array, trials: int, first_trial: int = 0) -> Any:
        """Results of `trials` trials from `first_trial` on, at most `chunk` of them.

        Returns:
            NumPy arrays with a leading axis of trials.

        Raises:
            ValueError: the numbers are out of range, or `key` is not a key.
        """
        key = check_key(key)
        firsts, counts = self._shares(trials, first_trial)
        results = self._call(key, firsts, counts)
        kept = np.concatenate(
            [np.arange(count) + device * self.capacity for device, count in enumerate(counts)]
        )
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], results)

    def run_all(self, key: Array, trials: int, first_trial: int = 0, progress: Any = None) -> Any:
        """The same for any number of trials, chunk by chunk; `progress` is told of each."""
        trials, first_trial = _numbered(trials, first_trial)
        if trials <= self.chunk and progress is None:
            return self.run(key, trials, first_trial)
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
