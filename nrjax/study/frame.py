"""The trials of named cases, and their distributions, tables, comparisons and figures."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax._validation import check
from nrjax.simulation.counting import derived_columns
from nrjax.study import report, summary
from nrjax.study.bootstrap import resampled_quantiles
from nrjax.study.case import STOPPED
from nrjax.study.checks import UnknownNameError, check_known
from nrjax.study.compare import Comparison, compared
from nrjax.study.histograms import Histogram
from nrjax.study.layout import Case, pass_of
from nrjax.study.statistics import Distribution, Sample
from nrjax.types import Status

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

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


class Frame(abc.ABC):
    """Trials of named cases; by a case's name as an `xarray.Dataset`.

    `nrjax.Results` reads them from a folder, and `nrjax.Outcomes` holds them in memory.
    """

    cases: dict[str, Case]
    """What was run: the cases by name, each with its labels as `attributes`."""
    about: Mapping[str, Any]
    """What is known of the run, such as its study, settings and seed."""
    reporting: Any
    """The `nrjax.Reporting` that makes the tables and figures."""

    def __init__(self, cases: dict[str, Case], about: Mapping[str, Any], reporting: Any):
        self.cases, self.about, self.reporting = cases, about, reporting
        self._resampled: dict[tuple[str, str], np.ndarray] = {}
        self._samples: dict[tuple[str, str, str], Sample] = {}

    @property
    def trials(self) -> int:
        """Trials of each case."""
        return next(iter(self.cases.values())).passes["outcome"].trials

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __contains__(self, name: object) -> bool:
        try:
            self._pass(name)
        except UnknownNameError:
            return False
        return True

    def keys(self) -> KeysView[str]:
        """Names of the cases, so that `dict` makes a dict of datasets."""
        return self.cases.keys()

    def _repr_html_(self) -> str | None:
        return self.table()._repr_html_()

    def __getitem__(self, name: str) -> xarray.Dataset:
        case, one = self._pass(name)
        return dataset(self.cases[case], one, self.arrays(name))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the variables of a case or pass as plain arrays, without importing `xarray`.

        Raises:
            KeyError: there is no such case or pass.
        """
        case, one = self._pass(name)
        return with_derived(self.cases[case], one, self._kept(case, one))

    def _pass(self, name: Any) -> tuple[str, str]:
        """Case and pass, of `case/pass` or `case`."""
        case, _, one = name.partition("/") if isinstance(name, str) else (name, "", "")
        pass_of(self.cases, case, one or "outcome")
        return case, one or "outcome"

    @abc.abstractmethod
    def _kept(self, case: str, name: str) -> dict[str, np.ndarray]:
        """Return the arrays that are kept of a pass, by variable."""

    def _folds(self, case: str, name: str) -> dict[str, Histogram]:
        """Return the histograms that a pass was folded into; only results in a folder have any."""
        raise ValueError(f"{case}/{name} holds its trials, which were not folded")

    def seconds(self, case: str) -> dict[str, float] | None:
        """Seconds that a case took (`compile`, `run`, `curves`); None if nobody measured them."""
        return None

    def _defined(self, case: str, name: str, quantity: str, there: Iterable[Any]) -> bool:
        """Whether there is such a quantity; False for an epsilon without a guarantee."""
        names = sorted(map(str, there))
        plain = str(quantity).removeprefix(STOPPED)
        epsilon = plain in EPSILONS and of_outcomes(self.cases[case], name)
        if epsilon and "stopping_epsilon" not in names:
            return False
        check_known("quantity", quantity, names)
        return True

    def goal(self, case: str) -> float | None:
        """The utility that a case should reach; None without one."""
        check_known("case", case, self.cases)
        return self.cases[case].attributes.get("goal")

    def keeps_trials(self, case: str, name: str = "outcome") -> bool:
        """Whether a pass of a case holds its trials, rather than what they were folded into."""
        return pass_of(self.cases, case, name).axis == "trial"

    def distribution(
        self, case: str, quantity: str = "stopping_epsilon", name: str = "outcome"
    ) -> Distribution | None:
        """The distribution of a quantity over the trials of a case; trials without one left out.

        With `stopped_` before a quantity it is over the trials that stopped; `name` is the pass.
        None for an epsilon without a guarantee.

        Raises:
            KeyError: there is no such case, pass or quantity.
            ValueError: the quantity is not one number per trial.
        """
        right = "one number a trial; `levels` has the others"
        if not self.keeps_trials(case, name):
            found = self._folds(case, name)
            if not self._defined(case, name, quantity, found):
                return None
            check(found[quantity].dim is None, "quantity", quantity, right)
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
            KeyError: there is no such case, pass or quantity.
            ValueError: trials were not kept.
        """
        right = "kept: only summaries are here (--keep summary)"
        check(self.keeps_trials(case, name), "trials", case, right)
        found = self.arrays(f"{case}/{name}")
        found.pop(pass_of(self.cases, case, name).axis)
        outcomes = of_outcomes(self.cases[case], name)
        stopped = str(quantity).startswith(STOPPED) and outcomes
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
        self._defined(case, name, quantity, found := self._folds(case, name))
        return [found[quantity].at(level) for level in range(len(found[quantity].moments))]

    def statuses(self, case: str) -> dict[Status, int] | None:
        """How many trials ended in each way that occurred; None for sessions, which just end."""
        check_known("case", case, self.cases)
        if not of_outcomes(self.cases[case], "outcome"):
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
            KeyError: there is no such case or quantity.
            ValueError: there is no epsilon in one of them.
        """
        return compared(self, first, second, quantity)

    def summary(self) -> dict[str, Any]:
        """Return the contents of `summary.json`, as strict JSON: null is infinite or undefined."""
        return summary.summarise(self)

    def table(self) -> report.Report:
        """The table of the report, with its remarks."""
        return self.reporting.report(self, self.summary())

    def plot(self, *names: str) -> dict[str, Figure]:
        """The figures by name, drawn anew and not saved; all of them, or those named.

        Raises:
            KeyError: there is no figure of this name.
        """
        from nrjax.study import drawing  # slow to import

        makers = self.reporting.figures(self)
        for name in names:
            check_known("name", name, sorted(makers))
        return drawing.made(self, {name: makers[name] for name in names or makers})


def of_outcomes(case: Case, name: str) -> bool:
    """Whether a pass is of an interaction's outcomes; a session's fields may have any names."""
    kept = case.passes[name].variables.values()
    return name == "outcome" and any("flag_meanings" in one.attributes for one in kept)


def with_derived(case: Case, name: str, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a pass, those of outcomes with what follows from their fields.

    `stopped`; `stopping_epsilon`, with a guarantee; `shortfall`, with a goal.
    """
    arrays = dict(found)
    if case.passes[name].axis != "trial" or not of_outcomes(case, name):
        return arrays
    goal = case.attributes.get("goal")
    derived = derived_columns(arrays, np.nan if goal is None else goal, np)
    arrays["stopped"] = derived["stopped"]
    if not np.isnan(arrays["epsilon"]).all():
        arrays["stopping_epsilon"] = derived["stopping_epsilon"]
    if goal is not None:
        arrays["shortfall"] = derived["shortfall"]
    return arrays


def dataset(case: Case, name: str, arrays: Mapping[str, np.ndarray]) -> xarray.Dataset:
    """Return what `with_derived` gave as an `xarray.Dataset`, with coordinates and labels."""
    layout = case.passes[name]
    found = layout.dataset(arrays, case.attributes)
    derived = [field for field in arrays if field not in found.variables]
    return found.assign({of: (layout.axis, arrays[of], _ABOUT[of]) for of in derived})
