"""What a study tells its reader: a table and remarks, for the terminal and as `report.md`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from nrjax.guarantees.notions import NOTIONS, notions_differ
from nrjax.study import precision
from nrjax.study.statistics import rank_interval

if TYPE_CHECKING:
    from nrjax.study.frame import Frame


class Report(NamedTuple):
    """A table with what should be said beside it."""

    title: str
    headings: tuple[str, ...]
    """Of the columns; the first names the case and is set left, the others hold numbers."""
    rows: tuple[tuple[str, ...], ...]
    """A cell for each heading."""
    remarks: tuple[str, ...]
    """Sentences: where the numbers come from, what they show, what should make one doubt them."""

    def __str__(self) -> str:
        """As Markdown."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

        rule = ("---", *["---:"] * (len(self.headings) - 1))
        table = [line(row) for row in (self.headings, rule, *self.rows)]
        remarks = [f"- {remark}" for remark in self.remarks]
        return "\n".join([f"# {self.title}", "", *table, "", *remarks]) + "\n"

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        head, rows = row(self.headings, "th"), "".join(row(cells, "td") for cells in self.rows)
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        return f"<b>{escape(self.title)}</b><table>{head}{rows}</table><ul>{remarks}</ul>"


def standard(results: Frame, summary: Mapping[str, Any]) -> Report:
    """How many stopped, who reached the goal, and the stopping epsilon, by case."""
    rows = tuple(
        (
            case["case"],
            share(case.get("stopped")),
            share(case.get("met")),
            *epsilons(case),
            f"{case['step']['q50']:g}" if "step" in case else "-",
        )
        for case in summary["cases"]
    )
    headings = ("case", "stopped", "met goal", *EPSILONS, "step")
    said = (*accuracy(summary), *notions(summary), *warnings(summary))
    remarks = (BESIDE, *precision.remarks(results), *said)
    return Report(f"{summary['study']}: stopping epsilon, over all trials", headings, rows, remarks)


AT_FIRST_STEP = 0.05
"""From this share of trials on, the first level of a schedule is worth a warning."""

EPSILONS = ("median", "95 % interval", "quartiles", "q90", "q95")
"""Headings of `epsilons`."""

BESIDE = (
    "The stopping epsilon is the total ex-post epsilon, infinite for a trial that did not stop. "
    "Beside its median the exact 95 % interval; q90 and q95 are exceeded in at most 10 and 5 % of "
    "all trials. Step: the median number of the last one, from 0."
)


