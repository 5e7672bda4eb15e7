"""A study of private tuning: what choosing a model costs, by method."""

from nrjax.papers.tuning.settings import Settings as Settings
from nrjax.papers.tuning.study import cases as cases
from nrjax.papers.tuning.study import reporting as reporting
from nrjax.papers.tuning.study import study as study
