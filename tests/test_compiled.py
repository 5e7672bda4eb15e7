"""The compiled loops of `benchmarks.compiled` simulate what nrjax simulates."""

import jax
import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled baselines need numba (extra dev)")

from benchmarks import compiled, numba_data

WRONG = {  # kind of case: number of trials, place of an argument, and a factor that makes it wrong
    "scalar": (50_000, -1, 1.3),
    "8 coordinates": (10_000, -1, 1.1),
    "38 coordinates": (5_000, -1, 1.05),
    "logistic": (1024, -1, 1.005),
    "ridge": (256, -1, 1.3),
    "counts": (2000, -1, 1.2),
    "counts under a budget": (500, 4, 0.95),
}
SHORT = ("scalar: Brownian, public",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long])
        for name in compiled.CASES
    ],
)
def test_loops_stop_where_nrjax_stops(name):
    """The means and quantiles of the steps agree, unless a number of the loop is wrong."""
    case = compiled.CASES[name]()
    trials, place, factor = WRONG[name.partition(":")[0]]
    wrong = list(case.arguments)
    wrong[place] = type(wrong[place])(wrong[place] * factor)
    ours = np.asarray(case.ours(jax.random.key(3), trials))
    right, planted = (case.loop(trials, 5, tuple(args))[0] for args in (case.arguments, wrong))
    assert compiled.quantile_errors(ours, right) < 5
    assert compiled.quantile_errors(ours, planted) > 6


def test_the_polynomial_is_the_logistic_loss():
    margins = np.linspace(-5.3, 5.3, 1001)
    polynomial = np.polyval(numba_data.loss_coefficients(5.3), 2 * (margins / 5.3) ** 2 - 1)
    np.testing.assert_allclose(polynomial - margins / 2, np.log1p(np.exp(-margins)), atol=3e-8)
