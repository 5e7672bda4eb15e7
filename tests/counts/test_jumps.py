"""Laplace releases of one count against the step-by-step engine.

Brownian releases are compared with an exact distribution in `test_first_passage.py`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.counts import RelativeError
from nrjax.counts.jumps import DiscreteLaplacePassage, LaplacePassage
from tests.counts.oracle import LEVELS, TRIALS, check_result, passages, same_step_p
from tests.marks import long_except
from tests.processes.laws import FAULTY, SOUND

SMALLEST, LARGEST = 1e-3, 0.25
NOISES = {
    "laplace": (nrjax.Laplace(()), LaplacePassage),
    "discrete": (nrjax.DiscreteLaplace(()), DiscreteLaplacePassage),
}
CASES = {  # noise, count, alpha
    "laplace, often": ("laplace", 90.0, 0.1),
    "laplace, half": ("laplace", 60.0, 0.1),
    "laplace, large alpha": ("laplace", 3.0, 0.9),
    "discrete, half": ("discrete", 60.0, 0.1),
    "discrete, large alpha": ("discrete", 3.0, 0.9),
}


@functools.cache
def engine(noise, count, alpha):
    process, times = NOISES[noise][0], jnp.asarray(np.linspace(SMALLEST, LARGEST, LEVELS) ** -0.5)
    trial = nrjax.Interaction(
        value=count,
        process=process,
        guarantee=None,
        schedule=nrjax.Grid(times),
        utility=RelativeError(alpha).utility(process, times),
        rule=nrjax.PublicThreshold(0.0),
    )
    return nrjax.simulate(jax.random.key(7), trial, trials=TRIALS)


def jumps(noise, count, alpha, kind=None):
    return passages(kind or NOISES[noise][1], count, alpha, SMALLEST, LARGEST)


def p_values(case, kind=None):
    """Return p-values of the stopping level, of accepted releases, and of others."""
    first, second = jumps(*CASES[case], kind), engine(*CASES[case])
    stopped = second.status == nrjax.Status.STOPPED
    steps = [np.where(first.accepted, first.step, LEVELS), np.where(stopped, second.step, LEVELS)]
    p = [same_step_p(*steps)]
    for mine, theirs in ((first.accepted, stopped), (~first.accepted, ~stopped)):
        if min(mine.sum(), theirs.sum()) > 50:
            sample = first.release[mine], second.release[theirs]
            p.append(stats.ks_2samp(*sample, method="asymp").pvalue)
    return np.array(p)


@pytest.mark.parametrize("case", long_except(CASES, "laplace, half", "discrete, large alpha"))
def test_it_has_the_distribution_of_the_engine(case):
    p = p_values(case)
    assert len(p) * min(p) > SOUND


@pytest.mark.parametrize("case", list(CASES)[1:])
def test_a_result_is_what_the_rule_says_of_it(case):
    times = np.linspace(SMALLEST, LARGEST, LEVELS) ** -0.5
    deviations = NOISES[CASES[case][0]][0].deviation(times)
    check_result(jumps(*CASES[case]), RelativeError(CASES[case][2]), times, deviations)


def test_laplace_noise_takes_few_draws():
    """About `2 log(T/t)` jumps, whatever the number of levels."""
    jumps_expected = 2 * np.log(np.sqrt(LARGEST / SMALLEST))
    assert jumps(*CASES["laplace, half"]).draws.mean() < jumps_expected + 3


class Far(LaplacePassage):
    """A planted fault: jumps are too long by half."""

    def move(self, state, count, draw):
        moved, ended, accepted = super().move(state, count, draw)
        jump = jnp.where((state.level >= 0) & ~ended, moved.noise - state.noise, 0)
        return moved._replace(noise=moved.noise + jump / 2), ended, accepted


class Inwards(LaplacePassage):
    """A planted fault: between two jumps the noise shrinks with the time."""

    def move(self, state, count, draw):
        shrunk = state._replace(noise=0.9 * state.noise)
        return super().move(shrunk, count, draw)


class Near(DiscreteLaplacePassage):
    """A planted fault: outward jumps are too short by 1."""

    def _target(self, size, jump, where):
        target = super()._target(size, jump, where)
        return target - jnp.where(target > size, 1, jnp.where(target < 0, -1, 0))


@pytest.mark.parametrize("kind", [Far, Inwards, Near])
def test_planted_faults_are_found(kind):
    case = "discrete, large alpha" if kind is Near else "laplace, half"
    assert min(p_values(case, kind)) < FAULTY
