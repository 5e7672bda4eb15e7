"""Whole sessions against a plain NumPy simulation, under each filter and with each noise."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.composition import ExPostFilter, GaussianFilter, RenyiFilter, UnifiedFilter, ZCDPFilter
from nrjax.counts import CountRelease, ExponentialMechanism, RelativeError
from tests.counts.oracle import Prices, discrete_certificate, laplace_certificate, session
from tests.processes.laws import FAULTY, SOUND, bonferroni, same_law_p, same_mean_p

COUNTS = np.round(1000 * np.arange(1, 31) ** -0.75)
ALPHA, SELECTION, SMALLEST, LEVELS, MARKS = 0.1, 0.1, 1e-4, 50, 10
TRIALS = 2048
EPSILON, DELTA, ORDER = 4.0, 1e-6, 8.0
FILTER, GAUSSIAN = UnifiedFilter(EPSILON, DELTA), GaussianFilter(EPSILON, DELTA)
RENYI = RenyiFilter(ORDER, EPSILON, DELTA)
LOG = math.log(1 / DELTA)
PRICES = Prices(lambda u: u / 2, SELECTION**2 / 8, (math.sqrt(LOG + EPSILON) - math.sqrt(LOG)) ** 2)
SELECTION_MU = -2 * stats.norm.ppf(1 / (1 + np.exp(SELECTION / 2)))


def renyi_prices(certificate):
    level = functools.cache(lambda u: float(certificate(ORDER, np.sqrt(u))))
    return RENYI, Prices(level, ORDER * SELECTION**2 / 8, float(RENYI.budget))


CASES = {  # the filters that are not in the paper last
    "brownian": (FILTER, PRICES),
    "doubling": (FILTER, PRICES),
    "laplace": renyi_prices(laplace_certificate),
    "discrete_laplace": renyi_prices(discrete_certificate),
    "brownian, gaussian": (GAUSSIAN, Prices(lambda u: u, SELECTION_MU**2, float(GAUSSIAN.budget))),
}
PAPER = ("brownian", "doubling")


def release(filter, method, **changes):
    drawn, rule = ExponentialMechanism(SELECTION), RelativeError(ALPHA)
    given = CountRelease(COUNTS, drawn, rule, filter, SMALLEST, method, LEVELS, MARKS)
    return dataclasses.replace(given, **changes)


@jax.jit
def _run(trial, numbers):
    keys = jax.vmap(lambda number: nrjax.trial_key(jax.random.key(3), number))(numbers)
    return jax.vmap(trial.run)(keys)


def run(trial, trials=TRIALS):
    return jax.tree.map(np.asarray, _run(trial, np.arange(trials, dtype=np.uint32)))


def numpy_sessions(method, prices, seed, trials=400, **fault):
    """Rows of `tests.counts.oracle.session`."""
    rng = np.random.default_rng(seed)
    rows = [
        session(rng, COUNTS, method, prices, SELECTION, ALPHA, SMALLEST, LEVELS, MARKS, **fault)
        for _ in range(trials)
    ]
    return np.array(rows, float)


def same_p(result, rows):
    """p-value that sessions and NumPy's have the same means and laws, column by column."""
    scalars = (result.returned, result.precise, result.attempted, result.spent)
    mine = np.column_stack([*scalars, result.returned_by]).astype(float)
    # Sessions often end with the whole budget spent, which the filter rounds down a little: equal
    # numbers must be seen as such.
    mine, rows = mine.round(3), rows.round(3)
    return bonferroni([same_mean_p(mine, rows), same_law_p(mine, rows)])


def method_of(case):
    return case.split(",")[0]


@functools.cache
def results(case):
    return run(release(CASES[case][0], method_of(case)))


# Of the last one, what the filter charges is tested in tests/composition too.
*QUICK, LAST = CASES
each_case = pytest.mark.parametrize("case", [*QUICK, pytest.param(LAST, marks=pytest.mark.long)])


@each_case
def test_sessions_have_the_law_of_the_plain_ones(case):
    plain = numpy_sessions(method_of(case), CASES[case][1], seed=1)
    assert same_p(results(case), plain) > SOUND


def test_planted_faults_are_found():
    """Fresh noise at each level; doubling that pays for the last try alone; and the naive
    certificate `A e^2/2` of Laplace noise reduction, which is false."""
    assert same_p(results("brownian"), numpy_sessions("fresh", PRICES, 2, 800)) < FAULTY
    unpaid = numpy_sessions("doubling", PRICES, 3, 150, unpaid=True)
    assert same_p(results("doubling"), unpaid) < FAULTY
    prices = CASES["laplace"][1]
    naive = Prices(lambda u: ORDER * u / 2, prices.selection, prices.budget)
    assert same_p(results("laplace"), numpy_sessions("laplace", naive, 2, 150)) < FAULTY


