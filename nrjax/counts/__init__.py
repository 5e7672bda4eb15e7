"""Counts: what one row can change, how far off a release is, and releasing as many as possible."""

from nrjax.counts.errors import MeanAbsoluteError, ShareOutside
from nrjax.counts.first_passage import FirstPassage, release_count
from nrjax.counts.neighbours import Neighbour
from nrjax.counts.relative_error import Margin, RelativeError
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
