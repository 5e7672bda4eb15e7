"""Trials with one step have their own program, with the bits of the program for all trials."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.simulation import lanes, montecarlo, once
from tests.problems import Ceiled, interaction
from tests.simulation.test_montecarlo import logistic_parts

BATCHING = montecarlo.Batching(tile=4, lanes=16, devices=jax.devices()[:1])
KEY = jax.random.key(5)


class Failing(nrjax.Brownian):
    """Noise that always overflows."""

    def status(self, state):
        return jnp.int32(nrjax.Status.OVERFLOW)


def learned(times):
    """Return logistic regression, which bounds decide if there are several steps."""
    parts: dict[str, Any] = logistic_parts() | {"schedule": nrjax.Grid.explicit(times)}
    return nrjax.Interaction(**parts)


TRIALS = {
    "number": lambda: interaction(times=[0.25]),
    "bounds": lambda: interaction(times=[0.25], utility=Ceiled(3.0)),
    "rows": lambda: learned([0.25]),
    "fails at once": lambda: interaction(times=[0.25], process=Failing(())),
}


def refilled(program):
    """Return the program for trials of several steps."""
    return dataclasses.replace(
        program, work=lanes.run, options=program.options._replace(inner_steps=8)
    )


@pytest.mark.parametrize("name", TRIALS)
def test_outcomes_are_those_of_lanes_that_are_refilled(name):
    program = montecarlo.outcomes(TRIALS[name](), 64, batching=BATCHING)
    assert program.work is once.run
    actual, expected = (each.run(KEY, 51, 3) for each in (program, refilled(program)))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    if name == "fails at once":
        assert set(actual["status"]) == {nrjax.Status.OVERFLOW}
    else:
        assert np.unique(actual["release"]).size > 1


def test_points_of_a_sweep_too():
    points = [interaction(times=[0.25], threshold=level) for level in (-0.5, -0.1, -2.0)]
    swept = nrjax.sweep(KEY, points, trials=37, batching=BATCHING)
    for row, point in enumerate(points):
        alone = nrjax.simulate(KEY, point, trials=37, batching=BATCHING)
        np.testing.assert_array_equal(swept.status[row], alone.status)
    assert len(set(swept.status.ravel().tolist())) == 2


def test_several_steps_or_spared_rows_use_lanes():
    def work(trial, *fields):
        return montecarlo.outcomes(trial, 64, fields or ("utility",)).work

    assert work(interaction(times=[0.25, 0.1])) is lanes.run
    assert work(learned([0.25]), "step", "epsilon") is lanes.run
    assert work(learned([0.25]), "step", "utility") is once.run
