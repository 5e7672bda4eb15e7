"""Modules of a package that are imported when they are first used."""

import importlib
import importlib.util
from typing import Any


def submodule(package: str, name: str) -> Any:
    """Import and return a module of a package. A `partial` of it serves as `__getattr__`."""
    if importlib.util.find_spec(f"{package}.{name}") is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(f"{package}.{name}")
