"""Distributions over the trials of a case, with intervals that hold for every law.

The methods of a `Distribution` are the same for trials that are kept (`Sample`) and for trials that
are counted in histograms (`nrjax.study.histograms.BinnedDistribution`).
"""

import bisect
import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from nrjax._validation import check, check_probability

_SAFE = 1 - 1e-6
"""Factor of a tail probability, for the rounding of the incomplete beta function."""

_ROUNDING = 1e-12
"""Relative error of `trials * fraction` that is ignored when it is rounded to a rank."""

_BLOCK = 1 << 20
"""Values whose squares are summed at a time, to save memory."""


def rank_of(trials: int, fraction: float) -> int:
    """Return the rank, from 1, of the smallest value that this fraction does not exceed."""
    return min(trials, max(1, math.ceil(trials * fraction * (1 - _ROUNDING))))


def rank_interval(trials: int, fraction: float, level: float = 0.95) -> tuple[int, int]:
    """Return the ranks of two order statistics that enclose the true quantile.

    The number of trials up to the true quantile is Binomial(trials, fraction), or more if the law
    has atoms. The ranks therefore hold for every law with probability at least `level`, with half
    of the remainder on either side (David & Nagaraja 2003, section 7.1).

    Args:
        trials: number of independent values.
        fraction: of the quantile, in (0, 1].
        level: in (0, 1).

    Returns:
        Ranks from 1; 0 and `trials + 1` stand for an end that so few trials do not set.
    """
    from scipy.special import betainc  # slow to import

    tail = (1 - level) / 2 * _SAFE

    def below(rank: int) -> float:  # P(B < rank)
        return float(betainc(trials - rank + 1, rank, 1 - fraction)) if rank >= 1 else 0.0

    def reaching(rank: int) -> float:  # P(B >= rank), from rank 1 on
        return float(betainc(rank, trials - rank + 1, fraction)) if rank <= trials else 0.0

    # Both are sorted: the last rank that few enough values reach, and the first.
    low = bisect.bisect_right(range(trials + 1), tail, key=below) - 1
    high = 1 + bisect.bisect_left(range(1, trials + 2), -tail, key=lambda rank: -reaching(rank))
    return low, high


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a probability (Clopper & Pearson 1934)."""
    from scipy.special import betaincinv  # slow to import

    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return max(0.0, float(np.nextafter(low, -1))), min(1.0, float(np.nextafter(high, 2)))


def band_width(trials: int, level: float = 0.95) -> float:
    """Return half the width of the band around the whole distribution function, for every law.

    Dvoretzky, Kiefer & Wolfowitz 1956 with the constant of Massart 1990:
    `sqrt(log(2 / (1 - level)) / (2 trials))`, at most 1.
    """
    if trials == 0:
        return 1.0
    return min(1.0, math.sqrt(math.log(2 / (1 - level)) / (2 * trials)))


class Distribution:
    """The distribution of one variable over some trials.

    Infinite values are values. Intervals of quantiles are order statistics, intervals of fractions
    are exact, and the band is that of Dvoretzky, Kiefer and Wolfowitz. They hold for every law.
    Only the interval of the mean is approximate. `Results.distribution` returns a distribution.
    Internally it is a histogram with exact counts, whose bins are closed above or hold a single
    value.

    Attributes:
        trials: number of values.
        resolution: relative width within which values are known; 0 if they are known exactly.
        mean: in float64; infinite if a value is infinite, NaN without values.
        std: standard deviation, divisor `trials`; infinite if a value is infinite.
    """

    trials: int
    resolution: float
    mean: float
    std: float
    # Lower and upper ends of the bins, rising, and the number of values in each bin or before it.
    _histogram: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    # The smallest and the largest finite value.
    _ends: tuple[float, float]
    # The numbers of values that are minus infinite, and infinite.
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

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """Return a lower and an upper bound of the value of a rank (from 1)."""
        lower, upper, up_to = self._bins
        check(1 <= rank <= self.trials, "rank", rank, f"from 1 to {self.trials}")
        if rank <= self._infinite[0]:
            return -np.inf, -np.inf
        if rank > self.trials - self._infinite[1]:
            return np.inf, np.inf
        place = int(np.searchsorted(up_to, rank))
        return max(float(lower[place]), self._ends[0]), min(float(upper[place]), self._ends[1])

    def count_above(self, x: Any) -> np.ndarray:
        """Return the number of values above each of `x`, int64 of the shape of `x`.

        If `x` is within a bin, all values of the bin count as above.
        """
        (_, upper, up_to), x = self._bins, np.asarray(x, np.float64)
        above = self.trials - np.append(0, up_to)[np.searchsorted(upper, x, side="right")]
        # Above the last finite value there are only infinite ones; below the first, only -inf.
        lowest, highest = self._infinite
        if lowest + highest < self.trials:
            above = np.where((x >= self._ends[1]) & (x < np.inf), highest, above)
            above = np.where((x < self._ends[0]) & (x > -np.inf), self.trials - lowest, above)
        return np.asarray(above, np.int64)

    def points(self, most: int = 1000) -> np.ndarray:
        """Return about `most` finite, rising values at which the distribution function is exact.

        They lie between the smallest and the largest finite value: one per bin that has values, or
        evenly by rank if there are more such bins.
        """
        _, upper, up_to = self._bins
        first, last = self._infinite[0], self.trials - self._infinite[1]
        ranks = up_to[(up_to > first) & (up_to <= last)]
        ranks = ranks[np.diff(ranks, prepend=first) > 0]  # they rise: there is nothing to sort
        if ranks.size > most:
            ranks = 1 + np.linspace(first, last - 1, most).round().astype(int)
        return np.unique(np.minimum(upper[np.searchsorted(up_to, ranks)], self._ends[1]))

    @overload
    def quantile(self, q: float) -> float: ...
    @overload
    def quantile(self, q: Sequence[float] | np.ndarray) -> np.ndarray: ...
    def quantile(self, q: Any) -> Any:
        """Return the smallest value that at least the fraction `q` of the values do not exceed.

        It is an order statistic, never interpolated: an interpolated epsilon between a finite and
        an infinite one would understate the cost. Values that are known only up to `resolution`
        are rounded up. NaN without values.

        Args:
            q: a fraction in [0, 1], as in NumPy and JAX, or several: 0.5 is the median.

        Returns:
            A float, or an array of the shape of `q`.

        Raises:
            ValueError: `q` is outside of [0, 1].
        """
        fractions = _fractions(q)
        if fractions.ndim:
            values = [self.quantile(fraction) for fraction in fractions.flat]
            return np.array(values).reshape(fractions.shape)
        if self.trials == 0:
            return np.nan
        return self.order_statistic(rank_of(self.trials, float(fractions)))[1]

    def quantile_interval(self, q: float, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of the exact interval of a quantile.

        An end is infinite if there are too few trials to set it.

        Args:
            q: a fraction in [0, 1].
            level: probability with which the interval holds the true quantile.

        Raises:
            ValueError: `q` is outside of [0, 1], or `level` of (0, 1).
        """
        fractions = _fractions(q)
        check(fractions.ndim == 0, "q", q, "one fraction from 0 to 1")
        check_probability("level", level)
        low, high = rank_interval(self.trials, float(fractions), level)
        return (
            self.order_statistic(low)[0] if low >= 1 else -np.inf,
            self.order_statistic(high)[1] if high <= self.trials else np.inf,
        )

    def mean_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's interval of the mean, NaN for one value or an infinite mean."""
        from scipy.special import stdtrit  # slow to import

        if self.trials < 2 or not np.isfinite(self.mean):
            return np.nan, np.nan
        half = float(stdtrit(self.trials - 1, (1 + level) / 2)) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def standard_error(self) -> float:
        """The standard error of the mean, infinite for fewer than two values."""
        return self.std / np.sqrt(self.trials - 1) if self.trials > 1 else np.inf

    def fraction_above(self, x: float) -> float:
        """Return the fraction of the values above a number."""
        return float(self.count_above(x)) / self.trials if self.trials else np.nan

    def fraction_above_interval(self, x: float, level: float = 0.95) -> tuple[float, float]:
        """Return the exact interval of the probability of a value above a number.

        It is wider if `x` is within a bin, any of whose values may be above.
        """
        low, high = binomial_interval(int(self.count_above(x)), self.trials, level)
        lower, upper, _ = self._bins
        place = int(np.searchsorted(upper, x))
        if place < upper.size and lower[place] < x:
            low, _ = binomial_interval(int(self.count_above(upper[place])), self.trials, level)
        return low, high

    def band(self, level: float = 0.95) -> float:
        """Return half the width of the band around the whole distribution function."""
        return band_width(self.trials, level)

    def below(self, x: Any) -> np.ndarray:
        """Return the distribution function: the fraction of the values at or below each of `x`."""
        return 1 - self.count_above(x) / max(self.trials, 1)

    def below_within(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds of the distribution function, equal at edges of bins."""
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
        """The fraction of the values that are below infinity, NaN without values."""
        return float(self.below(np.finfo(np.float64).max)) if self.trials else np.nan


class Sample(Distribution):
    """The distribution of values that are all kept.

    Args:
        values: one per trial, any shape, of a boolean, integer or float dtype; no NaN.

    Raises:
        ValueError: `values` are not numbers, or one is NaN, which is neither small nor large.

    Example:
        >>> Sample([1.0, 2.0, 4.0]).quantile(0.5)
        2.0
    """

    resolution = 0.0

    def __init__(self, values: Any):
        numbers = _array(values)
        expected = "numbers, infinite ones included"
        check(numbers.dtype.kind in "biuf", "values", values, expected)
        check(not np.isnan(numbers).any(), "values", np.nan, expected)
        numbers = numbers.ravel()
        self.trials = numbers.size
        self.mean, self.std = _moments(numbers)
        distinct, counts = np.unique(numbers, return_counts=True)
        distinct = distinct.astype(np.float64)
        self._histogram = distinct, distinct, np.cumsum(counts)
        finite = distinct[np.isfinite(distinct)].tolist() or [np.nan]
        self._ends = finite[0], finite[-1]
        self._infinite = int(np.sum(numbers == -np.inf)), int(np.sum(numbers == np.inf))


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the standard deviation."""
    if not values.size:
        return np.nan, np.nan
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(np.mean(values, dtype=np.float64))
    if not np.isfinite(mean):
        return mean, np.inf
    blocks = (values[at : at + _BLOCK] - np.float64(mean) for at in range(0, values.size, _BLOCK))
    squares = sum(float(np.sum(np.square(block))) for block in blocks)
    return mean, float(np.sqrt(squares / values.size))


def _array(values: Any) -> np.ndarray:
    """Return an array, whose dtype is no number for lists of different lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)


def _fractions(q: Any) -> np.ndarray:
    """Return `q` as an array of fractions, or raise ValueError, for percentages too."""
    array, hint = _array(q), ""
    if array.dtype.kind in "iuf":
        if np.all((array >= 0) & (array <= 1)):
            return array
        if np.all((array >= 0) & (array <= 100)):
            hint = f"For percentages type quantile({np.round(array / 100, 9).tolist()})."
    check(False, "q", q, "a fraction from 0 to 1, or an array of fractions", hint)
    return array
