"""Batch sizes: tiles, lanes and chunks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nrjax import engine
from nrjax._validation import check, check_integer
from nrjax.interaction import Interaction
from nrjax.keys import abstract_key, is_key
from nrjax.simulation.families import Trials, as_family
from nrjax.types import Utility, overrides


@dataclasses.dataclass(frozen=True)
class Batching:
    """Batch sizes and devices of a simulation. The defaults suit most studies.

    Batch sizes do not change results, except that `tile`, or a single lane, may change the last
    bits of utilities.

        >>> nrjax.Batching(tile=16, lanes=64)  # for nrjax.simulate(..., batching=...)
        Batching(tile=16, lanes=64, chunk=None, inner_steps=None, devices=None)

    Attributes:
        tile: number of trials whose utilities are evaluated together, a power of two. A sum or a
            matrix product can round differently in batches of another size. The default is 8 to 64
            for a data set of usual size and, on a CPU, 2048 for a scalar. It is at most 16 if
            bounds replace most utilities, and holds at most about 256 MiB of whole paths.
        lanes: number of trials that run at a time on a device if bounds replace utilities, a
            multiple of `tile`. The default is four tiles, at least 128 and at most 4096 trials, and
            about 2 MiB of trial states.
        chunk: number of trials whose outcomes stay on the devices before they are moved to the
            host. By default as many as fit into 256 MiB, at most 262,144.
        inner_steps: number of steps between two checks for trials that have ended. By default 12 on
            a CPU (8 if bounds replace utilities) and 16 elsewhere, at most the number of levels,
            and fewer if a utility has much data and no bounds. If a check costs as much as c steps
            and trials take S steps, about sqrt(2 c S) is best.
        devices: a sequence of JAX devices; by default all local devices.

    Raises:
        ValueError: a number is below 1, `tile` is not a power of two, `lanes` is not a multiple of
            `tile`, or `devices` is not a sequence of devices.
    """

    tile: int | None = None
    lanes: int | None = None
    chunk: int | None = None
    inner_steps: int | None = None
    devices: Sequence[Any] | None = None

    def __post_init__(self):
        for name in ("tile", "lanes", "chunk", "inner_steps"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, check_integer(name, number, 1))
        if self.tile is not None:
            check(self.tile & (self.tile - 1) == 0, "tile", self.tile, "a power of two")
            if self.lanes is not None:
                expected = f"a multiple of tile = {self.tile}"
                check(self.lanes % self.tile == 0, "lanes", self.lanes, expected)
        if self.devices is not None:
            listed = isinstance(self.devices, (Sequence, np.ndarray)) and len(self.devices) > 0
            ok = listed and all(hasattr(device, "platform") for device in self.devices)
            hint = "For example jax.devices()[:1]."
            check(ok, "devices", self.devices, "a non-empty list of JAX devices", hint)
            object.__setattr__(self, "devices", tuple(self.devices))

    def resolve_devices(self) -> tuple[Any, ...]:
        """Return the devices that share the trials."""
        return tuple(jax.local_devices() if self.devices is None else self.devices)

    @property
    def _on_cpu(self) -> bool:
        return self.resolve_devices()[0].platform == "cpu"

    def resolve_inner_steps(self, trials: Trials) -> int:
        """Return the number of steps between two checks."""
        if self.inner_steps is not None:
            return self.inner_steps
        # On a GPU a check costs kernel launches, even for few lanes, so it is made less often.
        _, trial = first_member(trials)
        if trial._uses_bounds:
            return min(8 if self._on_cpu else 16, trial.schedule.max_steps)
        most = 12 if self._on_cpu else 16
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
        state = (varied, _forms.eval_shape(trial, abstract_key())[0])
        # All lanes are rewound together, also ended ones: few lanes if that is expensive.
        most = power_of_two(2**21 // bytes_of(state), 1, 4096)
        # If bounds replace most utilities, few are left to be evaluated together.
        utility = trial.utility.at(jnp.int32(0))
        spared = length is None and trial._uses_bounds and overrides(utility, Utility, "bounds")
        spared |= bounded
        # A step of a path is no larger than a state. Rows are rounded up to whole tiles.
        path_tile = power_of_two(2**28 // (bytes_of(state) * (length or 1)), 1, 4096)
        if tile is None:
            data = sum(np.size(leaf) for leaf in jax.tree.leaves(trial.utility))
            largest = most if most == 4096 else max(1, most // 4)
            tile = min(power_of_two(2**24 // max(data, 1), 8, 4096), largest)
            tile = min(tile, 16) if spared else tile
            tile = min(tile, path_tile)
            if length is None and not trial._uses_bounds and self._on_cpu:
                # The states of a tile, and its noise at several steps, should fit into the cache.
                tile = min(
                    tile, power_of_two(2**11 // max(math.prod(trial.process.shape), 1), 256, 2048)
                )
            if lanes is not None:  # a divisor of the lanes
                tile = min(tile, lanes & -lanes)
        if lanes is None:
            least = 128 if spared else 1  # a small tile does not mean that a step is expensive
            lanes = max(tile, min(most, path_tile, max(least, 4 * tile)) // tile * tile)
        return tile, lanes

    def resolve_chunk(self, trials: Trials) -> int:
        """Return the number of trials whose outcomes stay on the devices at a time."""
        if self.chunk is not None:
            return self.chunk
        _, trial = first_member(trials)
        _, outcome = _forms.eval_shape(trial, abstract_key())
        most = min(2**28 // bytes_of(outcome), 2**18)
        return power_of_two(most // math.prod(as_family(trials).axes), 1, 2**18)


@jax.jit  # traced once per kind of trial, and never compiled
def _forms(trial: Interaction, key: Any) -> tuple[Any, Any]:
    """Return the first state and the outcome of a trial, to read their shapes."""
    state = engine.start(trial, key)
    return state, engine.finish(trial, state)


def check_batching(batching: Any) -> Batching:
    """Check that `batching` is a `Batching`, or None for the default, and return it."""
    batching = Batching() if batching is None else batching
    hint = "For example nrjax.Batching(chunk=1024)."
    check(isinstance(batching, Batching), "batching", batching, "a nrjax.Batching", hint)
    return batching


def power_of_two(number: int, least: int, most: int) -> int:
    """Return the largest power of two up to `number`, but within `least` and `most`."""
    return min(most, max(least, 1 << max(number, 1).bit_length() - 1))


def bytes_of(tree: Any) -> int:
    """Return the number of bytes of a pytree of arrays or of `jax.ShapeDtypeStruct`s."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * (8 if is_key(leaf) else leaf.dtype.itemsize) for leaf in leaves)


def first_member(trials: Trials) -> tuple[Any, Interaction]:
    """Return the varied leaves and the interaction of the first point, to read their shapes."""
    family = as_family(trials)
    varied = family.select(np.int32(0))  # pyright: ignore[reportArgumentType]
    return varied, family.member(varied)
