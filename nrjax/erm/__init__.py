"""Private empirical risk minimisation: the optimum, its sensitivity, and the loss of a release."""

from nrjax.erm.logistic import LogisticProblem, LogisticUtility
from nrjax.erm.minimise import Minimum

__all__ = ["LogisticProblem", "LogisticUtility", "Minimum"]
