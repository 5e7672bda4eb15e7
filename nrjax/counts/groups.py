"""Utilities for the error of noisy counts, and the neighbours of a table of counts.

Counts are integers >= 0, so noisy counts are rounded and cut off at 0 before their error is
measured, which costs no privacy. The error depends on the true counts. To compare it with a public
threshold is a convention of simulations (the "public test" of Whitehouse 2022, section 6). To
protect real counts, use a private stopping rule with the utility's `sensitivity`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.format import representation
from nrjax._base.sensitivities import Norm, Sensitivity
from nrjax._base.validation import as_floats, check, check_numbers
from nrjax.types import Utility

_SLACK = 1e-9
"""Relative slack for products such as 0.1 * 30, which must not round to less than 3."""


def check_counts(counts: Any) -> None:
    """Check that counts are a vector of integers >= 0, exact in JAX's default precision."""
    number = check_numbers(
        "counts",
        counts,
        lambda n: np.isfinite(n) & (n >= 0) & (n == np.round(n)),
        "whole numbers, none negative",
    )
    if number is not None:
        check(number.ndim == 1 and number.size > 0, "counts", counts, "a non-empty vector")
        check_exact("counts", number)


def check_exact(name: str, counts: Any) -> None:
    """Check that JAX's default floating-point type holds counts exactly."""
    info = jnp.finfo(jnp.result_type(float))
    most = 2 ** (info.nmant + 1)
    expected = f"at most {most}, up to which {info.dtype} has every integer (float64 has more)"
    check_numbers(name, counts, lambda n: n <= most, expected)


class _CountError(Utility):
    counts: Any

    def __post_init__(self):
        check_counts(self.counts)

    @property
    def sensitivity(self) -> float:
        """The utility's sensitivity, `2/groups`, as replacing a row moves two counts by one.

        It is that of the exact utility: a private rule allows for the rounding.
        """
        return 2 / np.shape(self.counts)[-1]

    def hypothesis(self, release: Array) -> Array:
        """Return the noisy counts rounded and cut off at 0, shape (groups,)."""
        return jnp.maximum(jnp.round(release), 0)

    def threshold(self, target: float) -> float:
        """Return the stopping rule's threshold for an error of at most `target`."""
        check(math.isfinite(target) and target >= 0, "target", target, "finite and not negative")
        groups = np.shape(self.counts)[-1]
        # Halfway between the largest sufficient error and the next, so that rounding is harmless.
        return -(math.floor(target * groups * (1 + _SLACK)) + 0.5) / groups


class ShareOutside(_CountError):
    """A utility: minus the fraction of groups whose noisy count is outside its tolerance.

    Use it when each group has its own tolerance, and `MeanAbsoluteError` for the mean error.

        >>> utility = nrjax.counts.ShareOutside.relative([30, 100, 7], error=0.1)
        >>> float(utility.evaluate(jnp.asarray([32.0, 105.0, 7.0])))  # all within 10 %
        -0.0
        >>> rule = nrjax.PublicThreshold(utility.threshold(0.05))  # 95 % of the groups

    Attributes:
        counts: true counts, integers >= 0, shape (groups,).
        slack: tolerance of each group: its largest accepted error, in counts, shape (groups,).
    """

    slack: Any

    def __post_init__(self):
        super().__post_init__()
        expected = f"numbers of shape {np.shape(self.counts)}, none negative"
        check_numbers("slack", self.slack, lambda n: n >= 0, expected)
        check(np.shape(self.slack) in ((), np.shape(self.counts)), "slack", self.slack, expected)

    @classmethod
    def relative(cls, counts: ArrayLike, error: float) -> ShareOutside:
        """Return the utility that allows each count the relative error `error` (>= 0)."""
        check(math.isfinite(error) and error >= 0, "error", error, "finite and not negative")
        expected = "whole numbers, none negative"
        number = as_floats("counts", counts, lambda n: n >= 0, expected)
        return cls(number, np.floor(error * number * (1 + _SLACK)))

    def evaluate(self, hypothesis: Array) -> Array:
        """Return minus the fraction of groups outside their tolerance (NaN is outside)."""
        within = jnp.abs(hypothesis - self.counts) <= self.slack
        return -jnp.mean(jnp.where(within, 0, 1), dtype=hypothesis.dtype)


class MeanAbsoluteError(_CountError):
    """A utility: minus the mean absolute error of the noisy counts.

        >>> utility = nrjax.counts.MeanAbsoluteError(np.array([30, 100, 7]))
        >>> float(utility.evaluate(jnp.asarray([32.0, 105.0, 9.0])))
        -3.0
        >>> rule = nrjax.PublicThreshold(utility.threshold(2.5))  # at most 2.5 counts on average

    Attributes:
        counts: true counts, integers >= 0, shape (groups,).
    """

    def evaluate(self, hypothesis: Array) -> Array:
        """Return minus the mean absolute error of the noisy counts, a scalar."""
        return -jnp.mean(jnp.abs(hypothesis - self.counts))


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbour:
    """A neighbouring data set, described by the differences between the counts by group.

    The differences are integers, so integer noise, such as Skellam noise, hides them. The norms of
    `shift` are the same for every choice of groups, so they are the sensitivities of the counts.

        >>> nrjax.counts.Neighbour.replace(groups=3, i=0, j=1).l2_sensitivity
        Sensitivity(1.4142135623730951, 'l2', 'replace')

    Attributes:
        relation: "replace" (one row moves to another group) or "remove" (one row is missing).
        shift: the counts minus the neighbour's counts, integers in float64, shape (groups,).
    """

    relation: str
    shift: np.ndarray

    __repr__ = representation

    @classmethod
    def replace(cls, groups: int, i: int, j: int) -> Neighbour:
        """Return the neighbour in which a row moves from group i to j: shift `e_i - e_j`."""
        shift = cls.remove(groups, i).shift
        check(0 <= j < groups and j != i, "j", j, f"in [0, {groups}) and not i = {i}")
        shift[j] = -1.0
        return cls("replace", shift)

    @classmethod
    def remove(cls, groups: int, i: int) -> Neighbour:
        """Return the neighbour that lacks one row of group i: shift `e_i`."""
        check(0 <= i < groups, "i", i, f"in [0, {groups}), the groups")
        shift = np.zeros(groups)
        shift[i] = 1.0
        return cls("remove", shift)

    def _sensitivity(self, number: float, norm: Norm) -> Sensitivity:
        relation = "add-remove" if self.relation == "remove" else self.relation
        return Sensitivity(number, norm, relation)

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """The l1-sensitivity of the counts: 2 (replace) or 1 (remove)."""
        return self._sensitivity(float(np.abs(self.shift).sum()), "l1")

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """The l2-sensitivity of the counts: sqrt(2) (replace) or 1 (remove)."""
        return self._sensitivity(math.sqrt(np.square(self.shift).sum()), "l2")
