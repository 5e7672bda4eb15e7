"""Skellam noise reduction on counts by group (Whitehouse 2022, Appendix E), beside others.

Counts are released under noise that is taken away until they are good enough. Skellam noise leaves
whole numbers, so that no floating-point residue tells of the data, but has no published guarantee:
what is reported is the realised privacy loss against a neighbour, at the stop and along the path.
Brownian and Laplace noise go through the same standard deviations, with the guarantees they have.
"""

import sys

from nrjax.papers.skellam_counts.cases import Setup, programs, setups
from nrjax.papers.skellam_counts.findings import realised, report
from nrjax.papers.skellam_counts.settings import Settings
from nrjax.studies import runner
from nrjax.study.common import Progress
from nrjax.study.report import write_report
from nrjax.study.store import Store
from nrjax.study.summary import write_summary

__all__ = [
    "NAME",
    "Settings",
    "Setup",
    "conclude",
    "plot",
    "programs",
    "realised",
    "report",
    "run",
    "setups",
]

NAME = "skellam_counts"


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
    write_summary(store, {"realised": realised(store)})
    write_report(store, report(store))


def plot(store: Store) -> None:
    """Draw the figures from a finished store and its summary."""
    from nrjax import plots

    plots.plot_skellam_counts(store)
