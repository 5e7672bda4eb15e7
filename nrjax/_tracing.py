"""Functions that are traced once for all that is alike in all but numbers."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TRACED: list[Any] = []
_LOCK, _WITHIN = threading.Lock(), [0]


def cached_trace(function: _Function) -> _Function:
    """The function, written into what calls it; traced once for all of a study's cases."""
    traced: Any = jax.jit(function, inline=True)
    _TRACED.append(traced)

    @functools.wraps(function)
    def called(*given: Any) -> Any:
        return (traced if _WITHIN[0] else function)(*given)

    return called  # pyright: ignore[reportReturnType]


@contextlib.contextmanager
def sharing_traces() -> Iterator[None]:
    """Within, `cached_trace` holds: half of the time of tracing a study.

    Nothing is kept from before, and nothing serves afterwards: what a user's functions refer to may
    have been edited by then, and parts of different ages must not meet in one program.
    """
    with _LOCK:
        if not _WITHIN[0]:
            for one in _TRACED:
                one.clear_cache()
        _WITHIN[0] += 1
    try:
        yield
    finally:
        with _LOCK:
            _WITHIN[0] -= 1
