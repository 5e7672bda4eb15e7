"""Distributions of trials that were folded into sketches, and the passes that hold these.

Such a pass has one row for each chunk of trials: their counts and moments (`simulation.sketches`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nrjax._numerics import check
from nrjax.simulation.bins import Bins
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
    Trials without a value are left out.

    Args:
        fold: what was kept of them; without bins only moments are known.
        counts: of all bins, and above each threshold: whole numbers, shape (fold.size,); int64.
        moments: shape (len(MOMENTS),); float64.

    Raises:
        ValueError: counts and moments are not of the same values.
    """

    def __init__(self, fold: Fold, counts: np.ndarray, moments: np.ndarray):
        finite, self.mean, squares, self._smallest, self._largest, *others = moments.tolist()
        self._finite, self._above, self._below = map(round, (finite, *others[:2]))
        self.trials = self._finite + self._above + self._below
        self.std = float(np.sqrt(max(squares, 0.0) / finite)) if finite else np.nan
        if self._above or self._below:
            ends = [np.inf] * bool(self._above) + [-np.inf] * bool(self._below)
            self.mean, self.std = ends[0] if len(ends) == 1 else np.nan, np.inf
        self._bins = fold.bins
        self.resolution = np.inf if fold.bins is None else fold.bins.resolution
        if fold.bins is None:
            return
        check(counts.shape == (fold.size,), "shape of counts", counts.shape, f"({fold.size},)")
        size = fold.bins.size
        self._thresholds = dict(zip(fold.thresholds.tolist(), counts[size:].tolist(), strict=True))
        self._counts = counts[: size - 1]  # the last bin holds what has no value
        self._up_to = np.cumsum(self._counts)
        held = int(self._counts.sum())
        check(held == self.trials, "counts", held, f"{self.trials}, the values of the moments")

    @property
    def _binned(self) -> Bins:
        if self._bins is None:
            raise ValueError("of this variable only moments were kept: there are no quantiles")
        return self._bins

    def order_statistic(self, rank: int) -> tuple[float, float]:
        """The ends of the bin that the value of a rank (from 1) is in, and of all values."""
        bins = self._binned
        check(1 <= rank <= self.trials, "rank", rank, f"from 1 to {self.trials}")
        if rank <= self._below:
            return -np.inf, -np.inf
        if rank > self._below + self._finite:
            return np.inf, np.inf
        place = int(np.searchsorted(self._up_to, rank))
        low, high = float(bins.lower[place]), float(bins.upper[place])
        return max(low, self._smallest), min(high, self._largest)

    def count_above(self, x: Any) -> np.ndarray:
        """How many values are above each of `x`; exact at edges and thresholds, else rounded up."""
        upper, x = self._binned.upper, np.asarray(x, np.float64)
        if x.ndim == 0 and float(x) in self._thresholds:
            return np.asarray(self._thresholds[float(x)], np.int64)
        found = self.trials - np.append(0, self._up_to)[np.searchsorted(upper, x, side="right")]
        # Beyond the last finite value there are only infinite ones, before the first all but -inf.
        if self._finite:
            found = np.where((x >= self._largest) & (x < np.inf), self._above, found)
            before = (x < self._smallest) & (x > -np.inf)
            found = np.where(before, self.trials - self._below, found)
        return np.asarray(found, np.int64)

    def fraction_above_interval(self, x: float, level: float = 0.95) -> tuple[float, float]:
        """Exact interval of the probability of a value above a number.

        Wider where `x` is within a bin, any of whose values may be above.
        """
        low, high = super().fraction_above_interval(x, level)
        bins, place = self._binned, int(np.searchsorted(self._binned.upper, x))
        if float(x) not in self._thresholds and bins.lower[place] < x:
            fewest = int(self.count_above(bins.upper[place]))
            low, _ = binomial_interval(fewest, self.trials, level)
        return low, high

    def points(self, most: int = 1000) -> np.ndarray:
        """Upper edges of bins that are not empty, and the largest value in place of the last."""
        if not self._finite:
            return np.empty(0)
        upper = self._binned.upper
        inside = (self._counts > 0) & np.isfinite(upper)
        edges = np.unique(np.minimum(upper[inside], self._largest))
        if edges.size <= most:
            return edges
        # Evenly by rank, as a sample's are.
        ranks = np.linspace(0, self.trials, most)
        some = np.searchsorted(self.trials - self.count_above(edges), ranks)
        return edges[np.unique(np.append(np.minimum(some, edges.size - 1), [0, edges.size - 1]))]


