"""A base class for the trials of named cases, as arrays, datasets and distributions."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Hashable, Iterator, KeysView, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nrjax._base.outcome import Status
from nrjax._base.validation import check
from nrjax.simulation.counting import derived_columns
from nrjax.statistics.sample import Distribution, Sample
from nrjax.study.case import STOPPED
from nrjax.study.checks import UnknownNameError, check_known
from nrjax.study.histograms import Histogram
from nrjax.study.schema import StoredCase, pass_of

if TYPE_CHECKING:
    import xarray

EPSILONS = ("epsilon", "mechanism_epsilon", "test_epsilon", "stopping_epsilon")
"""The quantities that are NaN, and have no distribution, if an interaction has no guarantee."""

_DERIVED_ATTRIBUTES = {
    "stopped": {},
    "stopping_epsilon": {
        "long_name": "total ex-post epsilon: infinite if the trial did not stop, NaN if it stopped "
        "without a guarantee",
        "units": "nat",
    },
    "shortfall": {"long_name": "utility that a stopped trial lacks to the goal"},
}
"""The attributes of the variables that are computed from the fields of an outcome."""

_REPORTED = (
    *("stopped_utility", "stopping_epsilon", "stopped_epsilon", "privacy_loss", "step", "status"),
    *("stopped_mechanism_epsilon", "stopped_test_epsilon", "stopped_step", "shortfall"),
)
"""The quantities of the standard report. The last needs a goal; the first takes longest to sort."""

_MANY = 2**20  # number of trials from which two threads are faster than one
_CACHED = 2**26  # largest number of array elements in a cache

_LOCK = threading.Lock()
"""The lock of all caches, held while one changes. A cache with its own lock has no pickle."""

_T = TypeVar("_T")


class _Cache:
    """A cache of recent results, which holds at most 2^26 numbers or the last result."""

    def __init__(self):
        self._entries: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable, make: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """Return the result cached under `key`, or call `make` and cache its result.

        `size` returns the count of numbers in a result.
        """
        with _LOCK:
            entry = self._entries.pop(key, None)
        if entry is None:
            result = make()
            entry = result, size(result)
        with _LOCK:
            self._entries[key] = entry  # the last key is the most recent
            while len(self._entries) > 1 and self.size() > _CACHED:
                self._entries.pop(next(iter(self._entries)))
        return entry[0]

    def size(self) -> int:
        """Return the count of numbers in the cache."""
        return sum(size for _, size in self._entries.values())


class Frame(abc.ABC):
    """The trials of named cases, where `frame[name]` is an `xarray.Dataset`.

    This is the common base of `nrjax.Results`, which reads trials from a folder, and of
    `nrjax.Outcomes`, which holds trials in memory. Comparisons, reports and figures take a frame
    as their argument.

    Attributes:
        cases: the cases by name, each with its labels as `attributes`.
        about: metadata of the run, such as the name of the study, the settings and the seed.
    """

    cases: dict[str, StoredCase]
    about: Mapping[str, Any]

    def __init__(self, cases: dict[str, StoredCase], about: Mapping[str, Any]):
        self.cases, self.about = cases, about
        self._cache = _Cache()

    @property
    def trials(self) -> int:
        """The number of trials of each case."""
        return next(iter(self.cases.values())).passes["outcome"].trials

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __contains__(self, name: object) -> bool:
        try:
            self._split_name(name)
        except UnknownNameError:
            return False
        return True

    def keys(self) -> KeysView[str]:
        """Return the names of the cases, so that `dict(frame)` is a dict of datasets."""
        return self.cases.keys()

    def __getitem__(self, name: str) -> xarray.Dataset:
        case, pass_ = self._split_name(name)
        return dataset(self.cases[case], pass_, self.arrays(name))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the variables of a case or pass as plain arrays, without importing `xarray`.

        Args:
            name: the name of a case, or "case/pass".

        Raises:
            KeyError: there is no such case or pass.
        """
        case, pass_ = self._split_name(name)
        return with_derived(self.cases[case], pass_, self._read(case, pass_, rows=True))

    def _split_name(self, name: Any) -> tuple[str, str]:
        """Return the names of the case and the pass in "case/pass", or in "case" for "outcome"."""
        case, _, pass_ = name.partition("/") if isinstance(name, str) else (name, "", "")
        pass_of(self.cases, case, pass_ or "outcome")
        return case, pass_ or "outcome"

    @abc.abstractmethod
    def _read(self, case: str, pass_: str, *, rows: bool = False) -> dict[str, np.ndarray]:
        """Return the kept arrays of a pass, and with `rows` the labels of their first axis."""

    def _histograms(self, case: str, pass_: str) -> dict[str, Histogram]:
        """Return the histograms of a pass that keeps no trials, by variable."""
        raise ValueError(f"{case}/{pass_} has trials, not histograms")

    def seconds(self, case: str) -> dict[str, float] | None:
        """Return the seconds spent on a case (`compile`, `run`, `curves`), or None if unknown."""
        return None

    def goal(self, case: str) -> float | None:
        """Return the utility that the trials of a case should reach, or None without a goal."""
        check_known("case", case, self.cases)
        return self.cases[case].attributes.get("goal")

    def keeps_trials(self, case: str, pass_: str = "outcome") -> bool:
        """Return whether a pass of a case keeps every trial, not only histograms."""
        return pass_of(self.cases, case, pass_).axis == "trial"

    def distribution(
        self, case: str, quantity: str = "stopping_epsilon", pass_: str = "outcome"
    ) -> Distribution | None:
        """Return the distribution of a quantity over the trials of a case.

        Trials without a value are left out.

        Args:
            case: name of the case.
            quantity: name of the quantity. With the prefix `stopped_`, the distribution is only
                over the trials that stopped.
            pass_: name of the pass, such as "curve".

        Returns:
            The distribution, or None for an epsilon of a case without a guarantee.

        Raises:
            KeyError: there is no such case, pass or quantity.
            ValueError: the quantity is not one number per trial.
        """
        expected, hint = "one number per trial", f"levels({case!r}, ...) has all its distributions."
        keeps_trials = self.keeps_trials(case, pass_)
        is_epsilon = str(quantity).removeprefix(STOPPED) in EPSILONS
        is_epsilon &= is_outcome(self.cases[case], pass_)
        if not keeps_trials:
            histograms = self._histograms(case, pass_)
            if is_epsilon and "stopping_epsilon" not in histograms:
                return None
            check_known("quantity", quantity, sorted(histograms))
            check(histograms[quantity].dim is None, "quantity", quantity, expected, hint)
            return histograms[quantity].at()

        def sample() -> Sample | None:
            values = self.values(case, quantity, pass_)
            if is_epsilon and _without_guarantee(self._read(case, pass_)):
                return None
            check(values.ndim == 1, "quantity", quantity, expected, hint)
            missing = np.isnan(values)
            return Sample(values[~missing] if missing.any() else values)

        return self._cache.get((case, quantity, pass_), sample, lambda s: s.size if s else 0)

    def _prepare(self) -> None:
        """Compute the distributions of the standard report of many trials, in two threads.

        It stops when the cache is half full, so that no distribution is computed twice.
        """
        for name, case in self.cases.items():
            fits = self.trials >= _MANY and self._cache.size() < _CACHED // 2
            if fits and is_outcome(case, "outcome") and self.keeps_trials(name):
                self._read(name, "outcome")  # once, not in both threads
                quantities = _REPORTED[:-1] if self.goal(name) is None else _REPORTED
                with ThreadPoolExecutor(2) as threads:
                    list(threads.map(partial(self.distribution, name), quantities))

    def distribution_of(self, case: str, quantity: str) -> Distribution:
        """Return `distribution(case, quantity)`, or raise ValueError if it is None."""
        values = self.distribution(case, quantity)
        check(values is not None, "quantity", quantity, f"one that {case} has")
        assert values is not None
        return values

    def values(
        self, case: str, quantity: str = "stopping_epsilon", pass_: str = "outcome"
    ) -> np.ndarray:
        """Return the values of a quantity, one per trial, as an array of shape (trials, ...).

        Arguments are as for `distribution`. With the prefix `stopped_`, the array has one row per
        trial that stopped.

        Raises:
            KeyError: there is no such case, pass or quantity.
            ValueError: trials were not kept.
        """
        hint = "Use distribution(...), or run the study with keep='trials'."
        check(self.keeps_trials(case, pass_), "trials", case, "kept", hint)
        arrays = self._read(case, pass_)
        stopped = str(quantity).startswith(STOPPED) and is_outcome(self.cases[case], pass_)
        name = quantity.removeprefix(STOPPED) if stopped else quantity
        if name not in arrays:
            only = name if name in _DERIVED_ATTRIBUTES else None
            arrays = with_derived(self.cases[case], pass_, arrays, only)
        check_known("quantity", name, sorted(arrays))
        return arrays[name][arrays["status"] == Status.STOPPED] if stopped else arrays[name]

    def levels(self, case: str, quantity: str, pass_: str = "curve") -> list[Distribution]:
        """Return one distribution per level of a quantity that has an axis, such as in a curve."""
        if self.keeps_trials(case, pass_):
            values = self.values(case, quantity, pass_)
            return [Sample(column[~np.isnan(column)]) for column in values.T]
        histograms = self._histograms(case, pass_)
        check_known("quantity", quantity, sorted(histograms))
        histogram = histograms[quantity]
        return [histogram.at(level) for level in range(len(histogram.moments))]

    def scalars(self, case: str) -> list[str]:
        """Return the names of the quantities of a case that have one number per trial."""
        if self.keeps_trials(case):
            variables = self.cases[case].passes["outcome"].variables
            return [name for name, variable in variables.items() if not variable.dims]
        histograms = self._histograms(case, "outcome")
        return [name for name, histogram in histograms.items() if histogram.dim is None]

    def statuses(self, case: str) -> dict[Status, int] | None:
        """Return the number of trials per status that occurs, or None for custom trials."""
        check_known("case", case, self.cases)
        if not is_outcome(self.cases[case], "outcome"):
            return None
        counts = self.distribution_of(case, "status").histogram([-1, *Status]).tolist()
        return {status: count for status, count in zip(Status, counts, strict=True) if count}


