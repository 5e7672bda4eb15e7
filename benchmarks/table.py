"""The table of `python -m benchmarks`: every benchmark in its own process, a line a claim."""

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
    """A benchmark that ended without a report; the message is the last line it wrote."""

    def __init__(self, log: str):
        lines = log.strip().splitlines() or ["it wrote nothing"]
        super().__init__(lines[-1].strip())
        self.log = log


def measure(module: str, quick: bool) -> dict[str, Any]:
    """The report of one benchmark.

    Args:
        module: its dotted name; has a function `rows(quick)` that gives a list of `rows.Row`.
        quick: tiny sizes, to see that it runs.

    Returns:
        `rows` (dicts of `Row`'s fields), `device`, `peak` and `device_peak`, in GiB.

    Raises:
        Failed: it ended with an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "benchmarks.child", module, str(report)]
        command += ["--quick"] if quick else []
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=_ROOT,
            check=False,
        )
        if ended.returncode or not report.exists():
            raise Failed(ended.stdout)
        return json.loads(report.read_text())


def lines(name: str, report: dict[str, Any]) -> Iterator[str]:
    """The lines of a benchmark."""
    peak = f"{report['peak']:.2f}"
    if report["device_peak"] is not None:
        peak += f"+{report['device_peak']:.2f}"
    for row in report["rows"]:
        yield line(
            name,
            row["claim"],
            _number(row["trials_per_second"]),
            _number(row["ratio"]),
            row["peer"],
            peak,
            report["device"],
            "" if row["roofline"] is None else f"{row['roofline']:.1%}",
            row["note"],
        )


def line(*cells: str) -> str:
    """Cells in their columns."""
    padded = [
        cell.rjust(width) if place in _NUMBERS else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _number(value: float | None) -> str:
    """Three digits, thousands apart."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(benchmarks: dict[str, str], quick: bool) -> list[str]:
    """Print the table, line by line as it grows.

    Args:
        benchmarks: modules by the names to show.
        quick: tiny sizes.

    Returns:
        Names of the benchmarks that failed; what they wrote is on standard error.
    """
    failed = []
    print(line(*_HEADINGS), flush=True)
    for name, module in benchmarks.items():
        try:
            for text in lines(name, measure(module, quick)):
                print(text, flush=True)
        except Failed as error:
            failed.append(name)
            print(line(name, *[""] * (len(_WIDTHS) - 2), f"failed: {error}"), flush=True)
            print(f"--- {name}\n{error.log}", file=sys.stderr, flush=True)
    return failed


def chosen(names: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    """The benchmarks of these names; all where there are none.

    Raises:
        ValueError: a name is unknown.
    """
    for name in names:
        if name not in known:
            raise ValueError(f"There is no benchmark {name!r}: choose among {', '.join(known)}.")
    return {name: known[name] for name in names} or known
