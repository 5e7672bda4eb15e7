"""Stopping rules: when a release is good enough, and what asking costs."""

from nrjax.stopping.above_threshold import AboveThreshold, InteractiveAboveThreshold
from nrjax.stopping.fixed_queries import FirstYes, first_yes
from nrjax.stopping.gaussian import GaussianThreshold
from nrjax.stopping.independent import LaplaceTests
from nrjax.stopping.public import PublicThreshold
from nrjax.stopping.reduced import ReducedAboveThreshold

__all__ = [
    "AboveThreshold",
    "FirstYes",
    "GaussianThreshold",
    "InteractiveAboveThreshold",
    "LaplaceTests",
    "PublicThreshold",
    "ReducedAboveThreshold",
    "first_yes",
]
