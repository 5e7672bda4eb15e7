"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

import importlib
import importlib.util
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nrjax._public import *  # noqa: F403
else:

    def __getattr__(name):
        """Import a submodule, or else all public names, and JAX with them, at the first use.

        The command can then report what stops the import of JAX in a sentence.
        """
        if importlib.util.find_spec(f"nrjax.{name}") is not None:
            return importlib.import_module(f"nrjax.{name}")
        return getattr(importlib.import_module("nrjax._public"), name)

    def __dir__():
        """Return all names, with those that are not imported yet."""
        return sorted({*globals(), *__getattr__("__all__")})
