"""Functions that are traced once for all that is alike in all but numbers."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TRACED: list[Any] = []


def traced_once(function: _Function) -> _Function:
    """The function, written into what calls it: half of the time of tracing a study."""
    _TRACED.append(jax.jit(function, inline=True))
    return _TRACED[-1]


def trace_anew() -> None:
    """Forget what was traced: what a user's functions refer to may have been edited since."""
    for one in _TRACED:
        one.clear_cache()
