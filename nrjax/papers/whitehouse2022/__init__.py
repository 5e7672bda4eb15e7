"""The experiments of Whitehouse 2022, section 6: what accuracy costs in ex-post privacy.

A task's statistic is released under noise that is taken away until the loss reaches a target; each
mechanism, test and trial gives one ex-post epsilon (figure 3). A second pass over a coarse grid,
never stopped, gives the loss at each epsilon (figure 2).
"""

from nrjax.papers.whitehouse2022.cases import cases
from nrjax.papers.whitehouse2022.findings import Findings
from nrjax.papers.whitehouse2022.settings import Settings
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

NAME = "whitehouse2022"

reporting = Findings()


def study(settings: Settings) -> Study:
    """The study; loads the data and finds the optima.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or do not suit the task.
    """
    return Study(NAME, cases(settings), reporting=reporting, settings=settings, source=NAME)
