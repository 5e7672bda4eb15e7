"""A regression on your own table: its target, its doubts, held-out rows and scores."""

import dataclasses
import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import default_regularisation
from nrjax.papers import _scores, regression
from nrjax.papers._scores import HELD_OUT, Part
from nrjax.papers._unpenalised import unpenalised
from nrjax.papers.whitehouse2022.report import ClaimReporting
from nrjax.study.report import Report

pandas = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(0, 10, 400), RNG.uniform(-1, 1, 400)
FRAMES = {
    "ridge": ({"x": X, "y": 50 + 10 * Y + 0.5 * (X - 5)}, ("x=0:10", "y=0:100")),
    "logistic": ({"x": X, "y": np.where(5 * Y < X - 9, "yes", "no")}, ("x=0:10", "y=no,yes")),
    "useless": ({"x": X, "y": 50 + 30 * Y}, ("x=0:10", "y=0:100")),
}


@pytest.fixture
def study(tmp_path, request):
    """Return a function that makes the study of a table, which may warn."""

    def make(kind, **changes):
        frame, bounds = FRAMES[kind]
        pandas.DataFrame(frame).to_csv(tmp_path / "own.csv", index=False)
        options = {"data": str(tmp_path / "own.csv"), "target": "y", "mechanism": ("laplace",)}
        options["test"] = ("public",)
        settings = regression.Settings(**options | {"bounds": bounds} | changes)
        return regression.study(settings)

    return make


def labels(study):
    return dict(next(iter(study.cases.values())).labels)


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_the_target_is_between_the_optimum_and_the_best_constant_model(study, kind):
    """The target before, 1.9 or 1.03 times the optimum, is the planted fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = labels(study(kind))
    optimum, constant = found["optimum"], found["constant_loss"]
    assert optimum < constant < found["zero_loss"]
    assert found["target"] == pytest.approx(optimum + 0.2 * (constant - optimum), rel=1e-12)
    assert found["scores_of_unpenalised"]["loss"] < found["scores_of_optimum"]["loss"]
    assert found["regularisation"] == default_regularisation(kind, 400)
    once = found["one_release"]
    assert once["confidence"] == 0.9
    assert once["epsilon"] > 1  # of a small table
    if kind == "ridge":
        with pytest.warns(UserWarning, match="is met by the zero model, whose loss is"):
            doubtful = labels(study(kind, target_loss=1.9 * optimum))
        assert "any epsilon reaches it" in doubtful["doubts"][0]
        with pytest.warns(UserWarning, match="is met by the best constant model, whose loss is"):
            study(kind, target_loss=constant)
    with pytest.raises(ValueError, match=r"target_loss must be above .*, the penalised optimum of"):
        study(kind, target_loss=optimum)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "useless",
            {},
            "below that of the best constant model, both with the penalty: the col",
        ),
        ("logistic", {"regularisation": 0.5}, "without the penalty, and a model that uses no colu"),
    ],
)
def test_a_run_that_answers_nothing_is_named_before_it_starts(study, kind, changes, message):
    with pytest.warns(UserWarning, match=r"^The ") as record:
        made = study(kind, **changes)
    doubts = labels(made)["doubts"]
    assert [str(each.message) for each in record] == doubts
    assert message in doubts[-1]


def test_held_out_rows_are_not_used_in_training(study, monkeypatch):
    """The planted fault is a split that depends on the values."""
    made = labels(study("ridge", held_out=0.2))
    assert made["scored_rows"] == {"": 320, HELD_OUT: 80}
    assert made["rows"] == 320
    held = np.random.default_rng(0).permutation(400)[:80]
    frame, bounds = FRAMES["ridge"]
    changed = frame | {"y": frame["y"].copy()}
    changed["y"][held] = 100 - changed["y"][held]
    monkeypatch.setitem(FRAMES, "ridge", (changed, bounds))
    other = labels(study("ridge", held_out=0.2))
    assert other["optimum"] == made["optimum"]
    assert other["scores_of_optimum"] != made["scores_of_optimum"]
    assert labels(study("ridge", held_out=0.2, split_seed=1))["optimum"] != made["optimum"]
    for wrong in (0.0, 1.0, 0.001):
        with pytest.raises(ValueError, match="held_out must be s"):
            study("ridge", held_out=wrong)


@pytest.mark.numerical
@pytest.mark.parametrize("task", ["logistic", "ridge"])
def test_scores_are_those_of_their_definitions(task):
    """Half of the predictions are tied. Ties that count as a whole are the planted fault."""
    rng = np.random.default_rng(1)
    x, theta = rng.integers(-2, 3, (60, 2)).astype(float), np.array([0.5, -0.25])
    y = rng.choice([-1.0, 1.0], 60) if task == "logistic" else rng.uniform(-1, 1, 60)
    s, part = x @ theta, Part(task, x, y)
    found = part.of_model(theta)
    if task == "logistic":
        above = s[y > 0][:, None] - s[y < 0]
        ties = np.mean(above == 0)
        expected = {
            "loss": np.mean(np.log1p(np.exp(-y * s))),
            "accuracy": np.mean((s > 0) == (y > 0)),
        }
        expected["auc"] = np.mean(above > 0) + ties / 2
        assert ties > 0.05
        base = np.mean(y > 0)
        entropy = -base * np.log(base) - (1 - base) * np.log(1 - base)
        assert part.of_constant(y)["loss"] == pytest.approx(entropy, rel=1e-5)
        assert part.of_constant(y)["auc"] == 0.5
    else:
        errors = np.mean((y - s) ** 2)
        expected = {"loss": errors / 2, "r2": 1 - errors / y.var()}
        assert part.of_constant(y)["r2"] == pytest.approx(0, abs=1e-5)
    assert found == pytest.approx(expected, rel=1e-5)
    outcome = SimpleNamespace(release=jnp.asarray(theta))
    interaction = SimpleNamespace(utility=SimpleNamespace(hypothesis=lambda release: release))
    kept = _scores.quantities({HELD_OUT: part})
    assert [*kept] == [f"{HELD_OUT}{name}" for name in expected]
    for name, value in expected.items():
        score = kept[HELD_OUT + name].of(outcome, interaction)  # pyright: ignore
        assert float(score) == pytest.approx(value, rel=1e-5)


def test_the_model_without_a_penalty_has_the_least_loss():
    """Columns repeat each other. The penalised optimum is the planted fault."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 3))
    x = np.column_stack([x, x[:, 0] - x[:, 1]])
    score = x @ [1.0, -2.0, 0.5, 0.0]
    y = np.where(score + rng.logistic(size=300) > 0, 1.0, -1.0)
    theta = unpenalised("logistic", x, y)

    def gradient(theta, penalty=0.0):
        return penalty * theta - (y / (1 + np.exp(y * (x @ theta)))) @ x / len(y)

    assert np.abs(gradient(theta)).max() < 1e-8
    assert np.abs(gradient(theta, 0.001)).max() > 1e-4
    wild = unpenalised("logistic", 1e3 * x, y)
    assert np.allclose(1e3 * x @ wild, x @ theta, rtol=1e-6)
    apart = Part("logistic", x, np.where(score > 0, 1.0, -1.0))
    found = apart.of_model(unpenalised("logistic", *apart[1:]))
    assert found["loss"] < 1e-6
    assert found["accuracy"] == found["auc"] == 1.0
    line = unpenalised("ridge", x, score)
    assert np.allclose(x @ line, score)


