"""The page of the site on speed: one table and one chart, from the stored measurements.

`measured.json` has the rows of the last run of each benchmark. A run with `--page` replaces the
rows of the benchmarks that it ran, so that each number stands in one place.
"""

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nrjax

STORED = Path(__file__).parent / "measured.json"
_STYLE = Path(__file__).parents[1] / "docs" / "figures" / "nrjax.mplstyle"


class Line(NamedTuple):
    """A line of the page: the ratios of some rows of a benchmark.

    Attributes:
        work: the work in words.
        benchmark: name of the benchmark.
        instead: what you would use in place of nrjax.
        baseline: start of the baseline's name in the rows.
        claims: starts of the claims of the rows; () for all.
        note: start of the note of the rows.
    """

    work: str
    benchmark: str
    instead: str
    baseline: str
    claims: tuple[str, ...] = ()
    note: str = ""


_SMALL = ("scalar", "8 coordinates", "38 coordinates")
_NUMBA, _NUMPY = "loops compiled by numba", "NumPy, one trial at a time"
LINES = (
    Line("six small problems", "compiled", _NUMBA, "numba", _SMALL),
    Line("six small problems", "compiled", _NUMPY, "NumPy", _SMALL),
    Line("two regressions", "compiled", _NUMBA, "numba", ("logistic", "ridge")),
    Line("counts", "compiled", _NUMBA, "numba", ("counts",)),
    Line("a million trials of one number", "million_trials", _NUMPY, "NumPy"),
    Line("regression on 10,000 and 100,000 rows", "certified_stopping", _NUMPY, "NumPy"),
    Line("whitehouse2022, logistic", "whitehouse2022", _NUMPY, "NumPy", (), "loss over all rows"),
    Line("whitehouse2022, ridge", "whitehouse2022", _NUMPY, "NumPy", ("ridge",)),
    Line("ligett2017, logistic", "ligett2017", _NUMPY, "NumPy", ("logistic",)),
    Line("ligett2017, ridge", "ligett2017", _NUMPY, "NumPy", ("ridge",)),
    Line("rogers2023, counts under a budget", "rogers2023", _NUMPY, "NumPy"),
    Line("24 settings of a regression", "sweep", "a compilation each", "the same, compiled"),
)
"""The lines of the page."""

_PAGE = """# Speed

How many times as fast nrjax is as what you would use in its place. Below 1 nrjax is slower. The
mean is geometric, and the range is that of the cases. Compile time is not counted.

{table}

```{{image}} figures/speed.png
:alt: Bars of the times as fast, from the slowest to the fastest case of each line of the table.
```

Machines: {settings}. Times are wall times.

`{command}` wrote this page. Each command of the table measures its line again, and prints
each case, its memory and its device. The folder `benchmarks/notes` of the repository has notes on
what was tried, what helped and what did not.
"""


def _setting() -> str:
    """Return the versions and the machine of this process."""
    return (
        f"nrjax {nrjax.__version__}, JAX {importlib.metadata.version('jax')}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores ({platform.machine()})"
    )


def store(rows: Iterable[Sequence[str]], path: Path = STORED) -> list[dict[str, str]]:
    """Replace the stored rows of the benchmarks that ran, and return all stored rows.

    Rows of a benchmark that failed or was skipped replace nothing.

    Args:
        rows: cells of the rows, as `table.show` returns them.
        path: file of the stored rows.
    """
    fields = ("benchmark", "claim", "speed", "ratio", "baseline", "peak", "device", "roofline")
    new = [dict(zip((*fields, "note"), cells, strict=True), setting=_setting()) for cells in rows]
    new = [row for row in new if row["speed"] or row["ratio"]]
    old = json.loads(path.read_text()) if path.exists() else []
    ran = {row["benchmark"] for row in new}
    kept = [row for row in old if row["benchmark"] not in ran] + new
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in kept) + "\n]\n")
    return kept


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def ratios(line: Line, stored: Iterable[dict[str, str]]) -> list[float]:
    """Return the ratios of a line, in rising order."""
    return sorted(
        _number(row["ratio"])
        for row in stored
        if row["benchmark"] == line.benchmark
        and row["ratio"]
        and row["baseline"].startswith(line.baseline)
        and row["claim"].startswith(line.claims or "")
        and row["note"].startswith(line.note)
    )


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _measured(stored: Sequence[dict[str, str]]) -> list[tuple[Line, list[float]]]:
    found = ((line, ratios(line, stored)) for line in LINES)
    return [(line, values) for line, values in found if values]


def text(stored: Sequence[dict[str, str]], command: str) -> str:
    """Return the page, in Markdown."""
    settings = list(dict.fromkeys(row["setting"] for row in stored))
    letters = {setting: chr(ord("A") + place) for place, setting in enumerate(settings)}
    headings = ("work", "you would use instead", "times as fast", "range", "machine", "command")
    lines = [f"| {' | '.join(headings)} |", "| --- | --- | ---: | ---: | --- | --- |"]
    for line, values in _measured(stored):
        used = dict.fromkeys(
            letters[row["setting"]] for row in stored if row["benchmark"] == line.benchmark
        )
        span = f"{values[0]:.3g} to {values[-1]:,.4g}" if len(values) > 1 else ""
        measures = f"`python -m benchmarks {line.benchmark}`"
        cells = line.work, line.instead, f"{mean(values):.3g}", span, ", ".join(used), measures
        lines.append(f"| {' | '.join(cells)} |")
    machines = "; ".join(f"{letter}: {setting}" for setting, letter in letters.items())
    return _PAGE.format(table="\n".join(lines), settings=machines, command=command)


def draw(stored: Sequence[dict[str, str]], path: Path) -> None:
    """Write the chart of the page: a bar per line, from its lowest to its highest ratio."""
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    measured: Any = _measured(stored)
    with style.context(str(_STYLE)):
        figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(measured)))
        axes = figure.subplots()
        for place, (line, values) in enumerate(measured):
            colour = "#c1651a" if line.instead == _NUMBA else "#14476f"
            axes.plot([values[0], values[-1]], [place, place], color=colour, lw=5, alpha=0.4)
            axes.plot(mean(values), place, "o", color=colour)
        names = [f"{line.work}\nagainst {line.instead}" for line, _ in measured]
        axes.set_yticks(range(len(measured)), names, fontsize=7)
        axes.invert_yaxis()
        axes.axvline(1, color="black", lw=1, ls=":")
        axes.set(xscale="log", xlabel="times as fast: range of the cases, and geometric mean")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)


def write(page: Path, rows: Iterable[Sequence[str]], command: str, stored: Path = STORED) -> None:
    """Store the rows of a run, and write the page and its chart next to it."""
    known = store(rows, stored)
    page.write_text(text(known, command))
    draw(known, page.parent / "figures" / "speed.png")
