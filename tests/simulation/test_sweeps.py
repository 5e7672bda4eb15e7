"""Sweeps: every point is the study of its own, on the same random numbers, in one program."""

import jax
import numpy as np
import pytest

import nrjax
from nrjax.simulation.sweeps import Family
from nrjax.simulation.program import _on_devices
from tests.problems import scalar, small_logistic

KEY = jax.random.key(5)
TRIALS = 150
BATCHING = nrjax.Batching(tile=16, lanes=32, devices=jax.devices()[:1])
POINTS = [(tight_at, target) for tight_at in (0.5, 1.5) for target in (1.02, 1.05, 1.3)]


def parts(tight_at, target, sensitivity=1.0):
    """Arguments of `simulate`; the sensitivity is in units of the problem's."""
    problem = small_logistic()
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(
        tight_at, sensitivity * problem.l2_sensitivity, 1e-6
    )
    return {
        "value": problem.optimum,
        "process": nrjax.Brownian((problem.dimension,)),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.8, 30.0, 60),
        "utility": problem.utility,
        "rule": nrjax.PublicThreshold(-target * problem.optimum_loss),
    }


def interactions(points=POINTS):
    return [nrjax.Interaction(**parts(*point)) for point in points]


@pytest.fixture(scope="module")
def swept():
    return nrjax.sweep(KEY, interactions(), trials=TRIALS, batching=BATCHING)


def test_every_point_is_the_study_of_its_own(swept):
    assert swept.step.shape == (len(POINTS), TRIALS)
    assert len(np.unique(swept.step.mean(axis=1))) == len(POINTS)
    for number, point in enumerate(POINTS):
        alone = nrjax.simulate(
            KEY, nrjax.Interaction(**parts(*point)), trials=TRIALS, batching=BATCHING
        )
        for name, ours, own in zip(alone._fields, swept, alone, strict=True):
            # The two are compiled apart, and may round otherwise.
            rtol = 0 if name in ("step", "status") else 1e-6
            np.testing.assert_allclose(ours[number], own, rtol=rtol, atol=1e-7, err_msg=name)


def test_batching_changes_no_bit(swept):
    odd = nrjax.Batching(tile=16, lanes=48, chunk=47, inner_steps=3, devices=jax.devices()[:3])
    other = nrjax.sweep(KEY, interactions(), trials=TRIALS, batching=odd)
    for name, one, two in zip(swept._fields, swept, other, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=name, strict=True)


def test_other_numbers_and_other_trials_do_not_compile(swept):
    before = _on_devices._cache_size()
    points = [(0.7, 1.03, 2.0), (0.7, 1.04, 2.0), (0.9, 1.1, 3.0)] * 2
    other = nrjax.sweep(KEY, interactions(points), trials=140, first_trial=9, batching=BATCHING)
    assert _on_devices._cache_size() == before
    np.testing.assert_array_equal(other.step[0], other.step[3])
    assert other.epsilon.mean() != swept.epsilon.mean()


def correlation(one, two):
    return np.corrcoef(np.log(one), np.log(two))[0, 1]


def test_points_share_their_noise(swept):
    # Another level of tightness, and another target; by chance it would be within four errors of 0.
    assert correlation(swept.epsilon[1], swept.epsilon[4]) > 4 / np.sqrt(TRIALS)
    assert correlation(swept.epsilon[0], swept.epsilon[1]) > 4 / np.sqrt(TRIALS)


def test_planted_noise_of_its_own_is_seen(swept):
    other = nrjax.sweep(jax.random.key(6), interactions(), trials=TRIALS, batching=BATCHING)
    assert abs(correlation(swept.epsilon[1], other.epsilon[4])) < 4 / np.sqrt(TRIALS)


def test_what_all_points_have_in_common_is_kept_once():
    family = Family.of(iter(interactions()))
    largest = max(np.size(leaf) for leaf in family.shared)
    assert largest == small_logistic().utility.rows.size
    assert all(np.size(leaf) <= 60 * len(POINTS) for leaf in family.varied)
    assert Family.of(interactions([POINTS[0]] * 6)).places == family.places


def test_points_that_are_not_alike_are_named():
    one = nrjax.Interaction(**scalar())
    laplace = scalar(process=nrjax.Laplace(()), guarantee=nrjax.PureGuarantee(1.0))
    longer = scalar(times=np.geomspace(100.0, 0.01, 51))
    for changed, message in (
        (laplace, r"interactions\[1\] differs from the first in process: Brownian and Laplace"),
        (longer, r"schedule: float\d\d\[50\] and float\d\d\[51\]"),
    ):
        with pytest.raises(ValueError, match=message):
            nrjax.sweep(KEY, [one, nrjax.Interaction(**changed)], trials=10)
    with pytest.raises(ValueError, match=r"interactions = .*at least one"):
        nrjax.sweep(KEY, [], trials=10)
    with pytest.raises(ValueError, match=r"interactions\[0\] = .*: must be a nrjax.Interaction"):
        nrjax.sweep(KEY, [scalar()], trials=10)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="trials = 0"):
        nrjax.sweep(KEY, [one], trials=0)
