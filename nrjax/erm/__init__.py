"""Private empirical risk minimisation: problems, sensitivities, and the risk of a release."""

from nrjax.erm import sensitivity, theory
from nrjax.erm.logistic import LogisticProblem
from nrjax.erm.minimise import Minimum
from nrjax.erm.objective import ObjectiveGuarantee, ObjectivePerturbation
from nrjax.erm.one_release import OneRelease, bounded_release
from nrjax.erm.output import OutputProblem
from nrjax.erm.output_utility import OutputUtility
from nrjax.erm.own_table import TrivialLosses, default_regularisation, trivial_losses
from nrjax.erm.perturbed import PerturbedOptimum, PerturbedPath
from nrjax.erm.released import Problem, Released
from nrjax.erm.ridge import RidgeProblem
from nrjax.erm.ridge_utility import RidgeOutputUtility, RidgeUtility
from nrjax.erm.trust_region import BallMinimum, minimise_in_ball

__all__ = [
    "BallMinimum",
    "LogisticProblem",
    "Minimum",
    "ObjectiveGuarantee",
    "ObjectivePerturbation",
    "OneRelease",
    "OutputProblem",
    "OutputUtility",
    "PerturbedOptimum",
    "PerturbedPath",
    "Problem",
    "Released",
    "RidgeOutputUtility",
    "RidgeProblem",
    "RidgeUtility",
    "TrivialLosses",
    "bounded_release",
    "default_regularisation",
    "minimise_in_ball",
    "sensitivity",
    "theory",
    "trivial_losses",
]
