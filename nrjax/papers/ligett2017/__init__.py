"""The experiments of Ligett 2017: what it costs to be within alpha of the optimum.

For each task, method and goal alpha, trials of private empirical risk minimisation that stop once
the excess risk is privately seen to be small: noise reduction (Algorithms 3 and 5), the doubling
method (Algorithm 4), the theory's epsilon, and the Brownian mechanism with the same goals.
"""

from nrjax.papers.ligett2017.cases import cases
from nrjax.papers.ligett2017.findings import Findings
from nrjax.papers.ligett2017.settings import Settings
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

NAME = "ligett2017"

reporting = Findings()


def study(settings: Settings) -> Study:
    """The study; loads the data and finds the optima.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    return Study(NAME, cases(settings), reporting=reporting, settings=settings, source=NAME)