def is_outcome(case: StoredCase, pass_: str) -> bool:
    """Return whether a pass holds the outcomes of an interaction, not those of a custom trial."""
    variables = case.passes[pass_].variables.values()
    return pass_ == "outcome" and any("flag_meanings" in each.attributes for each in variables)


def with_derived(
    case: StoredCase, pass_: str, arrays: Mapping[str, np.ndarray], only: str | None = None
) -> dict[str, np.ndarray]:
    """Return the arrays of a pass, and variables computed from the fields of an outcome.

    The added variables are `stopped`, `stopping_epsilon` (infinite if the trial did not stop, NaN
    if it stopped without a guarantee) and, if there is a goal, `shortfall`. `only` names one of
    them to add.
    """
    if case.passes[pass_].axis != "trial" or not is_outcome(case, pass_):
        return dict(arrays)
    goal = case.attributes.get("goal")
    derived = derived_columns(arrays, np.nan if goal is None else goal, np, only)
    if "stopping_epsilon" in derived and _without_guarantee(arrays):
        stopped = arrays["status"] == Status.STOPPED
        derived["stopping_epsilon"] = np.where(stopped, arrays["epsilon"], np.inf)
    if goal is None:
        derived.pop("shortfall", None)
    return {**arrays, **derived}


def _without_guarantee(arrays: Mapping[str, np.ndarray]) -> bool:
    """Return whether every epsilon of the outcomes of an interaction is NaN."""
    return bool(np.isnan(arrays["epsilon"]).all())


def dataset(case: StoredCase, pass_: str, arrays: Mapping[str, np.ndarray]) -> xarray.Dataset:
    """Return arrays of a pass, as from `with_derived`, as a dataset with coordinates."""
    layout = case.passes[pass_]
    kept = layout.dataset(arrays, case.attributes)
    derived = [name for name in arrays if name not in kept.variables]
    return kept.assign(
        {name: (layout.axis, arrays[name], _DERIVED_ATTRIBUTES[name]) for name in derived}
    )
