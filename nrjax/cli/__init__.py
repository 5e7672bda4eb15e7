"""The command-line program `nrjax`."""

from nrjax.cli.commands import INTERRUPTED as INTERRUPTED
from nrjax.cli.commands import main as main
