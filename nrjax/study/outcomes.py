"""Outcomes in memory, told of like the results of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nrjax._numerics import check
from nrjax.study.case import FIELDS, TAKEN
from nrjax.study.distribution import Sample
from nrjax.study.layout import Case, Pass
from nrjax.study.results import Results
from nrjax.types import Outcome

if TYPE_CHECKING:
    import xarray


class Outcomes(Results):
    """What `nrjax.simulate` gave, by name: distributions, comparisons and the standard figures.

    Outcomes of one key share their random numbers, so that their differences are paired.

    Args:
        outcomes: by name, each with a leading axis of as many trials.
        goals: utility that each should reach, by name; those without one may be left out.

    Raises:
        ValueError: there is none, or they differ in their number of trials.
    """

    def __init__(self, outcomes: Mapping[str, Outcome], goals: Mapping[str, float] | None = None):
        check(len(outcomes) > 0, "outcomes", dict(outcomes), "at least one, by name")
        self._outcomes = {name: _arrays(name, one) for name, one in outcomes.items()}
        sizes = {name: arrays["status"].size for name, arrays in self._outcomes.items()}
        check(len(set(sizes.values())) == 1, "trials", sizes, "the same number in all outcomes")
        self._cases = {}
        for name, size in sizes.items():
            labels = {"goal": goals[name]} if goals and name in goals else {}
            self._cases[name] = Case(name, labels, {"outcome": Pass(size, size, {})})
        self._resampled: dict[tuple[str, str], np.ndarray] = {}
        self._laws: dict[tuple[str, str, str], Sample | None] = {}

    @property
    def cases(self) -> dict[str, Case]:
        """A case for each outcome."""
        return self._cases

    def __repr__(self) -> str:
        return f"Outcomes of {self.trials:,} trials of {', '.join(self.cases)}"

    def keeps_trials(self, case: str, name: str = "outcome") -> bool:
        """Always."""
        del case, name
        return True

    def _read(self, case: str, name: str) -> xarray.Dataset:
        import xarray  # slow to import

        check(name == "outcome", "pass", name, "'outcome'")
        arrays = self._outcomes[case]
        return xarray.Dataset({name: ("trial", values) for name, values in arrays.items()})


def _arrays(name: str, outcome: Outcome) -> dict[str, np.ndarray]:
    check(isinstance(outcome, Outcome), f"outcomes[{name!r}]", outcome, "a nrjax.Outcome")
    arrays = {field: np.asarray(getattr(outcome, field)) for field in FIELDS}
    assert not set(arrays) & set(TAKEN)
    right = "of one axis, that of trials (of a sweep take one point)"
    check(arrays["status"].ndim == 1, f"outcomes[{name!r}]", arrays["status"].shape, right)
    return arrays
