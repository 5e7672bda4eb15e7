"""What a benchmark reports to the table of `python -m benchmarks`."""

import dataclasses
import resource
import sys
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; what was not measured is None.

    Attributes:
        claim: what was run.
        trials_per_second: of nrjax, compilation apart.
        ratio: times as fast as the peer.
        peer: what `ratio` compares with.
        roofline: fraction of what the device could do at its measured peaks
            (`benchmarks.roofline`).
        note: why something is missing, or what to know.
    """

    claim: str
    trials_per_second: float | None = None
    ratio: float | None = None
    peer: str = ""
    roofline: float | None = None
    note: str = ""


def peak_gib() -> float:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the process that started this one into `ru_maxrss`
        line = next(one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def same_law(other: list[str]) -> None:
    """Refuse a race whose two sides did not do the same work.

    Args:
        other: names of the cases whose laws differ.

    Raises:
        RuntimeError: there is one.
    """
    if other:
        raise RuntimeError(f"not the same law: {'; '.join(other)}")
