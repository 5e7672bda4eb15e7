"""Tools to release counts under noise: sensitivities, errors and budgeted releases."""

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
