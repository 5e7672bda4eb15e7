"""What stopping at a time costs, and the time that a cost buys."""

from nrjax.guarantees.boundaries import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
)
from nrjax.guarantees.pure import PureGuarantee

__all__ = ["LinearBoundary", "MixtureBoundary", "OneSidedMixtureBoundary", "PureGuarantee"]
