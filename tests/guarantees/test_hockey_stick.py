"""Designed hockey-stick boundaries: exact curves, published designs, and what rules gain."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import brentq

import nrjax
from nrjax.guarantees import HockeyStickBoundary, RenyiBoundary
from nrjax.guarantees._stopping import price_barrier
from tests.guarantees import oracle
from tests.problems import interaction

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

DELTA = 1e-6


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.05])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 30.0])
def test_one_release_is_the_exact_gaussian_curve(epsilon, delta):
    if delta == 0.05 and epsilon == 0.01:
        epsilon = 0.2  # at 0.01 the noise hides everything but delta
    found = HockeyStickBoundary.single(2.0, delta, epsilon=epsilon)
    stated = float(found.epsilon(found.times[0]))
    assert epsilon * (1 - 4e-6) < stated <= epsilon
    assert stated == pytest.approx(oracle.one_look(2 / np.sqrt(found.times[0]), delta), rel=2e-6)
    assert found.time(epsilon) == found.times[0]
    again = HockeyStickBoundary.single(2.0, delta, time=found.times[0])
    np.testing.assert_array_equal(again.epsilons, found.epsilons)
    if epsilon < 1:  # negative control: the probabilistic curve
        x = 2 / np.sqrt(found.times[0])
        assert x * (x / 2 + 4.7534) > 1.05 * epsilon or delta != DELTA


def mean_ratios(levels, times, prior, delta):
    """Return the prior means of epsilon and of variance, relative to one exact look."""
    levels, places = np.asarray(levels, float), 1 / np.sqrt(times)
    exact = np.array([oracle.one_look(x, delta) for x in places])
    needed = [
        brentq(lambda x, e=e: oracle.one_look(x, delta) - e, x / 2, 9 * x)
        for x, e in zip(places, levels, strict=True)
    ]
    return np.exp([prior @ np.log(levels / exact), 2 * prior @ np.log(needed / places)])


@pytest.mark.parametrize(
    ("epsilon", "delta", "count", "prior", "mean", "variance", "saved"),
    [
        (0.3, 1e-6, 5, "point", 1.020, 1.037, 0.16),
        (0.3, 1e-6, 5, "factor 10", 1.091, 1.176, 0.40),
        pytest.param(0.3, 1e-6, 50, "point", 1.027, 1.050, 0.13, marks=pytest.mark.long),
        pytest.param(0.3, 1e-6, 50, "factor 2", 1.105, 1.206, 0.037, marks=pytest.mark.long),
        pytest.param(0.3, 1e-6, 50, "factor 10", 1.153, 1.305, 0.22, marks=pytest.mark.long),
        pytest.param(3.0, 1e-9, 50, "factor 10", 1.088, 1.169, 0.245, marks=pytest.mark.long),
    ],
)
def test_published_designs(epsilon, delta, count, prior, mean, variance, saved):
    """Epsilon and variance relative to one exact look, and what one Rényi order needs more."""
    times, middle = oracle.looks(count, epsilon, delta)
    weights = oracle.prior(prior, times, middle)

    def ratios(guarantee):
        return mean_ratios(guarantee.epsilon(times), times, weights, delta)

    found = HockeyStickBoundary.design(times, weights, 1.0, delta)
    here = ratios(found)
    np.testing.assert_allclose(here, [mean, variance], atol=1.5e-3)
    one = RenyiBoundary.tight_at_time(middle, 1.0, delta)
    assert 1 - here[1] / ratios(one)[1] == pytest.approx(saved, abs=0.006)
    # Negative controls: designs for another prior or objective cost more under this prior.
    controls: Any = ((weights * np.geomspace(1, 9, count), "log"), (weights, "mean"))
    for other, objective in controls:
        worse = HockeyStickBoundary.design(times, other, 1.0, delta, objective)
        assert ratios(worse)[0] > here[0] * (1 + 1e-6)


class Sampled:
    """Stopped paths of the loss, from a mixture of drifts with the balance heuristic."""

    def __init__(self, clock, barrier, size=100_000, seed=0):
        rng, heights = np.random.default_rng(seed), barrier - clock / 2
        drifts = np.append(heights / clock, 0)
        steps = rng.normal(size=(size, clock.size)) * np.sqrt(np.diff(clock, prepend=0))
        paths = np.cumsum(steps, axis=1) + rng.choice(drifts, size)[:, None] * clock
        above = paths >= heights
        self.stopped, self.look = above.any(axis=1), above.argmax(axis=1)
        place, s = paths[np.arange(size), self.look], clock[self.look]
        ratios = np.exp(place[:, None] * drifts - drifts**2 * s[:, None] / 2)
        self.weights, self.losses = self.stopped / ratios.mean(axis=1), place + s / 2

    def mean(self, values):
        """Return the mean of a function of stopped paths, and its standard error."""
        weighted = self.weights * values
        return weighted.mean(), weighted.std() / np.sqrt(weighted.size)

    def gain(self, epsilons):
        return self.mean(-np.expm1(epsilons[self.look] - self.losses))


@pytest.fixture(scope="module")
def designed():
    times, _ = oracle.looks(20)
    weights = np.linspace(1, 2, 20)
    found = HockeyStickBoundary.design(times, weights, 1.0, DELTA)
    return found, Sampled(1 / found.times, found.barrier), weights / weights.sum()


def test_sampled_gain_is_delta(designed):
    found, sampled, _ = designed
    mean, error = sampled.gain(found.epsilons)
    assert error < 0.01 * DELTA
    assert abs(mean - DELTA) < 4 * error
    # Planted faults: epsilons that are 3 % too small, and a worse rule.
    mean, error = sampled.gain(0.97 * found.epsilons)
    assert mean > DELTA + 20 * error
    later = Sampled(1 / found.times, 1.03 * found.barrier)
    mean, error = later.gain(found.epsilons)
    assert mean < DELTA - 4 * error


def test_spending_of_the_optimum(designed):
    """The neighbour's probability of a stop at a look is proportional to `w exp(-eps)/eps`."""
    found, sampled, weights = designed
    shares = weights * np.exp(-found.epsilons) / found.epsilons
    shares /= shares.sum()

    def largest_error(tilt):
        spent = sampled.weights * np.exp(tilt * sampled.losses)
        total = spent.mean()
        scores = []
        for k, share in enumerate(shares):
            values = spent * ((sampled.look == k) - share)
            scores.append(values.mean() / values.std() * np.sqrt(values.size))
        assert total > 0
        return np.max(np.abs(scores))

    assert largest_error(-1) < 4
    assert largest_error(0) > 8  # planted fault: the probability under the private data


