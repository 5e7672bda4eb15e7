"""`nrjax.choose`: closed forms, constraint, sections, advice, folders, and errors."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import nrjax
from nrjax import questions
from nrjax.choice import choosing, racing
from nrjax.choice.candidates import FIXED, ORACLE, PRIVATE, candidates
from nrjax.choice.oracle import first_that_meets
from nrjax.choice.plan import Plan

X = np.random.default_rng(0).uniform(0, 100, 1000)
QUESTION = questions.mean(X, (0, 100))
LEVELS = (0.1, 10.0, 500)


def laplace_only(error, levels=LEVELS):
    """Return one Laplace candidate, on few levels."""
    score, mechanism = questions.largest_error, nrjax.laplace(3.0, sensitivity=1.0)
    return {"laplace": mechanism.until(score, at_least=-error, data=(3.0,), levels=levels)}


def flat(choice):
    """Return the text of a choice in one line."""
    return " ".join(str(choice).split())


def without_guarantee(error):
    return {
        name: dataclasses.replace(made, guarantee=None)
        for name, made in laplace_only(error, nrjax.Grid([4.0, 1.0])).items()
    }


def only(question, mechanism):
    """Return the question with one of its mechanisms."""
    return dataclasses.replace(question, mechanisms={mechanism: question.mechanisms[mechanism]})


@pytest.fixture(scope="module", params=[3, pytest.param(10, marks=pytest.mark.long)])
def choice(request):
    """A choice among so many candidates, without private tests, which take long to compile."""
    question = dataclasses.replace(QUESTION, sensitivity=None)
    if request.param == 3:
        question = only(question, "laplace")
    choice = nrjax.choose(question, 0.5, 0.9, trials=512, progress=False)
    assert len(choice.table) == request.param
    return choice


def broken(release, truth):
    return jnp.where(release > truth + 4, jnp.nan, -jnp.abs(release - truth))


def test_trials_that_fail_are_named_and_change_no_verdict():
    def factory(error):
        mechanism = nrjax.laplace(3.0, sensitivity=1.0)
        levels = (*LEVELS[:2], 9)
        made = mechanism.until(broken, at_least=-error, data=(3.0,), levels=levels)
        return {"laplace": made}

    with pytest.warns(nrjax.FailedTrialsWarning, match=r"trials of laplace failed: NAN_UTILITY"):
        choice = nrjax.choose(questions.custom(factory), 0.5, 0.9, trials=256, progress=False)
    assert choice.best is None
    (text,) = choice.failures
    assert f"Warning: {text} They count as trials that missed." in flat(choice)
    failed = choice.results.statuses("laplace")[nrjax.Status.NAN_UTILITY]
    assert text.startswith(f"{failed} of 256 trials of laplace failed")


def test_every_candidate_has_the_relation_of_the_question():
    plan = Plan(0.5, 0.9, (0.1, 1.0))
    listed = candidates(questions.mean(X, (0, 100), relation="replace"), plan)
    assert "brownian-once-hockey-stick" in listed
    assert {candidate.interaction.relation for candidate in listed.values()} == {"replace"}


def test_every_candidate_is_shown_and_ranked_within_its_section(choice):
    names = {row.name for row in choice.table}
    assert set(choice.results) == names
    assert all(name in flat(choice) for name in names)
    for section in {row.section for row in choice.table}:
        rows = [row for row in choice.table if row.section == section]
        verdicts = [row.verdict for row in rows]
        assert verdicts.count("best") == (0 if section.startswith((FIXED, ORACLE)) else 1)
        assert len({row.notion == "hockey-stick" for row in rows}) == 1
        assert section in flat(choice)
    assert ("Pure epsilon (laplace, " in flat(choice)) == (len(names) == 10)


def test_one_value_under_laplace_noise_has_a_closed_form(choice):
    """The error of a release is exponential, so that one at `0.1 log(10)/0.5` meets it in 90 %."""
    fixed = next(row for row in choice.table if row.name == "laplace-once")
    assert fixed.median == pytest.approx(0.1 * math.log(10) / 0.5, rel=1e-6)
    assert fixed.median_interval == (fixed.median, fixed.median)
    assert fixed.met == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / fixed.trials))
    assert (choice.best, choice.error, choice.missed) == ("laplace", 0.5, ())
    assert "take laplace-once, which needs no test: it costs an epsilon of" in choice.advice
    has_test = any(row.section.startswith(PRIVATE) for row in choice.table)
    assert ("No private test is listed" in flat(choice)) != has_test


def test_a_stopped_release_is_nearer_than_its_noise_level_says(choice):
    best = next(row for row in choice.table if row.name == choice.best)
    assert best.coverage.naive > 0.97
    assert best.coverage.multiple < 1.96
    assert f"laplace: {best.coverage}" in flat(choice)


@pytest.mark.parametrize(
    ("question", "value", "error", "want"),
    [
        (questions.sum([1.0, 9.0], (0, 5)), 6.0, "50 %", 3.0),
        (questions.count([True, False, True]), 2.0, "50%", 1.0),
        (questions.histogram([0.5, 1.5, 1.6, 7.0], [0, 1, 2]), [1.0, 2.0], "50 %", 1.0),
        (questions.counts(["a", "b", "a"], within=5), [2.0, 1.0], "3 %", 0.03),
        (questions.vector_mean([[3.0, 4.0], [0.0, 0.0]], 1.0), [0.3, 0.4], "10 %", 0.05),
        (QUESTION, X.mean(), "3 %", 0.03 * X.mean()),
    ],
)
def test_values_and_percentages_of_questions(question, value, error, want):
    for mechanism in question.mechanisms.values():
        np.testing.assert_allclose(np.asarray(mechanism.value), value, rtol=1e-6)
    assert question.error(error) == pytest.approx(want)


@pytest.mark.parametrize(
    ("ask", "low", "high"),
    [
        (lambda x: questions.mean(x, (1000, 1001)), 1000, 1001),
        (lambda x: questions.sum(x, (1000, 1001)), 1000, 1001),
        (lambda x: questions.vector_mean(np.stack([x, 1 - x], 1), 1.0), 0.0, 1.0),
        (lambda x: questions.counts(x > 0.5, 1e6), 0.0, 1.0),
    ],
)
def test_sensitivities_include_the_rounding_of_scores(ask, low, high):
    """In float32 these sums move by up to 8, and these means by 7.6 times the exact bound."""
    x = np.linspace(low, high, 100_000)
    rounds = np.random.default_rng(0).uniform(low, high, (16, 50))
    for numbers in rounds:
        x[1:51] = numbers
        first, second = (ask(np.append(row, x[1:])) for row in (low, high))
        release = jnp.asarray(first.mechanisms["laplace"].value) * 1.001
        scores = [float(first.score(release, *question.data)) for question in (first, second)]
        assert abs(scores[1] - scores[0]) <= first.sensitivity


@pytest.mark.long
def test_candidates_of_different_deltas_are_not_ranked():
    def factory(error):
        score, options = questions.largest_error, {"at_least": -error, "data": (3.0,)}
        kinds = {delta: nrjax.brownian(3.0, 1.0, delta) for delta in (0.3, 1e-6)}
        return {f"{d:g}": m.until(score, levels=LEVELS, **options) for d, m in kinds.items()}

    listed = candidates(questions.custom(factory), Plan(2.0, 0.9, None))
    runs = choosing._Runs("two deltas", listed, 0, None, False)
    titles = [title.split(" (")[1] for title in runs.sections()]
    assert titles == ["delta = 0.3)", "delta = 1e-06)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"error": -1.0}, "error must be"),
        ({"error": "three"}, "error must be a positive number, or a percentage"),
        ({"question": questions.count([0, 0]), "error": "3 %"}, "error must be .* answer of 0"),
        ({"confidence": 1.0}, "confidence must be in"),
        ({"level": 0.0}, "level must be in"),
        ({"prior": (2.0, 1.0)}, "prior must be epsilons"),
        ({"trials": 10}, "trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"question": 3.0}, "question must be one of nrjax.questions"),
        ({"question": questions.custom(lambda error: {})}, "factory.* must be a dict"),
        ({"question": questions.custom(without_guarantee)}, "guarantee must be given"),
        (
            {"question": questions.custom(lambda error: {"at 0.9": None})},
            "name of a candidate must",
        ),
        ({"question": questions.custom(lambda e: laplace_only(-e))}, "threshold must be at most 0"),
    ],
)
def test_errors(arguments, message):
    given = {"question": QUESTION, "error": 0.5, "confidence": 0.9} | arguments
    with pytest.raises(ValueError, match=message):
        nrjax.choose(**given)


def test_a_private_test_of_a_factory_is_judged_by_the_error():
    """Its threshold is above the target, by three quarters of the error."""

    def factory(error):
        options = {"at_least": -error, "data": (3.0,), "private": True, "sensitivity": 0.001}
        private = nrjax.laplace(3.0, sensitivity=1.0).until(questions.largest_error, **options)
        return {"private": private, "case": nrjax.Case(trial=private)}

    listed = candidates(questions.custom(factory), Plan(2.0, 0.9, None))
    assert {name: one.goal for name, one in listed.items()} == {"private": -2.0, "case": -0.5}
    case = questions.custom(lambda error: {"case": nrjax.Case(trial=laplace_only(-2.0)["laplace"])})
    assert candidates(case, Plan(2.0, 0.9, None))["case"].goal == 2.0  # may be above 0


def test_an_error_that_cannot_be_reached_says_what_can():
    choice = nrjax.choose(questions.custom(laplace_only), 1e-4, trials=256, progress=False)
    assert choice.best is None
    assert choice.missed == ("laplace",)
    assert "No candidate meets the error in 90% of runs. laplace comes closest" in choice.advice
    reached = float(choice.advice.split("an error of ")[1].split()[0])
    # Nearly all trials end with noise of scale 1/10.
    assert reached == pytest.approx(0.1 * math.log(10), rel=0.3)


def test_a_goal_that_cannot_be_reached_says_which_score_can():
    """A case may have another score than minus an error, and each case its own goal."""
    trial = laplace_only(1.0)["laplace"]
    goals = {"far": 50.0, "near": 2.0, "worse": 2.5}
    cases = {name: nrjax.Case(trial=trial, goal=goal) for name, goal in goals.items()}
    for made, expected in (
        (cases, "near comes closest: a score of at least 0.1, where 2 is the goal, in 90% of runs"),
        (cases | {"error": trial}, "error comes closest: an error of 0.9 in 90% of runs"),
    ):
        listed = candidates(questions.custom(lambda error, made=made: made), Plan(0.5, 0.9, None))
        runs = choosing._Runs("accuracy", listed, 0, None, False)
        scores = np.append(np.arange(1.0, 10) / 10, np.nan)
        trials = {"utility": scores, "epsilon": np.full(10, 5.0)}
        runs._first = dict.fromkeys(cases, trials) | {"error": trials | {"utility": -scores}}
        runs._first = {name: runs._first[name] for name in listed}
        assert runs.reachable(0.9) == f"{expected}, at an epsilon of up to 5."


def test_the_winner_is_estimated_by_new_trials(monkeypatch):
    def raced():
        """Of 500 levels two sets of trials have different medians."""
        choice = nrjax.choose(questions.custom(laplace_only), 0.5, trials=256, progress=False)
        found = choice.results.distribution(choice.best)
        row = next(row for row in choice.table if row.name == choice.best)
        return row.median == found.order_statistic(found.trials // 2)[0]

    assert not raced()
    fault = dataclasses.replace(choosing.SEARCH, rerun_first=0)
    monkeypatch.setattr(choosing, "SEARCH", fault)
    assert raced()


@pytest.mark.long
def test_a_folder_is_resumed_and_extended(tmp_path, monkeypatch):
    def run(**options):
        question = questions.custom(laplace_only)
        return nrjax.choose(question, 0.5, trials=256, progress=False, **options)

    first = run(folder=tmp_path / "choice")
    assert first.table == run().table
    report = (tmp_path / "choice/report.md").read_text()
    assert "standard deviations of the noise at the stop" in report
    with monkeypatch.context() as patched:
        patched.setattr(racing, "FIRST_ROUND", 512)
        options = {"folder": tmp_path / "choice", "progress": False}
        more = nrjax.choose(questions.custom(laplace_only), 0.5, trials=512, **options)
    assert more.results.trials == 512
    again = run(folder=tmp_path / "choice")
    assert again.table == first.table  # the first trials of the folder
    assert again.results.trials == 512


def test_the_figure_shows_every_candidate_that_meets_the_target(choice):
    figure = choice.plot()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [row.name for row in choice.table if row.verdict != "missed"]
    assert figure.axes[0].get_xlabel().startswith("ex-post")


@pytest.mark.long
@pytest.mark.parametrize(
    ("question", "error", "known"),
    [
        (QUESTION, "1 %", "laplace-once"),
        (questions.count(np.arange(1000) < 300), 20, "discrete-laplace-once"),
        (questions.histogram(X, np.linspace(0, 100, 9)), "10 %", "discrete-laplace-once"),
        (questions.counts(X.astype(int) // 10, 100), "10 %", "discrete-laplace-once"),
        (questions.vector_mean(np.eye(64).repeat(16, axis=0), 1.0), 0.05, "brownian-once"),
    ],
)
def test_every_question_finds_a_candidate_that_meets_its_target(question, error, known):
    choice = nrjax.choose(question, error, trials=512, progress=False)
    rows = {row.name: row for row in choice.table}
    assert choice.best is not None
    assert sum(row.section == PRIVATE for row in choice.table) >= 4
    assert rows[choice.best].met_interval[1] >= 0.9
    assert rows[known].section.startswith(FIXED)
    assert abs(rows[known].met - 0.9) < 4 * math.sqrt(0.09 / rows[known].trials)


@pytest.mark.long
def test_a_prior_designs_boundaries_that_cost_less_where_it_expects_stops():
    flat, known = (candidates(QUESTION, Plan(0.5, 0.9, prior)) for prior in (None, (0.1, 0.3)))
    assert set(known) - set(flat) == {"brownian-designed"}
    times = np.asarray(flat["brownian"].interaction.schedule.times, float)
    costs = np.asarray(flat["brownian"].interaction.guarantee.epsilon(times))
    likely = times[(costs > 0.1) & (costs < 0.3)]

    def cost(listed, name):
        epsilon = listed[f"brownian-{name}"].interaction.guarantee.epsilon(likely)
        return float(np.mean(np.log(np.asarray(epsilon))))

    assert cost(known, "designed") < cost(known, "renyi-mixture") < cost(flat, "renyi-mixture")


def test_an_oracle_finds_its_epsilon_by_trials_of_the_seed():
    mechanism = nrjax.laplace(3.0, sensitivity=1.0)

    def once(time):
        release = nrjax.FixedRelease.at_time(mechanism, time)
        return release.until(questions.largest_error, data=(3.0,), at_least=-2.0)

    times = np.geomspace(4.0, 0.1, 1000)
    found = [first_that_meets(once, times, Plan(2.0, 0.9, None, seed)) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert found == pytest.approx([2.0 / math.log(10)] * 3, rel=0.17)  # 4 standard errors


def test_levels_start_where_draws_are_exact():
    """The noise that an error of 5,000 permits is beyond exact integers in float32."""
    question = only(questions.count(np.ones(20_000, bool)), "discrete laplace")
    listed = candidates(question, Plan(5000.0, 0.9, None))
    largest = nrjax.DiscreteLaplace(()).largest_time(jnp.result_type(float))
    for name in ("discrete-laplace", "discrete-laplace-once"):
        assert listed[name].interaction.schedule.times[0] <= largest


def test_a_bound_on_the_curvature_holds_for_every_data_set():
    """Of the releases at the bound's time 90 % meet the error; with the noise doubled few do."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    question = questions.logistic_regression(x, np.sign(x[:, 0] + 0.1 * rng.normal(size=400)))
    error = 0.02 * question.whole
    time = question.bound_time("brownian", error, 0.9)
    assert question.bound_time("laplace", error, 0.9) is None
    utility = question.mechanisms["brownian"].utility
    optimum = np.asarray(question.mechanisms["brownian"].value)

    def met(time):
        releases = optimum + math.sqrt(time) * rng.normal(size=(500, optimum.size))
        losses = -np.asarray(jax.jit(jax.vmap(utility.evaluate))(releases))
        return np.mean(losses <= question.whole + error)

    assert met(time) >= 0.9
    assert met(100 * time) < 0.5


