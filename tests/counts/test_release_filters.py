"""Whole sessions under the filters that are not in the paper, against a plain NumPy simulation."""

import functools

import numpy as np
import pytest
from scipy import stats

from nrjax.composition import GaussianFilter, RenyiFilter
from tests.counts.oracle import Prices, laplace_certificate
from tests.counts.sessions import (
    SELECTION,
    check_bookkeeping,
    numpy_sessions,
    release,
    run,
    same_p,
)
from tests.processes.laws import FAULTY, SOUND

ORDER = 8.0
RENYI, GAUSSIAN = RenyiFilter(ORDER, 4.0, 1e-6), GaussianFilter(4.0, 1e-6)
SELECTION_MU = -2 * stats.norm.ppf(1 / (1 + np.exp(SELECTION / 2)))
PRICES = {
    "laplace": Prices(
        functools.cache(lambda u: float(laplace_certificate(ORDER, np.sqrt(u)))),
        ORDER * SELECTION**2 / 8,
        float(RENYI.budget),
    ),
    "brownian": Prices(lambda u: u, SELECTION_MU**2, float(GAUSSIAN.budget)),
}


@pytest.fixture(scope="module")
def results():
    return {
        "laplace": run(release(RENYI, "laplace")),
        "brownian": run(release(GAUSSIAN, "brownian")),
    }


@pytest.mark.parametrize("method", ["laplace", "brownian"])
def test_sessions_have_the_law_of_the_plain_ones(results, method):
    assert same_p(results[method], numpy_sessions(method, PRICES[method], seed=1)) > SOUND


def test_the_books_are_in_order(results):
    check_bookkeeping(results["laplace"], float(RENYI.budget))
    check_bookkeeping(results["brownian"], float(GAUSSIAN.budget))


def test_a_planted_price_is_found(results):
    """The naive certificate `A e^2/2` of Laplace noise reduction, which is false."""
    naive = Prices(lambda u: ORDER * u / 2, PRICES["laplace"].selection, float(RENYI.budget))
    assert same_p(results["laplace"], numpy_sessions("laplace", naive, seed=2)) < FAULTY
