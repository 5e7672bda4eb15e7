"""What a benchmark reports to the table of `python -m benchmarks`."""

import dataclasses
import resource
import sys


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
