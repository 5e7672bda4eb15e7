"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nrjax._public import *  # noqa: F403
else:

    def __getattr__(name):
        """Import the public names, and JAX, when the first name is used.

        The command can then report what stops the import of JAX in a sentence.
        """
        public = importlib.import_module("nrjax._public")
        return globals()[name] if name in globals() else getattr(public, name)

    def __dir__():
        """Return all names, with those that are not imported yet."""
        return sorted({*globals(), *__getattr__("__all__")})
