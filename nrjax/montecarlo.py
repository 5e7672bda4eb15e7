"""Many trials: keys, chunks of bounded memory, and their sharding over devices.

What a device does with its share of the trials is in `nrjax.lanes`.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from nrjax import engine, lanes
from nrjax._numerics import check
from nrjax._threefry import written_out
from nrjax.engine import Path
from nrjax.interaction import Interaction, build_interaction
from nrjax.keys import check_key, is_key
from nrjax.lanes import Trials
from nrjax.types import Guarantee, NoiseProcess, Outcome, Schedule, StoppingRule, Utility

_TRIALS = 2**32
"""Trials are numbered by an unsigned 32-bit integer."""

_ROWS = 2**30
"""Most results at a time: lanes number them, and the next ones to come, by int32."""

_SESSIONS = 256
"""Sessions that run together, unless asked otherwise."""


@dataclasses.dataclass(frozen=True)
class Batching:
    """How trials are batched; none of it changes a result, `tile` aside (last bits of utilities).

    Attributes:
        tile: trials whose utility is taken together, a power of two: in other batches a matrix
            product may round by its place in the batch. None chooses by the size of the utility's
            data and of a trial's state: 8 to 64 for a data set of usual size, 4096 for a scalar.
        lanes: trials under way at a time on a device, a multiple of `tile`. None: four tiles
            (and 128 trials, if the utility has bounds), at most 4096 trials, and about 2 MiB of
            their states. Never more than a device's share.
        chunk: trials whose outcomes are kept on the devices before they go to the host. None: as
            many as fit into 256 MiB, at most 65,536.
        inner_steps: steps between two looks for lanes that have ended.
        devices: None for all local devices.

    Raises:
        ValueError: a count is below 1, `tile` is not a power of two, or `lanes` is not a multiple
            of `tile`.
    """

    tile: int | None = None
    lanes: int | None = None
    chunk: int | None = None
    inner_steps: int = 8
    devices: Sequence[Any] | None = None

    def __post_init__(self):
        for name in ("tile", "lanes", "chunk", "inner_steps"):
            number = getattr(self, name)
            if number is not None or name == "inner_steps":
                check_count(name, number, 1)
        if self.tile is not None:
            check(self.tile & (self.tile - 1) == 0, "tile", self.tile, "a power of two")
            ok = self.lanes is None or self.lanes % self.tile == 0
            check(ok, "lanes", self.lanes, f"a multiple of tile = {self.tile}")
        if self.devices is not None:
            check(len(self.devices) > 0, "devices", self.devices, "not empty")

    def resolve(self, trials: Trials) -> tuple[int, int]:
        """Tile and lanes; they depend on the trial alone, for results not to depend on devices."""
        tile, lanes = self.tile, self.lanes
        varied, trial = _one_of(trials)
        state = (varied, jax.eval_shape(engine.start, trial, _abstract_key()))
        # All lanes are rewound together, ended ones too: few of them where that is much work.
        most = _power_of_two(2**21 // _bytes(state), 1, 4096)
        if tile is None:
            data = sum(np.size(leaf) for leaf in jax.tree.leaves(trial.utility))
            largest = most if most == 4096 else max(1, most // 4)
            tile = min(_power_of_two(2**24 // max(data, 1), 8, 4096), largest)
        if lanes is None:
            # Where bounds spare most evaluations, the tile says nothing of what a step costs.
            least = 128 if hasattr(trial.utility, "bounds") else 1
            lanes = max(tile, min(most, max(least, 4 * tile)) // tile * tile)
        check(lanes % tile == 0, "lanes", lanes, f"a multiple of tile = {tile}")
        return tile, lanes

    def resolve_chunk(self, trials: Trials) -> int:
        """Trials whose outcomes, of all points, are on the devices at a time."""
        if self.chunk is not None:
            return self.chunk
        _, trial = _one_of(trials)
        outcome = jax.eval_shape(
            lambda key: engine.finish(trial, engine.start(trial, key)), _abstract_key()
        )
        most = min(2**28 // _bytes(outcome), 65_536)
        return _power_of_two(most // math.prod(trials.axes), 1, 65_536)


def _power_of_two(number: int, least: int, most: int) -> int:
    """The largest power of two up to `number`, within bounds that are powers of two."""
    return min(most, max(least, 1 << max(number, 1).bit_length() - 1))


def _bytes(tree: Any) -> int:
    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * (8 if is_key(leaf) else leaf.dtype.itemsize) for leaf in leaves)


def _one_of(trials: Trials) -> tuple[Any, Interaction]:
    """What a point has of its own, and its interaction, for their shapes."""
    varied = trials.at(np.int32(0))  # pyright: ignore[reportArgumentType]
    return varied, trials.member(varied)


def _abstract_key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


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


def check_count(name: str, number: Any, least: int) -> None:
    """Raise a ValueError unless a number is an integer from `least` on."""
    ok = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    check(ok and number >= least, name, number, f"an integer, at least {least}")


def _check_fields(fields: Sequence[str], known: tuple[str, ...]) -> None:
    check(set(fields) <= set(known), "fields", sorted(fields), f"among {known}")


def _check_derived(derived: Sequence[tuple[str, Callable[[Outcome], Array]]]) -> None:
    names = [name for name, _ in derived]
    fresh = len(set(names)) == len(names) and not set(names) & set(Outcome._fields)
    check(fresh, "derived", names, "names of their own, none of them a field of Outcome")
    for name, function in derived:
        check(callable(function), f"derived {name!r}", function, "a function of an Outcome")


class Program:
    """One compiled program that runs any trials of one kind, up to `chunk` at a time.

    From `outcomes`, `paths` or `sessions`; studies that store their results chunk by chunk use it
    directly.
    """

    def __init__(self, trial: Any, work: Any, chunk: int, batching: Batching, options: Any):
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trial)):
            raise ValueError(
                "simulate and its kin run on the host and cannot be traced: "
                "under jit or vmap use nrjax.run_until"
            )
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
        arrays, options = self._arguments(key, firsts, counts)
        try:
            return action(*arrays, **options)
        except NotImplementedError:
            if not self._fast:
                raise
            # `jax.random.poisson`, for one, takes no keys but JAX's own.
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
        check_count("trials", trials, 1)
        check(trials <= self.chunk, "trials", trials, f"at most chunk = {self.chunk}")
        check_count("first_trial", first_trial, 0)
        last = first_trial + trials
        check(last <= _TRIALS, "first_trial + trials", last, "at most 2^32, the number of keys")
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

    def run_all(self, key: Array, trials: int, first_trial: int = 0) -> Any:
        """The same for any number of trials, chunk by chunk."""
        if trials <= self.chunk:
            return self.run(key, trials, first_trial)
        whole: Any = None
        for at in range(0, trials, self.chunk):
            size = min(self.chunk, trials - at)
            part = self.run(key, size, first_trial + at)
            if whole is None:  # allocated once: a list of parts would need twice the memory
                whole = jax.tree.map(
                    lambda leaf: np.empty((trials, *leaf.shape[1:]), leaf.dtype), part
                )
            for target, leaf in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
                target[at : at + size] = leaf
        return whole


def outcomes(
    trial: Trials,
    chunk: int,
    fields: Sequence[str] = Outcome._fields,
    batching: Batching | None = None,
    derived: Sequence[tuple[str, Callable[[Outcome], Array]]] = (),
) -> Program:
    """The program whose results are a dict of arrays by the names in `fields`, of `Outcome`'s.

    Args:
        trial: from `build_interaction`; or a `nrjax.family.Family`, whose results have a second
            axis, of points.
        chunk: trials at a time.
        fields: what is kept of an `Outcome`. Releases may be large: leave out what is not wanted.
        batching: lanes, tiles and devices.
        derived: pairs `(name, function)` for more results in the same dict: `function(outcome)`,
            an array, of one trial's `Outcome`, taken on the device when the trial ends. So the
            norm of a hypothesis is kept without the hypothesis. A trial that failed at its start
            has one of NaN. Define functions once, at module level: each new one is compiled anew.

    Raises:
        ValueError: a field is unknown, or a derived name is given twice or is a field's.
    """
    batching = Batching() if batching is None else batching
    check_count("chunk", chunk, 1)
    _check_fields(fields, Outcome._fields)
    _check_derived(derived)
    tile, width = batching.resolve(trial)
    program = Program(trial, lanes.run, chunk, batching, {"tile": tile})
    right = f"at most {_ROWS} results on a device: chunk, rounded up, times points"
    check(program.capacity * math.prod(trial.axes) <= _ROWS, "chunk", chunk, right)
    program.options |= {
        "lanes": min(width, program.capacity),
        "inner_steps": batching.inner_steps,
        "fields": tuple(fields),
        "derived": tuple((name, function) for name, function in derived),
    }
    return program


def paths(
    trial: Interaction,
    chunk: int,
    fields: Sequence[str] = ("time", "utility", "epsilon"),
    batching: Batching | None = None,
) -> Program:
    """The program that runs whole paths, stopped or not: `nrjax.scan_path` of each trial.

    Its results are a dict of arrays (trials, steps, ...) by the names in `fields`, which are those
    of `nrjax.engine.Path`.
    """
    batching = Batching() if batching is None else batching
    check_count("chunk", chunk, 1)
    _check_fields(fields, Path._fields)
    tile, _ = batching.resolve(trial)
    options = {"tile": tile, "length": int(trial.max_steps), "fields": tuple(fields)}
    return Program(trial, lanes.paths, chunk, batching, options)


def sessions(trial: lanes.Session, chunk: int, batching: Batching | None = None) -> Program:
    """The program that runs a trial as a whole: `trial.run(key)`, with the key of each number.

    For what is no single interaction, such as a session of many mechanisms under one budget
    (`nrjax.counts.CountRelease`). Its results are a dict of arrays by the names of the NamedTuple
    that `run` returns; trial i is `trial.run(nrjax.trial_key(key, i))`.

    Args:
        trial: a pytree with a method `run`; its fields that are no arrays are part of the program.
        chunk: trials at a time.
        batching: tile (None: 256) and devices. A tile of trials goes on until its last one has
            ended; lanes are not refilled, so that `lanes` and `inner_steps` play no part.

    Raises:
        ValueError: `chunk` is not a positive integer.
    """
    batching = Batching() if batching is None else batching
    check_count("chunk", chunk, 1)
    tile = _SESSIONS if batching.tile is None else batching.tile
    return Program(trial, lanes.sessions, chunk, batching, {"tile": tile})


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

    Trial i draws what `run_until(nrjax.trial_key(key, i), ...)` does; the two are compiled apart
    and may differ in the last bits. It depends on the key and its number alone, bit for bit, not
    on how many trials, chunks, lanes or devices there are (one backend, CPU type and jaxlib).

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
    trial = build_interaction(
        value, process, guarantee, schedule, utility, rule, shift=shift, max_steps=max_steps
    )
    batching = Batching() if batching is None else batching
    check_count("trials", trials, 1)
    chunk = min(batching.resolve_chunk(trial), trials)
    program = outcomes(trial, chunk, batching=batching)
    return Outcome(**program.run_all(key, trials, first_trial))
