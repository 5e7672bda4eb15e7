"""A study of counts by group under Skellam noise (Whitehouse 2022, appendix E)."""

from nrjax.papers.skellam_counts.settings import Settings as Settings
from nrjax.papers.skellam_counts.study import cases as cases
from nrjax.papers.skellam_counts.study import reporting as reporting
from nrjax.papers.skellam_counts.study import study as study
