"""The experiments of Whitehouse 2022, section 6: what accuracy costs in ex-post privacy.

A task's statistic is released under noise that is taken away until the loss reaches a target; each
mechanism, test and trial gives one ex-post epsilon (figure 3). A second pass over a coarse grid,
never stopped, gives the loss at each epsilon (figure 2).
"""

import sys

from nrjax.studies import runner
from nrjax.studies.common import Progress
from nrjax.studies.report import write_report
from nrjax.studies.store import Store
from nrjax.studies.summary import write_summary
from nrjax.studies.whitehouse2022.cases import Setup, programs, setups
from nrjax.studies.whitehouse2022.findings import findings, report
from nrjax.studies.whitehouse2022.settings import Settings

__all__ = [
    "NAME",
    "Settings",
    "Setup",
    "conclude",
    "findings",
    "plot",
    "programs",
    "report",
    "run",
    "setups",
]

NAME = "whitehouse2022"


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
    write_summary(store, {"findings": findings(store)})
    write_report(store, report(store))


def plot(store: Store) -> None:
    """Draw the figures from a finished store and its summary."""
    from nrjax import plots

    plots.plot_whitehouse(store)
