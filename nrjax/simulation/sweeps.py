"""The same study at many points (sensitivities, levels, targets), as one program."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.interaction import Interaction
from nrjax.pytrees import Pytree, static
from nrjax.simulation import montecarlo
from nrjax.simulation.batching import Batching
from nrjax.types import Outcome


def sweep(
    key: Array,
    interactions: Iterable[Interaction],
    *,
    trials: int,
    first_trial: int = 0,
    batching: Batching | None = None,
    progress: bool = False,
) -> Outcome:
    """Run the same trials of many interactions that differ in numbers alone.

    One program runs all points, which share its lanes, and other numbers, as many of them, do not
    compile again. Trial i has the same noise at each point (common random numbers): that of the
    trial i that `simulate` gives, up to the last bits, as the two are compiled apart.

    Args:
        key: the study's key.
        interactions: one for each point, alike in class, shape and dtype; what is the same in all
            of them, such as the data, is kept once. An iterator is used up one by one.
        trials: how many, of each point; a chunk of them too. The rest is as for `simulate`.
        first_trial: number of the first trial.
        batching: lanes, tiles, chunks and devices.
        progress: whether to show it.

    Returns:
        An `Outcome` of NumPy arrays with leading axes (points, trials).

    Raises:
        ValueError: no interactions, one that is not like the first, or an argument out of range.
    """
    family = Family.of(interactions)
    whole = montecarlo.run_all(key, family, trials, first_trial, batching, progress)
    return Outcome(**jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), whole))


class Family(Pytree):
    """Interactions alike in class and shape: one for each point of a sweep.

    Attributes:
        shared: leaves of the utility and the process that are the same in all of them, such as
            the data.
        varied: the other leaves, with a leading axis of points. Those of the other parts always
            are, so that which numbers happen to be equal does not make another program.
        points: how many there are.
        places: of the leaves of an interaction, which ones are varied.
        structure: the interaction's tree.
    """

    shared: tuple[Any, ...]
    varied: tuple[Any, ...]
    points: int = static()
    places: tuple[bool, ...] = static()
    structure: Any = static()

    @classmethod
    def of(cls, interactions: Iterable[Interaction]) -> "Family":
        """The family of these interactions, in their order.

        Raises:
            ValueError: there are none, or one differs from the first in class, shape or dtype.
        """
        right = "a list of interactions, one for each point; to run a single one use nrjax.simulate"
        listed = isinstance(interactions, Iterable)
        check(listed, "interactions", interactions, right)
        rows: list[list[Any]] = []
        first: Any = None
        for number, one in enumerate(interactions):
            right = "a nrjax.Interaction"
            check(isinstance(one, Interaction), f"interactions[{number}]", one, right)
            first = one if first is None else first
            difference = _difference(first, one)
            if difference is not None:
                raise ValueError(
                    f"interactions[{number}] differs from the first in {difference}: interactions "
                    "of a sweep must be alike in class, shape and dtype"
                )
            # Copies of what is shared go as soon as they are known for it: it may be large.
            same = zip(jax.tree.leaves(first), jax.tree.leaves(one), strict=True)
            rows.append([a if _same(a, b) else b for a, b in same])
        check(len(rows) > 0, "interactions", interactions, "at least one")
        leaves = list(zip(*rows, strict=True))
        parts = [path[0].name for path, _ in jax.tree.leaves_with_path(first)]
        places = tuple(
            part not in ("utility", "process") or any(one is not these[0] for one in these)
            for part, these in zip(parts, leaves, strict=True)
        )
        each = list(zip(leaves, places, strict=True))
        return cls(
            shared=tuple(these[0] for these, varied in each if not varied),
            varied=tuple(jnp.stack(these) for these, varied in each if varied),
            points=len(rows),
            places=places,
            structure=jax.tree.structure(first),
        )

    @property
    def axes(self) -> tuple[int, ...]:
        """The axis of points that results have beside that of trials."""
        return (self.points,)

    def at(self, point: Array) -> tuple[Array, ...]:
        """The varied leaves of one point, for `member`."""
        return tuple(leaf[point] for leaf in self.varied)

    def member(self, varied: tuple[Array, ...]) -> Interaction:
        """The interaction that has these varied leaves."""
        own, common = iter(varied), iter(self.shared)
        leaves = [next(own) if place else next(common) for place in self.places]
        return jax.tree.unflatten(self.structure, leaves)


def _difference(one: Interaction, other: Interaction) -> str | None:
    """What keeps two interactions from being alike; None if they are."""
    for field in dataclasses.fields(Interaction):
        if field.metadata.get("static", False):
            continue  # it follows from the others
        a, b = (getattr(interaction, field.name) for interaction in (one, other))
        if type(a) is not type(b):
            return f"{field.name}: {type(a).__name__} and {type(b).__name__}"
        if jax.tree.structure(a) != jax.tree.structure(b):
            return f"{field.name}: parts or static fields of {type(a).__name__}"
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            forms = [f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in (x, y)]
            if forms[0] != forms[1]:
                return f"{field.name}: {forms[0]} and {forms[1]}"
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two leaves are the same bits; of one and the same array without a look."""
    return one is other or np.asarray(one).tobytes() == np.asarray(other).tobytes()
