"""The memory of arrays, and of the arrays that a function makes."""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from nrjax._base.keys import is_key


def bytes_of(tree: Any) -> int:
    """Return the number of bytes of a pytree of arrays or of `jax.ShapeDtypeStruct`s."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * (8 if is_key(leaf) else leaf.dtype.itemsize) for leaf in leaves)


def largest_array(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the number of bytes of the largest array that a function makes, by its trace.

    XLA may never store this array, so that it is a bound.
    """
    made = _made(jax.make_jaxpr(function)(*arguments).jaxpr)
    return max(map(bytes_of, made), default=0)


def _made(program: Any) -> Iterator[Any]:
    """Yield the types of all arrays that a traced function makes, in its loops and branches too."""
    for equation in program.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _made(inner)
