"""Marks of tests that share a table of cases."""

from collections.abc import Iterable

import pytest


def long_except(names: Iterable[str], *kept: str) -> list:
    """Return the parameters of all cases, of which only the kept ones run without `-m long`."""
    return [pytest.param(name, marks=[] if name in kept else pytest.mark.long) for name in names]
