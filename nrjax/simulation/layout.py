"""The leaves of a trial's state, sorted by what they depend on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal

from nrjax._base.keys import is_key

SHARED, FIXED, OWN = range(3)
"""Kinds of leaves: equal in all trials, fixed in each trial, different at each step of a trial."""


def depends(program: ClosedJaxpr, flags: list[bool]) -> list[bool]:
    """Return whether each output of a traced function may depend on the flagged inputs."""
    marked = {var for var, flag in zip(program.jaxpr.invars, flags, strict=True) if flag}

    def is_marked(var: Any) -> bool:
        return not isinstance(var, Literal) and var in marked

    for equation in program.jaxpr.eqns:
        if any(map(is_marked, equation.invars)):
            marked.update(equation.outvars)
            if equation.effects:  # it may write to mutable arrays
                marked.update(var for var in equation.invars if not isinstance(var, Literal))
    return [is_marked(var) for var in program.jaxpr.outvars]


class Layout(NamedTuple):
    """The structure of a state or a record, and the kind of each leaf."""

    structure: Any
    kinds: list[int]

    def split(self, state: Any) -> tuple[list[Array], ...]:
        """Return the leaves of each kind."""
        leaves = list(zip(self.kinds, jax.tree.leaves(state), strict=True))
        return tuple([leaf for kind, leaf in leaves if kind == wanted] for wanted in range(3))

    def join(self, *leaves: list[Any]) -> Any:
        """Return the state, or the record, with the given leaves of each kind."""
        rest = list(map(iter, leaves))
        return jax.tree.unflatten(self.structure, [next(rest[kind]) for kind in self.kinds])


def words(leaves: list[Array]) -> list[Any]:
    """Return leaves with tuples of words in place of keys. Words are faster to move."""
    return [tuple(jnp.moveaxis(jax.random.key_data(k), -1, 0)) if is_key(k) else k for k in leaves]


def keys(leaves: list[Any], like: list[Array]) -> list[Array]:
    """Return leaves, for all lanes, with keys in place of words where `like` has keys."""
    return [
        jax.random.wrap_key_data(jnp.stack(leaf, -1), impl=jax.random.key_impl(form))
        if is_key(form)
        else leaf
        for leaf, form in zip(leaves, like, strict=True)
    ]
