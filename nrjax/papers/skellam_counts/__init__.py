"""Counts by group in whole numbers: Skellam noise (Whitehouse 2022, Appendix E), and others.

Counts are released under noise that is taken away until they are good enough. Skellam and discrete
Laplace noise leave whole numbers, so that no floating-point residue tells of the data. The latter
has a pure guarantee (`docs/frontier.md`), Skellam noise no published one: what is reported is the
realised privacy loss against a neighbour, at the stop and along the path. Brownian and Laplace
noise go through the same standard deviations, with the guarantees they have.
"""

from nrjax.papers.skellam_counts.cases import cases
from nrjax.papers.skellam_counts.findings import Findings
from nrjax.papers.skellam_counts.settings import Settings
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

NAME = "skellam_counts"

reporting = Findings()


def study(settings: Settings) -> Study:
    """The study; loads the counts.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    return Study(NAME, cases(settings), reporting=reporting, settings=settings, source=NAME)
