"""Guarantees: the ex-post epsilon of stopping at a time, and the time of an epsilon."""

from nrjax.guarantees._priors import log_uniform
from nrjax.guarantees.boundaries import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
)
from nrjax.guarantees.grid import GridBoundary
from nrjax.guarantees.hockey_stick import HockeyStickBoundary
from nrjax.guarantees.minimax import MinimaxBoundary
from nrjax.guarantees.mixtures import RenyiMixture
from nrjax.guarantees.notions import NOTIONS, Notion
from nrjax.guarantees.pure import DiscretePureGuarantee, PureGuarantee, SphericalPureGuarantee
from nrjax.guarantees.recipe import BoundaryRecipe
from nrjax.guarantees.renyi import RenyiBoundary

__all__ = [
    "NOTIONS",
    "BoundaryRecipe",
    "DiscretePureGuarantee",
    "GridBoundary",
    "HockeyStickBoundary",
    "LinearBoundary",
    "MinimaxBoundary",
    "MixtureBoundary",
    "Notion",
    "OneSidedMixtureBoundary",
    "PureGuarantee",
    "RenyiBoundary",
    "RenyiMixture",
    "SphericalPureGuarantee",
    "log_uniform",
]
