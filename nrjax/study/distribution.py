"""The distribution of a variable over the trials of a case, with exact intervals.

What is asked of it does not depend on whether the trials were kept (`Sample`) or folded into
histograms (`nrjax.study.sketched`): `Results.distribution` gives whichever a store holds.
"""

import abc
from typing import Any

import numpy as np

from nrjax._numerics import check
from nrjax.study.intervals import band_width, binomial_interval, rank_interval, rank_of

_BLOCK = 1 << 20
"""Values at a time whose squares are summed, so that there is no second array of all."""


class Distribution(abc.ABC):
    """Of the values of one variable over some trials; infinite values are values.

    A kind of distribution sets the four numbers and defines what is abstract; everything else
    follows. Intervals hold for every law: those of quantiles are order statistics, those of shares
    exact, the band is that of Dvoretzky, Kiefer and Wolfowitz. Only the mean's is approximate.
    """

    trials: int
    """How many values there are."""
    resolution: float
    """Relative width within which values are known; 0 where they are known exactly."""
    mean: float
    """In float64; infinite if a value is, NaN without values."""
    std: float
    """Standard deviation of the values, divisor `trials`; infinite if a value is."""

    @abc.abstractmethod
    def order_statistic(self, rank: int) -> tuple[float, float]:
        """Where the value of a rank (from 1) lies: not below the first, not above the second."""

    @abc.abstractmethod
    def count_above(self, x: Any) -> np.ndarray:
        """How many values are above each of `x`, int64 of the shape of `x`.

        Where `x` is between what is known exactly, the larger count, that of the number before it.
        """

    @abc.abstractmethod
    def points(self, most: int = 1000) -> np.ndarray:
        """Where to draw the distribution function, which is exact there.

        Finite, rising, between the smallest and the largest finite value (inclusive, up to
        `resolution`), about `most` of them at most; none without finite values.
        """

    def quantile(self, percent: float) -> float:
        """The smallest value that at least `percent` of all do not exceed.

        An order statistic, never interpolated: between a finite epsilon and an infinite one there
        is nothing that would not understate. Known up to `resolution`, it is rounded up. NaN
        without values.
        """
        if self.trials == 0:
            return np.nan
        return self.order_statistic(rank_of(self.trials, percent))[1]

    def quantile_interval(self, percent: float, level: float = 0.95) -> tuple[float, float]:
        """Ends of the exact interval of a quantile; infinite where the trials set none."""
        low, high = rank_interval(self.trials, percent, level)
        return (
            self.order_statistic(low)[0] if low >= 1 else -np.inf,
            self.order_statistic(high)[1] if high <= self.trials else np.inf,
        )

    def mean_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's interval of the mean; NaN for one value, or where the mean is infinite."""
        from scipy.special import stdtrit  # slow to import

        if self.trials < 2 or not np.isfinite(self.mean):
            return np.nan, np.nan
        half = float(stdtrit(self.trials - 1, (1 + level) / 2)) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def standard_error(self) -> float:
        """Of the mean; infinite for fewer than two values."""
        return self.std / np.sqrt(self.trials - 1) if self.trials > 1 else np.inf

    def fraction_above(self, x: float) -> float:
        """Share of the values above a number."""
        return float(self.count_above(x)) / self.trials if self.trials else np.nan

    def fraction_above_interval(self, x: float, level: float = 0.95) -> tuple[float, float]:
        """Exact interval of the probability of a value above a number."""
        return binomial_interval(int(self.count_above(x)), self.trials, level)

    def band(self, level: float = 0.95) -> float:
        """Half the width of the band that holds all of the distribution function (DKW)."""
        return band_width(self.trials, level)

    def below(self, x: Any) -> np.ndarray:
        """The distribution function: share of the values at or below each of `x`."""
        return 1 - self.count_above(x) / max(self.trials, 1)

    def histogram(self, edges: Any) -> np.ndarray:
        """How many values are in each `(edges[i], edges[i + 1]]`, of rising edges; int64."""
        return -np.diff(self.count_above(edges))

    @property
    def finite(self) -> float:
        """Share of the values that are below infinity; NaN without values."""
        return float(self.below(np.finfo(np.float64).max)) if self.trials else np.nan


class Sample(Distribution):
    """Of values that are all there; keeps a sorted copy of them.

    Args:
        values: one for each trial, any shape, of a boolean, integer or float dtype; no NaN.

    Raises:
        ValueError: there is a NaN, which is neither small nor large.
    """

    resolution = 0.0

    def __init__(self, values: np.ndarray):
        values = np.asarray(values).ravel()
        self.trials = values.size
        self.mean, self.std = _moments(values)  # in the order in which they came
        self._ordered = np.sort(values.astype(np.int8) if values.dtype == bool else values)
        bad = self.trials and np.isnan(self._ordered[-1])  # sorted to the end
        check(not bad, "values", np.nan, "numbers, infinite ones included")

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """The value of a rank, twice."""
        value = float(self._ordered[rank - 1])
        return value, value

    def count_above(self, x: Any) -> np.ndarray:
        """How many values are above each of `x`."""
        ordered, x = self._ordered, np.asarray(x, np.float64)
        # Numbers of another dtype would make NumPy convert all values: take the next lower one.
        if ordered.dtype.kind == "f":
            with np.errstate(over="ignore"):
                near = x.astype(ordered.dtype)
            lower = np.nextafter(near, np.array(-np.inf, ordered.dtype))
            near = np.where(near > x, lower, near)
        else:
            info = np.iinfo(ordered.dtype)
            near = np.clip(np.floor(x), info.min, info.max).astype(ordered.dtype)
        return np.asarray(ordered.size - np.searchsorted(ordered, near, side="right"), np.int64)

    def points(self, most: int = 1000) -> np.ndarray:
        """Values, evenly thinned by rank, with the smallest and the largest finite one."""
        first = int(np.searchsorted(self._ordered, -np.inf, side="right"))
        last = int(np.searchsorted(self._ordered, np.inf, side="left"))
        some = np.linspace(first, last - 1, min(most, last - first)).round().astype(int)
        return np.unique(self._ordered[some]).astype(np.float64)


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation."""
    if not values.size:
        return np.nan, np.nan
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(np.mean(values, dtype=np.float64))
    if not np.isfinite(mean):
        return mean, np.inf
    blocks = (values[at : at + _BLOCK] - np.float64(mean) for at in range(0, values.size, _BLOCK))
    squares = sum(float(np.sum(np.square(block))) for block in blocks)
    return mean, float(np.sqrt(squares / values.size))
