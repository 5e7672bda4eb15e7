"""How values are shown in messages and representations: short, and arrays by dtype and shape."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_LONGEST = 160  # characters
_MOST = 8  # numbers of an array that are shown one by one


def format_value(value: Any) -> str:
    """A short form of any value: numbers as they are, arrays of many as `float32[1000, 3]`."""
    if isinstance(value, Tracer):
        return f"traced {value.aval.str_short()}"
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _array(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        inside = _cut(", ".join(map(format_value, value[:_MOST])))
        if len(value) > _MOST:
            return f"a {type(value).__name__} of {len(value)}, [{inside}, ...]"
        if isinstance(value, tuple):
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return f"[{inside}]"
    return _cut(repr(value))


def _array(value: Any) -> str:
    kind, here = str(value.dtype), getattr(value, "is_fully_addressable", True)
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if is_key or value.size > _MOST or not here:
        return f"{kind}[{', '.join(map(str, value.shape))}]"
    numbers = np.asarray(value).tolist()
    return _cut(repr(numbers) if value.ndim == 0 else f"{kind} {numbers!r}")


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 40]} ... {text[-30:]}"


def representation(self: Any) -> str:
    """`__repr__` of a dataclass or a `NamedTuple` whose fields may be arrays.

    Beside a delta it says the `notion`, where there is one.
    """
    if dataclasses.is_dataclass(self):
        names = [field.name for field in dataclasses.fields(self) if field.repr]
    else:
        names = list(self._fields)
    names += ["notion"] if "delta" in names and hasattr(self, "notion") else []
    inside = ", ".join(f"{name}={format_value(getattr(self, name))}" for name in names)
    return f"{type(self).__name__}({inside})"
