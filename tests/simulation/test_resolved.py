"""Whole paths whose utility is the middle of its bounds where these are close together."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.threefry import unrolled_key
from nrjax.erm.logistic import LogisticUtility
from nrjax.simulation import montecarlo
from nrjax.simulation.resolved import Resolved
from tests.problems import logistic_parts, small_data
from tests.simulation.small import KEY, ONE

pytestmark = pytest.mark.bits

RESOLUTION = 2e-4
TRIALS = 70
SMALL = nrjax.Batching(tile=4, lanes=16, devices=ONE)


class Planted(LogisticUtility):
    """A utility whose bounds are `off`, and may be inverted."""

    off: Any = 0.0
    inverted: Any = False

    def bounds(self, hypothesis, *, rounding=True):
        low, high = super().bounds(hypothesis, rounding=rounding)
        bounds = jnp.stack([low, high]) + self.off
        return tuple(jnp.where(self.inverted, bounds[::-1], bounds))


def trial(**faults):
    made = nrjax.Interaction(**logistic_parts())
    fields = {
        field.name: getattr(made.utility, field.name) for field in dataclasses.fields(made.utility)
    }
    return dataclasses.replace(made, utility=Planted(**fields, **faults))


def paths(resolution=RESOLUTION, trials=TRIALS, first=0, batching=SMALL, **faults):
    made = Resolved(trial(**faults), resolution)
    program = montecarlo.paths(made, trials, ("utility", "hypothesis"), batching)
    return program.run(KEY, trials, first)


def true_utility(hypotheses):
    """Return minus the regularised logistic loss in float64, by NumPy."""
    x, y = small_data()
    theta = np.asarray(hypotheses, np.float64)
    margins = theta @ (x * y[:, None]).T
    return -(np.logaddexp(0, -margins).mean(-1) + 0.025 * (theta**2).sum(-1))


def widths(hypotheses):
    bounds = jax.vmap(jax.vmap(partial(trial().utility.bounds, rounding=False)))
    low, high = jax.jit(bounds)(hypotheses)
    return np.asarray(high - low)


@pytest.fixture(scope="module")
def found():
    return paths()


def test_utilities_are_known_to_half_the_resolution(found):
    error = np.abs(found["utility"] - true_utility(found["hypothesis"]))
    close = widths(found["hypothesis"]) <= RESOLUTION
    assert 0.2 < close.mean() < 0.9  # both cases occur
    assert error[close].max() < RESOLUTION / 2
    assert error[~close].max() < 1e-6  # evaluated
    # Negative controls: bounds that do not hold, and a coarser resolution.
    wrong = paths(off=RESOLUTION)
    assert np.abs(wrong["utility"] - true_utility(wrong["hypothesis"])).max() > RESOLUTION / 2
    coarse = paths(resolution=1e3)
    assert np.abs(coarse["utility"] - true_utility(coarse["hypothesis"])).max() > RESOLUTION / 2


def test_utilities_that_bounds_do_not_resolve_are_evaluated():
    plain = montecarlo.paths(trial(), TRIALS, ("utility",), SMALL).run(KEY, TRIALS)
    for evaluated in (paths(resolution=1e-30), paths(inverted=True)):
        np.testing.assert_array_equal(evaluated["utility"], plain["utility"])


@pytest.mark.long
def test_paths_do_not_depend_on_how_they_are_batched(found):
    for lanes in (4, 48):
        odd = paths(trials=29, first=41, batching=nrjax.Batching(tile=4, lanes=lanes))
        np.testing.assert_array_equal(odd["utility"], found["utility"][41:])
    few = paths(trials=2, first=41)
    np.testing.assert_array_equal(few["utility"], found["utility"][41:43])
    path = jax.jit(Resolved(trial(), RESOLUTION).path, static_argnums=1)
    for number in (0, TRIALS - 1):
        one = path(nrjax.trial_key(unrolled_key(KEY), number), found["utility"].shape[1])
        np.testing.assert_allclose(one.utility, found["utility"][number], atol=1e-6)
