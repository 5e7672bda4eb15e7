"""Private empirical risk minimisation: the optimum, its sensitivity, and the loss of a release."""

from nrjax.erm.logistic import LogisticProblem, LogisticUtility

__all__ = ["LogisticProblem", "LogisticUtility"]
