"""Counts: what one row can change, how far off a release is, and releasing as many as possible."""

from nrjax.counts.first_passage import FirstPassage, release_count
from nrjax.counts.groups import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.counts.passages import Margin, RelativeError
from nrjax.counts.release import CountRelease, Session
from nrjax.counts.selection import ExponentialMechanism

__all__ = [
    "CountRelease",
    "ExponentialMechanism",
    "FirstPassage",
    "Margin",
    "MeanAbsoluteError",
    "Neighbour",
    "RelativeError",
    "Session",
    "ShareOutside",
    "release_count",
]
