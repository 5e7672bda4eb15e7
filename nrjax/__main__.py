"""`python -m nrjax` is the command `nrjax`."""

import sys

from nrjax.cli import main

sys.exit(main())
