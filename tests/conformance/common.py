"""Helpers shared by the conformance suites of all kinds of part."""

import chex
import jax
import numpy as np
import pytest


def assert_close(got, want):
    """Check that trees agree up to a few units in the last place of the largest number."""
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        if g.dtype.kind == "f":
            eps = float(np.finfo(g.dtype).eps)
            np.testing.assert_allclose(g, w, rtol=16 * eps, atol=16 * eps * np.abs(w).max())
        else:
            np.testing.assert_array_equal(g, w)


assert_same = chex.assert_trees_all_equal


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def assert_pytree(part, state=None):
    """Check that parameters and the shapes of a state survive the tree functions."""
    leaves, tree = jax.tree.flatten(part)
    assert jax.tree.unflatten(tree, leaves) == part
    for sentinel in (None, object()):
        jax.tree.unflatten(tree, [sentinel] * len(leaves))
    copy = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(state))
    assert type(copy) is type(state)
    assert copy == state


def count_traces(function, *calls):
    """Return the number of programs that these calls need."""
    traced = []
    trace = jax.jit(lambda *inputs: traced.append(1) or function(*inputs)).trace  # no compilation
    for inputs in calls:
        trace(*inputs)
    return len(traced)


def check_errors(case):
    """Check that faulty constructions raise errors that name the argument."""
    errors = tuple(case.errors)
    assert errors
    for build, match in errors:
        with pytest.raises(ValueError, match=match):
            build()
