"""Filters and odometers for many mechanisms on one data set, and privacy conversions."""

from nrjax.composition.events import from_dp_event, to_dp_event
from nrjax.composition.files import from_json, load, save, to_json
from nrjax.composition.filters import ExPostFilter, GaussianFilter, UnifiedFilter, ZCDPFilter
from nrjax.composition.odometers import (
    BrownianOdometer,
    ExPostOdometer,
    OneSidedBrownianOdometer,
    RenyiOdometer,
)
from nrjax.composition.renyi import RenyiFilter
from nrjax.composition.requests import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    DiscreteLaplaceReduction,
    ExPost,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
)
from nrjax.composition.schedule import FilteredSchedule
from nrjax.composition.side_by_side import SideBySideFilter

__all__ = [
    "GDP",
    "ZCDP",
    "BoundedRange",
    "BrownianOdometer",
    "BrownianReduction",
    "DiscreteLaplaceReduction",
    "ExPost",
    "ExPostFilter",
    "ExPostOdometer",
    "FilteredSchedule",
    "GaussianFilter",
    "LaplaceMechanism",
    "LaplaceReduction",
    "OneSidedBrownianOdometer",
    "Pure",
    "RenyiFilter",
    "RenyiOdometer",
    "SideBySideFilter",
    "UnifiedFilter",
    "ZCDPFilter",
    "from_dp_event",
    "from_json",
    "load",
    "save",
    "to_dp_event",
    "to_json",
]
