"""The Gaussian threshold test: its law, and its cost against log-ratios of neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, logsumexp

from nrjax._base.outcome import Status
from nrjax.stopping import GaussianThreshold, first_yes
from tests.stopping.oracle import first_yes_counts

pytestmark = pytest.mark.numerical

KEY = jax.random.key(7)
GRID = np.linspace(-14, 14, 2001)


def log_p(rule, queries, stopped=True):
    """Return `log P` of the answers to queries by a fixed fine grid (the oracle)."""
    q = np.clip(queries, rule.low, rule.high)
    apart = (rule.threshold + rule.threshold_deviation * GRID[:, None] - q) / rule.query_deviation
    last = -apart[:, -1] if stopped else np.full(len(GRID), np.inf)
    negative = apart[:, :-1] if stopped else apart
    terms = -0.5 * GRID**2 + log_ndtr(negative).sum(axis=1) + log_ndtr(last)
    return logsumexp(terms) + np.log((GRID[1] - GRID[0]) / np.sqrt(2 * np.pi))


def stated_cost(rule, stopped, answers):
    return float(rule.cost_table[0 if stopped else 1, answers])


def test_published_costs():
    """Statement 20 of `docs/proofs` states these costs."""
    rule = GaussianThreshold(0.0, 1.0, -0.5, 0.5, 3.80, 5.70, 1000)
    found = [stated_cost(rule, True, t) for t in (1, 2, 5, 10, 20, 100, 1000)]
    np.testing.assert_allclose(found, [0.117, 0.291, 0.586, 0.831, 1.074, 1.586, 2.181], atol=6e-4)
    assert float(rule.cost(1.0, True, 10)) >= found[3]
    above = GaussianThreshold(0.5 + 6, 1.0, -0.5, 0.5, 2.0, 4.0, 1000)
    assert stated_cost(above, True, 1000) == pytest.approx(2.79, abs=0.01)
    assert np.all(np.diff(rule.cost_table, axis=1) > 0)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("stopped", [True, False])
def test_no_neighbours_tell_more_than_the_cost(monotone, stopped):
    rng = np.random.default_rng(3)
    rule = GaussianThreshold(0.3, 0.8, -1.0, 1.5, 1.2, 0.9, 6, monotone=monotone)
    worst, fixed_box = 0.0, 0.0
    for _ in range(300):
        count = rng.integers(1, 6)
        q = rng.uniform(-1.0, 1.5, count)
        if rng.random() < 0.5:  # the corners, where the worst pairs are
            q = rng.choice([-1.0, 1.5], count)
        move = rng.choice([-1, 1]) if monotone else rng.choice([-1, 0.5, 1], count)
        other = q + rule.sensitivity * move
        if rng.random() < 0.5:
            other = np.clip(other, -1.0, 1.5)
        apart = log_p(rule, q, stopped) - log_p(rule, other, stopped)
        assert abs(apart) <= stated_cost(rule, stopped, count) + 1e-9
        worst = max(worst, abs(apart) / stated_cost(rule, stopped, count))
        fixed_box = max(fixed_box, abs(apart) / stated_cost(rule, stopped, max(1, count - 1)))
    # The corner attains the cost, and exceeds the cost of one answer less.
    q = np.array([1.5, 1.5, 1.5, -1.0 if stopped else 1.5])
    moves = [np.array([-1, -1, -1, 1 if stopped else -1])]
    if monotone and stopped:
        moves = [np.array([-1, -1, -1, 0]), np.array([0, 0, 0, 1])]
    others = [q + rule.sensitivity * move for move in moves]
    apart = max(abs(log_p(rule, q, stopped) - log_p(rule, other, stopped)) for other in others)
    assert apart == pytest.approx(stated_cost(rule, stopped, 4), rel=1e-8)
    assert worst > 0.7
    assert apart > 1.05 * stated_cost(rule, stopped, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("parts", "stopped", "answers", "true"),
    [
        ((0.0, 1.0, -0.5, 0.5, 100.0, 1.0, 20), True, 20, 4.377),
        ((0.3, 1.0, -5.0, 5.0, 300.0, 1.0, 20), True, 20, 19.27),
        ((0.0, 1.0, -5.0, 5.0, 40.0, 1.0, 1000), True, 1000, 23.559),
        ((0.0, 1.0, -50.0, 50.0, 10.0, 1.0, 1000), True, 1000, 201.907),
    ],
)
def test_integrands_much_narrower_than_the_threshold_noise(parts, stopped, answers, true):
    """True values are integrals on grids of millions of points."""
    assert stated_cost(GaussianThreshold(*parts), stopped, answers) == pytest.approx(true, rel=3e-3)


@pytest.mark.parametrize("ratio", [1.0, 30.0, 300.0, 893.0])
@pytest.mark.parametrize("above", [0.5, 4.0, 40.0])
def test_one_answer_costs_what_a_normal_law_says(ratio, above):
    """Wide threshold noise gives the integrand a knee far from its mode."""
    for monotone in (False, True):
        rule = GaussianThreshold(above, 0.4, 0.0, 1.0, ratio * 0.1, 0.1, 1, monotone=monotone)
        deviation = np.hypot(rule.threshold_deviation, rule.query_deviation)
        for stopped, at in ((True, rule.low - rule.threshold), (False, rule.threshold - rule.high)):
            exact = log_ndtr((at + rule.sensitivity) / deviation) - log_ndtr(at / deviation)
            assert exact <= stated_cost(rule, stopped, 1) <= exact * (1 + 1e-8) + 1e-8


def test_a_box_that_the_dtype_does_not_hold_is_refused():
    rule = GaussianThreshold(1e6, 1.0, 1e6 - 0.53, 1e6 + 0.53, 1.0, 1.0, 20)
    with pytest.raises(ValueError, match="must be large enough for float32"):
        rule.check_resolved(jnp.float32)
    rule.check_resolved(jnp.float64)


def test_costs_of_other_numbers_than_those_of_the_trial_are_refused(dtype):
    rule = GaussianThreshold(0.1, 1.0, 0.0, 1.0, 1.0, 1.5, 4)
    if dtype == jnp.float64:
        with pytest.raises(ValueError, match=r"threshold must be a number of float32"):
            rule.check_resolved(jnp.float32)
    rule.check_resolved(dtype)


def test_costs_are_of_the_numbers_as_they_are_cast(dtype):
    parts = (1000.03, 0.9, 999.7, 1000.6, 3.0, 1.0, 200)
    rule = GaussianThreshold(*parts)
    cast = GaussianThreshold(*(float(dtype.type(part)) for part in parts[:-1]), parts[-1])
    np.testing.assert_array_equal(rule.cost_table, cast.cost_table)
    # Casts may also move the utilities of neighbours apart.
    wider = GaussianThreshold(*parts[:1], 0.9 * (1 + 2**-14), *parts[2:])
    for stopped in (True, False):
        for answers in (1, 20, 200):
            assert rule.cost(1.0, stopped, answers) >= stated_cost(wider, stopped, answers)


def test_a_traced_rule_judges_numbers(dtype):
    rule = GaussianThreshold(0.5, 1.0, 0.0, 1.0, 1.0, 1.5, 4)
    seen = jax.jit(lambda rule: first_yes(KEY, rule, np.array([0.1, 0.7])))(rule)
    assert seen.status in (Status.STOPPED, Status.EXHAUSTED)
    lost = jax.jit(lambda rule: first_yes(KEY, rule, np.array([1e4 + 0.1])))(rule)
    assert (lost.status == Status.NAN_UTILITY) == (dtype == jnp.float32)


def test_law_of_the_stop():
    rule = GaussianThreshold(0.5, 1.0, 0.0, 1.0, 1.0, 1.5, 4)
    queries = np.array([0.2, 1.7, -3.0, 0.9])
    (counts,) = first_yes_counts(jax.random.key(1), rule, np.ones(4), queries[None], 40_000)

    def p_value(rule):
        law = [log_p(rule, queries[: n + 1]) for n in range(4)]
        law = np.exp([*law, log_p(rule, queries, stopped=False)])
        assert law.sum() == pytest.approx(1, abs=1e-9)
        return stats.chisquare(counts, law * counts.sum()).pvalue

    assert p_value(rule) > 1e-3
    unclipped = GaussianThreshold(0.5, 1.0, -5.0, 5.0, 1.0, 1.5, 4)
    assert p_value(unclipped) < 1e-9  # negative control


def test_what_answers_cost():
    rule = GaussianThreshold(0.0, 1.0, -1.0, 1.0, 3.0, 4.0, 3)
    inside = jax.jit(lambda rule, stopped, answers: rule.cost(jnp.ones(()), stopped, answers))
    for answers in range(4):
        for stopped in (True, False):
            paid, stated = inside(rule, stopped, answers), stated_cost(rule, stopped, answers)
            assert stated <= paid <= stated * (1 + 1e-4) + 1e-4
    assert inside(rule, True, 4) == np.inf
    assert rule.cost(1.0, True, np.int64(2**32 + 1)) == np.inf  # which JAX would take as 1
    assert inside(rule, True, 0) == 0
    never = first_yes(jax.random.key(0), rule, [-9.0, -9.0, -9.0])
    assert never.status in (Status.EXHAUSTED, Status.STOPPED)
    with pytest.raises(ValueError, match="number of utilities must be at most 3"):
        first_yes(jax.random.key(0), rule, [0.0] * 4)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"sensitivity": 3.0}, r"sensitivity must be at most high - low = 2"),
        ({"high": -1.0}, r"high must be above low"),
        ({"steps": 0}, r"steps must be an integer"),
        ({"threshold": np.nan}, r"threshold must be a finite number"),
        ({"threshold": np.zeros(2)}, r"threshold must be a finite number"),
        ({"query_deviation": 0.0}, r"query_deviation must be a finite number above 0"),
        ({"threshold_deviation": 1e7}, "threshold_deviation must be smaller"),
        ({"monotone": 1}, r"monotone must be True or False"),
    ],
)
def test_refuses(change, match):
    usual = {"threshold": 0.0, "sensitivity": 1.0, "low": -1.0, "high": 1.0}
    usual |= {"threshold_deviation": 3.0, "query_deviation": 4.0, "steps": 3}
    with pytest.raises(ValueError, match=match):
        GaussianThreshold(**(usual | change))
