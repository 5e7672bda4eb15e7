"""Whole trials against a plain NumPy simulation, under each filter and with each noise."""

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
from tests.counts.oracle import Costs, discrete_certificate, laplace_certificate, play
from tests.processes.laws import FAULTY, SOUND, bonferroni, same_law_p, same_mean_p

COUNTS = np.round(1000 * np.arange(1, 31) ** -0.75)
ALPHA, SELECTION, SMALLEST, LEVELS, MARKS = 0.1, 0.1, 1e-4, 50, 10
TRIALS = 2048
EPSILON, DELTA, ORDER = 4.0, 1e-6, 8.0
RELATION = {"relation": "add-remove"}
FILTER = UnifiedFilter(EPSILON, DELTA, **RELATION)
GAUSSIAN = GaussianFilter(EPSILON, DELTA, **RELATION)
RENYI = RenyiFilter(ORDER, EPSILON, DELTA, **RELATION)
LOG = math.log(1 / DELTA)
COSTS = Costs(lambda u: u / 2, SELECTION**2 / 8, (math.sqrt(LOG + EPSILON) - math.sqrt(LOG)) ** 2)
SELECTION_MU = -2 * stats.norm.ppf(1 / (1 + np.exp(SELECTION / 2)))


def renyi_costs(certificate):
    level = functools.cache(lambda u: float(certificate(ORDER, np.sqrt(u))))
    return RENYI, Costs(level, ORDER * SELECTION**2 / 8, float(RENYI.budget))


CASES = {  # the filters that are not in the paper last
    "brownian": (FILTER, COSTS),
    "doubling": (FILTER, COSTS),
    "laplace": renyi_costs(laplace_certificate),
    "discrete_laplace": renyi_costs(discrete_certificate),
    "brownian, gaussian": (GAUSSIAN, Costs(lambda u: u, SELECTION_MU**2, float(GAUSSIAN.budget))),
}
PAPER = ("brownian", "doubling")


def release(filter, method, **changes):
    drawn, rule = ExponentialMechanism(SELECTION), RelativeError(ALPHA)
    trial = CountRelease(COUNTS, drawn, rule, filter, SMALLEST, method, LEVELS, MARKS)
    return dataclasses.replace(trial, **changes)


@jax.jit
def _run(trial, numbers):
    keys = jax.vmap(lambda number: nrjax.trial_key(jax.random.key(3), number))(numbers)
    return jax.vmap(trial.run)(keys)


def run(trial, trials=TRIALS):
    return jax.tree.map(np.asarray, _run(trial, np.arange(trials, dtype=np.uint32)))


def numpy_trials(method, costs, seed, trials=400, **fault):
    """Return rows of `tests.counts.oracle.play`."""
    rng = np.random.default_rng(seed)
    rows = [
        play(rng, COUNTS, method, costs, SELECTION, ALPHA, SMALLEST, LEVELS, MARKS, **fault)
        for _ in range(trials)
    ]
    return np.array(rows, float)


def same_p(result, rows):
    """Return the p-value that trials and NumPy's have the same means and distributions."""
    scalars = (result.returned, result.precise, result.attempted, result.spent)
    mine = np.column_stack([*scalars, result.returned_by]).astype(float)
    # Trials often spend the whole budget, which the filter rounds down a little.
    mine, rows = mine.round(3), rows.round(3)
    return bonferroni([same_mean_p(mine, rows), same_law_p(mine, rows)])


def method_of(case):
    return case.split(",")[0]


@functools.cache
def results(case):
    return run(release(CASES[case][0], method_of(case)))


# Each program takes seconds to compile; `test_jumps.py` has the law of discrete noise.
QUICK = ("laplace",)
each_case = pytest.mark.parametrize(
    "case", [pytest.param(one, marks=() if one in QUICK else pytest.mark.long) for one in CASES]
)


@each_case
def test_trials_have_the_distribution_of_plain_ones(case):
    plain = numpy_trials(method_of(case), CASES[case][1], seed=1)
    assert same_p(results(case), plain) > SOUND


@pytest.mark.long
def test_planted_faults_of_the_paper_are_found():
    """Fresh noise at each level, and doubling charged only for its last try."""
    assert same_p(results("brownian"), numpy_trials("fresh", COSTS, 2, 800)) < FAULTY
    unpaid = numpy_trials("doubling", COSTS, 3, 150, unpaid=True)
    assert same_p(results("doubling"), unpaid) < FAULTY


def test_a_false_certificate_is_found():
    """`A e^2/2` for Laplace noise reduction."""
    costs = CASES["laplace"][1]
    naive = Costs(lambda u: ORDER * u / 2, costs.selection, costs.budget)
    assert same_p(results("laplace"), numpy_trials("laplace", naive, 2, 150)) < FAULTY


