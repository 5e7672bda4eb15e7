"""Private empirical risk minimisation: the optimum, its sensitivity, and the loss of a release."""

from nrjax.erm.logistic import LogisticProblem
from nrjax.erm.minimise import Minimum
from nrjax.erm.output import OutputProblem, OutputUtility
from nrjax.erm.ridge import RidgeProblem, RidgeUtility
from nrjax.erm.trust_region import BallMinimum, minimise_in_ball

__all__ = [
    "BallMinimum",
    "LogisticProblem",
    "Minimum",
    "OutputProblem",
    "OutputUtility",
    "RidgeProblem",
    "RidgeUtility",
    "minimise_in_ball",
]
