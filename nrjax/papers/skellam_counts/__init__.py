"""Counts by group under Skellam noise (Whitehouse 2022, Appendix E) and other noise."""

from nrjax.papers.skellam_counts.settings import Settings as Settings
from nrjax.papers.skellam_counts.study import cases as cases
from nrjax.papers.skellam_counts.study import reporting as reporting
from nrjax.papers.skellam_counts.study import study as study
