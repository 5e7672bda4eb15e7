"""Empirical distributions over trials, with distribution-free confidence intervals.

A `Distribution` has the same methods for trials that are kept (`Sample`) and for trials that are
counted in histograms (`nrjax.study.histograms.BinnedDistribution`).
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from nrjax._base.arrays import as_array
from nrjax._base.quantiles import check_fractions, rank_of
from nrjax._base.validation import check
from nrjax.statistics.intervals import band_width, binomial_interval, rank_interval

_BLOCK = 1 << 20
"""The number of values whose squares are computed at a time, to save memory."""


class Distribution:
    """The empirical distribution of one variable over some trials.

    `Results.distribution` returns a distribution. Values may be infinite. The intervals of
    quantiles (between order statistics), the intervals of fractions (Clopper & Pearson) and the
    band (Dvoretzky, Kiefer & Wolfowitz) hold for every true distribution. Only the interval of the
    mean is approximate.

        >>> distribution = nrjax.Sample([1.0, 2.0, 3.0, 4.0])  # a distribution of given values
        >>> distribution.mean, distribution.trials
        (2.5, 4)

    Attributes:
        trials: number of values.
        resolution: relative width of the bins in which values are counted; 0 for exact values, and
            infinite if only moments are known.
        mean: mean of the values: infinite if values of one sign are infinite, NaN if values of
            both signs are, or if there are no values.
        std: standard deviation with divisor `trials`; infinite if a value is infinite.
    """

    trials: int
    resolution: float
    mean: float
    std: float
    # Lower ends, upper ends and cumulative counts of the bins. A bin excludes its lower end, or is
    # a single value.
    _histogram: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    # Smallest and largest finite value.
    _ends: tuple[float, float]
    # Number of values that are minus infinity, and number that are plus infinity.
    _infinite: tuple[int, int]

    def __repr__(self) -> str:
        text = f"{type(self).__name__} of {self.trials:,} values, mean {self.mean:.4g}"
        if self._histogram is None or not self.trials:
            return text
        low, high = self.quantile_interval(0.5)
        return f"{text}, median {self.quantile(0.5):.4g} (95 %: {low:.4g} to {high:.4g})"

    @property
    def _bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._histogram is None:
            raise ValueError("Only moments were kept of this variable, so there are no quantiles.")
        return self._histogram

    @property
    def size(self) -> int:
        """The number of bins, or of distinct values if they are exact, or 0 for moments only."""
        return 0 if self._histogram is None else self._histogram[0].size

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """Return lower and upper bounds of the value with a rank, counted from 1."""
        lower, upper, up_to = self._bins
        check(1 <= rank <= self.trials, "rank", rank, f"from 1 to {self.trials}")
        if rank <= self._infinite[0]:
            return -np.inf, -np.inf
        if rank > self.trials - self._infinite[1]:
            return np.inf, np.inf
        place = int(np.searchsorted(up_to, rank))
        return max(float(lower[place]), self._ends[0]), min(float(upper[place]), self._ends[1])

    def count_above(self, x: Any) -> np.ndarray:
        """Return the number of values above each element of `x`, int64 of the shape of `x`.

        If an element lies within a bin, all values of the bin count as above it.
        """
        (_, upper, up_to), x = self._bins, np.asarray(x, np.float64)
        above = self.trials - np.append(0, up_to)[np.searchsorted(upper, x, side="right")]
        # Only infinity is above the largest finite value, only -inf below the smallest.
        lowest, highest = self._infinite
        if lowest + highest < self.trials:
            above = np.where((x >= self._ends[1]) & (x < np.inf), highest, above)
            above = np.where((x < self._ends[0]) & (x > -np.inf), self.trials - lowest, above)
        return np.asarray(above, np.int64)

    def points(self, most: int = 1000) -> np.ndarray:
        """Return at most `most` finite points at which the distribution function is exact.

        The points rise, and lie between the smallest and the largest finite value. There is one per
        bin that has values; if there are too many such bins, the points are spread evenly by rank.
        """
        _, upper, up_to = self._bins
        first, last = self._infinite[0], self.trials - self._infinite[1]
        ranks = up_to[(up_to > first) & (up_to <= last)]
        ranks = ranks[np.diff(ranks, prepend=first) > 0]  # distinct, since ranks rise
        if ranks.size > most:
            ranks = 1 + np.linspace(first, last - 1, most).round().astype(int)
        return np.unique(np.minimum(upper[np.searchsorted(up_to, ranks)], self._ends[1]))

    @overload
    def quantile(self, q: float) -> float: ...
    @overload
    def quantile(self, q: Sequence[float] | np.ndarray) -> np.ndarray: ...
    def quantile(self, q: Any) -> Any:
        """Return the smallest value that at least the fraction `q` of the values do not exceed.

        The quantile is an order statistic, never interpolated, because an interpolation between two
        epsilons would understate the cost. If values are counted in bins, the quantile is rounded
        up to the edge of its bin. It is NaN if there are no values.

        Args:
            q: a fraction in [0, 1], or an array of fractions; 0.5 is the median.

        Returns:
            A float, or an array of the shape of `q`.

        Raises:
            ValueError: `q` is outside of [0, 1].
        """
        fractions = check_fractions("q", q)
        if fractions.ndim:
            values = [self.quantile(fraction) for fraction in fractions.flat]
            return np.array(values).reshape(fractions.shape)
        if self.trials == 0:
            return np.nan
        return self.order_statistic(rank_of(self.trials, float(fractions)))[1]

    def quantile_interval(self, q: float, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of the exact confidence interval of a quantile.

        An end is infinite if there are too few trials to set it.

        Args:
            q: fraction of the quantile, in [0, 1]; the median is 0.5.
            level: least probability with which the interval contains the true quantile.

        Raises:
            ValueError: `q` is outside of [0, 1], or `level` of (0, 1).
        """
        fractions = check_fractions("q", q)
        check(fractions.ndim == 0, "q", q, "one fraction from 0 to 1")
        _check_level(level)
        low, high = rank_interval(self.trials, float(fractions), level)
        return (
            self.order_statistic(low)[0] if low >= 1 else -np.inf,
            self.order_statistic(high)[1] if high <= self.trials else np.inf,
        )

    def mean_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's interval of the mean, or NaN if the mean or its error is infinite."""
        from scipy.special import stdtrit  # slow to import

        _check_level(level)
        if self.trials < 2 or not np.isfinite(self.mean):
            return np.nan, np.nan
        half = float(stdtrit(self.trials - 1, (1 + level) / 2)) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def standard_error(self) -> float:
        """The standard error of the mean, infinite for fewer than two values."""
        return self.std / np.sqrt(self.trials - 1) if self.trials > 1 else np.inf

    def fraction_above(self, x: float) -> float:
        """Return the fraction of the values that are above `x`."""
        return float(self.count_above(x)) / self.trials if self.trials else np.nan

    def fraction_above_interval(self, x: float, level: float = 0.95) -> tuple[float, float]:
        """Return the exact confidence interval of the probability that a value is above `x`.

        If `x` lies within a bin, the interval allows for all values of the bin on either side.
        """
        _check_level(level)
        low, high = binomial_interval(int(self.count_above(x)), self.trials, level)
        lower, upper, _ = self._bins
        place = int(np.searchsorted(upper, x))
        if place < upper.size and lower[place] < x:
            low, _ = binomial_interval(int(self.count_above(upper[place])), self.trials, level)
        return low, high

    def band(self, level: float = 0.95) -> float:
        """Return half the width of the confidence band around the whole distribution function."""
        _check_level(level)
        return band_width(self.trials, level)

    def below(self, x: Any) -> np.ndarray:
        """Return the fraction of the values that are at most `x`, for each element of `x`."""
        return 1 - self.count_above(x) / max(self.trials, 1)

    def below_within(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds of the CDF at `x`, which differ only inside a bin."""
        (lower, upper, up_to), x = self._bins, np.asarray(x, np.float64)
        place = np.maximum(np.searchsorted(lower, x), np.searchsorted(upper, x, side="right"))
        most = np.append(0, up_to)[place]
        lowest, highest = self._infinite
        if lowest + highest < self.trials:
            most = np.where((x < self._ends[0]) & (x > -np.inf), lowest, most)
            most = np.where((x >= self._ends[1]) & (x < np.inf), self.trials - highest, most)
        return self.below(x), most / max(self.trials, 1)

    def histogram(self, edges: Any) -> np.ndarray:
        """Return the number of values per interval `(edges[i], edges[i + 1]]` (int64)."""
        return -np.diff(self.count_above(edges))

    @property
    def finite(self) -> float:
        """The fraction of the values that are below plus infinity, or NaN without values."""
        return float(self.below(np.finfo(np.float64).max)) if self.trials else np.nan


class Sample(Distribution):
    """The empirical distribution of an array of values.

    Args:
        values: numbers of a boolean, integer or float dtype, of any shape, without NaN.

    Raises:
        ValueError: `values` are not numbers, or a value is NaN.

    Example:
        >>> nrjax.Sample([1.0, 2.0, 4.0]).quantile(0.5)
        2.0
    """

    resolution = 0.0

    def __init__(self, values: Any):
        numbers = as_array(values)
        expected = "numbers, infinite ones included"
        check(numbers.dtype.kind in "biuf", "values", values, expected)
        numbers = numbers.ravel()
        self.trials = numbers.size
        self.mean, self.std = _moments(numbers)
        missing = np.isnan(self.mean) and np.isnan(numbers).any()
        check(not missing, "values", np.nan, expected)
        ordered = np.sort(numbers)
        last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: ordered.size])
        distinct = ordered[last].astype(np.float64)
        up_to = last + 1  # number of values up to each distinct one
        self._histogram = distinct, distinct, up_to
        first, end = distinct.searchsorted(-np.inf, "right"), distinct.searchsorted(np.inf)
        finite = distinct[first:end]
        self._ends = (float(finite[0]), float(finite[-1])) if finite.size else (np.nan, np.nan)
        self._infinite = int(up_to[:first].sum()), self.trials - int(up_to[:end].max(initial=0))


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the standard deviation of an array."""
    if not values.size:
        return np.nan, np.nan
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(np.mean(values, dtype=np.float64))
    if not np.isfinite(mean):
        return mean, np.inf
    blocks = (values[at : at + _BLOCK] - np.float64(mean) for at in range(0, values.size, _BLOCK))
    squares = sum(float(np.sum(np.square(block))) for block in blocks)
    return mean, float(np.sqrt(squares / values.size))


def _check_level(level: Any) -> None:
    """Raise ValueError if `level` is not one fraction strictly between 0 and 1."""
    fraction = check_fractions("level", level)
    within = fraction.ndim == 0 and 0 < fraction < 1
    check(within, "level", level, "a fraction strictly between 0 and 1")
