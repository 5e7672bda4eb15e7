"""The candidates of `nrjax.choose`: their levels, and which are left out."""

import dataclasses

import jax
import numpy as np
import pytest

import nrjax
from nrjax import questions
from nrjax.choice.candidates import ORACLE, PUBLIC, Candidate, candidates
from nrjax.choice.plan import Plan
from nrjax.statistics.closed_forms import gaussian_time_at_distance
from nrjax.stopping import accuracy


def test_levels_of_private_tests_go_where_releases_surely_pass_them():
    """Such a release is nearer than the target by the margin, also if all errors are alike."""
    question = questions.vector_mean(np.zeros((2, 100)), row_norm=1.0)
    listed = candidates(question, Plan(100.0, 0.9, None))
    last = np.asarray(listed["brownian-private"].interaction.schedule.times)[-1]
    nearer = (1 - accuracy.MARGIN) * 100.0
    assert last < 0.5 * gaussian_time_at_distance(nearer, 100, 0.9)


def test_small_errors_have_no_epsilons_that_state_no_privacy():
    question = questions.mean(np.linspace(0, 100, 200), (0, 100))
    for error, hockey_stick in ((0.5, True), (0.03, False)):
        listed = candidates(question, Plan(error, 0.9, None))
        assert "brownian-once" in listed
        assert ("brownian-once-hockey-stick" in listed) == hockey_stick
        assert any(name.startswith("laplace-private") for name in listed) == hockey_stick


def few_levels(question, mechanism, plan):
    """A maker outside of the package: a public test at four levels."""
    goal = question.best - plan.error
    options = {"data": question.data, "levels": (0.02, 2.0, 4)}
    interaction = mechanism.until(question.score, at_least=goal, **options)
    yield "few-levels", Candidate.of(question, plan, interaction, PUBLIC)


def test_a_maker_adds_candidates_to_a_choice(monkeypatch):
    question = questions.count(np.arange(300) % 3 == 0)
    found = candidates(question, Plan(5.0, 0.9, None), [few_levels])
    kinds = [noise.replace(" ", "-") for noise in question.mechanisms]
    assert [name for name in found if "few" in name] == [f"{kind}-few-levels" for kind in kinds]
    assert list(found).index("laplace-few-levels") == list(found).index("laplace-once") + 1
    monkeypatch.setattr("nrjax.choice.candidates.MAKERS", ())
    laplace = dataclasses.replace(question, mechanisms={"laplace": question.mechanisms["laplace"]})
    choice = nrjax.choose(laplace, 5.0, trials=256, progress=False, makers=[few_levels])
    assert choice.best == "laplace-few-levels"
    assert choice.results.distribution("laplace-few-levels").trials == 256


def same_name(question, mechanism, plan):
    yield from few_levels(question, mechanism, plan)
    yield from few_levels(question, mechanism, plan)


def without_guarantee(question, mechanism, plan):
    for name, made in few_levels(question, mechanism, plan):
        bare = dataclasses.replace(made.interaction, guarantee=None)
        yield name, made._replace(interaction=bare)


def no_candidate(question, mechanism, plan):
    for name, made in few_levels(question, mechanism, plan):
        yield name, made.interaction


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (same_name, "name of a candidate must be a new one .*few-levels"),
        (without_guarantee, "must be a Candidate whose interaction has a guarantee"),
        (no_candidate, "must be a Candidate whose interaction has a guarantee"),
    ],
)
def test_other_candidates_of_a_maker_are_refused(maker, message, monkeypatch):
    monkeypatch.setattr("nrjax.choice.candidates.MAKERS", ())
    question = questions.count(np.arange(300) % 3 == 0)
    with pytest.raises(ValueError, match=message):
        candidates(question, Plan(5.0, 0.9, None), [maker])


def test_a_custom_question_takes_no_makers():
    with pytest.raises(ValueError, match="makers must be left out for a custom question"):
        nrjax.choose(questions.custom(lambda error: {}), 1.0, makers=[few_levels])


def test_a_release_of_a_question_is_offered_at_the_least_epsilon(monkeypatch):
    """The question of a logistic regression offers objective perturbation, and others nothing."""
    monkeypatch.setattr("nrjax.choice.candidates.MAKERS", ())
    x = np.tile([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]], (200, 1))
    y = np.where(np.arange(600) % 7 < 4, 1.0, -1.0)
    question = questions.logistic_regression(x, y)
    plan = Plan(0.02 * question.whole, 0.9, None)
    (name, found), *others = candidates(question, plan).items()
    assert (name, found.section, found.notion, others) == ("objective-once", ORACLE, "pure", [])
    guarantee = found.interaction.guarantee
    epsilon = float(guarantee.epsilon(guarantee.single))

    def met(epsilon):
        once = question.releases["objective"](epsilon).until(question.score, at_least=found.goal)
        return np.mean(nrjax.simulate(jax.random.key(3), once, trials=1024).stopped)

    # Levels are 7 % apart; the fractions of 1024 trials have standard errors below 0.016.
    assert met(epsilon) > 0.9 - 4 * 0.0094
    assert met(0.8 * epsilon) < 0.9
    assert not questions.linear_regression(x, y / 2).releases
    assert not candidates(question, plan._replace(error=1e-6 * question.whole))
