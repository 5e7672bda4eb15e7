"""Histograms and moments, which a study stores if it keeps no trials."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.outcome import Status
from nrjax._base.validation import check
from nrjax.simulation.bins import Bins, LogBins, WholeBins
from nrjax.simulation.counting import COUNTS_END, MOMENTS_END, HistogramSpec, Specs, merge
from nrjax.simulation.moments import MOMENTS, mean_and_variance
from nrjax.statistics.sample import Distribution
from nrjax.study.case import STOPPED, Case, Quantity
from nrjax.study.schema import Variable
from nrjax.study.store import Store

EPSILON_BINS = LogBins(-30, 20, 12)
"""The bins of stopping epsilons, of relative width at most 2^-12."""

_POSITIVE, _SIGNED = LogBins(-30, 20, 7), LogBins(-30, 20, 7, signed=True)
"""The bins of real numbers other than stopping epsilons, of relative width at most 2^-7."""

_WHOLE_DIGITS = 12
"""The base-2 logarithm of the limit below which every whole number has a separate bin."""

_BIN_KINDS = {"log": LogBins, "whole": WholeBins}


def outcome_specs(case: Case, shapes: Mapping[str, Any], kept: Mapping[str, Quantity]) -> Specs:
    """Return the specifications of the histograms to keep of an interaction's outcomes.

    Args:
        case: case with the interaction and the goal.
        shapes: shape and dtype of each kept field and quantity in one trial, by name.
        kept: the fields and quantities to keep, by name.
    """
    steps = int(case.trial.schedule.max_steps)  # pyright: ignore[reportAttributeAccessIssue]
    specs = {
        "status": HistogramSpec("status", WholeBins(int(min(Status)), int(max(Status)))),
        "step": HistogramSpec("step", whole_numbers(steps - 1, -1)),
        "privacy_loss": spec_of("privacy_loss", shapes, kept),
        "stopped_step": HistogramSpec("step", whole_numbers(steps - 1, -1), stopped=True),
        "stopped_utility": spec_of("utility", shapes, kept, stopped=True),
    }
    if case.goal is not None:
        specs["shortfall"] = HistogramSpec("shortfall", _POSITIVE)
    if case.trial.guarantee is not None:  # pyright: ignore[reportAttributeAccessIssue]
        specs["stopping_epsilon"] = HistogramSpec("stopping_epsilon", EPSILON_BINS)
        # A trial that stopped at an unknown cost counts as infinite.
        specs["stopped_epsilon"] = HistogramSpec("stopping_epsilon", EPSILON_BINS, stopped=True)
        for part in ("mechanism_epsilon", "test_epsilon"):
            specs[STOPPED + part] = HistogramSpec(part, _POSITIVE, stopped=True)
    for name in case.quantities:
        specs[name] = spec_of(name, shapes, kept)
        specs[STOPPED + name] = spec_of(name, shapes, kept, stopped=True)
    return tuple(specs.items())


def spec_of(
    name: str,
    shapes: Mapping[str, Any],
    kept: Mapping[str, Quantity],
    *,
    stopped: bool = False,
) -> HistogramSpec:
    """Return the specification of a quantity's histogram, with "fitting" bins by its dtype."""
    shape, quantity = shapes[name], kept[name]
    dims, bins = dims_of(name, shape, quantity), quantity.bins
    expected = "of at most one axis, to be summarised"
    check(len(dims) <= 1, f"quantity {name}", shape.shape, expected, "Use keep='trials'.")
    if bins == "fitting":
        kind = np.dtype(shape.dtype).kind
        bins = WholeBins(0, 1) if kind == "b" else whole_numbers(2**31 - 1)
        bins = _SIGNED if kind == "f" else bins
    return HistogramSpec(name, bins, dims[0] if dims else None, stopped)


def dims_of(name: str, shape: Any, quantity: Quantity) -> tuple[tuple[str, int], ...]:
    """Return the name and size of each axis of a quantity after the axis of trials."""
    axes = len(shape.shape)
    names = quantity.dims or tuple(f"{name}_{axis}" for axis in range(axes))
    expected = f"a name for each of its {axes} axes after the axis of trials"
    check(len(names) == axes, f"dims of {name}", names, expected)
    return tuple(zip(names, shape.shape, strict=True))


def whole_numbers(most: int, least: int = 0) -> WholeBins | LogBins:
    """Return bins of the whole numbers `least` to `most`, one per number up to some thousands."""
    if most - least < 1 << _WHOLE_DIGITS:
        return WholeBins(least, most)
    # Bins include their upper end, and each number up to 2^12 is the upper end of a bin.
    return LogBins(0, int(most).bit_length() + 1, _WHOLE_DIGITS - 1, signed=True)


