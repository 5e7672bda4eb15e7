"""What stopping at a time costs, and the time that a cost buys."""

from nrjax.guarantees.boundaries import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
)
from nrjax.guarantees.grid import GridBoundary
from nrjax.guarantees.notions import NOTIONS
from nrjax.guarantees.pure import DiscretePureGuarantee, PureGuarantee
from nrjax.guarantees.renyi import RenyiBoundary

__all__ = [
    "NOTIONS",
    "DiscretePureGuarantee",
    "GridBoundary",
    "LinearBoundary",
    "MixtureBoundary",
    "OneSidedMixtureBoundary",
    "PureGuarantee",
    "RenyiBoundary",
]
