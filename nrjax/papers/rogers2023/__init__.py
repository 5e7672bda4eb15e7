"""The experiments of Rogers 2023, section 7: counts within a relative error, under one budget.

A session finds the largest count by the exponential mechanism, releases it under noise that is
reduced until it looks good enough, and goes on until the budget of a privacy filter is used up.
What is counted are the results returned, and how many of them are as good as they look.
"""

from nrjax.papers.rogers2023.cases import cases
from nrjax.papers.rogers2023.findings import Findings
from nrjax.papers.rogers2023.settings import Settings
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

NAME = "rogers2023"

reporting = Findings()


def study(settings: Settings) -> Study:
    """The study; loads or draws the counts.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    found, facts = cases(settings)
    return Study(NAME, found, reporting=reporting, settings=settings, facts=facts, source=NAME)
