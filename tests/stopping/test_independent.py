"""Laplace tests, each with separate noise and cost, and the doubling method."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import nrjax
from nrjax._base.outcome import Status
from tests.problems import Distance, doubling
from tests.stopping.oracle import survival

pytestmark = pytest.mark.numerical

KEY = jax.random.key(13)
SENSITIVITY, EPSILON, THRESHOLD = 0.5, 0.5, -0.5
STEPS = 8
TIMES = 4.0 / 2.0 ** (np.arange(STEPS) / 2)
TRIALS = 100_000
DEVIATIONS = 4.0  # for 9 counts: a correct sampler passes with probability 99.94 % per key
RULE = nrjax.LaplaceTests(THRESHOLD, SENSITIVITY, EPSILON)


def trial(times=TIMES, **changes):
    """Return the doubling method on one number, with minus the distance as utility."""
    return nrjax.Interaction(**doubling(times, **({"rule": RULE} | changes)))


def exact_law():
    """Return P(stop at each step) and P(no stop), by integration over the size of the noise."""
    scale = SENSITIVITY / EPSILON

    def says_yes(time):
        def density(size):
            return survival((THRESHOLD + size) / scale) * np.exp(-size / time) / time

        kink, end = -THRESHOLD, 60 * time
        parts = [(0, kink), (kink, kink + 30 * scale), (kink + 30 * scale, end + 30 * scale)]
        return sum(integrate.quad(density, *ends, epsabs=1e-13)[0] for ends in parts)

    yes = np.array([says_yes(time) for time in TIMES])
    before = np.concatenate([[1.0], np.cumprod(1 - yes)])
    return np.append(before[:-1] * yes, before[-1])


def simulate(**changes):
    batching = nrjax.Batching(devices=jax.devices()[:1])
    return nrjax.simulate(KEY, trial(**changes), trials=TRIALS, batching=batching)


def deviation(outcome):
    """Return the largest deviation of step counts from the exact law, in standard errors."""
    steps = np.where(outcome.status == Status.STOPPED, outcome.step, STEPS)
    seen, law = np.bincount(steps, minlength=STEPS + 1), exact_law()
    assert TRIALS * law.min() > 50
    return np.max(np.abs(seen - TRIALS * law) / np.sqrt(TRIALS * law * (1 - law)))


def _scaled(self, key, state, time):
    value = state.value * (time / state.time)
    return state._replace(value=value, time=time, spent=state.spent + 1 / time)


def _draws_once(self, key, epsilon):
    return jnp.int32(0), key


def _uses_first(self, key, state, epsilon, utility):
    step, first = state
    step, stop = nrjax.LaplaceTests.step(self, first, step, epsilon, utility)
    return (step, first), stop


ONCE = {"init": _draws_once, "step": _uses_first, "status": lambda self, state: 1 * 0}
REUSED = type("Reused", (nrjax.IndependentLaplace,), {"rewind": _scaled})(())
FAULTS = {
    "noise reused between steps": {"process": REUSED},
    "releases' noise 1.2 times as wide": {"times": 1.2 * TIMES},
    "threshold noise drawn once": {
        "rule": type("Once", (nrjax.LaplaceTests,), ONCE)(THRESHOLD, SENSITIVITY, EPSILON)
    },
    "tests' noise 1.2 times as wide": {
        "rule": nrjax.LaplaceTests(THRESHOLD, 1.2 * SENSITIVITY, EPSILON)
    },
}


@pytest.mark.long
def test_the_stopping_step_has_the_exact_law_and_each_answer_is_charged():
    outcome = simulate()
    assert deviation(outcome) < DEVIATIONS
    assert {Status.STOPPED, Status.EXHAUSTED} == set(np.unique(outcome.status))
    answers, paid = outcome.step + 1, np.cumsum(1 / TIMES)[outcome.step]
    np.testing.assert_allclose(outcome.test_epsilon, answers * EPSILON, rtol=1e-6)
    np.testing.assert_allclose(outcome.mechanism_epsilon, paid, rtol=1e-5)
    np.testing.assert_array_equal(outcome.epsilon, outcome.mechanism_epsilon + outcome.test_epsilon)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    assert deviation(simulate(**FAULTS[fault])) > 2 * DEVIATIONS


def test_no_log_ratio_exceeds_the_cost_and_some_reach_it():
    """Answers are independent given the queries, so that their log-ratios add up."""

    def largest_ratio(answers, scale=SENSITIVITY / EPSILON):
        """Return the largest log-ratio of a number of answers between neighbours."""
        gaps = np.array([-9.0, -0.4, 0.0, 0.1, 9.0])
        moved = gaps + SENSITIVITY * np.array([[-1.0], [1.0]])
        ratios = [
            survival(sign * moved / scale) / survival(sign * gaps / scale) for sign in (-1, 1)
        ]
        return answers * np.max(np.abs(np.log(ratios)))

    answers = np.arange(1, 5)
    stated = np.asarray(RULE.cost(jnp.zeros(4), True, answers), float)
    assert np.all(largest_ratio(answers) <= stated * (1 + 1e-12))
    assert np.all(largest_ratio(answers) > 0.9999 * stated)
    # Planted faults: a cost of the last answer only, and less noise.
    assert np.all(largest_ratio(answers)[1:] > 1.9 * EPSILON)
    assert np.all(largest_ratio(answers, SENSITIVITY / EPSILON / 1.2) > 1.1 * stated)


def test_cost_is_rounded_up(dtype):
    """Costs are at least the exact products of answers and epsilon."""
    answers = np.array([0, 1, 2, 3, 7, 1000, 2**24 + 1, 2**31 - 1], np.int32)
    for epsilon in (0.1, 1 / 3, 1.0):
        rule = nrjax.LaplaceTests(0.0, 1.0, epsilon)
        found = np.asarray(rule.cost(jnp.zeros(answers.size, dtype), False, answers))
        assert found.dtype == dtype
        assert found[0] == 0
        for count, cost in zip(answers.tolist()[1:], found[1:], strict=True):
            exact = count * Fraction(float(np.asarray(epsilon, dtype)))
            assert 0 < Fraction(float(cost)) / exact - 1 < 6 * float(jnp.finfo(dtype).eps)


@pytest.mark.parametrize(("first", "epsilon"), [(2.0**-6, 0.3), (0.013, 1e-5), (0.013, 50.0)])
def test_the_doubling_method_has_its_closed_form(first, epsilon, dtype):
    """The total is `(2^k - 1) eps_1 + k eps_test` (Ligett 2017, Theorem A.2), rounded up."""
    steps = 30
    times = np.asarray(1 / (first * 2.0 ** np.arange(steps)), dtype)
    rule = nrjax.LaplaceTests(-np.inf, SENSITIVITY, epsilon)
    path = nrjax.scan_path(KEY, trial(times, rule=rule))
    np.testing.assert_array_equal(path.status, np.full(steps, Status.STOPPED))
    # Of the numbers as they are in this dtype.
    exact_first, exact_test = 1 / Fraction(float(times[0])), Fraction(float(dtype.type(epsilon)))
    for k in range(1, steps + 1):
        closed = (2**k - 1) * exact_first + k * exact_test
        excess = Fraction(float(path.epsilon[k - 1])) / closed - 1
        assert 0 <= excess < 20 * Fraction(float(jnp.finfo(dtype).eps))
        np.testing.assert_allclose(
            path.epsilon[k - 1], (2.0**k - 1) * first + k * epsilon, rtol=1e-5
        )


@jax.jit
def _run(process, times, threshold, broken, max_steps):
    """Run a trial under a trace, where times are not checked, in one shared program."""
    rule = nrjax.LaplaceTests(threshold, SENSITIVITY, EPSILON)
    changes = {"process": process, "utility": Distance(0.0, broken), "rule": rule}
    return nrjax.run_until(KEY, trial(times, **changes, max_steps=max_steps))


class FailsAt(nrjax.IndependentLaplace):
    """A process that fails once its time is below 1."""

    def status(self, state):
        return jnp.where(state.time < 1, Status.INVALID_TIME, Status.RUNNING).astype(jnp.int32)


FRESH, FAILS, NEVER = nrjax.IndependentLaplace(()), FailsAt(()), np.inf


def ends(times, process=FRESH, threshold=NEVER, broken=1e9, max_steps=4):
    """Return the outcome of a trial of at most four releases, repeating the last time."""
    times = jnp.asarray([*times, *times[-1:] * (4 - len(times))], float)
    return _run(process, times, threshold, broken, max_steps)


ENDS = {
    "end of the schedule": ([4, 2, 1, 1], {}, Status.EXHAUSTED, 4),
    "max_steps": ([4, 2, 1], {"max_steps": 2}, Status.EXHAUSTED, 2),
    "a time that rises": ([4, 2, 3], {}, Status.INVALID_TIME, 2),
    "an infinite time": ([4, NEVER, 1], {}, Status.NO_TIME, 1),
    "no first time": ([NEVER, 2, 1], {}, Status.NO_TIME, 0),
    "a bad first time": ([-1, 2, 1], {}, Status.INVALID_TIME, 0),
    "the process fails": ([4, 2, 0.5], {"process": FAILS}, Status.INVALID_TIME, 2),
    "and at its start": ([0.5, 0.2], {"process": FAILS}, Status.INVALID_TIME, 0),
    "a yes at once": ([4, 2, 1], {"threshold": -NEVER}, Status.STOPPED, 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_however_a_trial_ends_its_answers_are_charged(end):
    """All answers are charged, also if the next release failed."""
    times, options, status, answers = ENDS[end]
    outcome = ends(times, **options)
    assert (outcome.status, outcome.step) == (status, answers - 1)
    np.testing.assert_allclose(outcome.test_epsilon, answers * EPSILON, rtol=1e-6)
    if not answers:
        assert np.isnan(outcome.epsilon)
        return
    paid = np.sum(1 / np.asarray(times[:answers], float))
    np.testing.assert_allclose(outcome.mechanism_epsilon, paid, rtol=1e-5)
    np.testing.assert_allclose(outcome.epsilon, paid + answers * EPSILON, rtol=1e-5)


def test_what_has_no_price_is_infinite(dtype):
    """A NaN utility and noise beyond the dtype have an infinite cost."""
    outcome = ends([4, 2, 1], broken=-1e9)
    assert (outcome.status, outcome.step, outcome.epsilon) == (Status.NAN_UTILITY, 0, np.inf)
    outcome = ends([1.0, 1.5 * float(jnp.finfo(dtype).tiny)])
    assert (outcome.status, outcome.step, outcome.epsilon) == (Status.OVERFLOW, 0, np.inf)
    np.testing.assert_allclose(outcome.test_epsilon, EPSILON, rtol=1e-6)
