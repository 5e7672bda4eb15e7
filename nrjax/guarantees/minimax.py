"""The recipe for the minimax boundary, the default of Brownian noise."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nrjax._base.dtypes import float_dtype
from nrjax._base.notions import Notion
from nrjax._base.sensitivities import check_norm, relation_of, with_relation
from nrjax._base.validation import check, check_positive, check_probability, concrete_or_none
from nrjax.guarantees.grid import GridBoundary
from nrjax.guarantees.recipe import BoundaryRecipe
from nrjax.types import Schedule


class MinimaxBoundary(BoundaryRecipe):
    """The recipe for the minimax boundary, which needs no tuning.

    `nrjax.brownian` uses it by default. The guarantee that it makes for known levels is a
    `nrjax.GridBoundary`.

        >>> grid = nrjax.Grid([100.0, 10.0, 1.0])
        >>> boundary = nrjax.guarantees.MinimaxBoundary(1.0, 1e-6).on(grid)
        >>> [round(float(epsilon), 1) for epsilon in boundary.epsilon(grid.times)]
        [0.5, 1.6, 5.5]

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the loss may exceed the stated epsilon.

    Raises:
        ValueError: an attribute is out of range, or the sensitivity is in the wrong norm.
    """

    sensitivity: Any
    delta: Any
    noise: ClassVar[str] = "gaussian"
    notion: ClassVar[str] = Notion.PROBABILISTIC

    def __post_init__(self):
        check_positive("sensitivity", self.sensitivity)
        check_norm(self.sensitivity, self.noise)
        hint = "For example delta=1e-6."
        check(self.delta is not None, "delta", None, "given for Gaussian noise", hint)
        check_probability("delta", self.delta)

    def on(self, schedule: Schedule) -> GridBoundary:
        """Return the boundary on the times of a schedule (`GridBoundary.minimax`).

        Raises:
            ValueError: the schedule has no fixed times, or they are not as `GridBoundary` requires.
        """
        times = concrete_or_none(schedule.times)
        hint = "Use a nrjax.Grid, or a boundary for any times, such as tight_at_epsilon=0.3."
        check(times is not None, "schedule", schedule, "one of fixed times", hint)
        falling = np.unique(np.asarray(times).astype(float_dtype()))[::-1]
        options: Any = {"sensitivity": self.sensitivity, "delta": self.delta}
        return with_relation(GridBoundary.minimax(**options, times=falling), relation_of(self))

    def between(self, low: float, high: float, count: int) -> GridBoundary:
        """Return the boundary whose `count` times cost epsilons from `low` to `high`.

        The epsilons have equal ratios (`GridBoundary.minimax_levels`).
        """
        options: Any = {"sensitivity": self.sensitivity, "delta": self.delta}
        made = GridBoundary.minimax_levels(**options, low=low, high=high, levels=count)
        return with_relation(made, relation_of(self))