def variables_of(specs: Specs, attributes: Mapping[str, Any]) -> dict[str, Variable]:
    """Return descriptions of the stored arrays of histograms.

    `attributes` are descriptions of the variables, by column.
    """
    variables = {}
    for name, spec in specs:
        dims = () if spec.dim is None else (spec.dim,)
        facts: dict[str, Any] = {"moments": list(MOMENTS)}
        shape = *dims, ("moment", len(MOMENTS))
        variables[name + MOMENTS_END] = Variable("float64", shape, facts)
        if spec.bins is not None:
            kind = "log" if isinstance(spec.bins, LogBins) else "whole"
            facts = {"bins": {"kind": kind, **dataclasses.asdict(spec.bins)}}
            facts |= attributes.get(spec.column, {})
            dims = *dims, (f"{name}_bin", spec.bins.size)
            variables[name + COUNTS_END] = Variable("int64", dims, facts)
    return variables


@explain_fields
class Histogram(NamedTuple):
    """The histogram and the moments of one variable over all trials.

    Attributes:
        bins: bins of the counts, or None if only moments were kept.
        dim: name and size of the variable's axis, or None for one number per trial.
        counts: number of values per bin, shape (..., bins.size), int64; None without bins. The
            leading axis is `dim`, if there is one.
        moments: values of `nrjax.simulation.moments.MOMENTS`, shape (..., 13), float64.
    """

    bins: Bins | None
    dim: tuple[str, int] | None
    counts: np.ndarray | None
    moments: np.ndarray

    def at(self, *level: int) -> "BinnedDistribution":
        """Return the distribution of the variable, at position `level` if it has an axis."""
        counts = None if self.counts is None else self.counts[level]
        return BinnedDistribution(self.bins, counts, self.moments[level])


def read_histograms(store: Store, case: str, name: str) -> dict[str, Histogram]:
    """Return the histograms of a pass of a finished run, by name of the variable."""
    layout = store.pass_of(case, name)
    check(layout.axis == "chunk", "pass", name, "one whose trials were counted")
    variables = layout.variables
    merged = merge(
        {name: arrays[name] for name in variables} for _, arrays in store.parts(case, name)
    )
    histograms = {}
    for array in variables:
        if array.endswith(MOMENTS_END):
            variable, (*dims, _) = array.removesuffix(MOMENTS_END), variables[array].dims
            counts, bins = merged.get(variable + COUNTS_END), None
            if counts is not None:
                facts = dict(variables[variable + COUNTS_END].attributes["bins"])
                bins = _BIN_KINDS[facts.pop("kind")](**facts)
            dim = dims[0] if dims else None
            histograms[variable] = Histogram(bins, dim, counts, merged[array])
    return histograms


class BinnedDistribution(Distribution):
    """The distribution of values that are counted in the bins of a histogram.

    Counts are exact at the edges of bins, so fractions and the band are exact there. Quantiles have
    exact ranks and are known up to their bin. The smallest and the largest finite value are known.
    Trials without a value are left out.

    Args:
        bins: bins of the histogram; None if only moments were kept.
        counts: number of values per bin, shape (bins.size,), int64; None without bins.
        moments: values of `nrjax.simulation.moments.MOMENTS`, shape (13,), float64.

    Raises:
        ValueError: the number of values differs between counts and moments.
    """

    def __init__(self, bins: Bins | None, counts: np.ndarray | None, moments: np.ndarray):
        finite, *_, smallest, largest, above, below = moments.tolist()
        self.mean, variance = mean_and_variance(moments)
        self._ends = (smallest, largest) if finite else (np.nan, np.nan)
        self._infinite = round(below), round(above)
        self.trials = round(finite + above + below)
        self.std = math.sqrt(variance)
        if above or below:
            self.mean = np.nan if above and below else np.inf if above else -np.inf
            self.std = np.inf
        self.resolution = np.inf if bins is None else bins.resolution
        if bins is None or counts is None:
            return
        check(counts.shape == (bins.size,), "shape of counts", counts.shape, f"({bins.size},)")
        self._histogram = bins.lower, bins.upper, np.cumsum(counts[:-1])  # the last bin is for NaN
        size, expected = int(counts[:-1].sum()), f"{self.trials}, the values of the moments"
        check(size == self.trials, "counts", size, expected)
