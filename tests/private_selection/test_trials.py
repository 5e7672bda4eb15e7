"""Simulated private selections have the exact distribution of what they publish."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.private_selection import Candidate, RepeatedSelection
from tests.private_selection import oracle

TRIALS = 20_000
LAWS = np.array([[0.5, 0.1, 0.25, 0.15], [0.2, 0.2, 0.2, 0.4]])
"""Probability of each outcome, by stage. The score is the number of the outcome, at most 2."""
COSTS = np.array([0.3, 0.2, 0.9, 0.1])
CAPS, MEANS, STOP = (0.5, 1.0), (0.7, 1.9), 0.2


def base(key, epsilon):
    return Candidate(epsilon, 0)


def draw(key, epsilon, laws, costs):
    """Draw an outcome by the law of the first stage below epsilon 1, else by that of the second."""
    number = jax.random.choice(key, 4, p=jnp.where(epsilon < 1, laws[0], laws[1]))
    own = None if costs is None else costs[number]
    return Candidate(jnp.minimum(number, 2), number, own)


@jax.jit
def simulate(trial):
    return jax.vmap(trial.simulate)(jax.random.split(jax.random.key(0), TRIALS))


def staged(publish="first", threshold=1.0, costs=COSTS):
    data = jax.tree.map(jnp.asarray, (LAWS, costs))
    others = None if costs is None else COSTS.max()
    return nrjax.PoissonSelection(draw, CAPS, MEANS, threshold, data, others, publish=publish)


def expected(publish, weights):
    """Return P(stage, outcome) of `staged`, then P(nothing), for weights of numbers of runs."""
    left, cells = 1.0, []
    for law, cap, each in zip(LAWS, CAPS, weights, strict=True):
        success = (np.arange(4) >= 1) & (cap >= COSTS)
        order = np.argsort(success, kind="stable")
        nothing, chosen = oracle.chosen(law[order], (~success).sum(), each, publish == "best")
        cells.append(np.zeros(4))
        cells[-1][order[(~success).sum() :]] = left * chosen
        left *= nothing
    if publish == "best":  # the last two scores of the second stage tie: the earlier run counts
        cells[1][2:] = cells[1][2:].sum() * LAWS[1, 2:] / LAWS[1, 2:].sum()
    return np.append(np.concatenate(cells), left)


def largest_z(simulated, expected):
    """Return the largest deviation of the frequency of a cell, in standard errors."""
    stage, number = (np.asarray(each) for each in (simulated.public.stage, simulated.public.result))
    cell = np.where(stage > 0, 4 * (stage - 1) + number, len(expected) - 1)
    found = np.bincount(cell, minlength=len(expected)) / TRIALS
    assert not found[expected == 0].any()
    some = expected > 0
    return np.abs(
        (found - expected)[some] / np.sqrt(expected * (1 - expected) / TRIALS)[some]
    ).max()


@pytest.mark.parametrize("publish", ["first", "best"])
def test_published_outcomes_have_their_exact_probabilities(publish):
    simulated, weights = simulate(staged(publish)), [oracle.poisson(mean) for mean in MEANS]
    assert largest_z(simulated, expected(publish, weights)) < 4
    # Planted faults: fixed numbers of runs, 1 and 2, and the other publication.
    fixed = [np.eye(oracle.RUNS + 1)[k] for k in (1, 2)]
    other = "best" if publish == "first" else "first"
    for wrong in (expected(publish, fixed), expected(other, weights)):
        assert largest_z(simulated, wrong) > 10


@pytest.mark.parametrize("method", ["first", "geometric", "logarithmic"])
def test_baselines_have_their_exact_probabilities(method):
    k = np.arange(1, 400)
    numbers = [STOP * (1 - STOP) ** (k - 1), (1 - STOP) ** k / k / -np.log(STOP)]
    chances = []
    for weights in numbers if method != "logarithmic" else numbers[::-1]:
        nothing, chosen = oracle.chosen(
            np.append(LAWS[0, :2], LAWS[0, 2:].sum()), 1, np.append(0, weights), method != "first"
        )
        split = chosen[1] * LAWS[0, 2:] / LAWS[0, 2:].sum()
        chances.append(np.concatenate([[0], chosen[:1], split, [nothing]]))
    data = jnp.asarray(LAWS[[0, 0]]), None
    trial = RepeatedSelection(draw, np.array([0.5, 1.0]), STOP, 1.0, data, method=method)
    for wrong, one in enumerate(chances):  # of one stage, which the second repeats
        both = np.concatenate([one[:-1], one[-1] * one])
        z = largest_z(simulate(trial), both)
        assert z > 8 if wrong else z < 4  # planted fault: the other numbers of runs


def test_costs_follow_the_stage_and_the_epsilon_of_the_run():
    for costs in (COSTS, None):
        trial = staged(costs=costs)
        public, runs = simulate(trial)
        stage, number = np.asarray(public.stage), np.asarray(public.result)
        own = None if costs is None else np.where(stage > 0, COSTS[number], 0)
        np.testing.assert_array_equal(public.epsilon, trial.cost(stage, own))
        np.testing.assert_array_equal(np.isnan(public.score), stage == 0)
        assert set(np.unique(stage)) == {0, 1, 2}
        assert np.all((np.asarray(runs) > 0) | (stage == 0))


def test_numbers_of_runs_are_poisson():
    """A selection that no run ends has a Poisson number of runs in all."""
    runs = np.bincount(np.asarray(simulate(staged(threshold=9.0)).runs), minlength=9)[:9] / TRIALS
    exact = np.array(oracle.poisson(sum(MEANS)))[:9]
    assert np.all(np.abs(runs - exact) < 4 * np.sqrt(exact / TRIALS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilons": []}, "epsilons must be from 1e-06 to 1000, not empty"),
        ({"epsilons": [0.0]}, "epsilons must be from 1e-06 to 1000"),
        ({"means": [1.0, 2.0, 3.0]}, "means must be a number, or one per stage"),
        ({"means": 0.0}, "means must be from 1e-06"),
        ({"others": 0.0}, "others must be 1e-06 or more"),
        ({"delta": 1.0}, "delta must be 0 or more and below 1"),
        ({"threshold": np.nan}, "threshold must be a number"),
        ({"base": 7}, "base must be a function"),
        ({"publish": "last"}, "publish must be 'first' or 'best'"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        nrjax.PoissonSelection(**{"base": base, "epsilons": [0.5, 1.0], "means": 1.0, **changes})


@pytest.mark.parametrize(
    "make",
    [
        lambda base: nrjax.PoissonSelection(base, CAPS, MEANS),
        lambda base: nrjax.PoissonSelection(base, CAPS, MEANS, others=1.0).run(jax.random.key(0)),
        lambda base: RepeatedSelection(base, 0.5, stop=0.1).run(jax.random.key(0)),
    ],
)
def test_a_base_returns_candidates(make):
    with pytest.raises(ValueError, match=r"result of base must be an .*\. Return Candidate\("):
        make(lambda key, epsilon: (epsilon, 0))


def test_a_base_that_reports_its_epsilon_needs_the_largest_epsilon_of_a_run():
    """A failing run above its cap makes another stage likelier by more than the cap says."""
    data = jnp.asarray(LAWS), jnp.asarray(COSTS)
    with pytest.raises(ValueError, match="others must be given for a base that reports"):
        nrjax.PoissonSelection(draw, CAPS, MEANS, 1.0, data)
    stages = [oracle.worst(MEANS[0], CAPS[0], COSTS.max(), best=False)] * 2
    exact, _ = oracle.losses(stages, best=False)
    each = nrjax.PoissonSelection(base, [CAPS[0]] * 2, MEANS[0], others=COSTS.max())
    assert float(each.cost(0)) >= exact
    assert float(dataclasses.replace(each, others=None).cost(0)) < 0.9 * exact  # the old default


def test_stages_and_epsilons_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="stage must be from 0 to 2"):
        staged().cost(3)
    trial = RepeatedSelection(draw, 0.5, 0.1, data=(jnp.asarray(LAWS), jnp.asarray(COSTS)))
    with pytest.raises(ValueError, match="epsilon of a candidate must be None"):
        trial.run(jax.random.key(0))
