"""Programs stay small, since a first result waits for their compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.simulation import montecarlo
from nrjax.simulation.program import _on_devices
from tests.problems import small_logistic

COUNTS = np.array([930, 420, 2100, 75, 1400, 310])


def scalar():
    def score(release):
        return -jnp.abs(release - 10.0)

    return nrjax.brownian(10.0, sensitivity=1.0, delta=1e-6).until(score, at_least=-0.5)


def counts():
    def score(release):
        return -jnp.max(jnp.abs(release - COUNTS) / COUNTS)

    return nrjax.discrete_laplace(COUNTS, sensitivity=2).until(score, at_least=-0.05)


def logistic():
    problem = small_logistic(0.05)
    return problem.brownian(delta=1e-6).until(at_least=-1.03 * problem.optimum_loss)


# Measured with JAX 0.10 on 2026-11-28. If a program grows by a tenth, find out what for.
@pytest.mark.parametrize(("trial", "most"), [(scalar, 3200), (counts, 3361), (logistic, 4350)])
def test_a_program_has_no_more_instructions_than_before(trial, most):
    device = jax.devices()[:1]
    batching = nrjax.Batching(devices=device)
    program = montecarlo.outcomes(trial(), 10_000, batching=batching)
    text = program._idle(jax.random.key(0), _on_devices.lower).as_text()
    instructions = sum(" = " in line for line in text.splitlines())
    assert instructions <= 1.1 * most, f"{instructions} instructions, {most} before"
    # A measured number that is far too high would hide growth.
    assert instructions >= 0.8 * most
