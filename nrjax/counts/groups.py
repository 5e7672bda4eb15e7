"""Counts by group: how far off noisy ones are, and what one row can change.

Counts are whole and not negative, so a release is rounded and cut off at 0 before it is judged;
what is made of a release alone costs no privacy. That the analyst sees the error against the true
counts is the papers' "public test" (Whitehouse 2022, section 6): a simulation's convention. On
private counts the answers have to be paid for, by a rule that is told the `sensitivity`.
"""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check, check_numbers
from nrjax.sensitivities import Sensitivity
from nrjax.types import Utility

_SLACK = 1e-9
"""A bound such as 0.1 * 30 is meant to allow for 3, whatever it rounds to."""


def check_counts(counts: Any) -> None:
    """Constructor check: whole numbers of at least 0, none that a cast would move."""
    right = "whole numbers, none negative"
    number = check_numbers(
        "counts", counts, lambda n: np.isfinite(n) & (n >= 0) & (n == np.round(n)), right
    )
    if number is not None:
        check(number.ndim == 1 and number.size > 0, "counts", counts, "a non-empty vector")
        check_exact("counts", number)


def check_exact(name: str, counts: Any) -> None:
    """Counts that the default precision tells apart: others a cast moves, neighbours apart too."""
    info = jnp.finfo(jnp.result_type(float))
    most = 2 ** (info.nmant + 1)
    right = f"at most {most}, up to which {info.dtype} has every integer (float64 has more)"
    check_numbers(name, counts, lambda n: n <= most, right)


class _CountError(Utility):
    counts: Any

    def __post_init__(self):
        check_counts(self.counts)

    @property
    def sensitivity(self) -> float:
        """`2/groups`: a replaced row moves two counts by one, each of them one group's affair."""
        return 2 / np.shape(self.counts)[-1]

    def hypothesis(self, release: Array) -> Array:
        """The release rounded and cut off at 0, shape (groups,)."""
        return jnp.maximum(jnp.round(release), 0)

    def threshold(self, target: float) -> float:
        """Threshold for an error of at most `target`."""
        check(math.isfinite(target) and target >= 0, "target", target, "finite and not negative")
        groups = np.size(self.counts)
        # Halfway between the last quotient that is good enough and the next: rounding decides
        # nothing.
        return -(math.floor(target * groups * (1 + _SLACK)) + 0.5) / groups


class ShareOutside(_CountError):
    """Minus the share of the groups whose noisy count is too far from the true one.

    Attributes:
        counts: true counts, whole numbers of at least 0, shape (groups,).
        slack: how far each may be off, in counts, shape (groups,).
    """

    slack: Any

    @classmethod
    def relative(cls, counts: ArrayLike, error: float) -> "ShareOutside":
        """Each may be off by the fraction `error` (>= 0) of itself."""
        check(math.isfinite(error) and error >= 0, "error", error, "finite and not negative")
        number = np.asarray(counts, np.float64)
        return cls(number, np.floor(error * number * (1 + _SLACK)))

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the share of groups, in [-1, 0]; a NaN is too far."""
        within = jnp.abs(hypothesis - self.counts) <= self.slack
        return -jnp.mean(jnp.where(within, 0, 1), dtype=hypothesis.dtype)


class MeanAbsoluteError(_CountError):
    """Minus the mean over the groups of how far a noisy count is off, in counts.

    Attributes:
        counts: true counts, whole numbers of at least 0, shape (groups,).
    """

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the mean absolute error, in counts."""
        return -jnp.mean(jnp.abs(hypothesis - self.counts))


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbour:
    """One neighbour x' of a data set x, as seen by the counts.

    Only rows move, so the shift is whole: noise on the integers, such as Skellam noise, hides it.
    Its norms, the same for all groups, are the sensitivities.

    Attributes:
        relation: "replace" (one row has another value) or "remove" (one row is missing).
        shift: `f(x) - f(x')`, shape (groups,), integers in float64.
    """

    relation: str
    shift: np.ndarray

    @classmethod
    def replace(cls, groups: int, i: int, j: int) -> "Neighbour":
        """A row of group i is in group j instead: shift `e_i - e_j`."""
        shift = cls.remove(groups, i).shift
        check(0 <= j < groups and j != i, "j", j, f"in [0, {groups}) and not i = {i}")
        shift[j] = -1.0
        return cls("replace", shift)

    @classmethod
    def remove(cls, groups: int, i: int) -> "Neighbour":
        """A row of group i is missing: shift `e_i`; an added row would have `-e_i`."""
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
