"""A reproduction of Ligett 2017: the privacy that an excess risk of alpha costs."""

from nrjax.papers.ligett2017.settings import Settings as Settings
from nrjax.papers.ligett2017.study import cases as cases
from nrjax.papers.ligett2017.study import reporting as reporting
from nrjax.papers.ligett2017.study import study as study
