"""Memory of preparing and evaluating many rows: no copies that are not documented."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax._base import numerics
from nrjax.datasets import unit_l2_rows
from nrjax.erm import _validation, logistic, output_utility
from nrjax.erm.expansion import Expansion
from nrjax.erm.output import merge

DIMENSION = 12


@pytest.mark.parametrize("gradient", [False, True])
def test_a_risk_does_not_copy_the_rows(gradient, monkeypatch):
    monkeypatch.setattr(output_utility, "_TILE_SIZE", 2**12)
    dtype = jnp.result_type(float)

    def temporary(rows):
        table = jax.ShapeDtypeStruct((rows, DIMENSION), dtype)
        vector = jax.ShapeDtypeStruct((rows,), dtype)
        theta = jax.ShapeDtypeStruct((8, DIMENSION), dtype)

        def risk(theta, *data):
            return output_utility.mean_risk(logistic._signed_loss, (*data, 0.1), theta)

        batch = jax.vmap(jax.grad(risk) if gradient else risk, (0, None, None, None))
        compiled = jax.jit(batch).lower(theta, table, vector, vector).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    few, many = 2**15, 2**17
    growth = temporary(many + 1) - temporary(few + 1)
    assert growth < 0.1 * (many - few) * DIMENSION * jnp.zeros(()).dtype.itemsize


def peak(work):
    """Return the peak of bytes that NumPy allocates during `work`."""
    tracemalloc.start()
    try:
        result = work()
        del result
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_preparing_rows_takes_one_copy_of_them(monkeypatch):
    monkeypatch.setattr(numerics, "_BLOCK_SIZE", 2**12)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60_000, DIMENSION))
    x /= 1.0000001 * np.linalg.norm(x, axis=1, keepdims=True)
    y = np.sign(rng.normal(size=len(x)))
    rows, weights = merge(x.copy())
    optimum = 0.1 * rng.normal(size=DIMENSION)

    assert peak(lambda: _validation.check_data(x, y, 0.1)) < 1.5 * x.nbytes
    assert peak(lambda: unit_l2_rows(x)) < 1.5 * x.nbytes
    table = x.copy()
    assert peak(lambda: merge(table)) < 0.5 * x.nbytes
    assert peak(lambda: Expansion.fit(rows, weights, optimum, 0.0)) < 0.6 * x.nbytes


def test_merged_rows_are_those_of_the_table():
    rng = np.random.default_rng(2)
    table = rng.integers(-1, 2, (300, 3)) * rng.choice([1.0, -1.0], (300, 1))
    rows, weights = merge(table.copy())
    expected, counts = np.unique(table + 0.0, axis=0, return_counts=True)
    order = np.lexsort(rows.T[::-1])
    np.testing.assert_array_equal(rows[order], expected)
    np.testing.assert_allclose(weights[order], counts / 300, rtol=1e-15)
    distinct, alike = merge(expected.copy())
    assert len(distinct) == len(expected)
    np.testing.assert_array_equal(alike, np.full(len(expected), 1 / len(expected)))
