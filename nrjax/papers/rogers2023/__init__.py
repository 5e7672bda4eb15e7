"""The experiments of Rogers 2023, section 7: counts within a relative error, under one budget.

A session finds the largest count by the exponential mechanism, releases it under noise that is
reduced until it looks good enough, and goes on until the budget of a privacy filter is used up.
What is counted are the results returned, and how many of them are as good as they look.
"""

import sys

from nrjax.papers.rogers2023.cases import Setup, also, programs, setups
from nrjax.papers.rogers2023.findings import CASE_FACTS, comparisons, measure, report
from nrjax.papers.rogers2023.settings import Settings
from nrjax.studies import runner
from nrjax.study.common import Progress
from nrjax.study.report import write_report
from nrjax.study.store import Store
from nrjax.study.summary import write_summary

__all__ = [
    "NAME",
    "Settings",
    "Setup",
    "also",
    "comparisons",
    "conclude",
    "plot",
    "programs",
    "report",
    "run",
    "setups",
]

NAME = "rogers2023"


def run(settings: Settings, progress: Progress | None = None) -> Store:
    """Run the study and leave its store, summary, report and figures in `settings.out`.

    Args:
        settings: what to run.
        progress: told of every chunk that is done; None for silence.

    Returns:
        The finished store.

    Raises:
        FileExistsError: the folder holds results already and `overwrite` is not set.
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
        OSError: the folder cannot be written to.
    """
    return runner.run(sys.modules[__name__], settings, progress)


def conclude(store: Store) -> None:
    """Write summary.json and report.md from a finished store alone."""
    write_summary(store, {"comparisons": comparisons(store)}, measure, CASE_FACTS)
    write_report(store, report(store))


def plot(store: Store) -> None:
    """Draw the figures from a finished store and its summary."""
    from nrjax import plots

    plots.plot_rogers(store)
