"""The maker of the summary, tables and figures of results, and the results that have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nrjax._base.outcome import describe_failures, failure_hints
from nrjax.study import report as reports
from nrjax.study.answers import answer
from nrjax.study.checks import check_known
from nrjax.study.compare import Comparison, compare_cases
from nrjax.study.frame import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Reporting:
    """An object that makes the summary, the report and the figures of a study.

    Subclass it to change them. The argument `results` of its methods is a `nrjax.Results`, or a
    `nrjax.Outcomes` in memory. Methods get no data of the study, so that `nrjax summary` and
    `nrjax plot` work without the data.

    Attributes:
        case_facts: names of labels. Every case must have them, and they come first in its summary.

    Examples:
        >>> class WithLongest(nrjax.Reporting):
        ...     def measure(self, results, case):
        ...         return {"longest": int(results.values(case, "step").max())}
        >>> reporting = WithLongest()  # for nrjax.Study(..., reporting=reporting)
    """

    case_facts: tuple[str, ...] = ()

    def measure(self, results: Any, case: str) -> dict[str, Any]:
        """Return entries to add to a case in the summary, as strict JSON."""
        return {}

    def findings(self, results: Any) -> dict[str, Any]:
        """Return entries to add to the summary, next to `cases`, as strict JSON."""
        return {}

    def report(self, results: Any, summary: Mapping[str, Any]) -> reports.Report:
        """Return the report of the results, made from their `summary`."""
        return reports.standard(results, summary)

    def figures(self, results: Any) -> Mapping[str, Callable[[Any], Figure]]:
        """Return a function per figure, by name, that draws the figure from the results."""
        from nrjax.study import figures  # slow to import

        return figures.standard(results)


class Reported(Frame):
    """A `Frame` that also has a summary, a table, comparisons and figures.

    Attributes:
        reporting: the `Reporting` that makes the summary, the table and the figures.
    """

    reporting: Reporting

    def compare(self, first: str, second: str, quantity: str = "stopping_epsilon") -> Comparison:
        """Compare a quantity between two cases, which share their random numbers.

        Args:
            first: name of a case.
            second: name of the case to compare with the first.
            quantity: name of the quantity, as for `distribution`.

        Raises:
            KeyError: there is no such case or quantity.
            ValueError: a case has no epsilon, or trials without a value of the quantity.
        """
        return compare_cases(self, first, second, quantity)

    def summary(self) -> dict[str, Any]:
        """Return the contents of `summary.json`, with None for infinite and undefined numbers."""
        summary = reports.summarise(self, self.reporting.case_facts, self.reporting.measure)
        return {**summary, **self.reporting.findings(self)}

    def table(self) -> reports.Report:
        """Return the table of the report, with its remarks."""
        return self._report(self.summary())

    def _report(self, summary: dict[str, Any]) -> reports.Report:
        table = self.reporting.report(self, summary)
        remarks = (*table.remarks, *_failures(self))
        return table._replace(answer=table.answer or answer(summary), remarks=remarks)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def plot(self, *names: str) -> dict[str, Figure]:
        """Draw the figures with these names, or all figures, and return them by name.

        The figures are not saved.

        Raises:
            KeyError: there is no figure with one of the names.
        """
        from nrjax.study import rendering  # slow to import

        makers = self.reporting.figures(self)
        for name in names:
            check_known("name", name, sorted(makers))
        return rendering.draw_figures(self, {name: makers[name] for name in names or makers})


def _failures(frame: Frame) -> list[str]:
    """Return a warning on the trials that failed for each case that has some."""
    lines = []
    for case in frame:
        counts = frame.statuses(case) or {}  # none of custom trials
        text = describe_failures(counts, f" of {case}")
        if text:
            lines.append(f"Warning: {text}. They count as infinite. {failure_hints(counts)}")
    return lines
