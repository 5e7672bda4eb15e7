"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

import importlib
import importlib.util
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nrjax._public import *  # noqa: F403
else:

    def __getattr__(name):
        """Import the submodule `name`, or return the public name from `nrjax._public`.

        JAX is imported only at the first use of a public name, so that the command `nrjax` can
        report why JAX cannot be imported.
        """
        if importlib.util.find_spec(f"nrjax.{name}") is not None:
            return importlib.import_module(f"nrjax.{name}")
        return getattr(importlib.import_module("nrjax._public"), name)

    def __dir__():
        """Return all public names, including those that are not imported yet."""
        return sorted({*globals(), *__getattr__("__all__")})
