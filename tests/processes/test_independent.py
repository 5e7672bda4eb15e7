"""Independent Laplace releases: their law, and their total cost."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from tests.problems import doubling
from tests.processes.laws import FAULTY, SOUND, draw_paths, uniform_p

pytestmark = pytest.mark.numerical

KEY = jax.random.key(11)
TIMES = (5.0, 2.0, 1.5, 1.5)
TRIALS = 50_000
PROCESS = nrjax.IndependentLaplace((2,))
LEVELS = 30


@pytest.mark.long
def test_releases_are_independent_and_have_the_laplace_law():
    def law_p(process, width=1.0):
        noise = draw_paths(process, TIMES, TRIALS, seed=1)[0] / np.array(TIMES)[:, None]
        return uniform_p(stats.laplace.cdf(noise / width).reshape(TRIALS, -1))

    assert law_p(PROCESS) > SOUND
    assert law_p(PROCESS, width=1.2) < FAULTY
    assert law_p(nrjax.Laplace((2,))) < FAULTY


def trial(times, sensitivity=1.0, **changes):
    """Return an interaction that stops at once (a path continues)."""
    changes = {"threshold": -1e9, "guarantee": nrjax.PureGuarantee(sensitivity)} | changes
    return nrjax.Interaction(**doubling(times, **changes))


def exact_costs(times, sensitivity, dtype):
    """Return `sum D1/t` up to each time, exactly, for the numbers cast to `dtype`."""
    numbers = [Fraction(float(time)) for time in np.asarray(times, dtype)]
    own = Fraction(float(np.asarray(sensitivity, dtype)))
    return list(itertools.accumulate(own / number for number in numbers))


def excesses(stated, exact, dtype):
    """Return the excess of each cost over the exact one, in machine epsilons."""
    eps = Fraction(float(jnp.finfo(dtype).eps))
    pairs = zip(np.asarray(stated), exact, strict=True)
    return [float((Fraction(float(one)) / other - 1) / eps) for one, other in pairs]


GRIDS = {
    "doubling, exact in binary": (2.0 ** (4.0 - np.arange(LEVELS)), 0.75),
    "doubling": (1 / (0.013 * 2.0 ** np.arange(LEVELS)), 0.7),
    "equal": (np.full(LEVELS, 0.3), 1.1),
    "falling faster": (1.7 * 9.0 ** -np.arange(LEVELS), 1.3),
}


@pytest.mark.parametrize("name", GRIDS)
def test_all_releases_are_paid_for_to_a_few_units_from_above(name, dtype):
    times, sensitivity = GRIDS[name]
    path = nrjax.scan_path(KEY, trial(times, sensitivity))
    assert path.mechanism_epsilon.dtype == dtype
    exact = exact_costs(times, sensitivity, dtype)
    found = excesses(path.mechanism_epsilon, exact, dtype)
    assert min(found) >= 0
    # For equal releases each step may round the sum up by one unit, half of one on average.
    assert max(found) <= (40 if name == "equal" else 20)
    # The cost of only the last release would be smaller, by a half on a doubling grid.
    alone = np.asarray(nrjax.PureGuarantee(sensitivity).epsilon(np.asarray(times, dtype)))
    assert min(excesses(alone[1:], exact[1:], dtype)) < -0.01 / float(jnp.finfo(dtype).eps)


def test_the_engine_asks_for_all_releases_everywhere(dtype):
    """The rule receives at each step the epsilon that the outcome states."""

    class Asks(nrjax.PublicThreshold):
        """A rule that stops at an epsilon of 3, and charges the last epsilon it received."""

        def init(self, key, epsilon):
            return epsilon

        def step(self, key, state, epsilon, utility):
            return epsilon, epsilon >= self.threshold

        def cost(self, epsilon, stopped=True, answers=1):
            return epsilon

    rule = Asks(3.0)
    outcome = nrjax.run_until(KEY, trial(np.full(8, 2.0), rule=rule))
    assert (outcome.step, outcome.status) == (5, Status.STOPPED)  # 0.5 a release
    assert outcome.test_epsilon == outcome.mechanism_epsilon
    state = nrjax.engine.steps.start(trial(np.full(8, 2.0), rule=rule), KEY)
    np.testing.assert_allclose(state.rule, 0.5, rtol=1e-5)
    np.testing.assert_array_less(np.asarray(0.5, dtype), state.rule)


def test_costs_beyond_the_dtype_are_not_free(dtype):
    limits = jnp.finfo(dtype)
    process = nrjax.IndependentLaplace(())
    advance = jax.jit(process.rewind)
    state = jax.jit(process.init)(KEY, jnp.asarray(float(limits.max), dtype))
    assert process.status(state) == Status.OVERFLOW
    assert float(limits.tiny) <= state.spent < 2 * float(limits.tiny)
    low = advance(KEY, state, jnp.asarray(process.smallest_time(dtype), dtype))
    assert process.status(low) == Status.RUNNING
    assert np.isfinite(nrjax.PureGuarantee(0.1).epsilon(process.equivalent_time(low, low.time)))
    for _ in range(4):
        low = advance(KEY, low, jnp.asarray(float(limits.tiny), dtype))
    assert process.status(low) == Status.OVERFLOW
