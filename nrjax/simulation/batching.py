"""Batch sizes: tiles, lanes and launches."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nrjax._base.keys import abstract_key, is_key, key_for
from nrjax._base.validation import check, check_integer
from nrjax.engine import steps
from nrjax.engine.interaction import Interaction
from nrjax.simulation.families import Trials, as_family
from nrjax.simulation.tiles import CustomTrial
from nrjax.types import Utility, overrides


@dataclasses.dataclass(frozen=True)
class Batching:
    """Batch sizes and devices of a simulation. The defaults suit most studies.

    Batch sizes do not change results, except that `tile`, or `lanes=1`, may change the last bits
    of utilities.

        >>> nrjax.Batching(tile=16, lanes=64)  # for nrjax.simulate(..., batching=...)
        Batching(tile=16, lanes=64, launch=None, inner_steps=None, devices=None)

    Attributes:
        tile: number of trials whose utilities are evaluated together, a power of two. A sum or a
            matrix product can round differently in batches of another size. The default is 8 to 64
            for a data set of usual size, 2048 for a scalar and at most 16 if bounds replace most
            utilities. On an accelerator it is 16 times as large for data, 1,048,576 for a scalar
            and at most 512 with bounds, but the arrays that a score makes stay below 1 GiB. Whole
            paths of a tile take at most 256 MiB.
        lanes: number of trials that run at a time on a device if bounds replace utilities, a
            multiple of `tile`. The default is four tiles, or 128 trials if that is more, but at
            most 4096 trials and 2 MiB of their states. On an accelerator these numbers are 16,384,
            1,048,576 and 256 MiB.
        launch: number of trials that a program runs at a time. Their outcomes stay on the devices
            until all have ended, and are then moved to the host. By default as many as fit into
            256 MiB, at most 262,144 (on accelerators 8,388,608).
        inner_steps: number of steps between two checks for trials that have ended. By default 12 on
            a CPU (8 if bounds replace utilities) and 16 elsewhere, at most the number of levels,
            and fewer if a utility has much data and no bounds. If a check costs as much as c steps
            and trials take S steps, about sqrt(2 c S) is best.
        devices: a sequence of JAX devices; by default all local devices.

    Args:
        chunk: deprecated name of `launch`. `nrjax.Study.run(chunk=...)` is something else: the
            number of trials per file.

    Raises:
        ValueError: a number is below 1, `tile` is not a power of two, `lanes` is not a multiple of
            `tile`, or `devices` is not a sequence of devices.
    """

    tile: int | None = None
    lanes: int | None = None
    launch: int | None = None
    inner_steps: int | None = None
    devices: Sequence[Any] | None = None

    def __init__(
        self,
        tile: int | None = None,
        lanes: int | None = None,
        launch: int | None = None,
        inner_steps: int | None = None,
        devices: Sequence[Any] | None = None,
        *,
        chunk: int | None = None,
    ):
        if chunk is not None:
            check(launch is None, "chunk", chunk, "None if launch is given", "Leave chunk away.")
            text = "Batching(chunk=...) is deprecated: write Batching(launch=...)."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            launch = chunk
        sizes = {"tile": tile, "lanes": lanes, "launch": launch, "inner_steps": inner_steps}
        for name, number in sizes.items():
            checked = None if number is None else check_integer(name, number, 1)
            object.__setattr__(self, name, checked)
        object.__setattr__(self, "devices", devices)
        self._check()

    @property
    def chunk(self) -> int | None:
        """The deprecated name of `launch`."""
        text = "Batching.chunk is deprecated: use Batching.launch."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.launch

    def _check(self) -> None:
        """Check that the sizes fit each other, and that the devices are devices."""
        if self.tile is not None:
            check(self.tile & (self.tile - 1) == 0, "tile", self.tile, "a power of two")
            if self.lanes is not None:
                expected = f"a multiple of tile = {self.tile}"
                check(self.lanes % self.tile == 0, "lanes", self.lanes, expected)
        if self.devices is not None:
            listed = isinstance(self.devices, (Sequence, np.ndarray)) and np.size(self.devices) > 0
            listed = listed and np.ndim(self.devices) == 1
            ok = listed and all(hasattr(device, "platform") for device in self.devices)
            hint = "For example jax.devices()[:1]."
            check(ok, "devices", self.devices, "a non-empty list of JAX devices", hint)
            object.__setattr__(self, "devices", tuple(self.devices))

    def resolve_devices(self) -> tuple[Any, ...]:
        """Return the devices that share the trials."""
        return tuple(jax.local_devices() if self.devices is None else self.devices)

    @property
    def on_cpu(self) -> bool:
        """Whether the devices are CPUs, on which a launch of a kernel costs next to nothing."""
        return self.resolve_devices()[0].platform == "cpu"

    def resolve_inner_steps(self, trials: Trials) -> int:
        """Return the number of steps between two checks."""
        if self.inner_steps is not None:
            return self.inner_steps
        # On a GPU a check costs kernel launches, even for few lanes, so it is made less often.
        _, trial = first_member(trials)
        if trial.bounds_decide:
            return min(8 if self.on_cpu else 16, trial.schedule.max_steps)
        most = 12 if self.on_cpu else 16
        # The utility is evaluated until the next check, also for trials that have ended.
        data = sum(np.size(leaf) for leaf in jax.tree.leaves(trial.utility.at(jnp.int32(0))))
        most = min(most, trial.schedule.max_steps)  # else a fixed release would step on
        return power_of_two(2**10 // max(data, 1), 1, most)

    def resolve(
        self, trials: Trials, length: int | None = None, *, bounded: bool = False
    ) -> tuple[int, int]:
        """Return the numbers `tile` and `lanes`.

        They depend on the interactions only, so that results do not depend on the number of trials.

        Args:
            trials: the interactions.
            length: number of steps of whole paths; None for trials that end when they stop.
            bounded: whether bounds replace utilities in whole paths.
        """
        tile, lanes = self.tile, self.lanes
        varied, trial = first_member(trials)
        first = _forms.eval_shape(trial, abstract_key())[0]
        state = (varied, first)
        sizes = _ON_CPU if self.on_cpu else _ON_ACCELERATOR
        # All lanes are rewound together, also ended ones: few lanes if that is expensive.
        most = power_of_two(sizes.memory // bytes_of(state), 1, sizes.tile)
        # If bounds replace most utilities, few are left to be evaluated together. On a CPU those of
        # `bounds_from_release` gain from larger tiles all the same.
        utility = trial.utility.at(jnp.int32(0))
        few = overrides(utility, Utility, "bounds") or not self.on_cpu
        spared = bounded or (length is None and trial.bounds_decide and few)
        # A step of a path is no larger than a state. Rows are rounded up to whole tiles.
        path_tile = power_of_two(2**28 // (bytes_of(state) * (length or 1)), 1, sizes.tile)
        if tile is None:
            data = sum(np.size(leaf) for leaf in jax.tree.leaves(trial.utility))
            largest = most if most == sizes.tile else max(1, most // 4)
            tile = min(power_of_two(sizes.work // max(data, 1), 8, sizes.tile), largest)
            tile = min(tile, sizes.spared_tile) if spared else tile
            tile = min(tile, path_tile)
            if not self.on_cpu:  # data that a score takes from its scope are not among its leaves
                evaluated = largest_array(steps.assess, trial, jnp.int32(0), first.process)
                tile = power_of_two(_EVALUATED // max(evaluated, 1), 1, tile)
            if length is None and not trial.bounds_decide:
                # The states of a tile, and its noise at several steps, should fit into the cache.
                size = max(math.prod(trial.process.shape), 1)
                tile = min(tile, power_of_two(sizes.numbers // size, 256, sizes.numbers))
            if lanes is not None:  # a divisor of the lanes
                tile = min(tile, lanes & -lanes)
        if lanes is None:
            # A small tile does not mean that a step is expensive.
            least = sizes.spared_lanes if spared else 1
            lanes = max(tile, min(most, path_tile, max(least, 4 * tile)) // tile * tile)
        return tile, lanes

    def resolve_launch(self, trials: Trials) -> int:
        """Return the number of trials whose outcomes stay on the devices at a time."""
        if self.launch is not None:
            return self.launch
        _, trial = first_member(trials)
        _, outcome = _forms.eval_shape(trial, abstract_key())
        largest = (_ON_CPU if self.on_cpu else _ON_ACCELERATOR).launch
        most = min(2**28 // bytes_of(outcome), largest)
        return power_of_two(most // math.prod(as_family(trials).axes), 1, largest)

    def resolve_custom_trials(self, trial: CustomTrial) -> int:
        """Return the number of custom trials that run together."""
        if self.tile is not None or self.on_cpu:
            return self.tile or 256
        evaluated = largest_array(lambda key: trial.run(key_for(trial, key)), abstract_key())
        return power_of_two(_EVALUATED // max(evaluated, 1), 1, 2**15)


class _Sizes(NamedTuple):
    """The limits from which default batch sizes follow.

    Attributes:
        memory: bytes of the states of all lanes.
        work: number of data values that the utilities of a tile read.
        tile: largest tile.
        numbers: numbers of the releases of a tile if bounds replace no utilities.
        spared_tile: largest tile if bounds replace most utilities.
        spared_lanes: least number of lanes if bounds replace most utilities.
        launch: largest launch.
    """

    memory: int
    work: int
    tile: int
    numbers: int
    spared_tile: int
    spared_lanes: int
    launch: int


_ON_CPU = _Sizes(
    2**21, 2**24, tile=2**12, numbers=2**11, spared_tile=16, spared_lanes=128, launch=2**18
)
_ON_ACCELERATOR = _Sizes(
    2**28, 2**28, tile=2**20, numbers=2**21, spared_tile=512, spared_lanes=2**14, launch=2**23
)

_EVALUATED = 2**30
"""Bytes of the largest array for all trials of a tile, on an accelerator."""


@jax.jit  # traced once per kind of trial, and never compiled
def _forms(trial: Interaction, key: Any) -> tuple[Any, Any]:
    """Return the first state and the outcome of a trial, to read their shapes."""
    state = steps.start(trial, key)
    return state, steps.finish(trial, state)


def check_batching(batching: Any) -> Batching:
    """Check that `batching` is a `Batching`, or None for the default, and return it."""
    batching = Batching() if batching is None else batching
    hint = "For example nrjax.Batching(launch=1024)."
    check(isinstance(batching, Batching), "batching", batching, "a nrjax.Batching", hint)
    return batching


def power_of_two(number: int, least: int, most: int) -> int:
    """Return the largest power of two up to `number`, but within `least` and `most`."""
    return min(most, max(least, 1 << max(number, 1).bit_length() - 1))


def first_member(trials: Trials) -> tuple[Any, Interaction]:
    """Return the varied leaves and the interaction of the first point, to read their shapes."""
    if isinstance(trials, Interaction):
        steps.check_single("interaction", trials)
    family = as_family(trials)
    varied = family.select(np.int32(0))  # pyright: ignore[reportArgumentType]
    return varied, family.member(varied)


def bytes_of(tree: Any) -> int:
    """Return the number of bytes of a pytree of arrays or of `jax.ShapeDtypeStruct`s."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * (8 if is_key(leaf) else leaf.dtype.itemsize) for leaf in leaves)


def largest_array(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the number of bytes of the largest array that a function makes, by its trace.

    XLA may never store this array, so that it is a bound.
    """
    made = _arrays_made(jax.make_jaxpr(function)(*arguments).jaxpr)
    return max(map(bytes_of, made), default=0)


def _arrays_made(program: Any) -> Iterator[Any]:
    """Yield the types of all arrays that a traced function makes, in its loops and branches too."""
    for equation in program.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _arrays_made(inner)
