"""Counts by group: what one row can change, and how far a noisy release is off."""

from nrjax.counts.errors import MeanAbsoluteError, ShareOutside
from nrjax.counts.neighbours import Neighbour

__all__ = ["MeanAbsoluteError", "Neighbour", "ShareOutside"]