def epsilons(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells below `EPSILONS`: quantiles of the stopping epsilon of a case."""
    epsilon, ends = case.get("epsilon"), case.get("epsilon_interval")
    if epsilon is None or ends is None:
        return ("-",) * len(EPSILONS)
    return (
        number(epsilon["q50"]),
        span(ends["q50"], lowest(case["trials"], 0.5), 4),
        span((epsilon["q25"], epsilon["q75"])),
        number(epsilon["q90"]),
        number(epsilon["q95"]),
    )


def share(value: float | None) -> str:
    """A share in per cent; nothing where there is none. Never 100 or 0 by rounding."""
    if value is None:
        return "-"
    shown = f"{100 * value:.4g}"
    if shown in ("0", "100") and 0 < value < 1:
        shown = f"{100 * value:.8f}".rstrip("0")
    return f"{shown} %"


def accuracy(summary: Mapping[str, Any]) -> list[str]:
    """By how much trials missed their goal, where some did."""
    lines = []
    for case in summary["cases"]:
        missed = case.get("shortfall")
        if missed is None or not missed["share"]:
            continue
        lines.append(
            f"{case['case']}: {share(missed['share'])} of the trials that stopped missed the goal "
            f"({number(case['goal'])}), by {number(missed['q50'])} in the median and "
            f"{number(missed['max'])} at most."
        )
    if lines and len({case.get("met") for case in summary["cases"]}) > 1:
        lines.append(
            "Epsilons of cases that met their goals in different shares of the trials paid for "
            "different accuracies."
        )
    return lines


def notions(summary: Mapping[str, Any]) -> list[str]:
    """What the epsilons say, and of which cases; that they say different things, if they do."""
    found: dict[str, list[str]] = {}
    for case in summary["cases"]:
        if case.get("notion") is not None:
            found.setdefault(case["notion"], []).append(case["case"])
    lines = [
        f"Epsilon is {notion} of {', '.join(cases) if len(found) > 1 else 'all cases'}: "
        f"{NOTIONS.get(notion, 'a notion of its own')}."
        for notion, cases in found.items()
    ]
    if "hockey-stick" in found and notions_differ(*found):
        lines.append(
            "Warning: epsilons of different notions are not the same promise, so that the smaller "
            "one need not be the stronger."
        )
    return lines


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """What should make one doubt the table."""
    lines = []
    for case in summary["cases"]:
        if case.get("epsilon") is None:
            continue
        if case["epsilon"]["q50"] is None:
            lines.append(
                f"Warning: {share(case['stopped'])} of the trials of {case['case']} stopped; the "
                "others count as infinite, and so does the median."
            )
        if case["stopped_at_first_step"] >= AT_FIRST_STEP:
            lines.append(
                f"Warning: {share(case['stopped_at_first_step'])} of the trials of {case['case']} "
                "stopped at the first level of the schedule: begin it lower to see what they need."
            )
    return lines


def times(summary: Mapping[str, Any], spent: Mapping[str, float]) -> list[str]:
    """What one waited for: seconds of a summary, and those that this call `spent` besides."""
    each = [case["seconds"] for case in summary["cases"]]
    compiled, run, curves = (
        sum(one[part] for one in each) for part in ("compile", "run", "curves")
    )
    trials, done = sum(case["trials"] for case in summary["cases"]), run - curves
    rate = f" ({trials / done:,.0f} a second)" if done > 0 else ""
    parts = [f"compilation {compiled:.2f} s (beside other work)", f"trials {done:.2f} s{rate}"]
    parts += [f"curves {curves:.2f} s"] if curves else []
    own = " and ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
    own = f"; {own} in this call" if own else ""
    return [f"Time, of all calls and workers: {', '.join(parts)}{own}."]


def number(value: float | None) -> str:
    """A number for a table; None stands for infinity, as in `summary.json`."""
    return "inf" if value is None else f"{value:.4g}"


def span(ends: Sequence[float | None], low: str = "inf", digits: int = 3) -> str:
    """Two ends for a table; None stands for infinity, at the lower end for `low`."""
    first, second = (None if end is None else f"{end:.{digits}g}" for end in ends)
    return f"{first or low}-{second or 'inf'}"


def lowest(trials: int, fraction: float) -> str:
    """What null stands for at the lower end of a quantile's 95 % interval.

    Minus infinity where so few trials set no lower end; else as many are infinite.
    """
    return "-inf" if rank_interval(trials, fraction)[0] < 1 else "inf"


def within(value: float | None, ends: Sequence[float | None]) -> str:
    """A number, and by how many per cent of it the farther end of its interval is away."""
    if value is None:
        return "inf"
    if None in ends:
        return f"{value:.4g} ±inf"
    far = max(abs(end - value) for end in ends if end is not None)
    if value == 0 and far > 0:
        return f"{value:.4g} ±{_up(far)}"
    share = 100 * far / abs(value) if value else 0.0
    return f"{value:.4g} ±{_up(share)}%"


def _up(number: float) -> str:
    """Two digits, rounded up: an interval must not look shorter than it is."""
    if number <= 0:
        return "0"
    scale = 10.0 ** (math.floor(math.log10(number)) - 1)
    digits = math.ceil(number / scale * (1 - 1e-9))
    return f"{digits * scale:.0f}" if scale >= 1 else f"{digits * scale:.2g}"
