"""A utility that differs from step to step."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check, check_positive, concrete_or_none
from nrjax.types import Utility

U = TypeVar("U", bound=Utility)


class UtilitySequence(Utility, Generic[U]):
    """One utility for each step, all of one class and of shapes alike.

    The private rules ask a sequence of queries; here each may be another function of its release,
    as long as no row of the data moves any of them by more than `sensitivity` (Whitehouse 2022,
    section 5; Ligett 2017, Algorithm 2).

    Attributes:
        utilities: a utility whose leaves have a leading axis of steps; `UtilitySequence.of` makes
            it from a list.
        sensitivity: that of the most sensitive of them, scalar; None where only a public rule will
            look.

    Raises:
        ValueError: `sensitivity` is not positive and finite.
    """

    utilities: U
    sensitivity: Any = None

    def __post_init__(self):
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)

    @classmethod
    def of(cls, utilities: Sequence[U], sensitivity: Any = None) -> "UtilitySequence[U]":
        """The sequence of these utilities; `sensitivity` None is the largest, if all state one.

        Raises:
            ValueError: there are none, they differ in class or shapes or hold no arrays, or
                `sensitivity` is below what one of them states.
        """
        check(len(utilities) > 0, "utilities", utilities, "at least one")
        shapes = {(jax.tree.structure(u), *map(np.shape, jax.tree.leaves(u))) for u in utilities}
        check(len(shapes) == 1, "utilities", list(utilities), "of one class and one set of shapes")
        made = len(jax.tree.leaves(utilities[0])) > 0
        check(made, "utilities", list(utilities), "made of arrays")
        own = [concrete_or_none(one.sensitivity) for one in utilities]
        largest = max((float(np.max(number)) for number in own if number is not None), default=0.0)
        if sensitivity is None and all(number is not None for number in own):
            sensitivity = largest
        stated = concrete_or_none(sensitivity)
        if stated is not None:
            right = f"at least {largest:.6g}, which one of the utilities states"
            check(stated >= largest, "sensitivity", sensitivity, right)
        return cls(jax.tree.map(lambda *leaves: jnp.stack(leaves), *utilities), sensitivity)

    @property
    def max_steps(self) -> int:
        """Number of utilities."""
        return jax.tree.leaves(self.utilities)[0].shape[0]

    def evaluate(self, hypothesis: Any) -> Array:
        """Of no one step: a `ValueError`; ask `at(step)`."""
        raise ValueError(f"utility = {type(self).__name__}: must be asked at a step, by at(step)")

    def at(self, step: Array) -> U:
        """The utility of a step."""
        return jax.tree.map(lambda leaf: leaf[step], self.utilities)
