"""Neighbouring data sets of counts by group, where each row is in one group."""

import dataclasses
import math

import numpy as np

from nrjax._numerics import check
from nrjax.sensitivities import Sensitivity


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbour:
    """One neighbour x' of a data set x, as seen by the counts.

    Only rows move, so the shift is whole: noise on the integers, such as Skellam noise, hides it.
    Whatever groups are named, the shift is as long as any of its relation, so its norms are the
    sensitivities.

    Attributes:
        relation: "replace" (one row has another value) or "remove" (one row is missing).
        shift: `f(x) - f(x')`, shape (groups,), integers in float64.
    """

    relation: str
    shift: np.ndarray

    @classmethod
    def replace(cls, groups: int, i: int, j: int) -> "Neighbour":
        """A row of group i is in group j instead: shift `e_i - e_j`.

        Raises:
            ValueError: i and j are not two of the groups.
        """
        shift = cls.remove(groups, i).shift
        check(0 <= j < groups and j != i, "j", j, f"in [0, {groups}) and not i = {i}")
        shift[j] = -1.0
        return cls("replace", shift)

    @classmethod
    def remove(cls, groups: int, i: int) -> "Neighbour":
        """A row of group i is missing: shift `e_i`; an added row would have `-e_i`.

        Raises:
            ValueError: i is not one of the groups.
        """
        check(0 <= i < groups, "i", i, f"in [0, {groups}), the groups")
        shift = np.zeros(groups)
        shift[i] = 1.0
        return cls("remove", shift)

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """l1-sensitivity of the counts: 2 (replace) or 1 (remove)."""
        return Sensitivity(np.abs(self.shift).sum(), "l1")

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """l2-sensitivity of the counts: sqrt(2) (replace) or 1 (remove)."""
        return Sensitivity(math.sqrt(np.square(self.shift).sum()), "l2")