def sketch_pass(
    trials: int,
    chunk: int,
    sketch: Sketch,
    coordinates: dict[str, Coordinate],
    attributes: Mapping[str, Any],
) -> Pass:
    """The pass that holds the results of a `nrjax.simulation.sketching.sketches` program.

    Args:
        trials: as a `Pass` has it.
        chunk: likewise.
        sketch: of the program.
        coordinates: along the axes of its variables.
        attributes: of the moments.
    """
    variables = {}
    for prefix, group in sketch.groups.items():
        dims = () if group.dim is None else (group.dim,)
        sizes = (f"{prefix}variable", len(group.folds)), (f"{prefix}moment", len(MOMENTS))
        facts = {"folds": describe(Sketch(dict(group.folds))), "moments": list(MOMENTS)}
        variables[f"{prefix}moments"] = Variable(
            "float64", (*dims, *sizes), {**attributes, **facts}
        )
        if group.size:
            bins = (f"{prefix}bin", group.size)
            variables[f"{prefix}counts"] = Variable("int32", (*dims, bins))
    return Pass(trials, chunk, variables, coordinates, axis="chunk")


class Folded(NamedTuple):
    """What was kept of one variable, over all trials."""

    fold: Fold
    counts: np.ndarray
    """Shape (..., fold.size), int64."""
    moments: np.ndarray
    """Shape (..., len(MOMENTS))."""

    def at(self, *level: int) -> Sketched:
        """Its distribution, at a level if it has such."""
        return Sketched(self.fold, self.counts[level], self.moments[level])


def folded(store: Store, case: str, name: str) -> dict[str, Folded]:
    """What a pass of a finished run keeps of its trials, chunks merged, by variable.

    Raises:
        RuntimeError: the run is not finished.
        ValueError: the pass holds trials.
    """
    layout = store.layout_of(case, name)
    check(layout.axis == "chunk", "pass", name, "one whose trials were folded")
    counts: dict[str, np.ndarray] = {}
    moments: dict[str, list[np.ndarray]] = {}
    for _, part in store.parts(case, name):
        for array in layout.variables:
            if array.endswith("moments"):
                moments.setdefault(array, []).append(part[array])
            else:
                counts[array] = counts.get(array, 0) + part[array].astype(np.int64)
    found = {}
    for array, rows in moments.items():
        merged, at = merge_moments(np.stack(rows)), 0
        none = np.zeros((*merged.shape[:-2], 0), np.int64)
        held = counts.get(f"{array.removesuffix('moments')}counts", none)
        folds = described(layout.variables[array].attributes["folds"]).folds
        for place, (variable, fold) in enumerate(folds.items()):
            here = held[..., at : at + fold.size]
            found[variable] = Folded(fold, here, merged[..., place, :])
            at += fold.size
    return found


def stopped_epsilon(found: Mapping[str, Folded]) -> Folded:
    """Of the trials that stopped: those of finite epsilon, and who stopped without a number."""
    fold, counts, moments = found["stopping_epsilon"]
    counts, moments = counts.copy(), moments.copy()
    (stopped,) = found["status"].at().histogram([Status.STOPPED - 1, Status.STOPPED])
    infinite = stopped - round(moments[MOMENTS.index("finite")])
    counts[-2] = moments[MOMENTS.index("above")] = infinite
    return Folded(fold, counts, moments)