def test_scores_that_one_class_does_not_define_are_left_out():
    x = np.ones((3, 1))
    assert Part("logistic", x, np.ones(3)).scores == ("loss", "accuracy")
    assert Part("ridge", x, np.ones(3)).scores == ("loss",)


def summary_of(task="ridge", test="public", **changes):
    """Return the summary of a run whose numbers are made up."""
    quantiles = {"q05": 0.02, "median": 0.08, "q95": 0.5}
    labels = {
        **{"case": f"{task}-laplace-{test}", "task": task, "test": test, "data": "own.csv"},
        **{"mechanism": "laplace", "regularisation": 0.03, "scored_rows": {"": 400}},
        "scores_of_optimum": {"loss": 0.02, "r2": 0.5},
        "scores_of_unpenalised": {"loss": 0.005, "r2": 0.875},
        "scores_of_constant": {"loss": 0.08, "r2": -1.19e-07},
        "stopped_at_first_step": 0.756,
        "stopping_epsilon": {"q50": 34.3},
        "scores": {"loss": quantiles, "r2": dict.fromkeys(quantiles, 5.96e-08)},
    }
    return {"cases": [labels | changes]}


def test_scores_have_the_unit_of_the_target_and_name_the_penalty():
    """RMSE is the half width of the target's range times the root of twice the loss."""
    (case,) = summary_of(target_unit={"name": "pay", "half": 50.0})["cases"]
    assert _scores.sentences(case) == [
        "Scores on the 400 rows of the data of the models that are not private, where the loss "
        "leaves the penalty out: the penalised optimum (lambda 0.03) has loss 0.02, R2 0.5, RMSE "
        "in units of pay 10; the optimum without a penalty has loss 0.005, R2 0.875, RMSE in units "
        "of pay 5; the mean has loss 0.08, R2 0, RMSE in units of pay 20."
    ]
    (sentence,) = _scores.released(case)
    assert "RMSE in units of pay 20 (10 to 50)" in sentence
    assert "R2 0 (0 to 0)" in sentence
    (case,) = summary_of()["cases"]
    assert "RMSE" not in _scores.sentences(case)[0]


