"""Custom trials that report NaN or infinite numbers hide no violation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.auditing.tilted import Reported
from tests.auditing.cases import Loss, Shown, flat

pytestmark = pytest.mark.numerical


class Stated(nrjax.Pytree):
    """A custom trial that reports the given loss and epsilon."""

    loss: Any
    epsilon: Any

    def run(self, key):
        return Loss(self.loss, self.epsilon)


def ended(loss, epsilon):
    return Reported(Stated(loss, epsilon)).run(jax.random.key(0))


class Sometimes(nrjax.Pytree):
    """A custom trial with a loss of 5 at a stated epsilon of 1, and often a loss of NaN."""

    large: Any = 0.01
    missing: Any = 0.1

    def run(self, key):
        large, missing = jax.random.uniform(key, (2,)) < jnp.asarray([self.large, self.missing])
        loss = jnp.where(large, 5.0, jnp.where(missing, jnp.nan, 0.0))
        return Loss(loss, jnp.float32(1.0))


def test_a_loss_of_nan_hides_no_violation():
    audit = nrjax.audit(Sometimes(), delta=0.0)
    assert (audit.verdict, audit.reason) == ("violated", "loss")
    assert audit.worst.excess == pytest.approx(4.0, abs=1e-3)
    assert "trials failed, reported NaN, or stated" in flat(audit)


@pytest.mark.parametrize(
    ("loss", "epsilon", "excess", "known"),
    [
        (np.nan, 1.0, -np.inf, -np.inf),
        (np.inf, np.inf, -np.inf, np.inf),
        (np.inf, 1.0, np.inf, np.inf),
        (5.0, np.nan, -np.inf, 5.0),
        (5.0, 1.0, 4.0, 5.0),
    ],
)
def test_numbers_that_are_not_finite_are_told_apart(loss, epsilon, excess, known):
    result = ended(jnp.float32(loss), jnp.float32(epsilon))
    assert float(result.excess) == pytest.approx(excess, abs=1e-3)
    assert float(result.loss) == pytest.approx(known, abs=1e-3)


def test_integers_are_losses_and_epsilons():
    result = ended(jnp.int32(5), jnp.int32(1))
    assert (float(result.excess), float(result.loss)) == pytest.approx((4.0, 5.0), abs=1e-3)


class Answer(nrjax.Pytree):
    """A custom trial whose transcript is always 0, at the given epsilon."""

    epsilon: Any

    def run(self, key):
        return Shown(jnp.zeros(1), self.epsilon)


def test_stated_epsilons_of_nan_are_counted():
    trials = [Answer(jnp.float32(epsilon)) for epsilon in (np.nan, 1.0)]
    assert "100 stated epsilons are NaN" in str(nrjax.audit(*trials, delta=0.0, trials=100))
    assert "NaN" not in str(nrjax.audit(trials[1], trials[1], delta=0.0, trials=100))