def test_the_bound_on_the_curvature_is_attained_and_never_exceeded(monkeypatch):
    """Rows are 1, half of the labels are -1: the optimum is 0, where the curvature is largest."""
    rows, rate, error, confidence = 2000, 0.05, 1e-4, 0.9
    question = questions.logistic_regression(
        np.ones((rows, 1)), (-1.0) ** np.arange(rows), regularisation=rate
    )

    def excess(theta):
        return math.log(math.cosh(theta / 2)) + rate / 2 * theta**2

    def chance(time):
        return 1 - 2 * stats.norm.sf(optimize.brentq(lambda t: excess(t) - error, 0, 1) / time**0.5)

    public = dataclasses.replace(only(question, "brownian"), sensitivity=None)
    monkeypatch.setattr("nrjax.choice.candidates.first_that_meets", lambda *_: None)  # needs trials
    found = candidates(public, Plan(error, confidence, None))["brownian-bound"]
    interaction, time = found.interaction, float(found.interaction.schedule.times[0])
    assert confidence <= chance(time) <= confidence + 1e-4
    assert chance(time * (0.25 + rate) / (0.2 + rate)) < confidence  # a planted fault: 1/5 for 1/4
    squared = (2 / (rows * rate)) ** 2 / time  # the loss is normal with mean squared/2
    exact = squared / 2 + stats.norm.isf(found.delta) * squared**0.5
    assert exact <= float(interaction.guarantee.epsilon(time)) <= exact * (1 + 1e-4)
    dtype = jnp.result_type(float)
    least = 256 * float(jnp.finfo(dtype).eps) * question.whole
    assert question.error(1.01 * least) > least
    with pytest.raises(ValueError, match=r"error must be at least .* rounds scores near"):
        question.error(0.99 * least)


def test_discrete_noise_ends_where_it_is_exact(dtype):
    question = only(questions.count([True, False] * 500), "discrete laplace")
    least = nrjax.DiscreteLaplace(()).smallest_time(dtype)
    for confidence, once in ((0.9, True), (1 - 1e-9, False)):
        made = candidates(question, Plan(0.5, confidence, None))
        assert float(made["discrete-laplace"].interaction.schedule.last_time) >= least
        assert ("discrete-laplace-once" in made) == once
