"""Private selection: publish a good result of many private runs, paid by the stage of the stop."""

from nrjax.private_selection.costs import negative_binomial_cost, repeated_divergence
from nrjax.private_selection.loop import Candidate, Selected, Simulated
from nrjax.private_selection.selections import PoissonSelection, RepeatedSelection

__all__ = [
    "Candidate",
    "PoissonSelection",
    "RepeatedSelection",
    "Selected",
    "Simulated",
    "negative_binomial_cost",
    "repeated_divergence",
]
