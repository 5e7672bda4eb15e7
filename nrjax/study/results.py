"""The results of a run: trials, distributions, tables, comparisons and figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax._numerics import check
from nrjax.study import report, summary
from nrjax.study.bootstrap import resampled_quantiles
from nrjax.study.case import STOPPED
from nrjax.study.compare import Comparison, compared
from nrjax.study.distribution import Distribution, Sample
from nrjax.study.folder import REPORT, SUMMARY, write_document
from nrjax.study.folds import judged
from nrjax.study.layout import Case, pass_of
from nrjax.study.sketched import Folded, folded, stopped_epsilon
from nrjax.study.store import Store
from nrjax.types import Status

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_REMEMBERED = 32
"""Passes of summaries to remember: a study may have hundreds, which is more than fits."""

_SORTED = 2**26
"""Values to keep sorted: figures and tables ask for the same laws again and again."""

EPSILONS = ("epsilon", "mechanism_epsilon", "test_epsilon", "stopping_epsilon")
"""What there is only with a guarantee."""

_ABOUT = {
    "stopped": {},
    "stopping_epsilon": {
        "long_name": "total ex-post epsilon, infinite where a trial did not stop",
        "units": "nat",
    },
    "shortfall": {"long_name": "by how much the utility misses the goal"},
}
"""What is said of outcomes besides their own fields."""

QUARTILES = (0.25, 0.5, 0.75)
"""Quantiles that are compared."""


class Reporting:
    """What is told of the results of a study: override what should be told in other words.

    Everything is made from the results alone, so that `nrjax summary` and `nrjax plot` need no
    data.
    """

    case_facts: tuple[str, ...] = ()
    """Labels that every case must have; they come first in its summary."""

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary says of a case besides the usual; strict JSON."""
        return {}

    def findings(self, results: Results) -> dict[str, Any]:
        """What the summary says besides its cases, by name; strict JSON."""
        return {}

    def report(self, results: Results, summary: Mapping[str, Any]) -> report.Report:
        """The table and what should be said beside it, of results and their summary."""
        return report.standard(results, summary)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Figure]]:
        """What draws each figure, by the name of its file."""
        from nrjax.study import figures  # slow to import

        return figures.standard(results)


