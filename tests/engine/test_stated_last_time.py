"""A custom schedule that goes below the last time that it states: its trials fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import Status

pytestmark = pytest.mark.numerical

KEY = jax.random.key(0)


class Halving(nrjax.Schedule):
    """Times from 100 on, each half of the one before, which state any last time."""

    stated: float
    max_steps: int = nrjax.static(default=8)

    @property
    def last_time(self):
        return self.stated

    def init(self):
        return jnp.asarray(100.0, jnp.result_type(float)), jnp.asarray(100.0)

    def next(self, state, release):
        return state / 2, state / 2, state < 100.0 / 2**6


def never(release):
    return -jnp.abs(release)


def trial(schedule):
    mechanism = nrjax.brownian(0.0, 1.0, 1e-6, tight_at_epsilon=0.3)
    return mechanism.until(never, rule=nrjax.PublicThreshold(np.inf), levels=schedule)


def wrapped(schedule):
    own = nrjax.UnifiedFilter(20.0, 1e-6)
    kind = nrjax.composition.BrownianReduction
    return nrjax.composition.FilteredSchedule(schedule, own, own.init(), kind, 1.0)


@pytest.mark.parametrize("make", [lambda schedule: schedule, wrapped], ids=["plain", "wrapped"])
def test_a_trial_that_goes_below_the_stated_last_time_fails(make, dtype):
    last, rounded = 100.0 / 2**7, 1 + 8 * float(np.finfo(dtype).eps)
    for stated, steps in ((last, 7), (last * rounded, 7), (20.0, 2), (1000.0, -1)):
        interaction = trial(make(Halving(stated)))
        status = Status.EXHAUSTED if steps == 7 else Status.INVALID_TIME
        outcome = nrjax.run_until(KEY, interaction)
        assert (int(outcome.step), Status(int(outcome.status))) == (steps, status)
        path = nrjax.scan_path(KEY, interaction)
        assert int(path.status[-1]) == status
        if steps >= 0:
            assert float(outcome.time) >= stated * (1 - 1e-6)


def test_simulated_trials_and_audits_fail_too():
    interaction = trial(Halving(20.0))
    with pytest.warns(nrjax.FailedTrialsWarning):
        outcome = nrjax.simulate(KEY, interaction, trials=3)
    assert np.all(np.asarray(outcome.status) == Status.INVALID_TIME)
    assert np.all(np.asarray(outcome.time) >= 20.0)
    # The weights of an audit are bounded for the times down to the stated one.
    assert "of 256 trials failed" in nrjax.audit(interaction, trials=256).remark
    assert "failed" not in nrjax.audit(trial(Halving(100.0 / 2**7)), trials=256).remark