@pytest.mark.parametrize("tests", [("public",), ("public", "reduced_above_threshold")])
def test_the_number_that_covers_the_stop_stands_first(tests, monkeypatch):
    summary = {"cases": [summary_of(test=test)["cases"][0] for test in tests]}
    plain = Report("regression: stopping epsilon, over all trials", ("case",), (), ("later",))
    monkeypatch.setattr(ClaimReporting, "report", lambda self, results, summary: plain)
    report = regression.reporting.report(None, summary)  # pyright: ignore
    covered = "ridge-laplace-reduced_above_threshold: half of the runs pay at most 34.3. It "
    whose = "all cases" if len(tests) == 1 else "ridge-laplace-public"
    place = len(tests)
    if place == 2:
        assert report.remarks[0].startswith(covered)
    assert report.remarks[place - 1] == (
        f"Public test: epsilon does not cover the decision to stop ({whose}). The test reads the "
        "loss on your rows, so that these epsilons are too small for a release."
    )
    said = "without the cost of the decision to stop" in report.title
    assert said == (len(tests) == 1)
    summary = {"cases": [summary_of(test="reduced_above_threshold")["cases"][0]]}
    report = regression.reporting.report(None, summary)  # pyright: ignore
    assert (
        report.remarks[0]
        == f"{covered}covers the releases and the decision to stop, if the target is public."
    )
    assert report.remarks[1] == "later"
    assert report.remarks[-1].startswith("Warning: 75.6 % of the runs of ridge-laplace-reduced_a")
    assert "a higher --target-fraction or a lower --confidence" in report.remarks[-1]


def test_a_private_test_fits_the_default_grid_or_is_left_out(study):
    """The planted fault is the grid of a public test, which ends before the test's noise fits."""
    both = regression.Settings.test
    near = {"test": both, "target_fraction": 0.05}
    made = study("logistic", **near)
    assert tuple(case.labels["test"] for case in made.cases.values()) == both
    with pytest.raises(ValueError, match="margin must be at least"):
        study("logistic", **near, highest_epsilon=20.0)
    with pytest.warns(UserWarning, match="The private test is left out, since its noise fits"):
        made = study("ridge", test=both)
    (public,) = made.cases.values()
    assert public.labels["test"] == "public"
    assert "No epsilon of these runs covers the decision to stop" in public.labels["doubts"][-1]
    ends = public.trial.guarantee.epsilon(np.asarray(public.trial.schedule.times))
    assert float(ends[-1]) == pytest.approx(20, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_the_report_scores_the_released_models(study, kind, tmp_path):
    made = study(kind, held_out=0.25, lowest_epsilon=1.0, highest_epsilon=1000.0)
    results = made.run(tmp_path / "out", trials=64, progress=False)
    text, (case,) = str(results.table()), results.summary()["cases"]
    second = "R2" if kind == "ridge" else "AUC"
    for where, rows in (("the data", 300), ("the held-out rows", 100)):
        assert f"on {where}." in text
        assert f"Scores on the {rows} " in text
    assert second in text
    assert text.count("Public test: epsilon does not cover the decision to stop") == 1
    assert "If the score reads private data" not in text
    assert ("RMSE in units of y" in text) == (kind == "ridge")
    assert "20 % of the way from there to that of the best constant model" in text
    scores = case["scores"]
    assert set(scores) == set(case["scores_of_optimum"])
    for name, better in (("loss", np.less), (second.lower(), np.greater)):
        assert better(scores[name]["median"], case["scores_of_constant"][name])


def test_settings_are_checked(tmp_path):
    options = {"data": str(tmp_path / "own.csv"), "target": "y"}
    for name, wrong in (("target_fraction", 1.0), ("held_out", 0.0), ("split_seed", -1)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            regression.Settings(**options | {name: wrong})
    settings = regression.Settings(**options, regularisation=0.2)
    assert settings.of_paper("ridge", 10).regularisation == 0.2
    with pytest.raises(ValueError, match=r"data must be the path .*got 'x.json'\)"):
        dataclasses.replace(settings, data="x.json")
    with pytest.raises(ValueError, match="For a named data set"):
        dataclasses.replace(settings, data="flights")
