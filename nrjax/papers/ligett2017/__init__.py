"""The experiments of Ligett 2017: what it costs to be within alpha of the optimum.

For each task, method and goal alpha, trials of private empirical risk minimisation that stop once
the excess risk is privately seen to be small: noise reduction (Algorithms 3 and 5), the doubling
method (Algorithm 4), the theory's epsilon, and the Brownian mechanism with the same goals.
"""

import sys

from nrjax.papers.ligett2017.cases import Setup, programs, setups
from nrjax.papers.ligett2017.findings import CASE_FACTS, comparisons, measure, report
from nrjax.papers.ligett2017.settings import Settings
from nrjax.studies import runner
from nrjax.study.common import Progress
from nrjax.study.report import write_report
from nrjax.study.store import Store
from nrjax.study.summary import write_summary

__all__ = [
    "NAME",
    "Settings",
    "Setup",
    "comparisons",
    "conclude",
    "plot",
    "programs",
    "report",
    "run",
    "setups",
]

NAME = "ligett2017"


def run(settings: Settings, progress: Progress | None = None) -> Store:
    """Run the study and leave its store, summary, report and figures in `settings.out`.

    Args:
        settings: what to run.
        progress: told of every chunk that is done; None for silence.

    Returns:
        The finished store.

    Raises:
        FileExistsError: the folder holds results already and `overwrite` is not set.
        FileNotFoundError, ValueError: the data are not there, or do not suit the task.
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

    plots.plot_ligett(store)
