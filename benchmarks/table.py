"""The table of `python -m benchmarks`, with every benchmark in a separate process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_HEADINGS = ("benchmark", "claim", "trials/s", "ratio", "to", "peak GiB", "device", "roofline", "")
_WIDTHS = (18, 55, 10, 8, 28, 8, 16, 8, 0)
_NUMBERS = (2, 3, 5, 7)


class Failed(Exception):
    """A benchmark ended without a report. The message is the last line that it wrote."""

    def __init__(self, log: str):
        lines = log.strip().splitlines() or ["it wrote nothing"]
        super().__init__(lines[-1].strip())
        self.log = log


def measure(module: str, quick: bool) -> dict[str, Any]:
    """Run one benchmark and return its report.

    Args:
        module: dotted name of a module with a function `rows(quick)` that returns `rows.Row`s.
        quick: whether to use tiny sizes.

    Returns:
        `rows` (dicts of the fields of `Row`), `device`, `peak` and `device_peak` in GiB.

    Raises:
        Failed: the benchmark ended with an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "benchmarks.child", module, str(report)]
        command += ["--quick"] if quick else []
        process = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=_ROOT,
            check=False,
        )
        if process.returncode or not report.exists():
            raise Failed(process.stdout)
        return json.loads(report.read_text())


def rows_of(name: str, report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of a benchmark."""
    peak = f"{report['peak']:.2f}"
    if report["device_peak"] is not None:
        peak += f"+{report['device_peak']:.2f}"
    for row in report["rows"]:
        yield (
            name,
            row["claim"],
            _number(row["trials_per_second"]),
            _number(row["ratio"]),
            row["baseline"],
            peak,
            report["device"],
            "" if row["roofline"] is None else f"{row['roofline']:.1%}",
            row["note"],
        )


def line(*cells: str) -> str:
    """Return a line with each cell in its column."""
    padded = [
        cell.rjust(width) if place in _NUMBERS else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _number(value: float | None) -> str:
    """Return a number with three digits, or with separated thousands."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(benchmarks: dict[str, str], quick: bool) -> tuple[list[str], list[tuple[str, ...]]]:
    """Print the table line by line.

    What a failed benchmark wrote goes to standard error.

    Args:
        benchmarks: modules by the names to show.
        quick: whether to use tiny sizes.

    Returns:
        The names of the benchmarks that failed, and the cells of all rows.
    """
    failed, rows = [], []
    print(line(*_HEADINGS), flush=True)
    for name, module in benchmarks.items():
        try:
            found = list(rows_of(name, measure(module, quick)))
        except Failed as error:
            failed.append(name)
            found = [(name, *[""] * (len(_WIDTHS) - 2), f"failed: {error}")]
            print(f"--- {name}\n{error.log}", file=sys.stderr, flush=True)
        for cells in found:
            print(line(*cells), flush=True)
        rows += found
    return failed, rows


def chosen(names: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    """Return the benchmarks with these names, or all if no name is given.

    Raises:
        ValueError: a name is unknown.
    """
    for name in names:
        if name not in known:
            raise ValueError(f"There is no benchmark {name!r}: choose among {', '.join(known)}.")
    return {name: known[name] for name in names} or known
