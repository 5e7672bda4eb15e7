"""Rows of the table of `python -m benchmarks`."""

import dataclasses
import resource
import sys
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. None stands for what was not measured.

    Attributes:
        claim: name of the run.
        trials_per_second: speed of nrjax, without compilation.
        ratio: speed of nrjax divided by that of the baseline.
        baseline: name of the reference implementation.
        roofline: fraction of the device's limit at its measured peaks (`benchmarks.roofline`).
        note: remark, or the reason why something is missing.
    """

    claim: str
    trials_per_second: float | None = None
    ratio: float | None = None
    baseline: str = ""
    roofline: float | None = None
    note: str = ""


def peak_gib() -> float:
    """Return the largest resident memory of this process so far, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the process that started this one into `ru_maxrss`
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def standard_errors(ours, theirs):
    """Return the difference of two means in standard errors, or 0 if all numbers are equal."""
    if ours.size == 0 or theirs.size == 0:
        return 0.0 if ours.size == theirs.size else np.inf
    error = np.sqrt(np.var(ours) / ours.size + np.var(theirs) / theirs.size)
    difference = abs(np.mean(ours) - np.mean(theirs))
    return float(difference / error) if error > 0 else (np.inf if difference > 0 else 0.0)


def check_same_distribution(different: list[str]) -> None:
    """Raise a RuntimeError with the names of the cases whose results differ in distribution.

    A comparison of speed is only valid if both sides simulate the same distribution.
    """
    if different:
        raise RuntimeError(f"different distributions: {'; '.join(different)}")
