"""Short text forms of values, for messages and `repr`."""

import dataclasses
import types
import unicodedata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_LONGEST = 160  # largest number of characters
_MOST = 8  # largest number of entries shown of an array or a list


def format_value(value: Any, longest: int = _LONGEST) -> str:
    """Return a short text for any value, such as `float32[1000, 3]` for a large array."""
    return _cut(_format(value), longest)


def _format(value: Any) -> str:
    if isinstance(value, Tracer):
        return f"traced {value.aval.str_short()}"
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _format_array(value)
    if isinstance(value, dict):
        pairs = [f"{key!r}: {format_value(entry)}" for key, entry in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if getattr(type(value).__repr__, "__module__", "") == "collections":  # a NamedTuple's own
        return representation(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        inside = ", ".join(map(format_value, value[:_MOST]))
        if len(value) > _MOST:
            return f"a {type(value).__name__} of {len(value)}, [{inside}, ...]"
        if isinstance(value, tuple):
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return f"[{inside}]"
    if isinstance(value, (types.FunctionType, type)):
        return value.__qualname__
    return repr(value)


def _format_array(value: Any) -> str:
    local = getattr(value, "is_fully_addressable", True)
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if is_key or value.size > _MOST or not local:
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    numbers = np.asarray(value)
    text = repr(numbers.tolist())
    if jnp.issubdtype(value.dtype, jnp.floating):  # the fewest digits that identify a number
        text = np.array2string(numbers, separator=", ", formatter={"all": str})
    return text if value.ndim == 0 else f"{value.dtype} {' '.join(text.split())}"


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} ... {text[5 - longest // 2 :]}"


def representation(self: Any, **texts: str) -> str:
    """Return the `__repr__` of a dataclass or a `NamedTuple` whose fields may be arrays.

    If the object has a `delta` and a `notion`, the notion is shown too. `texts` has text to show in
    place of some values.
    """
    if dataclasses.is_dataclass(self):
        names = [field.name for field in dataclasses.fields(self) if field.repr]
    else:
        names = list(self._fields)
    names += ["notion"] if "delta" in names and getattr(self, "notion", None) else []
    texts = {name: format_value(getattr(self, name)) for name in names} | texts
    inside = ", ".join(f"{name}={text}" for name, text in texts.items())
    return f"{type(self).__name__}({inside})"


def escaped(text: str) -> str:
    """Return a text with its control characters as escapes, which a terminal would obey."""
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) == "Cc" else each
        for each in text
    )
