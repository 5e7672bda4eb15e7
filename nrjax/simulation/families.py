"""Interactions that one program runs together: the points of a sweep, or one interaction."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import without_keys
from nrjax._base.placing import placed
from nrjax._base.pytrees import Pytree, static
from nrjax._base.validation import check
from nrjax.engine.interaction import Interaction
from nrjax.engine.steps import check_single


class Single(Pytree):
    """A family of one interaction.

    Attributes:
        interaction: the interaction, no leaf of which varies.
    """

    interaction: Interaction
    axes = ()

    def select(self, point: Array) -> tuple[()]:
        """Return the varied leaves of a point, an empty tuple."""
        return ()

    def member(self, varied: tuple[Any, ...]) -> Interaction:
        """Return the interaction."""
        return self.interaction


class Family(Pytree):
    """A family of interactions alike in class, shape and dtype, one per point of a sweep.

    Attributes:
        shared: leaves of the utility and the process that are equal at all points, such as the
            data.
        varied: all other leaves, with a leading axis of points. Only leaves of the utility and the
            process can be shared, so that the program depends less on which numbers happen to be
            equal.
        points: number of points.
        places: whether each leaf of an interaction is varied.
        structure: tree structure of an interaction.
    """

    shared: tuple[Any, ...]
    varied: tuple[Any, ...]
    points: int = static()
    places: tuple[bool, ...] = static()
    structure: Any = static()

    @classmethod
    def from_interactions(cls, interactions: Iterable[Interaction]) -> "Family":
        """Return the family of the given interactions, in their order.

        Raises:
            ValueError: there is no interaction, or one differs from the first in class, shape or
                dtype.
        """
        hint = "To run a single interaction use nrjax.simulate."
        listed = isinstance(interactions, Iterable)
        check(listed, "interactions", interactions, "a list of interactions, one per point", hint)
        rows: list[list[Any]] = []
        first: Any = None
        for number, interaction in enumerate(interactions):
            name = f"interactions[{number}]"
            check(isinstance(interaction, Interaction), name, interaction, "a nrjax.Interaction")
            check_single(name, interaction)
            first = interaction if first is None else first
            difference = _difference(first, interaction)
            expected = "like the first in class, shape and dtype"
            check(difference is None, name, difference, expected)
            # A copy of a shared leaf, which may be large, is dropped before the next one is made.
            pairs = zip(jax.tree.leaves(first), jax.tree.leaves(interaction), strict=True)
            rows.append([a if _same_bits(a, b) else b for a, b in pairs])
        check(len(rows) > 0, "interactions", interactions, "at least one")
        leaves = list(zip(*rows, strict=True))
        parts = [path[0].name for path, _ in jax.tree.leaves_with_path(first)]
        places = tuple(
            part not in ("utility", "process") or any(leaf is not column[0] for leaf in column)
            for part, column in zip(parts, leaves, strict=True)
        )
        columns = list(zip(leaves, places, strict=True))
        return cls(
            shared=tuple(column[0] for column, varied in columns if not varied),
            varied=tuple(jnp.stack(placed(column)) for column, varied in columns if varied),
            points=len(rows),
            places=places,
            structure=jax.tree.structure(first),
        )

    @property
    def axes(self) -> tuple[int, ...]:
        """The shape of a result without the axis of trials: (points,)."""
        return (self.points,)

    def select(self, point: Array) -> tuple[Array, ...]:
        """Return the varied leaves of one point."""
        return tuple(leaf[point] for leaf in self.varied)

    def member(self, varied: tuple[Array, ...]) -> Interaction:
        """Return the interaction with the given varied leaves."""
        own, common = iter(varied), iter(self.shared)
        leaves = [next(own) if place else next(common) for place in self.places]
        return jax.tree.unflatten(self.structure, leaves)


Trials = Interaction | Family
"""The trials that a program can run: one interaction, or one per point of a sweep."""


def as_family(trials: Trials) -> Single | Family:
    """Return a family unchanged, and one interaction as a `Single` family."""
    return Single(trials) if isinstance(trials, Interaction) else trials


def _difference(first: Interaction, other: Interaction) -> str | None:
    """Return a description of how two interactions differ in structure, or None if they agree."""
    for field in dataclasses.fields(Interaction):
        if field.metadata.get("static", False):
            continue  # it follows from the other fields
        a, b = (getattr(interaction, field.name) for interaction in (first, other))
        if type(a) is not type(b):
            return f"{field.name}: {type(a).__name__} and {type(b).__name__}"
        if jax.tree.structure(a) != jax.tree.structure(b):
            return f"{field.name}: parts or static fields of {type(a).__name__}"
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            forms = [f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in (x, y)]
            if forms[0] != forms[1]:
                return f"{field.name}: {forms[0]} and {forms[1]}"
    return None


def _same_bits(leaf: Any, other: Any) -> bool:
    """Return whether two leaves are the same array or have the same bits."""
    if leaf is other:
        return True
    leaf, other = without_keys((leaf, other))
    return np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