@each_case
def test_counts_and_costs_add_up(case):
    (filter, costs), result = CASES[case], results(case)
    if case != "doubling":
        # A discarded count has taken all that was left.
        assert np.all(result.attempted - result.returned <= 1)
    assert np.all(result.spent <= float(filter.budget))
    rising = (result.precise, result.returned, result.attempted, len(COUNTS))
    assert all(np.all(less <= more) for less, more in itertools.pairwise(rising))
    for by, total in ((result.returned_by, result.returned), (result.precise_by, result.precise)):
        assert np.array_equal(by[:, -1], total)
        assert np.all(np.diff(by, axis=1) >= 0)
    assert np.all(result.precise_by <= result.returned_by)
    if case in PAPER:
        assert filter.budget <= costs.budget
        # The trial ends only if too little is left for an attempt, or no item.
        least = costs.selection + costs.level(1e-4)
        over = filter.budget - result.spent < least * 1.001
        assert np.all(over | (result.attempted == len(COUNTS)))
        assert 0 < result.returned.mean() < len(COUNTS)


def test_one_trial_is_the_same_alone(dtype):
    trial, result = release(RENYI, "laplace"), results("laplace")
    for number in (0, 1, 77):
        alone = trial.run(nrjax.trial_key(jax.random.key(3), number))
        for name, one, many in zip(alone._fields, alone, result, strict=True):
            assert np.array_equal(one, many[number]), name
            assert one.dtype == many.dtype == (dtype if name == "spent" else jnp.int32)


@pytest.mark.long
def test_a_trial_is_as_long_as_its_draws():
    """It takes far fewer draws than levels, and doubling draws no impossible try."""
    brownian, doubling = results("brownian"), results("doubling")
    assert np.all(brownian.steps >= brownian.attempted)
    assert brownian.steps.sum() < 10 * brownian.attempted.sum()
    assert doubling.steps.sum() < 4 * doubling.attempted.sum()


@pytest.mark.parametrize(
    ("filter", "method"),
    [(GAUSSIAN, "doubling"), (RENYI, "doubling"), (RENYI, "discrete_laplace")],
)
def test_other_pairs_are_accepted(filter, method):
    outcome = jax.eval_shape(release(filter, method).run, jax.random.key(0))
    assert outcome.returned_by.shape == (10,)


def test_groups_of_rows_are_refused():
    parts = ExponentialMechanism(SELECTION, monotone=False), RelativeError(ALPHA)
    of_one, of_two = (UnifiedFilter(1.0, 1e-6, relation=r) for r in ("replace", "replace, 2 rows"))
    CountRelease(COUNTS, *parts, of_one, SMALLEST)
    with pytest.raises(ValueError, match="relation of the filter must be for one row"):
        CountRelease(COUNTS, *parts, of_two, SMALLEST)


def test_a_trial_that_cannot_start_is_empty():
    for dear in ({"smallest": 50.0}, {"selection": ExponentialMechanism(50.0)}):
        outcome = run(release(RENYI, "laplace", **dear))
        assert not any(np.any(part) for part in outcome)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selection": 0.1}, "selection must be of type ExponentialMechanism"),
        ({"accuracy": 0.1}, "accuracy must be of type RelativeError"),
        ({"filter": 1.0}, "filter must be a UnifiedFilter or .* for method .brownian."),
        ({"filter": UnifiedFilter(1.0, 1e-6)}, "relation of the filter must be 'add-remove'"),
        ({"method": "laplace"}, "filter must be a RenyiFilter for .*laplace"),
        ({"method": "laplace", "filter": GAUSSIAN}, "filter must be a RenyiFilter for"),
        ({"filter": ZCDPFilter(EPSILON, DELTA)}, "filter must be .* or RenyiFilter for .*brownian"),
        (
            {"method": "doubling", "filter": ExPostFilter(EPSILON, DELTA)},
            "filter must be .*doubling",
        ),
        ({"counts": jnp.zeros((1, 2))}, "counts must be a non-empty vector"),
        ({"counts": jnp.zeros(0)}, "counts must be whole numbers, none negative, not empty"),
        ({"counts": np.array([1.0, -2.0])}, "counts must be whole numbers"),
        ({"counts": [0.5]}, "counts must be whole numbers"),
        ({"method": "bisection"}, "method must be '"),
        ({"smallest": 0.0}, "smallest must be positive"),
        ({"smallest": 1e-310}, "smallest must be from"),
        ({"smallest": np.array([0.1, 0.2])}, "smallest must be a scalar"),
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
