"""Many trials: keys, chunks of bounded memory, and their sharding over devices.

What a device does with its share of the trials is in `nrjax.lanes`.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from nrjax import engine, lanes
from nrjax._numerics import check
from nrjax.engine import Interaction, Path
from nrjax.types import Guarantee, NoiseProcess, Outcome, Schedule, StoppingRule, Utility

_TRIALS = 2**32
"""Trials are numbered by an unsigned 32-bit integer."""


@dataclasses.dataclass(frozen=True)
class Batching:
    """How trials are batched; none of it changes a result, `tile` aside (last bits).

    Attributes:
        tile: trials whose utility is taken together. None chooses by the size of the utility's
            data: 64 for a data set, up to 4096 for a scalar.
        lanes: trials under way at a time on a device, a multiple of `tile`. None: four tiles, at
            most 4096 of them.
        chunk: trials whose outcomes are kept on the devices before they go to the host.
        inner_steps: steps between two looks for lanes that have ended.
        devices: None for all local devices.

    Raises:
        ValueError: a count is below 1, or `lanes` is not a multiple of `tile`.
    """

    tile: int | None = None
    lanes: int | None = None
    chunk: int = 65_536
    inner_steps: int = 8
    devices: Sequence[Any] | None = None

    def __post_init__(self):
        for name in ("tile", "lanes", "chunk", "inner_steps"):
            number = getattr(self, name)
            optional = name in ("tile", "lanes")
            ok = (number is None and optional) or (
                isinstance(number, (int, np.integer))
                and not isinstance(number, bool)
                and number >= 1
            )
            check(ok, name, number, "an integer, at least 1")
        if self.lanes is not None and self.tile is not None:
            check(self.lanes % self.tile == 0, "lanes", self.lanes, f"a multiple of {self.tile}")
        if self.devices is not None:
            check(len(self.devices) > 0, "devices", self.devices, "not empty")

    def resolve(self, utility: Utility) -> tuple[int, int]:
        """Tile and lanes for a utility."""
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(utility))
        tile = self.tile
        if tile is None:
            wanted = 2**22 // max(size, 1)
            tile = min(4096, max(64, 2 ** max(wanted, 1).bit_length() // 2))
            if self.lanes is not None:
                tile = int(np.gcd(tile, self.lanes))
        lanes = max(tile, min(4096, 4 * tile) // tile * tile) if self.lanes is None else self.lanes
        check(lanes % tile == 0, "lanes", lanes, f"a multiple of tile = {tile}")
        return tile, lanes


@partial(jax.jit, static_argnames=("work", "mesh", "options"))
def _on_devices(
    trial: Interaction,
    key: Array,
    firsts: Array,
    counts: Array,
    *,
    work: Any,
    mesh: Mesh,
    options: tuple[tuple[str, Any], ...],
) -> Any:
    """`work` on every device, each with its own `firsts` and `counts`; no communication."""

    def local(trial: Interaction, key: Array, first: Array, count: Array) -> Any:
        return work(trial, key, first[0], count[0], **dict(options))

    everywhere, split = PartitionSpec(), PartitionSpec("trials")
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(everywhere, everywhere, split, split),
        out_specs=split,
        check_vma=False,
    )(trial, key, firsts, counts)


class Chunk(NamedTuple):
    """Results of consecutive trials, as NumPy arrays with a leading axis of trials."""

    first_trial: int
    trials: int
    results: Any


def _check_trials(trials: int, first_trial: int) -> None:
    for name, number, least in (("trials", trials, 1), ("first_trial", first_trial, 0)):
        ok = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        check(ok and number >= least, name, number, f"an integer, at least {least}")
    check(
        first_trial + trials <= _TRIALS,
        "first_trial + trials",
        first_trial + trials,
        "at most 2^32: trials are numbered by 32-bit integers",
    )


def _check_key(key: Any) -> Array:
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        check(key.shape == (), "key", key, "a single key, not a batch of them")
        return key
    is_raw = isinstance(key, (jax.Array, np.ndarray)) and key.dtype == np.uint32 and key.ndim == 1
    if not is_raw:
        raise ValueError(f"key = {key!r}: must be a JAX random key, such as jax.random.key(0)")
    return jax.random.wrap_key_data(jnp.asarray(key))


def _chunks(
    work: Any,
    trial: Interaction,
    key: Array,
    trials: int,
    first_trial: int,
    batching: Batching,
    tile: int,
    options: dict[str, Any],
) -> Iterator[Chunk]:
    """Check the arguments, then run `work` a chunk at a time, sharded over the devices."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((trial, key))):
        raise ValueError(
            "simulate and its kin run on the host and cannot be traced: "
            "under jit or vmap use nrjax.run_until"
        )
    _check_trials(trials, first_trial)
    key = _check_key(key)
    return _run_chunks(work, trial, key, trials, first_trial, batching, tile, options)


