"""Counts: their errors and sensitivities, and releasing as many as a budget allows."""

from nrjax.counts.first_passage import FirstPassage, release_count
from nrjax.counts.groups import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.counts.passages import Margin, RelativeError
from nrjax.counts.release import CountOutcome, CountRelease
from nrjax.counts.selection import ExponentialMechanism

__all__ = [
    "CountOutcome",
    "CountRelease",
    "ExponentialMechanism",
    "FirstPassage",
    "Margin",
    "MeanAbsoluteError",
    "Neighbour",
    "RelativeError",
    "ShareOutside",
    "release_count",
]
