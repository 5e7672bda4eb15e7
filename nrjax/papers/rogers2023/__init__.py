"""A reproduction of Rogers 2023, section 7: accurate counts under one privacy budget."""

from nrjax.papers.rogers2023.settings import Settings as Settings
from nrjax.papers.rogers2023.study import cases as cases
from nrjax.papers.rogers2023.study import precision as precision
from nrjax.papers.rogers2023.study import reporting as reporting
from nrjax.papers.rogers2023.study import study as study