def _run_chunks(
    work: Any,
    trial: Interaction,
    key: Array,
    trials: int,
    first_trial: int,
    batching: Batching,
    tile: int,
    options: dict[str, Any],
) -> Iterator[Chunk]:
    devices = list(batching.devices) if batching.devices is not None else jax.local_devices()
    mesh = Mesh(np.array(devices), ("trials",))
    number = np.arange(len(devices))
    largest = -(-min(batching.chunk, trials) // len(devices))
    # Rounded up to whole tiles and powers of two, so that nearby sizes share a program.
    capacity = max(tile, 2 ** (largest - 1).bit_length() if largest > 1 else 1)
    capacity = -(-capacity // tile) * tile
    for at in range(0, trials, batching.chunk):
        size = min(batching.chunk, trials - at)
        share = -(-size // len(devices))
        counts = np.clip(size - number * share, 0, share).astype(np.int32)
        firsts = (first_trial + at + number * share).astype(np.uint32)
        results = _on_devices(
            trial,
            key,
            firsts,
            counts,
            work=work,
            mesh=mesh,
            options=tuple({"capacity": capacity, **options}.items()),
        )
        kept = np.concatenate(
            [np.arange(count) + device * capacity for device, count in enumerate(counts)]
        )

        def to_host(leaf: Array, kept: np.ndarray = kept) -> np.ndarray:
            return np.asarray(leaf)[kept]

        yield Chunk(first_trial + at, size, jax.tree.map(to_host, results))


def outcome_chunks(
    key: Array,
    trials: int,
    trial: Interaction,
    *,
    first_trial: int = 0,
    batching: Batching | None = None,
) -> Iterator[Chunk]:
    """Run trials and hand over each chunk of outcomes as soon as it is there.

    Args:
        key: the study's key.
        trials: how many trials.
        trial: what a trial is made of, from `nrjax.engine.interaction`.
        first_trial: number of the first trial.
        batching: lanes, tiles, chunks and devices.

    Returns:
        An iterator over chunks whose `results` is an `Outcome`.

    Raises:
        ValueError: an argument is out of range; raised before the first chunk is run.
    """
    batching = Batching() if batching is None else batching
    tile, width = batching.resolve(trial.utility)
    options = {"tile": tile, "lanes": width, "inner_steps": batching.inner_steps}
    return _chunks(lanes.run, trial, key, trials, first_trial, batching, tile, options)


def path_chunks(
    key: Array,
    trials: int,
    trial: Interaction,
    *,
    fields: Sequence[str] = ("time", "utility", "epsilon"),
    first_trial: int = 0,
    batching: Batching | None = None,
) -> Iterator[Chunk]:
    """Whole paths of trials, stopped or not: `nrjax.scan_path` of each, a chunk at a time.

    Args:
        key: the study's key.
        trials: how many trials.
        trial: what a trial is made of, from `nrjax.engine.interaction`.
        fields: the fields of `nrjax.engine.Path` to keep.
        first_trial: number of the first trial.
        batching: tiles, chunks and devices.

    Returns:
        An iterator over chunks whose `results` is a dict of arrays (trials, steps, ...).

    Raises:
        ValueError: an argument is out of range; raised before the first chunk is run.
    """
    batching = Batching() if batching is None else batching
    unknown = set(fields) - set(Path._fields)
    check(not unknown, "fields", sorted(fields), f"among {Path._fields}")
    tile, _ = batching.resolve(trial.utility)
    options = {"tile": tile, "length": int(trial.max_steps), "fields": tuple(fields)}
    return _chunks(lanes.paths, trial, key, trials, first_trial, batching, tile, options)


def _gather(chunks: Iterator[Chunk], trials: int, first_trial: int) -> Any:
    """All chunks in one set of host arrays, allocated once."""
    whole: Any = None
    for chunk in chunks:
        if chunk.trials == trials:
            return chunk.results
        if whole is None:
            whole = jax.tree.map(
                lambda leaf: np.empty((trials, *leaf.shape[1:]), leaf.dtype), chunk.results
            )
        at = chunk.first_trial - first_trial
        for target, leaf in zip(
            jax.tree.leaves(whole), jax.tree.leaves(chunk.results), strict=True
        ):
            target[at : at + chunk.trials] = leaf
    return whole


def simulate(
    key: Array,
    trials: int,
    value: ArrayLike,
    process: NoiseProcess,
    guarantee: Guarantee | None,
    schedule: Schedule,
    utility: Utility,
    rule: StoppingRule,
    *,
    shift: ArrayLike | None = None,
    max_steps: int | None = None,
    first_trial: int = 0,
    batching: Batching | None = None,
) -> Outcome:
    """Run many independent trials of a noise-reduction interaction.

    Trial i is `run_until(nrjax.trial_key(key, i), ...)`. It depends on the key and its number
    alone, bit for bit, not on how many trials, chunks, lanes or devices there are (one backend,
    CPU type and jaxlib).

    Args:
        key: the study's key.
        trials: how many trials; `first_trial + trials` is at most 2^32.
        value: the private value f(x), of the process's shape.
        process: the noise.
        guarantee: what stopping at a time costs; None reports epsilon as NaN.
        schedule: which time comes next.
        utility: how good a release is.
        rule: when it is good enough.
        shift: f(x) - f(x') for a neighbour x', to report the realised privacy loss.
        max_steps: largest number of releases, at most the schedule's own.
        first_trial: number of the first trial.
        batching: lanes, tiles, chunks and devices.

    Returns:
        An `Outcome` of NumPy arrays with a leading axis of trials. A trial that did not stop has
        its `status`; its `epsilon` is what was paid for the releases it saw.

    Raises:
        ValueError: the parts do not fit each other, or an argument is out of range.
    """
    trial = engine.interaction(
        value, process, guarantee, schedule, utility, rule, shift=shift, max_steps=max_steps
    )
    chunks = outcome_chunks(key, trials, trial, first_trial=first_trial, batching=batching)
    return _gather(chunks, trials, first_trial)
