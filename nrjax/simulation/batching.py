"""How many trials run together: tiles, lanes and chunks."""

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
from nrjax.simulation.lanes import Trials
from nrjax.types import Utility, overrides


@dataclasses.dataclass(frozen=True)
class Batching:
    """How trials are batched; none of it changes a result, `tile` aside (last bits of utilities).

    A single lane may round otherwise than several do, in the last bits of everything.

    Attributes:
        tile: trials whose utility is taken together, a power of two: in other batches a matrix
            product may round by its place in the batch. None chooses by the size of the utility's
            data and of a trial's state: 8 to 64 for a data set of usual size, 4096 for a scalar, at
            most 16 where bounds spare most utilities of a stopping loop, and about 256 MiB of whole
            paths; or a smaller one that divides `lanes`.
        lanes: trials under way at a time on a device, a multiple of `tile`. None: four tiles
            (and 128 trials, if bounds spare utilities), at most 4096 trials, and about 2 MiB of
            their states. Never more than a device's share.
        chunk: trials whose outcomes are kept on the devices before they go to the host. None: as
            many as fit into 256 MiB, at most 65,536.
        inner_steps: steps between two looks for lanes that have ended, which wait until then. None:
            8 on a CPU; elsewhere, where a look costs its launches whatever the lanes, 16. With c
            the cost of a look, in steps, and trials of S steps, about sqrt(2 c S) is best.
        devices: a sequence of JAX devices, or None for all local devices.

    Raises:
        ValueError: a count is below 1, `tile` is not a power of two, `lanes` is not a multiple of
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
                right = f"a multiple of tile = {self.tile}"
                check(self.lanes % self.tile == 0, "lanes", self.lanes, right)
        if self.devices is not None:
            right = "a list of JAX devices, such as jax.devices()[:1], and not empty"
            listed = isinstance(self.devices, (Sequence, np.ndarray)) and len(self.devices) > 0
            ok = listed and all(hasattr(one, "platform") for one in self.devices)
            check(ok, "devices", self.devices, right)

    def resolve_devices(self) -> tuple[Any, ...]:
        """Those that share the trials."""
        return tuple(jax.local_devices() if self.devices is None else self.devices)

    def resolve_inner_steps(self) -> int:
        """Steps between two looks, by the kind of device."""
        if self.inner_steps is not None:
            return self.inner_steps
        return 8 if self.resolve_devices()[0].platform == "cpu" else 16

    def resolve(
        self, trials: Trials, length: int | None = None, *, bounded: bool = False
    ) -> tuple[int, int]:
        """Tile and lanes; they depend on the trial alone, for results not to depend on devices.

        Args:
            trials: what is run.
            length: steps of whole paths, where every release is evaluated, bounds or not; None:
                until they stop.
            bounded: whether bounds spare evaluations of whole paths too.
        """
        tile, lanes = self.tile, self.lanes
        varied, trial = _one_of(trials)
        state = (varied, jax.eval_shape(engine.start, trial, abstract_key()))
        # All lanes are rewound together, ended ones too: few of them where that is much work.
        most = power_of_two(2**21 // bytes_of(state), 1, 4096)
        # Bounds spare most evaluations: few are left to be taken together.
        utility = trial.utility.at(jnp.int32(0))
        spared = length is None and trial._uses_bounds and overrides(utility, Utility, "bounds")
        spared |= bounded
        # A step of a path has no more than a state; rows are rounded up to whole tiles.
        whole = power_of_two(2**28 // (bytes_of(state) * (length or 1)), 1, 4096)
        if tile is None:
            data = sum(np.size(leaf) for leaf in jax.tree.leaves(trial.utility))
            largest = most if most == 4096 else max(1, most // 4)
            tile = min(power_of_two(2**24 // max(data, 1), 8, 4096), largest)
            tile = min(tile, 16) if spared else tile
            tile = min(tile, whole)
            if lanes is not None:  # the largest power of two that divides them, if that is less
                tile = min(tile, lanes & -lanes)
        if lanes is None:
            least = 128 if spared else 1  # the tile says nothing of what a step costs
            lanes = max(tile, min(most, whole, max(least, 4 * tile)) // tile * tile)
        return tile, lanes

    def resolve_chunk(self, trials: Trials) -> int:
        """Trials whose outcomes, of all points, are on the devices at a time."""
        if self.chunk is not None:
            return self.chunk
        _, trial = _one_of(trials)
        outcome = jax.eval_shape(
            lambda key: engine.finish(trial, engine.start(trial, key)), abstract_key()
        )
        most = min(2**28 // bytes_of(outcome), 65_536)
        return power_of_two(most // math.prod(trials.axes), 1, 65_536)


def check_batching(batching: Any) -> Batching:
    """The batching itself; the usual one for None; a `ValueError` for anything else."""
    batching = Batching() if batching is None else batching
    right = "a nrjax.Batching, such as nrjax.Batching(chunk=1024)"
    check(isinstance(batching, Batching), "batching", batching, right)
    return batching


def power_of_two(number: int, least: int, most: int) -> int:
    """The largest power of two up to `number`, within bounds that are powers of two."""
    return min(most, max(least, 1 << max(number, 1).bit_length() - 1))


def bytes_of(tree: Any) -> int:
    """Memory of a pytree of arrays or of their shapes."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * (8 if is_key(leaf) else leaf.dtype.itemsize) for leaf in leaves)


def _one_of(trials: Trials) -> tuple[Any, Interaction]:
    """What a point has of its own, and its interaction, for their shapes."""
    varied = trials.at(np.int32(0))  # pyright: ignore[reportArgumentType]
    return varied, trials.member(varied)
