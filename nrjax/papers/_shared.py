"""What the papers' studies share: doors of settings, cases by label, and paired comparisons."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._validation import check
from nrjax.datasets.user import SUFFIXES
from nrjax.study.compare import interval_of
from nrjax.study.results import Reporting, Results
from nrjax.study.summary import strict


class PaperReporting(Reporting):
    """The figures are those of the module `figures` beside: matplotlib is slow to import."""

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """What draws each figure, by the name of its file."""
        package = type(self).__module__.rpartition(".")[0]
        return importlib.import_module(f"{package}.figures").figures(results)


def check_settings(
    settings: Any,
    *,
    several: Iterable[str] = (),
    distinct: Iterable[str] = (),
    least: Mapping[str, int] | None = None,
    positive: Iterable[str] = (),
    shares: Iterable[str] = (),
    files: Iterable[str] = (),
) -> None:
    """The checks that most settings need; None, where a field may be None, stands for a default.

    Args:
        settings: a dataclass.
        several: names of fields that are tuples of at least one value.
        distinct: of tuples without repetition.
        least: of numbers, with the smallest that each may be.
        positive: of positive and finite numbers, or tuples of such.
        shares: of numbers strictly between 0 and 1.
        files: of names of data sets or files, or tuples of such; files get their whole paths, so
            that a run can be resumed from another folder.

    Raises:
        ValueError: a field is something else.
    """
    for name in several:
        values = getattr(settings, name)
        check(len(values) >= 1, name, values, "at least one value")
    for name in distinct:
        values = getattr(settings, name)
        check(len(set(values)) == len(values), name, values, "without repetition")
    for name, smallest in (least or {}).items():
        number = getattr(settings, name)
        check(number is None or number >= smallest, name, number, f"at least {smallest}")
    for name in positive:
        given = getattr(settings, name)
        for number in given if isinstance(given, tuple) else (given,):
            ok = number is None or (np.isfinite(number) and number > 0)
            check(ok, name, number, "positive and finite")
    for name in shares:
        number = getattr(settings, name)
        check(number is None or 0 < number < 1, name, number, "strictly between 0 and 1")
    for name in files:
        given = getattr(settings, name)
        whole = tuple(map(_whole, given)) if isinstance(given, tuple) else _whole(given)
        object.__setattr__(settings, name, whole)


def _whole(data: str) -> str:
    is_file = Path(data).suffix.lower() in SUFFIXES
    return str(Path(data).expanduser().absolute()) if is_file else data


def check_per_task(settings: Any, *names: str) -> None:
    """That these fields have no value, one, or one for each task."""
    for name in names:
        values = getattr(settings, name)
        right = f"one value, or one for each of the tasks {settings.task}"
        check(len(values) in (0, 1, len(settings.task)), name, values, right)


def of_task(values: Sequence[Any], number: int) -> Any:
    """The value of a task, by its number, where all tasks may share one."""
    return values[number if len(values) > 1 else 0]


def grouped(cases: Iterable[Any], *labels: str) -> dict[tuple[Any, ...], list[Any]]:
    """Cases, of results or of a summary, by these labels, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for case in cases:
        facts = case if isinstance(case, Mapping) else case.attributes
        found.setdefault(tuple(facts[label] for label in labels), []).append(case)
    return found


def remarks_on_data(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the remarks of the data sets of these cases, each once."""
    return list(dict.fromkeys(one for case in cases for one in case.get("remarks", ())))


def paired(
    results: Results, first: str, second: str, *, spread: bool = False
) -> tuple[dict[str, Any], bool | None] | None:
    """Medians of two cases' stopping epsilons, or with `spread` distances of their quartiles.

    Returns:
        As strict JSON the two `values`, their `difference`, the first minus the second, null where
        infinite, and its `interval` by a paired bootstrap, 95 %, null where it is undefined; and
        whether the first is lower, None if the interval has both signs, or is none. None where
        trials cannot be paired: they were not kept, or there is no epsilon.
    """
    if results.resampled(first) is None or results.resampled(second) is None:
        return None
    laws = [results.law(name, "stopping_epsilon") for name in (first, second)]
    with np.errstate(invalid="ignore"):  # infinite numbers have no difference
        values = [
            float(np.subtract(law.quantile(0.75), law.quantile(0.25)))
            if spread
            else law.quantile(0.5)
            for law in laws
        ]
        difference = float(np.subtract(values[0], values[1]))
    ends = interval_of(results, first, second, spread=spread)
    found = {"values": values, "difference": difference, "interval": ends}
    below = None if ends is None or ends[0] <= 0 <= ends[1] else ends[1] < 0
    return {name: strict(one) for name, one in found.items()}, below


def plain(name: str) -> str:
    """A name as one would write it."""
    return name.replace("_", " ")
