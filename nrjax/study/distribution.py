"""The distribution of a variable over the trials of a case, with exact intervals.

What is asked of it does not depend on whether the trials were kept (`Sample`) or folded into
histograms (`nrjax.study.sketched`): `Results.distribution` gives whichever a store holds.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from nrjax._validation import check, check_probability
from nrjax.study.intervals import band_width, binomial_interval, rank_interval, rank_of

_BLOCK = 1 << 20
"""Values at a time whose squares are summed, so that there is no second array of all."""


class Distribution:
    """Of the values of one variable over some trials; infinite values are values.

    It is a histogram: bins whose counts are exact, each closed above, or a single value. Intervals
    hold for every law: those of quantiles are order statistics, those of shares exact, the band is
    that of Dvoretzky, Kiefer and Wolfowitz. Only the mean's is approximate.
    """

    trials: int
    """How many values there are."""
    resolution: float
    """Relative width within which values are known; 0 where they are known exactly."""
    mean: float
    """In float64; infinite if a value is, NaN without values."""
    std: float
    """Standard deviation of the values, divisor `trials`; infinite if a value is."""
    _histogram: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """Lower and upper ends of the bins, rising, and how many values are in each or before it."""
    _ends: tuple[float, float]
    """The smallest and the largest finite value."""
    _infinite: tuple[int, int]
    """How many values are minus infinite, and infinite."""

    def __repr__(self) -> str:
        said = f"{type(self).__name__} of {self.trials:,} values, mean {self.mean:.4g}"
        if self._histogram is None or not self.trials:
            return said
        low, high = self.quantile_interval(0.5)
        return f"{said}, median {self.quantile(0.5):.4g} (95 %: {low:.4g} to {high:.4g})"

    @property
    def _bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._histogram is None:
            raise ValueError("of this variable only moments were kept: there are no quantiles")
        return self._histogram

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """Where the value of a rank (from 1) lies: not below the first, not above the second."""
        lower, upper, up_to = self._bins
        check(1 <= rank <= self.trials, "rank", rank, f"from 1 to {self.trials}")
        if rank <= self._infinite[0]:
            return -np.inf, -np.inf
        if rank > self.trials - self._infinite[1]:
            return np.inf, np.inf
        place = int(np.searchsorted(up_to, rank))
        return max(float(lower[place]), self._ends[0]), min(float(upper[place]), self._ends[1])

    def count_above(self, x: Any) -> np.ndarray:
        """How many values are above each of `x`, int64 of the shape of `x`.

        Where `x` is within a bin, the larger count, that of the number before it.
        """
        (_, upper, up_to), x = self._bins, np.asarray(x, np.float64)
        found = self.trials - np.append(0, up_to)[np.searchsorted(upper, x, side="right")]
        # Beyond the last finite value there are only infinite ones, before the first all but -inf.
        below, above = self._infinite
        if below + above < self.trials:
            found = np.where((x >= self._ends[1]) & (x < np.inf), above, found)
            found = np.where((x < self._ends[0]) & (x > -np.inf), self.trials - below, found)
        return np.asarray(found, np.int64)

    def points(self, most: int = 1000) -> np.ndarray:
        """Where to draw the distribution function, which is exact there.

        Finite, rising, between the smallest and the largest finite value (inclusive, up to
        `resolution`): of all bins with values or, evenly by rank, about `most` of them.
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
        an infinite one would understate. Where values are known only up to `resolution`, it is
        rounded up. NaN without values.

        Args:
            q: a fraction in [0, 1], as in NumPy and JAX, or several: 0.5 is the median.

        Returns:
            A float, or an array of the shape of `q`.

        Raises:
            ValueError: `q` is outside of [0, 1].
        """
        fractions = _fractions(q)
        if fractions.ndim:
            return np.array([self.quantile(one) for one in fractions.flat]).reshape(fractions.shape)
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
        """Exact interval of the probability of a value above a number.

        Wider where `x` is within a bin, any of whose values may be above.
        """
        low, high = binomial_interval(int(self.count_above(x)), self.trials, level)
        lower, upper, _ = self._bins
        place = int(np.searchsorted(upper, x))
        if place < upper.size and lower[place] < x:
            low, _ = binomial_interval(int(self.count_above(upper[place])), self.trials, level)
        return low, high

    def band(self, level: float = 0.95) -> float:
        """Half the width of the band that holds all of the distribution function (DKW)."""
        return band_width(self.trials, level)

    def below(self, x: Any) -> np.ndarray:
        """The distribution function: share of the values at or below each of `x`."""
        return 1 - self.count_above(x) / max(self.trials, 1)

    def below_within(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """What the distribution function is at least and at most: they differ within bins."""
        (lower, upper, up_to), x = self._bins, np.asarray(x, np.float64)
        begun = np.maximum(np.searchsorted(lower, x), np.searchsorted(upper, x, side="right"))
        most = np.append(0, up_to)[begun]
        below, above = self._infinite
        if below + above < self.trials:
            most = np.where((x < self._ends[0]) & (x > -np.inf), below, most)
            most = np.where((x >= self._ends[1]) & (x < np.inf), self.trials - above, most)
        return self.below(x), most / max(self.trials, 1)

    def histogram(self, edges: Any) -> np.ndarray:
        """How many values are in each `(edges[i], edges[i + 1]]`, of rising edges; int64."""
        return -np.diff(self.count_above(edges))

    @property
    def finite(self) -> float:
        """Share of the values that are below infinity; NaN without values."""
        return float(self.below(np.finfo(np.float64).max)) if self.trials else np.nan


class Sample(Distribution):
    """The distribution of values that are all kept.

    Args:
        values: one for each trial, any shape, of a boolean, integer or float dtype; no NaN.

    Raises:
        ValueError: `values` are not numbers, or there is a NaN, which is neither small nor large.
    """

    resolution = 0.0

    def __init__(self, values: Any):
        right = "numbers, infinite ones included"
        try:
            numbers = np.asarray(values).ravel()
        except ValueError:  # of lists of different lengths
            numbers = np.asarray([None])
        check(numbers.dtype.kind in "biuf", "values", values, right)
        check(not np.isnan(numbers).any(), "values", np.nan, right)
        values = numbers
        self.trials = values.size
        self.mean, self.std = _moments(values)
        found, counts = np.unique(values, return_counts=True)
        found = found.astype(np.float64)
        self._histogram = found, found, np.cumsum(counts)
        finite = found[np.isfinite(found)].tolist() or [np.nan]
        self._ends = finite[0], finite[-1]
        self._infinite = int(np.sum(values == -np.inf)), int(np.sum(values == np.inf))


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


def _fractions(q: Any) -> np.ndarray:
    """Return `q` as an array of fractions; a `ValueError` for percentages and everything else."""
    try:
        array = np.asarray(q)
    except ValueError:  # of lists of different lengths
        array = np.asarray(None)
    right = "a fraction from 0 to 1, or an array of these"
    if array.dtype.kind in "iuf":
        if np.all((array >= 0) & (array <= 1)):
            return array
        if np.all((array >= 0) & (array <= 100)):
            right += f"; for percentages quantile({np.round(array / 100, 9).tolist()})"
    check(False, "q", q, right)
    return array