def test_no_stopping_rule_gains_more_than_delta():
    """By dynamic programming with a maximum, on the boundary's times and between them."""
    delta, count, between = 1e-3, 30, 2
    clock = 0.08 * np.arange(1, count + 1)
    found = HockeyStickBoundary.design(1 / clock, np.ones(count), 1.0, delta)
    stated = np.asarray(found.epsilon(found.times), float)
    gain = oracle.best_gain(stated, np.diff(clock, prepend=0), oracle.hockey_stick)
    assert gain == pytest.approx(delta, rel=1e-3)
    finer = 0.04 * np.arange(1, between * count + 1)
    charged = np.asarray(found.epsilon(1.0000001 / finer), float)
    np.testing.assert_array_equal(charged, np.repeat(stated, between).astype(charged.dtype))
    steps = np.diff(finer, prepend=0)
    assert oracle.best_gain(charged, steps, oracle.hockey_stick) == pytest.approx(delta, rel=1e-3)
    # Planted faults: the epsilon of the look before, and one look fewer than delta pays for.
    before = np.concatenate([charged[:between], charged[:-between]])
    assert oracle.best_gain(before, steps, oracle.hockey_stick) > 1.3 * delta
    alone = np.array([oracle.one_look(x, delta) for x in np.sqrt(clock)])
    assert oracle.best_gain(alone, np.diff(clock, prepend=0), oracle.hockey_stick) > 2 * delta


def test_losses_exceed_epsilon_more_often_than_delta(designed):
    found = designed[0]
    assert found.notion == "hockey-stick"
    assert oracle.exceeded(found.times, found.epsilons, 1.0) > 20 * DELTA


def test_other_panels_agree(designed):
    found = designed[0]
    fine = price_barrier(1 / found.times, found.barrier)
    assert 0 <= fine.most - fine.gain < 1e-8 * DELTA
    for number in (28, 40):
        other = price_barrier(1 / found.times, found.barrier, number)
        assert other.gain == pytest.approx(fine.gain, rel=1e-10)
        np.testing.assert_allclose(other.epsilons, fine.epsilons, rtol=1e-12)


def test_charges_the_next_time(designed, dtype):
    found = designed[0]
    stated = np.asarray(found.epsilon(found.times), float)
    assert np.all(stated >= found.epsilons)
    np.testing.assert_allclose(stated, found.epsilons, rtol=1e-6)
    middles = np.append(1e9, np.sqrt(found.times[:-1] * found.times[1:]))
    inside = jax.jit(lambda found, time, level: (found.epsilon(time), found.time(level)))
    epsilons, times = inside(found, middles.astype(dtype), stated.astype(dtype))
    np.testing.assert_array_equal(epsilons, stated.astype(dtype))
    np.testing.assert_array_equal(times, found.times.astype(dtype))
    assert np.isnan(inside(found, 0.999 * found.times[-1], 1.0)[0])
    with pytest.raises(ValueError, match=r"time must be at least .*, the last time"):
        found.epsilon(0.999 * found.times[-1])
    with pytest.raises(ValueError, match=r"epsilon must be finite and at least .*, the least cost"):
        found.time(0.5 * stated[0])


