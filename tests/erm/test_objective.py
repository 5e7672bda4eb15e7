"""Objective perturbation: its density, its solver, the costs that it states, and its error."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import nrjax
from nrjax import datasets
from nrjax.erm import LogisticProblem, ObjectivePerturbation, RidgeProblem
from nrjax.erm.objective import ObjectiveGuarantee, split_epsilon
from nrjax.erm.perturbed import PerturbedPath

BALL = np.array([[0.3, -0.8], [0.6, 0.5], [-0.9, 0.1], [0.2, 0.2], [0.0, -1.0], [1.0, 0.0]])
SIGNS = np.array([1, -1, 1, 1, -1, 1])


def log_density(theta, rows, penalty, scale, jacobian=1.0):
    """Return the log density of the release at many theta, up to a constant (statement 43)."""
    count = len(rows)
    slopes = 1 / (1 + np.exp(theta @ rows.T))
    b = slopes @ rows - count * penalty * theta
    curvature = slopes * (1 - slopes)
    hessian = np.einsum("ti,ij,ik->tjk", curvature, rows, rows)
    hessian += count * penalty * np.eye(rows.shape[1])
    return jacobian * np.linalg.slogdet(hessian)[1] - np.linalg.norm(b, axis=1) / scale


def neighbours(count, rng, tries):
    """Generate rows times labels, those of a neighbour, and some theta."""
    for _ in range(tries):
        rows = rng.normal(size=(count + 1, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= rng.choice([0, 0.3, 1, 1], size=(count + 1, 1))
        if rng.random() < 0.5:
            rows[1 : count - 1] = rows[0]
        theta = rng.normal(size=(60, 2)) * rng.choice([0.01, 0.1, 1, 3, 10, 30], size=(60, 1))
        yield rows[:count], np.vstack([rows[: count - 1], rows[count:]]), theta
    # A noise along the second axis, by which both other rows err: they move it by nearly 2.
    common = np.tile([0.0, 1.0], (count - 1, 1))
    pair = [np.vstack([common, [[0.2, sign * 0.979]]]) for sign in (1, -1)]
    yield *pair, np.array([[-25.0, 0.0]])


def largest_loss(count, regularisation, noise, extra, jacobian=1.0):
    penalty, scale, losses = regularisation + extra, 2 / noise, []
    for rows, others, theta in neighbours(count, np.random.default_rng(0), 400):
        own, other = (log_density(theta, r, penalty, scale, jacobian) for r in (rows, others))
        losses.append(np.max(np.abs(own - other)))
    return max(losses)


@pytest.mark.parametrize(
    ("count", "regularisation", "epsilon"),
    [(2, 0.05, 0.5), (2, 0.04, 3.0), (20, 0.01, 1.0), (500, 0.001, 3.0), (3, 0.001, 2.0)],
)
def test_no_release_has_a_larger_loss_than_epsilon(count, regularisation, epsilon):
    noise, extra = split_epsilon(epsilon, count, regularisation)
    assert largest_loss(count, regularisation, noise, extra) <= epsilon
    if count < 500:  # without the Jacobian's part of epsilon, the bound is false
        assert largest_loss(count, regularisation, epsilon, 0.0) > epsilon
    else:  # half of the noise is too little
        assert largest_loss(count, regularisation, 2 * noise, extra) > epsilon


def test_epsilon_is_split_as_in_the_paper():
    for epsilon, rows, regularisation in ((0.2, 10_000, 0.05), (0.5, 2, 0.05), (3.0, 2, 0.04)):
        noise, extra = split_epsilon(epsilon, rows, regularisation)
        paid = 2 * math.log1p(0.25 / (rows * (regularisation + extra)))
        assert noise + paid == pytest.approx(epsilon, rel=1e-12)
        assert (extra > 0) == (2 * math.log1p(0.25 / (rows * regularisation)) >= epsilon)


def guarantee_of(release) -> Any:
    return release.mechanism.guarantee


def small(regularisation=0.01):
    return LogisticProblem.fit(BALL, SIGNS, regularisation)


@pytest.mark.parametrize("wide", [False, True])
def test_a_release_is_the_minimiser_for_its_noise(wide):
    with jax.enable_x64(wide):
        process: Any = ObjectivePerturbation(small(), 5.0).mechanism.process
        keys = jax.random.split(jax.random.key(0), 200)
        scales = jnp.asarray(np.geomspace(0.1, 300, 200))
        process = jax.tree.map(lambda leaf: jnp.asarray(leaf, scales.dtype), process)
        state = jax.jit(jax.vmap(process.init))(keys, scales)
        assert np.all(np.asarray(state.solved))
        theta = np.asarray(process.optimum + state.value, float)
        rows, b = BALL * SIGNS[:, None], np.asarray(state.linear.value, float)
        size = np.linalg.norm(b, axis=1)
        slopes = special.expit(-theta @ rows.T)
        left = b - slopes @ rows + 6 * 0.01 * theta
        eps = float(jnp.finfo(scales.dtype).eps)
        rounding = 16 * eps * (6 + size)  # of theta, for which the gradient is recomputed
        assert np.all(np.linalg.norm(left, axis=1) <= 4 * eps * (6 + size) + rounding)
        # Strong noise leads far away, where steps by the Hessian at the optimum diverge.
        assert np.max(np.linalg.norm(theta, axis=1)) > 1000


@pytest.mark.parametrize("wide", [False, True])
def test_the_stated_cost_is_at_most_epsilon_and_covers_the_noise(wide):
    with jax.enable_x64(wide):
        for epsilon in (1e-3, 0.02, 0.2, 2.0, 5.0, 40.0):
            release = ObjectivePerturbation(small(), epsilon)
            guarantee = guarantee_of(release)
            held = float(np.asarray(release.time, jnp.result_type(float)))
            stated = float(guarantee.epsilon(held))
            penalty = 0.01 + release.extra
            assert 2 / held + 2 * math.log1p(0.25 / (6 * penalty)) <= stated <= epsilon
            assert stated >= epsilon * (1 - 1e-4)
            assert guarantee.epsilon(0.999 * held) == np.inf
            assert guarantee.time(epsilon) == held


def many_rows(count):
    """Return a regression of one feature on many rows, of which few differ."""
    rows = np.where(np.arange(200) % 10 < 8, 1.0, -1.0)[:, None]
    labels = np.where(np.arange(200) % 9 < 7, 1.0, -1.0) * rows[:, 0]
    times = count // 200
    return LogisticProblem.fit(np.tile(rows, (times, 1)), np.tile(labels, times), 0.05)


def test_the_optimum_is_never_released_without_noise():
    """A solver that starts at the optimum may find it accurate enough if there are many rows."""
    release = ObjectivePerturbation(many_rows(100_000), 1.0)
    interaction = release.until(at_least=-np.inf)
    outcome = nrjax.simulate(jax.random.key(0), interaction, trials=4000)
    assert np.all(outcome.stopped)
    assert np.max(np.unique(outcome.release, return_counts=True)[1]) < 0.02 * 4000
    with pytest.raises(ValueError, match="rows of problem must be at most 104857"):
        ObjectivePerturbation(many_rows(105_000), 1.0)
    with jax.enable_x64(True):
        assert ObjectivePerturbation(many_rows(105_000), 1.0).time == pytest.approx(2.0, rel=1e-2)


def test_groups_of_rows_share_epsilon():
    single, group = small(), ObjectivePerturbation(small(), 0.6, "replace, 3 rows")
    alone = ObjectivePerturbation(single, 0.2)
    assert group.time == pytest.approx(alone.time, rel=1e-4)
    assert group.extra == pytest.approx(alone.extra, rel=1e-9)
    assert guarantee_of(group).sensitivity.relation == "replace, 3 rows"
    assert guarantee_of(group).epsilon(group.time) <= 0.6
    assert group.until(at_least=-1.0).relation == "replace, 3 rows"


def test_only_one_release_has_a_cost():
    release = ObjectivePerturbation(small(), 2.0)
    at, mechanism = release.time, release.mechanism
    with pytest.raises(ValueError, match="among the 1 looks of ObjectiveGuarantee"):
        mechanism.until(at_least=-1.0, levels=nrjax.Grid([2 * at, at]))


def test_unsuitable_arguments_are_refused():
    ridge = RidgeProblem.fit(BALL, SIGNS / 2, 0.1)
    with pytest.raises(ValueError, match="problem must be a nrjax"):
        ObjectivePerturbation(ridge, 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="relation must be 'replace'"):
        ObjectivePerturbation(small(), 1.0, "add-remove")
    with pytest.raises(ValueError, match="epsilon must be positive"):
        ObjectivePerturbation(small(), 0.0)
    with pytest.raises(ValueError, match="sensitivity"):
        ObjectiveGuarantee(nrjax.Sensitivity(2.0, "l1"), 1.0, 1.0)


def one_dimension(features, fault):
    """Return the interaction on two rows. The fault is that nothing is paid for the Jacobian."""
    problem = LogisticProblem.fit(np.reshape(features, (2, 1)), np.ones(2), 0.05)
    mechanism = ObjectivePerturbation(problem, 0.5).mechanism
    if fault:
        process: Any = dataclasses.replace(mechanism.process, extra=0.0)
        sensitivity = nrjax.Sensitivity(2.0, "l2", "replace")
        guarantee = ObjectiveGuarantee(sensitivity, 1e-9, 2 / 0.499)
        mechanism = nrjax.Mechanism(mechanism.value, process, guarantee, mechanism.utility)
    made: Any = mechanism.guarantee
    grid = nrjax.Grid.explicit(np.reshape(made.single, 1))
    return mechanism.until(at_least=np.inf, levels=grid)


@pytest.mark.long
def test_an_audit_refutes_a_release_that_forgets_the_jacobian():
    for fault in (False, True):
        pair = [one_dimension(features, fault) for features in ([0.0, 1.0], [0.0, 0.0])]
        found = nrjax.audit(pair[0], neighbour=pair[1], seed=0)
        assert found.epsilon <= 0.5 or fault
        # The exact loss at theta = 0, where the Jacobians are 0.35 and 0.1 and b is 1/2 and 0.
        assert not fault or 0.5 < found.epsilon < math.log(3.5)


@pytest.mark.long
def test_the_loss_on_flights_is_that_of_another_library():
    """The figures are those of diffprivlib 0.6.6 in docs/baselines.md, of 200 releases."""
    flights = datasets.load("flights", "logistic", rows=10_000)
    problem = LogisticProblem.fit(flights.x, flights.y, 0.05)
    for epsilon, known in ((0.13, 0.0353), (0.2, 0.0148), (0.3, 0.0066)):
        release = ObjectivePerturbation(problem, epsilon)
        interaction = release.until(at_least=-np.inf)
        outcome = nrjax.simulate(jax.random.key(0), interaction, trials=400)
        excess = -outcome.utility - problem.optimum_loss
        error = np.hypot(np.std(excess) / 20, np.std(excess) / 200**0.5)
        assert abs(np.mean(excess) - known) < 3.5 * error + 0.5 * 10**-4
        assert np.max(outcome.epsilon) <= epsilon
        # Noise on the optimum, which costs as much, has a larger loss.
        once = nrjax.FixedRelease(problem.laplace(norm="l2"), epsilon).until(at_least=-np.inf)
        outcome = nrjax.simulate(jax.random.key(0), once, trials=400)
        assert np.mean(-outcome.utility - problem.optimum_loss) > known + 3.5 * error


def test_a_path_of_minimisers_has_no_guarantee():
    mechanism = ObjectivePerturbation(small(), 2.0).mechanism
    single: Any = mechanism.process
    path = PerturbedPath(**vars(single))
    with pytest.raises(ValueError, match="guarantee must be for perturbed path noise"):
        nrjax.Mechanism(mechanism.value, path, mechanism.guarantee)
    state = jax.jit(single.init)(jax.random.key(0), 1.0)
    moved = jax.jit(path.rewind)(jax.random.key(1), state, 0.5)
    again = single.rewind(jax.random.key(1), state, 0.5)
    assert path.status(moved) == nrjax.Status.RUNNING
    assert np.any(moved.value != state.value)
    assert single.status(again) == nrjax.Status.OVERFLOW
    assert single.status(single.rewind(jax.random.key(1), state, 1.0)) == nrjax.Status.RUNNING


def transcript_loss(theta, times, rows, others, penalty):
    """Return the loss of releases in one dimension, no two of them equal (statement 44)."""
    total = 0.0
    for sign, data in ((1, rows), (-1, others)):
        slopes = 1 / (1 + np.exp(np.outer(theta, data)))
        b = slopes @ data - len(data) * penalty * theta
        jacobians = (slopes * (1 - slopes)) @ data**2 + len(data) * penalty
        moves = -np.abs(np.diff(b)) / times[:-1]
        total += sign * (np.log(jacobians).sum() + moves.sum() - abs(b[-1]) / times[-1])
    return total


def test_several_releases_cost_more_than_the_last():
    rows, others, regularisation, epsilon = np.array([0.0, 1.0]), np.zeros(2), 0.05, 3.0
    noise, _ = split_epsilon(epsilon, 2, regularisation)
    growth = math.log1p(0.25 / (2 * regularisation))
    for count, exceeds in ((1, False), (2, False), (3, True), (30, True)):
        times = 2 / noise * 1.01 ** np.arange(count)[::-1]
        theta = 1e-6 * np.arange(count)
        loss = transcript_loss(theta, times, rows, others, regularisation)
        assert loss == pytest.approx(count * growth - 0.5 * noise / 2, abs=1e-4)
        assert (loss > epsilon) == exceeds
