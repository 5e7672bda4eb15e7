"""Distributions of trials that were folded into sketches, and the passes that hold these.

Such a pass has one row for each chunk of trials: their counts and moments (`simulation.sketches`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nrjax._numerics import check
from nrjax.simulation.bins import Bins, LogBins
from nrjax.simulation.sketches import MOMENTS, Fold, Sketch, describe, described, merge_moments
from nrjax.study.distribution import Distribution
from nrjax.study.intervals import binomial_interval
from nrjax.study.layout import Coordinate, Pass, Variable
from nrjax.study.store import Store
from nrjax.types import Status


class Sketched(Distribution):
    """Of values that were folded: known up to the bin they are in.

    Counts are exact at the edges of bins, so that what is said there is as exact as of all values:
    shares, the band, the ranks of quantiles. The smallest and the largest finite value are known.

    Args:
        bins: of the histogram; None where there was none, and only moments are known.
        counts: of all bins, whole numbers, shape (bins.size,); int64.
        moments: shape (len(MOMENTS),); float64.
        thresholds: numbers above which values were counted, rising.
        above: how many were above each of them.

    Raises:
        ValueError: counts and moments are not of the same values.
    """

    def __init__(
        self,
        bins: Bins | None,
        counts: np.ndarray,
        moments: np.ndarray,
        thresholds: np.ndarray | None = None,
        above: np.ndarray | None = None,
    ):
        self._bins = bins
        self._moments = dict(zip(MOMENTS, moments.tolist(), strict=True))
        self._number = round(sum(self._moments[name] for name in ("finite", "above", "below")))
        self._thresholds: dict[float, int] = {}
        if thresholds is not None and above is not None:
            self._thresholds = dict(zip(thresholds.tolist(), above.tolist(), strict=True))
        if bins is None:
            return
        check(counts.shape == (bins.size,), "shape of counts", counts.shape, f"({bins.size},)")
        # The last bin holds what has no value.
        self._counts, size = counts[:-1], int(counts[:-1].sum())
        check(size == self._number, "counts", size, f"{self._number}, the values of the moments")
        self._up_to = np.cumsum(self._counts)

    @property
    def trials(self) -> int:
        """How many values there are; trials without one are left out."""
        return self._number

    @property
    def resolution(self) -> float:
        """Width of the bins in units of their values; 0 for whole numbers."""
        return self._binned.resolution

    @property
    def mean(self) -> float:
        """In float64; infinite if a value is, NaN without values."""
        above, below = self._moments["above"] > 0, self._moments["below"] > 0
        if above or below:
            return np.nan if above and below else (np.inf if above else -np.inf)
        return self._moments["mean"]

    @property
    def std(self) -> float:
        """Standard deviation of the values, divisor `trials`; infinite if a value is."""
        if self.trials == 0:
            return np.nan
        if not np.isfinite(self.mean):
            return np.inf
        return float(np.sqrt(max(self._moments["squares"], 0.0) / self._moments["finite"]))

    @property
    def smallest(self) -> float:
        """The smallest finite value; NaN without any."""
        return self._moments["smallest"]

    @property
    def largest(self) -> float:
        """The largest finite value; NaN without any."""
        return self._moments["largest"]

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """The ends of the bin that the value of a rank (from 1) is in, and of all values."""
        bins = self._binned
        check(1 <= rank <= self.trials, "rank", rank, f"from 1 to {self.trials}")
        below, finite = self._moments["below"], self._moments["finite"]
        if rank <= below:
            return -np.inf, -np.inf
        if rank > below + finite:
            return np.inf, np.inf
        place = int(np.searchsorted(self._up_to, rank))
        return (
            max(float(bins.lower[place]), self.smallest),
            min(float(bins.upper[place]), self.largest),
        )

    def count_above(self, x: Any) -> np.ndarray:
        """How many values are above each of `x`; exact at edges and thresholds, else rounded up."""
        x = np.asarray(x, np.float64)
        if x.ndim == 0 and float(x) in self._thresholds:
            return np.asarray(self._thresholds[float(x)], np.int64)
        edges = np.searchsorted(self._binned.upper, x, side="right")
        found = self.trials - np.append(0, self._up_to)[edges]
        # Beyond the last finite value there are only infinite ones, before the first all but -inf.
        above, below = (round(self._moments[name]) for name in ("above", "below"))
        if self._moments["finite"]:
            found = np.where((x >= self.largest) & (x < np.inf), above, found)
            found = np.where((x < self.smallest) & (x > -np.inf), self.trials - below, found)
        return np.asarray(found, np.int64)

    def fraction_above_interval(self, x: float, level: float = 0.95) -> tuple[float, float]:
        """Exact interval of the probability of a value above a number.

        Wider where `x` is within a bin, any of whose values may be above.
        """
        low, high = super().fraction_above_interval(x, level)
        if float(x) in self._thresholds:
            return low, high
        bins, place = self._binned, int(np.searchsorted(self._binned.upper, x))
        if bins.lower[place] < x:
            fewest = int(self.count_above(bins.upper[place]))
            low, _ = binomial_interval(fewest, self.trials, level)
        return low, high

    def points(self, most: int = 1000) -> np.ndarray:
        """Upper edges of bins that are not empty, and the largest value in place of the last."""
        if not self._moments["finite"]:
            return np.empty(0)
        upper = self._binned.upper
        inside = (self._counts > 0) & np.isfinite(upper)
        edges = np.unique(np.minimum(upper[inside], self.largest))
        if edges.size <= most:
            return edges
        # Evenly by rank, as a sample's are.
        ranks = np.linspace(0, self.trials, most)
        some = np.searchsorted(self.trials - self.count_above(edges), ranks)
        return edges[np.unique(np.append(np.minimum(some, edges.size - 1), [0, edges.size - 1]))]

    def coarser(self, digits: int) -> "Sketched":
        """The same in bins `2^-digits` as wide as their values, whose edges are among the present.

        Raises:
            ValueError: the bins are no `LogBins`, or not as fine as that.
        """
        bins = self._bins
        ok = isinstance(bins, LogBins) and 0 <= digits <= bins.digits
        check(ok, "digits", digits, f"fewer than those of {bins}")
        assert isinstance(bins, LogBins)
        wide = LogBins(bins.lowest, bins.highest, digits, bins.signed)
        # A bin goes into the one that ends with it or next.
        counts = np.zeros(wide.size, np.int64)
        np.add.at(counts, np.searchsorted(wide.upper, bins.upper), self._counts)
        return Sketched(wide, counts, np.array(list(self._moments.values())))

    @property
    def _binned(self) -> Bins:
        if self._bins is None:
            raise ValueError("of this variable only moments were kept: there are no quantiles")
        return self._bins


def sketch_pass(
    trials: int,
    chunk: int,
    sketch: Sketch,
    coordinates: Mapping[str, Coordinate] | None = None,
) -> Pass:
    """The pass that holds the results of a `nrjax.simulation.sketching.sketches` program.

    Args:
        trials: as a `Pass` has it.
        chunk: likewise.
        sketch: of the program.
        coordinates: along the axes of its variables.
    """
    variables = {}
    for prefix, group in sketch.groups.items():
        dims = () if group.dim is None else (group.dim,)
        places = Sketch(dict(group.folds))
        sizes = (f"{prefix}variable", len(group.folds)), (f"{prefix}moment", len(MOMENTS))
        facts = {"folds": describe(places), "moments": list(MOMENTS)}
        variables[f"{prefix}moments"] = Variable("float64", (*dims, *sizes), facts)
        if group.size:
            bins = (f"{prefix}bin", group.size)
            variables[f"{prefix}counts"] = Variable("int32", (*dims, bins))
    return Pass(trials, chunk, variables, dict(coordinates or {}), axis="chunk")


class Folded(NamedTuple):
    """What was kept of one variable, over all trials."""

    fold: Fold
    counts: np.ndarray
    """Shape (..., bins and thresholds), int64."""
    moments: np.ndarray
    """Shape (..., len(MOMENTS))."""

    def at(self, *level: int) -> Sketched:
        """Its distribution, at a level if it has such."""
        bins = self.fold.bins
        size = 0 if bins is None else bins.size
        counts, thresholds = self.counts[level], np.asarray(self.fold.thresholds)
        return Sketched(bins, counts[:size], self.moments[level], thresholds, counts[size:])


def folded(store: Store, case: str, name: str = "outcome") -> dict[str, Folded]:
    """What a pass of a finished run keeps of its trials, chunks merged, by variable.

    Raises:
        RuntimeError: the run is not finished.
        ValueError: the pass holds trials.
    """
    layout = store.layout_of(case, name)
    check(layout.axis == "chunk", "pass", name, "one whose trials were folded")
    counts, moments = _merged(part for _, part in store.parts(case, name))
    found = {}
    for variable, about in layout.variables.items():
        if variable.endswith("moments"):
            prefix = variable.removesuffix("moments")
            found |= _unpacked(counts.get(f"{prefix}counts"), moments[variable], about)
    return found


def _merged(parts: Iterable[Mapping[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts and moments of all chunks; one chunk at a time is in memory."""
    counts: dict[str, np.ndarray] = {}
    moments: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for name, values in part.items():
            if name.endswith("moments"):
                moments.setdefault(name, []).append(values)
            elif name.endswith("counts"):
                counts[name] = counts.get(name, 0) + values.astype(np.int64)
    return counts, {name: merge_moments(np.stack(rows)) for name, rows in moments.items()}