def test_epsilon_does_not_rise_with_time():
    """Rounding could lower the epsilon of a time that is close to the time before."""
    times, weights = np.array([100.0, 99.9, 50.0]), np.array([1.0, 9.0, 1.0])
    found = HockeyStickBoundary.design(times, weights, 1.0, DELTA)
    assert np.all(np.diff(found.epsilons) >= 0)
    raw = price_barrier(1 / found.times, found.barrier).epsilons
    np.testing.assert_allclose(found.epsilons, raw, rtol=1e-7)


def test_times_of_float64_may_be_rounded_to_float32():
    """A run in float32 at a time just below the boundary's is charged the boundary's time."""
    with jax.enable_x64(True):
        time = 16 * (1 + 0.99 * 2.0**-24)
        found = HockeyStickBoundary.single(1.0, DELTA, time=time)
    used = float(np.float32(time))
    assert used < time
    assert found.epsilons[0] >= oracle.one_look(1 / np.sqrt(used), DELTA)
    exact = oracle.one_look(1 / np.sqrt(time), DELTA)  # planted fault: the cost of `time` itself
    assert exact < oracle.one_look(1 / np.sqrt(used), DELTA)


def test_designs_for_close_times_and_weights_far_apart():
    boundary = nrjax.HockeyStickBoundary.design([1.001, 1.0], [1.0, 1e-3], 0.03, 1e-6)
    exact = nrjax.HockeyStickBoundary.single(0.03, 1e-6, time=1.0)
    assert 1.0 < boundary.epsilons[-1] / exact.epsilons[0] < 1.05


def test_runs_on_adaptive_times(designed):
    found = designed[0]
    chosen = nrjax.AdaptiveTimes(found.times[0], lambda *_: 0.7 * _[1], found.times[-1], 30)
    trial = interaction(found.times, threshold=1e9, guarantee=found, schedule=chosen)
    outcome = nrjax.run_until(jax.random.key(0), trial)
    assert outcome.status == nrjax.Status.EXHAUSTED
    assert float(outcome.epsilon) == float(found.epsilon(found.times[-1]))


def test_a_mechanism_releases_at_its_times(designed):
    mechanism = nrjax.Mechanism(1.0, nrjax.Brownian(()), designed[0])
    trial = mechanism.until(lambda x: -abs(x - 1.0), at_least=-0.5)
    np.testing.assert_array_equal(trial.schedule.times, designed[0].times)


def test_refuses(designed):
    found = designed[0]
    times, epsilons, barrier = found.times, found.epsilons, found.barrier
    for changed, message in (
        ((1.0, DELTA, times, 0.999 * epsilons, barrier), "epsilons must be at least those"),
        ((1.0, DELTA, times, epsilons, 0.999 * barrier), "barrier must be one at which a rule"),
        ((1.01, DELTA, times, epsilons, barrier), "epsilons must|barrier must"),
        ((1.0, 0.99 * DELTA, times, epsilons, barrier), "barrier must be one at which"),
        ((1.0, DELTA, times, epsilons, 0.01 * barrier), "barrier must be at least"),
        ((1.0, DELTA, times, epsilons[1:], barrier), "epsilons must be of shape"),
        ((1.0, DELTA, times[::-1], epsilons, barrier), "times must be a vector of 1 to 200"),
    ):
        with pytest.raises(ValueError, match=message):
            HockeyStickBoundary(*changed)
    for changes, message in (
        ({"objective": "Log"}, "objective must be 'log' or 'mean'"),
        ({"weights": [1.0]}, "weights must be of shape"),
        ({"delta": 0.2}, "delta must be at least .* and at most 0.1"),
        ({"times": [1e20, 1.0]}, r"times must be such that D2/sqrt\(t\) is between"),
        ({"times": [2.0, 1e-3]}, r"times must be such that D2/sqrt\(t\) is between"),
        ({"sensitivity": nrjax.Sensitivity(1.0, "l1")}, "sensitivity must be an l2"),
    ):
        good: Any = {"times": [2.0, 1.0], "weights": [1.0, 1.0], "sensitivity": 1.0, "delta": DELTA}
        with pytest.raises(ValueError, match=message):
            HockeyStickBoundary.design(**(good | changes))
    for given in ({}, {"time": 1.0, "epsilon": 1.0}):
        with pytest.raises(ValueError, match=r"time must be given if"):
            HockeyStickBoundary.single(1.0, DELTA, **given)
