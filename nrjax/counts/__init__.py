"""Tools to release counts under noise: sensitivities, errors and budgeted releases."""

from nrjax.counts.first_passage import FirstPassage, release_count
from nrjax.counts.groups import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.counts.passages import Margin, RelativeError
from nrjax.counts.release import CountOutcome, CountRelease
from nrjax.counts.selection import ExponentialMechanism
from nrjax.counts.thresholds import KeyCounts, KeyThreshold
from nrjax.counts.unknown_keys import KeyNoise, KeysShown, UnknownKeysGuarantee, shown, unknown_keys

__all__ = [
    "CountOutcome",
    "CountRelease",
    "ExponentialMechanism",
    "FirstPassage",
    "KeyCounts",
    "KeyNoise",
    "KeyThreshold",
    "KeysShown",
    "Margin",
    "MeanAbsoluteError",
    "Neighbour",
    "RelativeError",
    "ShareOutside",
    "UnknownKeysGuarantee",
    "release_count",
    "shown",
    "unknown_keys",
]
