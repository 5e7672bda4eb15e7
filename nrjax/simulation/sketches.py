"""Summaries of trials that can be merged: counts in fixed bins, exceedances and moments.

A `Sketch` says what to fold; `folding` folds it on the devices. NaN stands for a trial that the
variable does not describe; it is counted, and left out.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array

from nrjax._validation import check, check_numbers, concrete_or_none
from nrjax.pytrees import Pytree, static
from nrjax.simulation.bins import Bins, LogBins, WholeBins

BLOCK = 256
"""Trials whose moments are taken together; the devices' shares begin at multiples of it."""

MOMENTS = ("finite", "mean", "squares", "smallest", "largest", "above", "below", "missing")
"""What is kept of the moments, in float64: how many values are finite; their mean, the sum of
their squared distances from it, the smallest and the largest (NaN without any); how many values
are infinite, minus infinite and NaN."""


class Fold(Pytree):
    """What is kept of one variable; its moments always are.

    Attributes:
        thresholds: how many values are above each is counted exactly, shape (n,) or empty.
        bins: of its histogram, or None (static).
        dim: name and size of the variable's axis after the trials', or None (static).

    Raises:
        ValueError: a threshold is NaN, or `thresholds` has another number of axes.
    """

    thresholds: Any = ()
    bins: Bins | None = static(default=None)
    dim: tuple[str, int] | None = static(default=None)

    def __post_init__(self):
        if isinstance(self.thresholds, (list, tuple)):
            object.__setattr__(self, "thresholds", np.asarray(self.thresholds, np.float64))
        check_numbers(
            "thresholds",
            self.thresholds,
            lambda number: number.ndim == 1 and not np.isnan(number).any(),
            "a sequence of numbers",
        )

    @property
    def size(self) -> int:
        """Counts that are kept: bins, then exceedances."""
        bins = 0 if self.bins is None else self.bins.size
        return bins + np.shape(self.thresholds)[0]

    def placed(self, dtype: Any) -> "Fold":
        """The same with thresholds of the run's dtype, rounded down: `value > x` stays as it is."""
        given = concrete_or_none(self.thresholds)
        assert given is not None
        with np.errstate(over="ignore"):
            near = given.astype(dtype)
        below = np.nextafter(near, np.array(-np.inf, dtype))
        return dataclasses.replace(self, thresholds=np.where(near > given, below, near))


class Sketch(Pytree):
    """What is kept of trials, by variable.

    Attributes:
        folds: by variable.
        parameters: what `derive` needs besides; a pytree of arrays.
        derive: `derive(results, parameters)`, a dict of the variables from that of a program's
            results, both with a leading axis of trials (static). None where all are results.
            Define it once, at module level: each new function is compiled anew.

    Raises:
        ValueError: there is no variable.
    """

    folds: dict[str, Fold]
    parameters: Any = None
    derive: Callable[[dict[str, Array], Any], dict[str, Array]] | None = static(default=None)

    def __post_init__(self):
        if isinstance(self.folds, dict):
            check(len(self.folds) > 0, "folds", self.folds, "of at least one variable")

    @property
    def groups(self) -> dict[str, "Sketch"]:
        """Variables that have the same axes, by the beginning of their arrays' names.

        Counts and moments of a group are packed into one array each.
        """
        found: dict[str, dict[str, Fold]] = {}
        for name in sorted(self.folds):  # as pytrees order them
            dim = self.folds[name].dim
            found.setdefault("" if dim is None else f"{dim[0]}_", {})[name] = self.folds[name]
        return {prefix: Sketch(folds) for prefix, folds in found.items()}

    @property
    def dim(self) -> tuple[str, int] | None:
        """The axis after the trials' of the variables of a group, if they have one."""
        return next(iter(self.folds.values())).dim

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a variable of a group, without its trials."""
        return () if self.dim is None else (self.dim[1],)

    @property
    def size(self) -> int:
        """Counts of all variables."""
        return sum(fold.size for fold in self.folds.values())

    def variables(self, results: dict[str, Array]) -> dict[str, Array]:
        """The variables of these results."""
        found = results if self.derive is None else self.derive(results, self.parameters)
        missing = sorted(set(self.folds) - set(found))
        check(not missing, "folds", missing, f"of variables that there are: {sorted(found)}")
        return found


_KINDS = {"log": LogBins, "whole": WholeBins}


def describe(sketch: Sketch) -> list[dict[str, Any]]:
    """What a sketch keeps, in strict JSON; by it `unpack` knows the places in the arrays."""
    found = []
    for name, fold in sorted(sketch.folds.items()):
        bins: dict[str, Any] | None = None
        if fold.bins is not None:
            kind = next(kind for kind, made in _KINDS.items() if isinstance(fold.bins, made))
            bins = {"kind": kind, **dataclasses.asdict(fold.bins)}
        dim = None if fold.dim is None else list(fold.dim)
        thresholds = np.asarray(fold.thresholds).tolist()
        found.append({"variable": name, "bins": bins, "thresholds": thresholds, "dim": dim})
    return found


def described(folds: Sequence[Mapping[str, Any]]) -> Sketch:
    """The sketch that `describe` described, without its `derive`."""

    def bins(fields: Mapping[str, Any] | None) -> Bins | None:
        if fields is None:
            return None
        given = dict(fields)
        return _KINDS[given.pop("kind")](**given)

    def fold(one: Mapping[str, Any]) -> Fold:
        return Fold(one["thresholds"], bins(one["bins"]), one["dim"] and tuple(one["dim"]))

    return Sketch({one["variable"]: fold(one) for one in folds})


def merge_moments(parts: np.ndarray) -> np.ndarray:
    """The moments of all trials from those of parts of them, in their order.

    After Chan, Golub & LeVeque 1983, for many parts at once.

    Args:
        parts: shape (parts, ..., len(MOMENTS)), float64.

    Returns:
        Shape (..., len(MOMENTS)).
    """
    finite, mean, squares, smallest, largest, above, below, missing = np.moveaxis(parts, -1, 0)
    known = finite > 0
    number = finite.sum(axis=0)
    safe = np.maximum(number, 1)
    mean = np.where(known, mean, 0.0)
    merged = (finite * mean).sum(axis=0) / safe
    # Shifted once more: what rounding left of the mean comes out of it.
    apart = np.where(known, mean - merged, 0.0)
    merged += (finite * apart).sum(axis=0) / safe
    apart = np.where(known, mean - merged, 0.0)
    spread = np.where(known, squares, 0.0).sum(axis=0) + (finite * apart**2).sum(axis=0)
    none = number == 0
    return np.stack(
        [
            number,
            np.where(none, np.nan, merged),
            np.where(none, 0.0, spread),
            np.where(none, np.nan, np.where(known, smallest, np.inf).min(axis=0)),
            np.where(none, np.nan, np.where(known, largest, -np.inf).max(axis=0)),
            above.sum(axis=0),
            below.sum(axis=0),
            missing.sum(axis=0),
        ],
        axis=-1,
    )
