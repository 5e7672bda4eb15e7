"""Distributions of trials that were folded into sketches, and the passes that hold these.

Such a pass has one row for each chunk of trials: their counts and moments (`simulation.sketches`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nrjax._validation import check
from nrjax.simulation.bins import Bins
from nrjax.simulation.sketches import MOMENTS, Fold, Sketch, describe, described, merge_moments
from nrjax.study.distribution import Distribution
from nrjax.study.layout import Coordinate, Pass, Variable
from nrjax.study.store import Store
from nrjax.types import Status


class Sketched(Distribution):
    """Of values that were folded: known up to the bin they are in.

    Counts are exact at the edges of bins, so that what is said there is as exact as of all values:
    shares, the band, the ranks of quantiles. The smallest and the largest finite value are known.
    Trials without a value are left out.

    Args:
        bins: of the histogram; None where there was none, and only moments are known.
        counts: of all bins, whole numbers, shape (bins.size,); int64.
        moments: shape (len(MOMENTS),); float64.

    Raises:
        ValueError: counts and moments are not of the same values.
    """

    def __init__(self, bins: Bins | None, counts: np.ndarray, moments: np.ndarray):
        finite, self.mean, squares, smallest, largest, above, below, _ = moments.tolist()
        self._ends, self._infinite = (smallest, largest), (round(below), round(above))
        self.trials = round(finite + above + below)
        self.std = float(np.sqrt(max(squares, 0.0) / finite)) if finite else np.nan
        if above or below:
            self.mean = np.nan if above and below else np.inf if above else -np.inf
            self.std = np.inf
        self.resolution = np.inf if bins is None else bins.resolution
        if bins is None:
            return
        check(counts.shape == (bins.size,), "shape of counts", counts.shape, f"({bins.size},)")
        self._histogram = bins.lower, bins.upper, np.cumsum(counts[:-1])  # the last has no value
        size, right = int(counts[:-1].sum()), f"{self.trials}, the values of the moments"
        check(size == self.trials, "counts", size, right)


def sketch_pass(
    trials: int,
    chunk: int,
    sketch: Sketch,
    coordinates: dict[str, Coordinate],
    attributes: Mapping[str, Any],
) -> Pass:
    """What holds the results of a `nrjax.simulation.folding.sketches` program of this sketch.

    `attributes` are those of the moments; the rest is as a `Pass` has it.
    """
    variables = {}
    for prefix, group in sketch.groups.items():
        dims = () if group.dim is None else (group.dim,)
        sizes = (f"{prefix}variable", len(group.folds)), (f"{prefix}moment", len(MOMENTS))
        folds = describe(Sketch(dict(group.folds)))
        facts = {**attributes, "folds": folds, "moments": list(MOMENTS)}
        variables[f"{prefix}moments"] = Variable("float64", (*dims, *sizes), facts)
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
        return Sketched(self.fold.bins, self.counts[level], self.moments[level])


def folded(store: Store, case: str, name: str) -> dict[str, Folded]:
    """What a pass of a finished run, which must not hold trials, keeps of them, by variable."""
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
