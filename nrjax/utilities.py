"""Utilities that differ from step to step."""

from __future__ import annotations

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
    """A sequence of utilities, one per step, all of one class and with equal shapes.

    Use it if the score of a release changes from step to step, such as with a target that falls. A
    private rule covers the sequence as long as no row of the data changes any of the utilities by
    more than `sensitivity` (Whitehouse 2022, section 5; Ligett 2017, Algorithm 2).

        utility = nrjax.UtilitySequence.of([Closeness(target) for target in (1.0, 2.0, 3.0)])

    Attributes:
        utilities: a utility whose leaves have a leading axis of steps; `UtilitySequence.of` makes
            it from a list.
        sensitivity: largest sensitivity of the utilities, scalar. It may be None for a public rule.

    Raises:
        ValueError: `sensitivity` is not positive and finite.
    """

    utilities: U
    sensitivity: Any = None

    def __post_init__(self):
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)

    @classmethod
    def of(cls, utilities: Sequence[U], sensitivity: Any = None) -> UtilitySequence[U]:
        """Make a sequence from a list of utilities.

        Args:
            utilities: one per step.
            sensitivity: by default the largest sensitivity, if every utility states one.

        Raises:
            ValueError: the list is empty, its utilities differ in class or shapes or hold no
                arrays, or `sensitivity` is below the sensitivity that a utility states.
        """
        check(len(utilities) > 0, "utilities", utilities, "at least one")
        shapes = {(jax.tree.structure(u), *map(np.shape, jax.tree.leaves(u))) for u in utilities}
        check(len(shapes) == 1, "utilities", list(utilities), "of one class and one set of shapes")
        has_leaves = len(jax.tree.leaves(utilities[0])) > 0
        check(has_leaves, "utilities", list(utilities), "made of arrays")
        stated = [concrete_or_none(utility.sensitivity) for utility in utilities]
        largest = max((float(np.max(n)) for n in stated if n is not None), default=0.0)
        if sensitivity is None and all(number is not None for number in stated):
            sensitivity = largest
        number = concrete_or_none(sensitivity)
        if number is not None:
            expected = f"at least {largest:.6g}, which one of the utilities states"
            check(number >= largest, "sensitivity", sensitivity, expected)
        return cls(jax.tree.map(lambda *leaves: jnp.stack(leaves), *utilities), sensitivity)

    @property
    def max_steps(self) -> int:
        """The number of utilities."""
        return jax.tree.leaves(self.utilities)[0].shape[0]

    def evaluate(self, hypothesis: Any) -> Array:
        """Raise a `ValueError`, since utilities differ: use `at(step).evaluate(hypothesis)`."""
        raise ValueError("utility must be that of one step: use at(step).evaluate(hypothesis).")

    def at(self, step: Array) -> U:
        """Return the utility at a step, without the axis of steps."""
        return jax.tree.map(lambda leaf: leaf[step], self.utilities)
