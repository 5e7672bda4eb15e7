"""Simulated private selections have the exact distribution of what they publish."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.private_selection import Candidate, RepeatedSelection
from tests.private_selection import oracle

TRIALS = 20_000
LAWS = np.array([[0.5, 0.1, 0.25, 0.15], [0.2, 0.2, 0.2, 0.4]])
"""Probability of each outcome, by stage. The score is the number of the outcome."""
COSTS = np.array([0.3, 0.2, 0.9, 0.1])
SCORES = np.array([0.0, 1.0, 2.0, 2.0])  # the last two tie


def draw(key, epsilon, laws, costs, scores):
    """Draw an outcome by the law of the first stage below epsilon 1, else by that of the second."""
    law = jnp.where(epsilon < 1, laws[0], laws[1])
    number = jax.random.choice(key, 4, p=law)
    epsilon = None if costs is None else costs[number]
    return Candidate(scores[number], number, epsilon)


@partial(jax.jit, static_argnums=1)
def simulate(trial, seed):
    keys = jax.random.split(jax.random.key(seed), TRIALS)
    return jax.vmap(trial.simulate)(keys)


def staged(publish="first", means=(0.7, 1.9), threshold=1.0, costs=COSTS):
    data = (jnp.asarray(LAWS), costs if costs is None else jnp.asarray(costs), SCORES)
    data = jax.tree.map(jnp.asarray, data)
    return nrjax.PoissonSelection(draw, [0.5, 1.0], means, threshold, data, publish=publish)


def expected_stages(publish, weights):
    """Return P(stage, outcome) for the stages of `staged`, then P(nothing)."""
    left, cells = 1.0, []
    for law, cap, each in zip(LAWS, (0.5, 1.0), weights, strict=True):
        success = (SCORES >= 1) & (cap >= COSTS)
        order = np.argsort(success, kind="stable")
        nothing, chosen = oracle.chosen(law[order], (~success).sum(), each, publish == "best")
        cells.append(np.zeros(4))
        cells[-1][order[(~success).sum() :]] = left * chosen
        left *= nothing
    if publish == "best":  # of equal scores the earlier run is published: split by their odds
        for cell, law, tied in zip(cells, LAWS, (False, True), strict=True):
            if tied:
                cell[2:] = cell[2:].sum() * law[2:] / law[2:].sum()
    return np.append(np.concatenate(cells), left)


def z_scores(simulated, expected):
    """Return the deviations of the counts of each cell in standard errors."""
    stage, number = np.asarray(simulated.public.stage), np.asarray(simulated.public.result)
    cell = np.where(stage > 0, 4 * (stage - 1) + number, len(expected) - 1)
    counts = np.bincount(cell, minlength=len(expected)) / TRIALS
    assert not counts[expected == 0].any()
    some = expected > 0
    return (counts - expected)[some] / np.sqrt(expected * (1 - expected) / TRIALS)[some]


def poisson_weights():
    return [oracle.poisson(mean) for mean in (0.7, 1.9)]


@pytest.mark.parametrize("publish", ["first", "best"])
def test_published_outcomes_have_their_exact_probabilities(publish):
    simulated = simulate(staged(publish), 0)
    expected = expected_stages(publish, poisson_weights())
    assert expected.sum() == pytest.approx(1)
    assert np.abs(z_scores(simulated, expected)).max() < 4
    # A fixed number of runs, as K = 1 and 2, has another distribution.
    fixed = [np.eye(oracle.RUNS + 1)[k] for k in (1, 2)]
    assert np.abs(z_scores(simulated, expected_stages(publish, fixed))).max() > 10
    other = expected_stages("best" if publish == "first" else "first", poisson_weights())
    assert np.abs(z_scores(simulated, other)).max() > 10


def test_runs_are_charged_by_stage_and_by_their_own_epsilon():
    trial = staged()
    public, _ = simulate(trial, 1)
    stage, number = np.asarray(public.stage), np.asarray(public.result)
    own = np.where(stage > 0, COSTS[number], 0)
    np.testing.assert_array_equal(public.epsilon, trial.cost(stage, own))
    assert np.all(own <= np.array([0, 0.5, 1.0])[stage])
    np.testing.assert_array_equal(np.isnan(public.score), stage == 0)
    fixed = staged(costs=None)
    public, _ = simulate(fixed, 1)
    np.testing.assert_array_equal(public.epsilon, fixed.cost(np.asarray(public.stage)))


def test_numbers_of_runs_are_poisson():
    """With a threshold that no run reaches."""
    runs = np.asarray(simulate(staged(threshold=9.0), 2).runs)
    exact = np.array(oracle.poisson(2.6))
    error = np.sqrt(exact * (1 - exact) / TRIALS)[:9]
    assert np.abs(np.bincount(runs, minlength=9)[:9] / TRIALS - exact[:9]).max() < 4 * error.max()


def logarithmic(stop):
    k = np.arange(1, 400)
    weights = (1 - stop) ** k / k
    return np.append(0, weights / weights.sum())


@pytest.mark.parametrize("method", ["first", "geometric", "logarithmic"])
def test_baselines_have_their_exact_probabilities(method):
    stop = 0.2
    geometric = np.append(0, stop * (1 - stop) ** np.arange(399))
    weights = logarithmic(stop) if method == "logarithmic" else geometric
    data = jnp.asarray(LAWS), None, jnp.arange(4.0)
    trial = RepeatedSelection(draw, 0.5, stop, 1.0, data, method=method)
    nothing, chosen = oracle.chosen(LAWS[0], 1, weights, method != "first")
    simulated = simulate(trial, 3)
    expected = np.concatenate([[0], chosen, [nothing]])
    assert np.abs(z_scores(simulated, expected)).max() < 4
    # Planted fault: the other distribution of the number of runs.
    other = geometric if method == "logarithmic" else logarithmic(stop)
    nothing, chosen = oracle.chosen(LAWS[0], 1, other, method != "first")
    assert np.abs(z_scores(simulated, np.concatenate([[0], chosen, [nothing]]))).max() > 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilons": []}, "epsilons must be a non-empty vector"),
        ({"epsilons": [0.0]}, "epsilons must be from 1e-06 to 1000"),
        ({"means": [1.0, 2.0, 3.0]}, "means must be a number, or one per stage .2."),
        ({"means": 0.0}, "means must be from 1e-06"),
        ({"others": 0.0}, "others must be 1e-6 or more"),
        ({"delta": 1.0}, "delta must be 0 or more and below 1"),
        ({"threshold": np.nan}, "threshold must be a number"),
        ({"publish": "last"}, "publish must be 'first' or 'best'"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        nrjax.PoissonSelection(draw, **{"epsilons": [0.5, 1.0], "means": 1.0, **changes})


def test_stages_and_epsilons_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="stage must be from 0 to 2"):
        staged().cost(3)
    data = tuple(map(jnp.asarray, (LAWS, COSTS, SCORES)))
    with pytest.raises(ValueError, match="epsilon of a candidate must be None"):
        RepeatedSelection(draw, 0.5, 0.1, data=data).run(jax.random.key(0))
