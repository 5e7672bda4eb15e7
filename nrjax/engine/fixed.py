"""Releases whose epsilon is fixed in advance, with which noise reduction is compared."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.sensitivities import with_relation
from nrjax._base.validation import check, check_choice, check_number, check_positive
from nrjax.engine.interaction import Interaction
from nrjax.engine.levels import with_levels
from nrjax.engine.mechanism import Mechanism
from nrjax.guarantees import BoundaryRecipe, GridBoundary, HockeyStickBoundary
from nrjax.guarantees._fixed_times import falling_times
from nrjax.schedules import Grid
from nrjax.types import Utility

_NOTIONS = Notion.HOCKEY_STICK, Notion.PROBABILISTIC
"""The notions by which the epsilon of one Gaussian release can be stated."""


class SingleRelease(abc.ABC):
    """A value that is released once, at an epsilon that is fixed in advance."""

    @property
    @abc.abstractmethod
    def _one_release(self) -> tuple[Mechanism, Grid]:
        """The mechanism with the guarantee of one release, and the grid of its time."""

    @neutral_config()
    def until(
        self,
        score: Utility | Callable[..., Any] | None = None,
        *,
        at_least: ArrayLike,
        data: tuple[Any, ...] = (),
    ) -> Interaction:
        """Return the interaction that releases once, and stops if the score is good enough.

        Arguments are as for `nrjax.Mechanism.until`. A trial whose release is not good enough ends
        as `Status.EXHAUSTED`: there is no second release.
        """
        mechanism, grid = self._one_release
        return mechanism.until(score, at_least=at_least, data=data, levels=grid)


@dataclasses.dataclass(frozen=True, eq=False)
class FixedRelease(SingleRelease):
    """One release at an epsilon that is fixed in advance, the usual way to release a value.

    Use it to compare noise reduction with. Noise reduction finds the epsilon that is needed; a
    fixed release has to know it beforehand. `fixed.until(...)` makes the interaction that
    `nrjax.simulate` runs, or that is the case of a `nrjax.Study`.

    >>> mechanism = nrjax.laplace(120.0, sensitivity=1.0)
    >>> fixed = nrjax.FixedRelease(mechanism, epsilon=0.5)
    >>> round(fixed.deviation, 2)
    2.83
    >>> def score(release):
    ...     return -jnp.abs(release - 120.0)
    >>> options = {"score": score, "at_least": -2.0}
    >>> nrjax.Study("mean", {"once": fixed.until(**options), "many": mechanism.until(**options)})
    Study mean: once, many

    Attributes:
        mechanism: the mechanism, from which value, noise and sensitivity are taken.
        epsilon: epsilon of the release.
        notion: for Gaussian noise, "hockey-stick" for the exact curve of the Gaussian mechanism
            (Balle and Wang 2018), which is what (epsilon, delta) mostly means, or "probabilistic"
            for a loss that exceeds epsilon with probability at most delta. Laplace noise is pure.

    Raises:
        ValueError: epsilon is not positive, or no noise level costs so little.
    """

    mechanism: Mechanism
    epsilon: float
    notion: str = Notion.HOCKEY_STICK

    @neutral_config()
    def __post_init__(self):
        _check_parts(self.mechanism, self.notion)
        check_number("epsilon", self.epsilon)
        check_positive("epsilon", self.epsilon)
        self._one_release  # noqa: B018, for its checks

    @classmethod
    @neutral_config()
    def at_time(
        cls, mechanism: Mechanism, time: float, notion: str = Notion.HOCKEY_STICK
    ) -> FixedRelease:
        """Return the release at a time (noise level), with the epsilon that it costs."""
        _check_parts(mechanism, notion)
        check_number("time", time)
        falling_times([float(time)], 1, "time")
        guarantee: Any = mechanism.guarantee
        if mechanism.process.noise == "gaussian":
            sensitivity, delta = guarantee.sensitivity, float(guarantee.delta)
            if notion == Notion.PROBABILISTIC:
                options: Any = {"sensitivity": sensitivity, "delta": delta, "times": [time]}
                guarantee = GridBoundary.minimax(**options)
            else:
                guarantee = HockeyStickBoundary.single(sensitivity, delta, time=time)
            time = guarantee.times[0]
        else:
            guarantee = with_levels(guarantee, Grid([time]))[0]
        return cls(mechanism, float(guarantee.epsilon(time)), notion)

    @functools.cached_property
    def _one_release(self) -> tuple[Mechanism, Grid]:  # pyright: ignore[reportIncompatibleMethodOverride]
        mechanism, epsilon = self.mechanism, float(self.epsilon)
        guarantee: Any = mechanism.guarantee
        if mechanism.process.noise != "gaussian":
            if isinstance(guarantee, BoundaryRecipe):
                made: Any
                grid: Any
                made, grid = with_levels(guarantee, (epsilon, epsilon, 1))
                cost = float(np.max(made.epsilon(grid.times)))
                expected = f"at least {cost:.9g}, the cost of the level that the recipe makes"
                check(cost <= epsilon, "epsilon", epsilon, expected)
                return dataclasses.replace(mechanism, guarantee=made), grid
            return mechanism, Grid.explicit(np.reshape(guarantee.time(epsilon), 1))
        sensitivity, delta = guarantee.sensitivity, float(guarantee.delta)
        if self.notion == Notion.PROBABILISTIC:
            one = _probabilistic(sensitivity, delta, epsilon)
        else:
            one = HockeyStickBoundary.single(sensitivity, delta, epsilon=epsilon)
        made = with_relation(one, mechanism.relation)
        return dataclasses.replace(mechanism, guarantee=made), Grid.explicit(one.times)

    @property
    def time(self) -> float:
        """The time (noise level) of the release: variance or scale."""
        return float(self._one_release[1].times[0])

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one coordinate."""
        return float(self.mechanism.process.deviation(self.time))


def _check_parts(mechanism: Any, notion: Any) -> None:
    is_mechanism = isinstance(mechanism, Mechanism)
    check(is_mechanism, "mechanism", mechanism, "a nrjax.Mechanism, such as nrjax.laplace(...)")
    check(mechanism.guarantee is not None, "guarantee", None, "given in the mechanism")
    check_choice("notion", notion, _NOTIONS)


def _probabilistic(sensitivity: float, delta: float, epsilon: float) -> Any:
    """Return the boundary of one time that costs at most epsilon, rounding included."""
    lowered, step = epsilon, float(np.finfo(float_dtype()).eps)
    while True:
        levels: Any = {"low": lowered, "high": lowered, "levels": 1}
        one = GridBoundary.minimax_levels(sensitivity=sensitivity, delta=delta, **levels)
        if one.epsilon(one.times)[0] <= epsilon:
            return one
        lowered, step = lowered * (1 - step), 2 * step