def _unpacked(counts: np.ndarray | None, moments: np.ndarray, about: Variable) -> dict[str, Folded]:
    """The variables of one pair of arrays."""
    if counts is None:
        counts = np.zeros((*moments.shape[:-2], 0), np.int64)
    found, at = {}, 0
    for place, (variable, fold) in enumerate(described(about.attributes["folds"]).folds.items()):
        here = counts[..., at : at + fold.size]
        found[variable] = Folded(fold, here, moments[..., place, :])
        at += fold.size
    return found


def stopped_epsilon(found: Mapping[str, Folded]) -> Sketched:
    """Of the trials that stopped: those of finite epsilon, and who stopped without a number."""
    fold, counts, moments = found["stopping_epsilon"]
    bins = fold.bins
    assert isinstance(bins, LogBins)
    infinite = statuses(found)[Status.STOPPED] - round(moments[MOMENTS.index("finite")])
    counts, moments = counts[: bins.size].copy(), moments.copy()
    counts[-2] = moments[MOMENTS.index("above")] = infinite
    return Sketched(bins, counts, moments)


def statuses(found: Mapping[str, Folded]) -> dict[Status, int]:
    """How many trials ended in each way."""
    status = found["status"]
    assert status.fold.bins is not None
    place = {value: number for number, value in enumerate(status.fold.bins.upper.tolist())}
    return {one: int(status.counts[place[float(one)]]) for one in Status}
