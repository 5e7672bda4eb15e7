"""A reproduction of Whitehouse 2022, section 6: the privacy that a target loss costs."""

from nrjax.papers.whitehouse2022.settings import Settings as Settings
from nrjax.papers.whitehouse2022.study import cases as cases
from nrjax.papers.whitehouse2022.study import reporting as reporting
from nrjax.papers.whitehouse2022.study import study as study
