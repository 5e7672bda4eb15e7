"""What a traced function computes, as bytes: names, places in memory and comments do not count."""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend import core


def digest(traced: core.ClosedJaxpr, number: Callable[[Any], bytes]) -> bytes:
    """Of a program, with all of its constants, wherever they are kept.

    Args:
        traced: from `jax.make_jaxpr`.
        number: the digest of an array.

    Raises:
        ValueError: it calls back into Python, whose code cannot be seen.
    """
    whole = hashlib.sha256()
    for part in _parts(traced.jaxpr, {}, number):
        whole.update(part)
    for constant in traced.consts:
        whole.update(number(constant))
    return whole.digest()


def _parts(
    jaxpr: core.Jaxpr, places: dict[Any, int], number: Callable[[Any], bytes]
) -> Iterator[bytes]:
    def place(variable: Any) -> str:
        if isinstance(variable, core.Literal):
            return f"{variable.aval} {np.asarray(variable.val).tobytes().hex()}"
        return f"{places.setdefault(variable, len(places))}:{variable.aval}"

    def row(variables: Any) -> str:
        return ",".join(map(place, variables))

    yield f"({row([*jaxpr.constvars, *jaxpr.invars])})".encode()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("pure_callback", "io_callback"):
            raise ValueError(
                f"the study calls jax.{name}: what it computes must be in JAX, for its runs to be "
                "known again"
            )
        yield f"{row(equation.outvars)}={name}({row(equation.invars)})".encode()
        for key, value in sorted(equation.params.items()):
            if key != "name":
                yield key.encode()
                yield from _parameter(value, number)
    yield f"->{row(jaxpr.outvars)};".encode()


def _parameter(value: Any, number: Callable[[Any], bytes]) -> Iterator[bytes]:
    if isinstance(value, core.ClosedJaxpr):
        yield digest(value, number)
    elif isinstance(value, core.Jaxpr):
        yield from _parts(value, {}, number)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parameter(one, number)
            yield b","
    elif isinstance(value, np.ndarray | jax.Array):
        yield number(value)
    elif not callable(value):
        yield re.sub(r" at 0x[0-9a-f]+", "", str(value)).encode()
