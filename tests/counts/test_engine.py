"""Laplace releases of one count against the step-by-step engine: same stopping level and release.

Brownian ones have an exact law, in test_first_passage.py; releases of both are in test_release.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.counts import RelativeError
from nrjax.counts.first_passage import LaplacePassage
from tests.counts.oracle import LEVELS, TRIALS, check_result, passages, same_step_p
from tests.processes.laws import FAULTY, SOUND

SMALLEST, LARGEST = 1e-3, 0.25
CASES = {"often": (90.0, 0.1), "half": (60.0, 0.1), "large alpha": (3.0, 0.9)}
"""Count and alpha."""


@functools.cache
def engine(count, alpha):
    process, times = nrjax.Laplace(()), jnp.asarray(np.linspace(SMALLEST, LARGEST, LEVELS) ** -0.5)
    trial = nrjax.Interaction(
        value=count,
        process=process,
        guarantee=None,
        schedule=nrjax.Grid(times),
        utility=RelativeError(alpha).utility(process, times),
        rule=nrjax.PublicThreshold(0.0),
    )
    return nrjax.simulate(jax.random.key(7), trial, trials=TRIALS)


def jumps(count, alpha, kind=LaplacePassage):
    return passages(kind, count, alpha, SMALLEST, LARGEST)


def p_values(case, kind=LaplacePassage):
    """Of the stopping level, of the accepted release, and of that which was not accepted."""
    first, second = jumps(*CASES[case], kind), engine(*CASES[case])
    stopped = second.status == nrjax.Status.STOPPED
    steps = [np.where(first.accepted, first.step, LEVELS), np.where(stopped, second.step, LEVELS)]
    p = [same_step_p(*steps)]
    for mine, theirs in ((first.accepted, stopped), (~first.accepted, ~stopped)):
        if min(mine.sum(), theirs.sum()) > 50:
            sample = first.release[mine], second.release[theirs]
            p.append(stats.ks_2samp(*sample, method="asymp").pvalue)
    return np.array(p)


@pytest.mark.parametrize("case", CASES)
def test_it_has_the_law_of_the_engine(case):
    assert len(p_values(case)) * min(p_values(case)) > SOUND


@pytest.mark.parametrize("case", ["half", "large alpha"])
def test_a_result_is_what_the_rule_says_of_it(case):
    times = np.linspace(SMALLEST, LARGEST, LEVELS) ** -0.5
    check_result(jumps(*CASES[case]), RelativeError(CASES[case][1]), times, np.sqrt(2) * times)


def test_laplace_noise_takes_few_draws():
    """About `2 log(T/t)` jumps, whatever the number of levels."""
    jumps_expected = 2 * np.log(np.sqrt(LARGEST / SMALLEST))
    assert jumps(*CASES["half"]).draws.mean() < jumps_expected + 3


class Far(LaplacePassage):
    """Fault: jumps are half as long again as they should be."""

    def move(self, state, count, draw):
        moved, ended, accepted = super().move(state, count, draw)
        jump = jnp.where(state.begun & ~ended, moved.noise - state.noise, 0)
        return moved._replace(noise=moved.noise + jump / 2), ended, accepted


class Inwards(LaplacePassage):
    """Fault: between two jumps the noise shrinks with the time."""

    def move(self, state, count, draw):
        shrunk = state._replace(noise=0.9 * state.noise)
        return super().move(shrunk, count, draw)


@pytest.mark.parametrize("kind", [Far, Inwards])
def test_planted_faults_are_found(kind):
    assert min(p_values("half", kind)) < FAULTY