class Results:
    """Results of a finished run; by a case's name its trials as an `xarray.Dataset`.

    `results["brownian"]` has what is kept of an outcome along the axis `trial`, with `stopped`,
    `stopping_epsilon` (infinite where the trial did not stop) and, where there is a goal,
    `shortfall`; `results["brownian/curve"]` is another pass. Where only summaries were kept these
    are counts and moments along `chunk`: use `distribution`, which is the same for both.

    Args:
        store: where they are.
        reporting: what tells of them.

    Raises:
        UnfinishedError: the run is not finished.
    """

    folder: Path
    """Where they are."""
    cases: dict[str, Case]
    """What was run: the cases by name, each with its labels as `attributes`."""
    spent: dict[str, float]
    """Seconds that this call took for `data` and for `figures`, where it needed them."""
    _told: report.Report | None = None
    """What was written, to be shown."""

    def __init__(self, store: Store, reporting: Reporting | None = None):
        store.check_finished()
        self.store, self.folder, self.cases = store, store.folder, store.cases
        self.reporting, self.spent = reporting or Reporting(), {}
        self._folded: dict[tuple[str, str], dict[str, Folded]] = {}
        self._resampled: dict[tuple[str, str], np.ndarray] = {}
        self._samples: dict[tuple[str, str, str], Sample] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Results:
        """Those in a folder, told of in the standard way; raises what `Store.open` does."""
        return cls(Store.open(folder))

    @property
    def trials(self) -> int:
        """Trials of each case."""
        return next(iter(self.cases.values())).passes["outcome"].trials

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        return f"Results of {self.trials:,} trials of {', '.join(self.cases)} in {self.folder}"

    def _repr_html_(self) -> str | None:
        return self.table()._repr_html_()

    def __getitem__(self, name: str) -> xarray.Dataset:
        case, one = self._which(name)
        arrays, layout = self.arrays(name), pass_of(self.cases, case, one)
        found = layout.dataset(arrays, self.cases[case].attributes)
        derived = [field for field in arrays if field not in found.variables]
        return found.assign({of: (layout.axis, arrays[of], _ABOUT[of]) for of in derived})

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The same, named in the same way, as plain arrays; `xarray` is slow to import."""
        case, one = self._which(name)
        found = self._kept(case, one)
        if self.keeps_trials(case, one) and self._of_outcomes(case, one):
            goal = self.goal(case)
            more = judged(found, np.nan if goal is None else goal, np)
            found["stopped"] = found["status"] == Status.STOPPED
            if not np.isnan(found["epsilon"]).all():
                found["stopping_epsilon"] = more["stopping_epsilon"]
            if goal is not None:
                found["shortfall"] = more["shortfall"]
        return found

    def _which(self, name: str) -> tuple[str, str]:
        """Case and pass, of `case/pass` or `case`."""
        case, _, one = name.partition("/")
        if case not in self.cases:
            raise KeyError(f"{name}: must be one of {', '.join(self.cases)}")
        return case, one or "outcome"

    def _kept(self, case: str, name: str) -> dict[str, np.ndarray]:
        return self.store.arrays(case, name)

    def _of_outcomes(self, case: str, name: str) -> bool:
        """Whether a pass is of an interaction's outcomes; a session's fields may have any names."""
        kept = pass_of(self.cases, case, name).variables.values()
        return name == "outcome" and any("flag_meanings" in one.attributes for one in kept)

    def _defined(self, case: str, name: str, quantity: str, there: Iterable[Any]) -> bool:
        """Whether there is such a quantity; False for an epsilon without a guarantee."""
        names = sorted(map(str, there))
        epsilon = quantity.removeprefix(STOPPED) in EPSILONS and self._of_outcomes(case, name)
        if epsilon and "stopping_epsilon" not in names:
            return False
        check(quantity in names, "quantity", quantity, f"one of {names}")
        return True

    def goal(self, case: str) -> float | None:
        """The utility that a case should reach; None without one."""
        return self.cases[case].attributes.get("goal")

    def keeps_trials(self, case: str, name: str = "outcome") -> bool:
        """Whether a pass of a case holds its trials, rather than what they were folded into."""
        return pass_of(self.cases, case, name).axis == "trial"

    def folds(self, case: str, name: str = "outcome") -> dict[str, Folded]:
        """What the trials of a pass were folded into, by variable."""
        if (case, name) not in self._folded:
            while len(self._folded) >= _REMEMBERED:
                self._folded.pop(next(iter(self._folded)))
            found = folded(self.store, case, name)
            if self._of_outcomes(case, name) and "stopping_epsilon" in found:
                found["stopped_epsilon"] = stopped_epsilon(found)
            self._folded[case, name] = found
        return self._folded[case, name]

    def distribution(
        self, case: str, quantity: str = "stopping_epsilon", name: str = "outcome"
    ) -> Distribution | None:
        """The distribution of a quantity over the trials of a case; trials without one left out.

        With `stopped_` before a quantity it is over the trials that stopped; `name` is the pass.
        None for an epsilon without a guarantee.

        Raises:
            ValueError: there is no such case, pass or quantity.
        """
        right = "one number a trial; `levels` has the others"
        if not self.keeps_trials(case, name):
            found = self.folds(case, name)
            if not self._defined(case, name, quantity, found):
                return None
            check(found[quantity].fold.dim is None, "quantity", quantity, right)
            return found[quantity].at()
        key = case, quantity, name
        if key not in self._samples:
            values = self.values(case, quantity, name)
            if values is None:
                return None
            check(values.ndim == 1, "quantity", quantity, right)
            self._samples[key] = Sample(values[~np.isnan(values)])
            while sum(one.trials for one in list(self._samples.values())[:-1]) > _SORTED:
                self._samples.pop(next(iter(self._samples)))
        return self._samples[key]

    def law(self, case: str, quantity: str) -> Distribution:
        """As `distribution`; ValueError for an epsilon without a guarantee."""
        found = self.distribution(case, quantity)
        check(found is not None, "quantity", quantity, f"one that {case} has")
        assert found is not None
        return found

    def values(
        self, case: str, quantity: str = "stopping_epsilon", name: str = "outcome"
    ) -> np.ndarray | None:
        """The quantity of each trial, shape (trials, ...), named as for `distribution`.

        None for an epsilon without a guarantee.

        Raises:
            ValueError: there is no such quantity, or trials were not kept.
        """
        right = "kept: only summaries are here (--keep summary)"
        check(self.keeps_trials(case, name), "trials", case, right)
        found = self.arrays(f"{case}/{name}")
        found.pop(pass_of(self.cases, case, name).axis)
        stopped = quantity.startswith(STOPPED) and self._of_outcomes(case, name)
        plain = quantity.removeprefix(STOPPED) if stopped else quantity
        if not self._defined(case, name, plain, found):
            return None
        return found[plain][found["stopped"]] if stopped else found[plain]

    def levels(self, case: str, quantity: str, name: str = "curve") -> list[Distribution]:
        """As `distribution`, at each level of a quantity that has an axis of its own."""
        if self.keeps_trials(case, name):
            values = self.values(case, quantity, name)
            assert values is not None
            return [Sample(column[~np.isnan(column)]) for column in values.T]
        self._defined(case, name, quantity, found := self.folds(case, name))
        return [found[quantity].at(level) for level in range(len(found[quantity].moments))]

    def statuses(self, case: str) -> dict[Status, int] | None:
        """How many trials ended in each way that occurred; None for sessions, which just end."""
        if not self._of_outcomes(case, "outcome"):
            return None
        counts = self.law(case, "status").histogram([-1, *Status]).tolist()
        return {one: count for one, count in zip(Status, counts, strict=True) if count}

    def resampled(self, case: str, quantity: str = "stopping_epsilon") -> np.ndarray | None:
        """Quantiles (`QUARTILES`) of resampled trials, shape (resamples, 3).

        The same trials are drawn of every case, so that differences between cases are paired. None
        without an epsilon, where trials were not kept, and where some have no value.
        """
        if not self.keeps_trials(case):
            return None
        if (case, quantity) not in self._resampled:
            values = self.values(case, quantity)
            if values is None or np.isnan(values).any():
                return None
            self._resampled[case, quantity] = resampled_quantiles(values, QUARTILES)
        return self._resampled[case, quantity]

    def compare(self, first: str, second: str, quantity: str = "stopping_epsilon") -> Comparison:
        """How a quantity differs between two cases, which share their random numbers.

        Raises:
            ValueError: there is no such case or quantity, or no epsilon in one of them.
        """
        return compared(self, first, second, quantity)

    def summary(self) -> dict[str, Any]:
        """What `summary.json` says, as strict JSON: null stands for infinite or undefined."""
        return summary.summarise(self)

    def table(self) -> report.Report:
        """The table of the report, with its remarks."""
        return self._told or self._report(self.summary())

    def _report(self, found: dict[str, Any]) -> report.Report:
        made = self.reporting.report(self, found)
        return made._replace(remarks=(*made.remarks, *report.times(found, self.spent)))

    def plot(self, *names: str) -> dict[str, Figure]:
        """The figures by name, drawn anew and not saved; all of them, or those named."""
        from nrjax.study import drawing  # slow to import

        makers = self.reporting.figures(self)
        for name in names:
            check(name in makers, "name", name, f"one of {sorted(makers)}")
        return drawing.made(self, {name: makers[name] for name in names or makers})

    def conclude(self) -> None:
        """Write summary.json, report.md and the figures; only under the store's lock.

        Raises:
            FileExistsError: there is a file of that name which nrjax has not written.
            OSError: the disk is full, or failed.
        """
        found = self.summary()
        write_document(self.folder, SUMMARY, json.dumps(found, indent=1, allow_nan=False) + "\n")
        before = time.monotonic()
        self.draw()
        self.spent["figures"] = time.monotonic() - before
        self._told = self._report(found)
        write_document(self.folder, REPORT, str(self._told))

    def draw(self) -> None:
        """Write the figures; only under the store's lock."""
        from nrjax.study import drawing  # slow to import

        for name, figure in self.plot().items():
            drawing.save(self.store, name, figure)
