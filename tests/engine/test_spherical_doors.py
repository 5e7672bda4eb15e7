"""Spherical Laplace noise from the front doors: mechanisms, problems, filters and questions."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import integrate, special, stats

import nrjax
from nrjax import composition, questions
from nrjax.statistics import closed_forms
from nrjax.study.release_error import ReleaseError

ROWS = np.random.default_rng(0).normal(size=(60, 4)) / 6
ROWS /= np.maximum(np.linalg.norm(ROWS, axis=1, keepdims=True), 1)
LABELS = np.where(ROWS[:, 0] > 0, 1.0, -1.0)
TRUTH = np.array([3.0, 4.0, 5.0])


def spherical(relation=None):
    return nrjax.laplace(TRUTH, nrjax.Sensitivity(2.0, "l2", relation))


def test_the_norm_of_the_sensitivity_decides():
    assert isinstance(spherical().process, nrjax.SphericalLaplace)
    assert isinstance(spherical().guarantee, nrjax.SphericalPureGuarantee)
    for sensitivity in (2.0, nrjax.Sensitivity(2.0, "l1")):
        assert isinstance(nrjax.laplace(TRUTH, sensitivity).process, nrjax.Laplace)
    assert spherical("replace, 3 rows").relation == "replace, 3 rows"
    with pytest.raises(ValueError, match="guarantee must be for laplace noise"):
        nrjax.Mechanism(TRUTH, nrjax.Laplace((3,)), spherical().guarantee)


def test_a_fixed_release_has_the_noise_of_its_epsilon():
    fixed = nrjax.FixedRelease(spherical(), epsilon=0.5)
    np.testing.assert_allclose(fixed.time, 4.0, rtol=1e-5)
    np.testing.assert_allclose(fixed.deviation, 8.0, rtol=1e-5)  # sqrt(d + 1) t


@pytest.mark.parametrize(
    ("problem", "size", "sensitivity"),
    [
        (nrjax.erm.LogisticProblem.fit(ROWS, LABELS, 0.1), 4, 2 / (60 * 0.1)),
        (nrjax.erm.RidgeProblem.fit(ROWS, LABELS, 0.1), 14, 2 * 2**0.5),
    ],
    ids=["logistic", "ridge"],
)
def test_problems_have_spherical_noise_of_their_l2_sensitivity(problem, size, sensitivity):
    mechanism = problem.laplace(norm="l2", relation="replace, 2 rows")
    assert mechanism.process == nrjax.SphericalLaplace((size,))
    stated = mechanism.guarantee.sensitivity
    assert (stated.norm, stated.relation) == ("l2", "replace, 2 rows")
    np.testing.assert_allclose(float(stated), 2 * sensitivity, rtol=1e-6)
    value, own, utility = problem.released("spherical laplace")
    assert own.norm == "l2"
    np.testing.assert_array_equal(value, problem.released("gaussian").value)
    assert utility.noise in (None, ("gaussian", "spherical laplace"))
    with pytest.raises(ValueError, match="delta must be None for Laplace noise"):
        problem.released("spherical laplace").mechanism(delta=1e-6)
    with pytest.raises(ValueError, match="norm must be"):
        problem.laplace(norm="max")


def test_a_trial_stops_at_an_epsilon_that_its_release_has():
    def score(release):
        return -(((release - TRUTH) ** 2).sum() ** 0.5)

    interaction = spherical().until(score, at_least=-2.0, levels=(0.1, 50.0, 60))
    outcome = nrjax.simulate(jax.random.key(0), interaction, trials=200)
    assert np.all(outcome.status == nrjax.Status.STOPPED)
    levels = 2.0 / np.asarray(interaction.schedule.times)
    stated = np.asarray(outcome.epsilon)[:, None]
    assert np.all(np.min(np.abs(levels / stated - 1), axis=1) < 1e-5)
    assert np.all(stated[:, 0] >= levels[np.asarray(outcome.step)] * (1 - 1e-7))


def test_filters_charge_the_pure_cost_of_a_stop():
    request = composition.ExPost.of(spherical("replace").guarantee, 4.0)
    assert (request.notion, request.relation) == ("pure", "replace")
    budget = nrjax.ExPostFilter(epsilon=1.2)
    state, first = budget.take(budget.init(), request)
    state, second = budget.take(state, request)
    assert (bool(first), bool(second), bool(budget.take(state, request)[1])) == (True, True, False)
    with pytest.raises(ValueError, match="an l1-sensitivity"):
        composition.LaplaceReduction(nrjax.Sensitivity(2.0, "l2"), 4.0)


def test_a_renyi_filter_charges_the_certificate_of_a_capped_round():
    order, epsilon, cap = 4.0, float(spherical().guarantee.epsilon(4.0)), 1.0
    charged = float(composition.certificates.capped(order, epsilon, cap))
    assert charged < epsilon
    budget = composition.RenyiFilter(order=order, epsilon=10.0, delta=1e-6)
    request, taken, state = composition.ExPost(epsilon, cap=cap), 0, budget.init()
    expected = int(float(budget.budget) / charged)
    assert expected > int(float(budget.budget) / epsilon)
    for _ in range(expected + 1):
        state, fits = budget.take(state, request)
        taken += int(fits)
    assert taken == expected


def test_releases_in_any_order_are_refused():
    with pytest.raises(ValueError, match="one that implements bridge and advance"):
        nrjax.Releases.of(*spherical())


def test_the_error_of_a_release_is_in_its_standard_deviations():
    mechanism = spherical()
    interaction = mechanism.until(questions.distance, at_least=-1.0, data=(TRUTH,))
    keys = jax.random.split(jax.random.key(0), 4000)
    noise = jax.vmap(lambda key: mechanism.process.init(key, 2.0).value)(keys)
    outcome: Any = SimpleNamespace(release=TRUTH + noise, time=np.full(4000, 2.0, np.float32))
    covered = np.mean(ReleaseError("covered")(outcome, interaction))
    # A coordinate is normal with a Gamma-distributed variance.
    clocks = stats.gamma(2.0).ppf((np.arange(20_000) + 0.5) / 20_000)
    within = np.mean(special.erf(1.96 * 2.0 / np.sqrt(4 * clocks)))
    error = 1.73 * np.sqrt(within * (1 - within) / 12_000)  # coordinates share a clock
    assert abs(covered - within) < 4 * error
    assert abs(covered - special.erf(1.96 / np.sqrt(2))) > 4 * error or within > 0.94


def test_questions_have_it_where_its_variance_is_smaller():
    rows = np.random.default_rng(1).normal(size=(50, 6))
    assert "spherical laplace" in questions.vector_mean(rows, row_norm=1.0).mechanisms
    assert "spherical laplace" not in questions.vector_mean(rows[:, :1], row_norm=1.0).mechanisms
    groups = questions.histogram(np.array([0, 0, 1, 2, 3, 4, 5]), bins=np.arange(7.0) - 0.5)
    assert "spherical laplace" not in groups.mechanisms


def within_at(confidence, tolerances):
    return closed_forms.time_within("spherical laplace", tolerances, confidence)


def missed(time, tolerances):
    """Return the probability that noise of a time misses a tolerance, by adaptive quadrature."""
    shape = (len(tolerances) + 1) / 2

    def density(clock):
        inside = special.erf(tolerances / (2 * time * np.sqrt(clock)))
        return stats.gamma(shape).pdf(clock) * -np.expm1(np.sum(np.log(inside)))

    return sum(integrate.quad(density, *ends, epsabs=1e-14)[0] for ends in ((0, 5), (5, 60)))


def test_closed_forms_meet_their_confidence():
    tolerances, size = np.array([1.0, 1.0, 2.0]), 3
    within = closed_forms.time_within("spherical laplace", tolerances, 0.9)
    distance = closed_forms.spherical_time_at_distance(2.0, size, 0.9)
    np.testing.assert_allclose(stats.gamma(size).cdf(2.0 / distance), 0.9, rtol=1e-9)
    np.testing.assert_allclose(
        [missed(within_at(0.9999, tolerances), tolerances), missed(within, tolerances)],
        [1e-4, 0.1],
        rtol=1e-6,
    )
    generator, trials = np.random.default_rng(2), 200_000
    clocks = generator.gamma((size + 1) / 2, size=(trials, 1))
    noise = within * np.sqrt(2 * clocks) * generator.normal(size=(trials, size))
    met = np.mean(np.all(np.abs(noise) <= tolerances, axis=1))
    assert abs(met - 0.9) < 5 * np.sqrt(0.09 / trials)
