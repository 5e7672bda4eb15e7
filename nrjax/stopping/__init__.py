"""Stopping rules: tests of whether a release is good enough, and their privacy costs."""

from nrjax.stopping import accuracy
from nrjax.stopping.fixed_queries import FirstYes, first_yes
from nrjax.stopping.gaussian import GaussianThreshold
from nrjax.stopping.private import (
    AboveThreshold,
    InteractiveAboveThreshold,
    LaplaceTests,
    ReducedAboveThreshold,
)
from nrjax.stopping.thresholds import PublicThreshold

__all__ = [
    "AboveThreshold",
    "FirstYes",
    "GaussianThreshold",
    "InteractiveAboveThreshold",
    "LaplaceTests",
    "PublicThreshold",
    "ReducedAboveThreshold",
    "accuracy",
    "first_yes",
]
