"""Releases fixed in advance: the exact Gaussian curve, other noise, and their use as cases."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import integrate, stats

import nrjax
from nrjax import questions


def divergence(epsilon, ratio):
    """Return the hockey-stick divergence of two normals `ratio` apart, by integration."""

    def excess(x):
        return stats.norm.pdf(x, ratio) - np.exp(epsilon) * stats.norm.pdf(x)

    start = epsilon / ratio + ratio / 2  # the densities' ratio is exp(epsilon) there
    return integrate.quad(excess, start, start + 12, epsabs=0, epsrel=1e-9, limit=200)[0]


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.03, 0.5, 4.0])
def test_a_gaussian_release_has_the_exact_curve(epsilon, delta):
    mechanism = nrjax.brownian(3.0, sensitivity=2.0, delta=delta)
    fixed = nrjax.FixedRelease(mechanism, epsilon)
    assert divergence(epsilon, 2.0 / fixed.deviation) == pytest.approx(delta, rel=1e-4)
    again = nrjax.FixedRelease.at_time(mechanism, fixed.time)
    assert again.epsilon == pytest.approx(epsilon, rel=1e-5)
    # Never less than the exact one at the time as it is rounded.
    assert divergence(again.epsilon, 2.0 / again.time**0.5) <= delta * (1 + 1e-9)
    assert divergence(again.epsilon * (1 - 1e-4), 2.0 / again.time**0.5) > delta


def test_a_probabilistic_release_exceeds_epsilon_with_probability_delta():
    mechanism, epsilon, delta = nrjax.brownian(0.0, sensitivity=1.0, delta=1e-6), 0.5, 1e-6
    fixed = nrjax.FixedRelease(mechanism, epsilon, "probabilistic")
    ratio = 1 / fixed.deviation  # the loss is normal with mean ratio^2/2 and deviation ratio
    assert stats.norm.sf(epsilon / ratio - ratio / 2) == pytest.approx(delta, rel=1e-3)
    assert fixed.deviation > nrjax.FixedRelease(mechanism, epsilon).deviation


@pytest.mark.parametrize("notion", ["hockey-stick", "probabilistic"])
@pytest.mark.parametrize("epsilon", [0.03, 0.5, 4.0])
def test_a_release_costs_at_most_its_epsilon(epsilon, notion):
    fixed = nrjax.FixedRelease(nrjax.brownian(3.0, 2.0, 1e-6), epsilon, notion)
    interaction = fixed.until(questions.largest_error, at_least=-1.0, data=(3.0,))
    assert interaction.guarantee.epsilon(interaction.schedule.times)[0] <= epsilon


@pytest.mark.parametrize(
    ("mechanism", "deviation"),
    [
        (nrjax.laplace(3.0, sensitivity=2.0), 2**0.5 * 4),
        (nrjax.discrete_laplace(3, sensitivity=2), 0.5**0.5 / np.sinh(1 / 8)),
    ],
)
def test_pure_releases(mechanism, deviation):
    fixed = nrjax.FixedRelease(mechanism, 0.5)
    assert fixed.deviation == pytest.approx(deviation, rel=1e-5)
    assert nrjax.FixedRelease.at_time(mechanism, fixed.time).epsilon == pytest.approx(0.5)


def test_a_trial_releases_once_at_the_stated_cost():
    mechanism = nrjax.brownian(3.0, sensitivity=1.0, delta=1e-6)
    fixed = nrjax.FixedRelease(mechanism, 2.0)
    options = {"at_least": -fixed.deviation, "data": (3.0,)}
    interaction = fixed.until(questions.largest_error, **options)
    outcome = nrjax.simulate(jax.random.key(0), interaction, trials=4000)
    np.testing.assert_allclose(outcome.epsilon, 2.0, rtol=1e-5)
    assert np.mean(outcome.stopped) == pytest.approx(stats.chi2.cdf(1, 1), abs=4 * 0.5 / 4000**0.5)
    assert set(np.asarray(outcome.status)) == {nrjax.Status.STOPPED, nrjax.Status.EXHAUSTED}
    with pytest.raises(ValueError, match=r"pytree .* by fixed\.until\(score, \.\.\.\)"):
        nrjax.Study("fixed", {"once": fixed})
    for function in (nrjax.audit, partial(nrjax.simulate, jax.random.key(0), trials=1)):
        with pytest.raises(ValueError, match=r"Interaction.* by fixed\.until\(score, \.\.\.\)"):
            function(interaction=fixed)
    study = nrjax.Study("fixed", {"once": interaction})
    assert study.cases["once"].goal == pytest.approx(-fixed.deviation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"notion": "pure"}, "notion must be 'hockey-stick' or 'probabilistic'"),
    ],
)
def test_errors(arguments, message):
    given = {"mechanism": nrjax.brownian(3.0, 1.0, 1e-6), "epsilon": 1.0} | arguments
    with pytest.raises(ValueError, match=message):
        nrjax.FixedRelease(**given)