@each_case
def test_the_books_are_in_order(case):
    (filter, prices), result = CASES[case], results(case)
    if case != "doubling":
        # A count that was discarded has taken all that was left, and that was not refused.
        assert np.all(result.attempted - result.returned <= 1)
    assert np.all(result.spent <= float(filter.budget))
    rising = (result.precise, result.returned, result.attempted, len(COUNTS))
    assert all(np.all(less <= more) for less, more in itertools.pairwise(rising))
    for by, total in ((result.returned_by, result.returned), (result.precise_by, result.precise)):
        assert np.array_equal(by[:, -1], total)
        assert np.all(np.diff(by, axis=1) >= 0)
    assert np.all(result.precise_by <= result.returned_by)
    if case in PAPER:
        assert filter.budget <= prices.budget
        # An attempt would be started if it could be: little is left, or no items are.
        least = prices.selection + prices.level(1e-4)
        over = filter.budget - result.spent < least * 1.001
        assert np.all(over | (result.attempted == len(COUNTS)))
        assert 0 < result.returned.mean() < len(COUNTS)


def test_one_by_one_they_are_the_same(dtype):
    trial, result = release(FILTER, "brownian"), results("brownian")
    for number in (0, 1, 77):
        alone = trial.run(nrjax.trial_key(jax.random.key(3), number))
        for name, one, many in zip(alone._fields, alone, result, strict=True):
            assert np.array_equal(one, many[number]), name
            assert one.dtype == many.dtype == (dtype if name == "spent" else jnp.int32)


def test_a_trial_is_as_long_as_its_draws():
    """Far fewer draws than levels, and a doubling is not drawn where it cannot be accepted."""
    brownian, doubling = results("brownian"), results("doubling")
    assert np.all(brownian.steps >= brownian.attempted)
    assert brownian.steps.sum() < 10 * brownian.attempted.sum()
    assert doubling.steps.sum() < 4 * doubling.attempted.sum()


@pytest.mark.parametrize("filter", [GAUSSIAN, RENYI])
def test_other_pairs_are_accepted(filter):
    session = jax.eval_shape(release(filter, "doubling").run, jax.random.key(0))
    assert session.returned_by.shape == (10,)


def test_a_session_that_cannot_begin_is_empty():
    for dear in ({"smallest": 50.0}, {"selection": ExponentialMechanism(50.0)}):
        session = run(release(FILTER, "brownian", **dear))
        assert not any(np.any(part) for part in session)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selection": 0.1}, "selection must be of type ExponentialMechanism"),
        ({"accuracy": 0.1}, "accuracy must be of type RelativeError"),
        ({"filter": 1.0}, "filter must be for method .brownian. a UnifiedFilter or"),
        ({"method": "laplace"}, "filter = .*laplace.*a RenyiFilter: no other has a proof"),
        ({"method": "laplace", "filter": GAUSSIAN}, "filter = .*a RenyiFilter: no other"),
        ({"filter": ZCDPFilter(EPSILON, DELTA)}, "filter = .*brownian.* or RenyiFilter"),
        ({"method": "doubling", "filter": ExPostFilter(EPSILON, DELTA)}, "filter = .*doubling"),
        ({"counts": jnp.zeros((1, 2))}, "counts = .*must be a non-empty vector"),
        ({"counts": jnp.zeros(0)}, "counts = .*must be a non-empty vector"),
        ({"counts": np.array([1.0, -2.0])}, "counts = .*whole numbers"),
        ({"counts": [0.5]}, "counts = .*whole numbers"),
        ({"method": "bisection"}, "method must be one of"),
        ({"smallest": 0.0}, "smallest = 0.0"),
        ({"smallest": 1e-310}, "smallest must be at least"),
        ({"smallest": np.array([0.1, 0.2])}, "smallest = .*must be a scalar"),
        (
            {"smallest": 1e-17, "method": "discrete_laplace", "filter": RENYI},
            "smallest must be at least .* for discrete Laplace noise",
        ),
        ({"levels": 1}, "levels must be an integer, at least 2"),
        ({"levels": 2**31}, "levels must be an integer, .* at most"),
        ({"marks": 0}, "marks must be an integer, at least 1"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        release(**({"filter": FILTER, "method": "brownian"} | changes)).run(jax.random.key(0))
