"""What the checks of all kinds of part have in common."""

import jax
import numpy as np
import pytest


def assert_close(got, want):
    """Equal but for a few units in the last place of the largest number."""
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        if g.dtype.kind == "f":
            eps = float(np.finfo(g.dtype).eps)
            np.testing.assert_allclose(g, w, rtol=16 * eps, atol=16 * eps * np.abs(w).max())
        else:
            np.testing.assert_array_equal(g, w)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def assert_pytree(part):
    """Parameters survive the tree functions."""
    leaves, tree = jax.tree.flatten(part)
    assert jax.tree.unflatten(tree, leaves) == part
    for sentinel in (None, object()):
        jax.tree.unflatten(tree, [sentinel] * len(leaves))


def count_traces(function, *calls):
    """How many programs these calls need."""
    traces = 0

    def counted(*inputs):
        nonlocal traces
        traces += 1
        return function(*inputs)

    trace = jax.jit(counted).trace  # the same cache, without compiling
    for inputs in calls:
        trace(*inputs)
    return traces


def check_errors(case):
    """A faulty construction names the argument, its value and what would be right."""
    assert case.errors
    for build, match in case.errors:
        with pytest.raises(ValueError, match=match):
            build()
