"""The study from its settings to its store, summary and figures."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pandas
import pytest

from nrjax.studies import runner, whitehouse2022
from nrjax.studies.store import Store
from nrjax.studies.whitehouse2022.findings import _holds, _sentence, _warnings
from nrjax.types import Status
from tests.problems import small_data
from tests.studies.interrupted import DiesAfter, Killed

SHARED = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    """A user's own CSV."""
    x, y = small_data()
    frame = pandas.DataFrame(x, columns=list("abcde"))
    frame["late"] = np.where(y > 0, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "own.csv"
    frame.to_csv(path, index=False)
    return path


def settings(out, data_file, **changes):
    options = {
        "out": out,
        "task": ("logistic",),
        "test": ("public",),
        "data": (str(data_file),),
        "target": "late",
        "trials": 150,
        "levels": 60,
        "curve_levels": 6,
        "lowest_epsilon": 1.0,
        "tight_at": 2.0,
        "highest_epsilon": 60.0,
        "chunk": 64,
    }
    return whitehouse2022.Settings(**(options | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data_file):
    """A run that was not interrupted."""
    out = tmp_path_factory.mktemp("run") / "results"
    return whitehouse2022.run(settings(out, data_file))


def test_summary_keeps_the_contract(finished):
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert summary["study"] == "whitehouse2022"
    assert {"nrjax", "jax", "device", "precision", "seed", "settings", "cases"} <= set(summary)
    assert [case["mechanism"] for case in summary["cases"]] == ["brownian", "laplace"]
    for case in summary["cases"]:
        assert case["task"] == "logistic"
        assert case["test"] == "public"
        assert case["trials"] == 150
        assert case["target"] == pytest.approx(1.03 * case["optimum"])
        assert 0 < case["stopped"] <= 1
        assert list(case["epsilon"]) == ["mean", "q05", "q25", "q50", "q75", "q95"]
        assert set(case["seconds"]) == {"compile", "run"}
        assert 0 <= case["step"]["mean"] < 60
        assert case["epsilon"]["q05"] <= case["epsilon"]["q50"]


def test_stored_arrays_agree_with_each_other(finished):
    for name in finished.cases:
        outcome = finished.read(name, "outcome")
        stopped = outcome["status"].values == Status.STOPPED
        target = finished.cases[name].attributes["target"]
        assert np.all(outcome["utility"].values[stopped] >= -np.float32(target))
        assert np.all(np.isfinite(outcome["epsilon"].values))
        assert np.unique(outcome["time"].values).size > 5
        curve = finished.read(name, "curve")
        assert curve["utility"].shape == (150, 6)
        losses = -curve["utility"].values.mean(axis=0)
        assert losses[0] > losses[2] > losses[-1] > finished.cases[name].attributes["optimum"]
        np.testing.assert_allclose(curve["epsilon"].values[[0, -1]], [1.0, 60.0])


def test_figures_are_there(finished):
    figures = finished.folder / "figures"
    names = {path.name for path in figures.glob("*.*g")}
    assert names == {
        f"{stem}.{kind}"
        for stem in ("boundaries", "epsilon_cdf", "epsilon_distribution", "loss_against_epsilon")
        for kind in ("png", "svg")
    }


@pytest.mark.long  # test_resume.py has it in CI, of a study that compiles in no time
def test_an_interrupted_run_can_be_filled_up_to_the_same_arrays(finished, tmp_path, data_file):
    options = settings(tmp_path / "again", data_file)
    with pytest.raises(Killed):
        whitehouse2022.run(options, DiesAfter(4))
    store = Store.open(options.out)
    assert not store.done("logistic-brownian-public", "curve").all()
    store = runner.resume(options.out)
    for name, case in store.cases.items():
        for one in case.passes:
            left, right = finished.read(name, one), store.read(name, one)
            for variable in left.data_vars:
                np.testing.assert_array_equal(left[variable].values, right[variable].values)


def test_results_are_not_overwritten_unasked(finished, data_file):
    with pytest.raises(FileExistsError, match="holds results already"):
        whitehouse2022.run(settings(finished.folder, data_file))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_loss": (0.01,)}, "target_loss = 0.01: must be above 0."),
        ({"lowest_epsilon": 0.9}, r"lowest_epsilon = 0.9: must be above 0.966"),
        ({"target": None}, "target"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(tmp_path, data_file, changes, message):
    with pytest.raises(ValueError, match=message):
        whitehouse2022.run(settings(tmp_path, data_file, **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 0}, "trials = 0: must be at least 1"),
        ({"levels": 1}, "levels = 1: must be at least 2"),
        ({"curve_levels": 61}, "curve_levels = 61: must be at most levels = 60"),
        ({"delta": 1.5}, "delta = 1.5: must be strictly between 0 and 1"),
        ({"tight_at": -1.0}, "tight_at = -1.0: must be positive"),
        ({"lowest_epsilon": 70.0}, "lowest_epsilon = 70.0: must be between 0 and"),
        ({"mechanism": ("laplace", "laplace")}, "must be without repetition"),
        ({"mechanism": ()}, "must be at least one value"),
        ({"data": ("flights", "kdd99")}, "must be one value, or one for each of the tasks"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_bad_settings_are_named(tmp_path, data_file, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, data_file, **changes)


# Each program takes seconds to compile: CI has each mechanism, each test and each task once, with
# `finished`.
MECHANISMS = ("brownian", "laplace")
TESTS = ("public", "above_threshold", "reduced_above_threshold")
SOME = pytest.param((MECHANISMS[:1], TESTS[1:]), id="some")
EVERY = pytest.param((MECHANISMS, TESTS), marks=pytest.mark.long, id="every")


@pytest.fixture(scope="module", params=[SOME, EVERY])
def ridge(request, tmp_path_factory):
    """On a user's own numbers."""
    mechanisms, tests = request.param
    x, y = small_data(rows=2000)
    frame = pandas.DataFrame(x, columns=list("abcde"))
    rng = np.random.default_rng(5)
    frame["cost"] = x @ np.array([0.5, -0.2, 0.3, 0.1, 0.0]) + 0.1 * rng.normal(size=len(y))
    folder = tmp_path_factory.mktemp("ridge")
    frame.to_csv(folder / "cost.csv", index=False)
    options = settings(folder / "results", folder / "cost.csv", task=("ridge",), target="cost")
    changes = {"mechanism": mechanisms, "test": tests, "trials": 60}
    changes |= {"target_loss": (0.12,), "regularisation": 0.2}
    return whitehouse2022.run(dataclasses.replace(options, **changes, test_epsilon=5.0))


def test_every_mechanism_and_test_is_a_case(ridge):
    summary = json.loads((ridge.folder / "summary.json").read_text())
    names = [(case["mechanism"], case["test"]) for case in summary["cases"]]
    assert names == [
        (mechanism, test)
        for mechanism in summary["settings"]["mechanism"]
        for test in summary["settings"]["test"]
    ]
    for case in summary["cases"]:
        outcome = ridge.read(f"ridge-{case['mechanism']}-{case['test']}", "outcome")
        stopped = outcome["status"].values == Status.STOPPED
        assert stopped.mean() > 0.5
        mechanism, charged = (outcome[f"{kind}_epsilon"].values for kind in ("mechanism", "test"))
        wanted = {
            "public": np.zeros_like(mechanism),
            "above_threshold": np.where(stopped, 5.0, 2.5),
            "reduced_above_threshold": np.where(stopped, mechanism, mechanism / 2),
        }[case["test"]]
        np.testing.assert_allclose(charged, wanted, rtol=1e-6)
        np.testing.assert_allclose(outcome["epsilon"].values, mechanism + charged, rtol=1e-6)
        # The private tests may err; the public one may not.
        below = outcome["utility"].values[stopped] < np.float32(-case["target"])
        assert case["test"] != "public" or not below.any()
        low, high = case["epsilon_interval"]["q50"]
        assert low <= case["epsilon"]["q50"] <= high
        if case["test"] != "public":
            radius = 1 / np.sqrt(case["regularisation"])
            assert case["utility_sensitivity"] == pytest.approx((radius + 1) ** 2 / 4000, rel=1e-3)


def test_ridge_curves_are_measured_once_under_both_constants(ridge):
    chosen = ridge.settings["settings"]
    names = [f"ridge-{mechanism}-{chosen['test'][0]}" for mechanism in chosen["mechanism"]]
    passes = {name: list(case.passes) for name, case in ridge.cases.items()}
    curves = ["outcome", "curve", "curve_tight"]
    assert [name for name in passes if len(passes[name]) > 1] == names
    for name in names:
        assert passes[name] == curves
        paper, tight = (-ridge.read(name, one)["utility"].values.mean(axis=0) for one in curves[1:])
        middle = slice(1, -1)
        assert np.all(tight[middle] < paper[middle])
    assert (ridge.folder / "figures" / "ridge_constants.png").exists()


def test_the_report_says_what_holds(ridge):
    summary = json.loads((ridge.folder / "summary.json").read_text())
    report = (ridge.folder / "report.md").read_text()
    assert len(summary["findings"]) == {2: 2, 6: 10}[len(ridge.cases)]
    for finding in summary["findings"]:
        assert finding["finding"] in report
        first, second = finding["values"]
        assert finding["difference"] == pytest.approx(first - second)
        if finding["interval"] is not None:
            low, high = finding["interval"]
            assert finding["holds"] == (True if high < 0 else False if low > 0 else None)
    assert report.count("| ridge ") == len(ridge.cases)
    assert whitehouse2022.report(ridge).headings[0] == "case"


@pytest.mark.parametrize(
    ("span", "holds"),
    [((-2.0, -1.0), True), ((1.0, 2.0), False), ((-1.0, 2.0), None), (None, None)],
)
def test_a_finding_holds_where_its_interval_has_one_sign(span, holds):
    assert _holds(span) is holds


def test_only_the_papers_data_can_be_unlike_the_paper():
    found = {
        "task": "ridge",
        "finding": "Brownian median below Laplace's",
        "cases": ["ridge-brownian-public", "ridge-laplace-public"],
        "values": [2.0, 1.0],
        "difference": 1.0,
        "interval": [0.5, 1.5],
        "holds": False,
    }
    for data in ("flights", "own.csv", "kdd99.csv"):
        assert "Laplace's: no. 2 (brownian, public)" in _sentence(found | {"data": data})
    for data in ("kdd99", "twitter"):
        assert "Laplace's: NO, unlike the paper. 2 (" in _sentence(found | {"data": data})
    assert "Laplace's: undecided. 2 (" in _sentence(found | {"data": "kdd99", "holds": None})


def test_a_median_at_infinity_is_remarked_on(finished):
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert not [line for line in _warnings(summary) if "infinite" in line]
    summary["cases"][0]["epsilon"]["q50"], summary["cases"][0]["stopped"] = None, 0.0
    (line,) = [line for line in _warnings(summary) if "infinite" in line]
    assert line.startswith("Warning: 0% of the logistic brownian public trials stopped; the others")
    assert "--target-loss" in line


FINDINGS = "Brownian median below Laplace's", "Brownian quartiles closer together than Laplace's"


def on_the_papers_data(folder, task, tests, trials):
    """Summary and findings of a run with the paper's settings."""
    options = whitehouse2022.Settings(
        out=folder / task,
        task=(task,),
        test=tests,
        data=("paper",),
        data_dir=SHARED,
        trials=trials,
        curve_levels=2,
    )
    store = whitehouse2022.run(options)
    summary = json.loads((store.folder / "summary.json").read_text())
    optimum, target = {"logistic": (0.39673, 0.41), "ridge": (0.013443, 0.025)}[task]
    for case in summary["cases"]:
        assert case["optimum"] == pytest.approx(optimum, rel=4e-5)
        assert case["target"] == target
        assert case["stopped"] > 0.99
    return {(one["finding"], *one["cases"]): one["holds"] for one in summary["findings"]}


REDUCED = "ReducedAboveThreshold's median below AboveThreshold's"


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder {SHARED} with the papers' data")
def test_the_papers_findings_on_kdd99(tmp_path, monkeypatch):
    """Whitehouse 2022, section 6: public tests."""
    monkeypatch.setattr(whitehouse2022, "plot", lambda store: None)  # others look at figures
    holds = on_the_papers_data(tmp_path, "logistic", ("public",), trials=300)
    for finding in FINDINGS:
        assert holds[finding, "logistic-brownian-public", "logistic-laplace-public"]


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder {SHARED} with the papers' data")
def test_the_papers_findings_on_private_tests(tmp_path):
    """The reduced test against the classical."""
    tests = ("above_threshold", "reduced_above_threshold")
    holds = on_the_papers_data(tmp_path, "logistic", tests, trials=300)
    for mechanism in ("brownian", "laplace"):
        pair = (f"logistic-{mechanism}-{test}" for test in reversed(tests))
        assert holds[REDUCED, *pair]


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder {SHARED} with the papers' data")
def test_the_papers_findings_on_twitter(tmp_path):
    """The same for ridge regression; under the reduced test Laplace is the dearer one."""
    tests = ("public", "above_threshold", "reduced_above_threshold")
    holds = on_the_papers_data(tmp_path, "ridge", tests, trials=200)
    for finding in FINDINGS:
        assert holds[finding, "ridge-brownian-public", "ridge-laplace-public"]
    pair = (f"ridge-brownian-{test}" for test in reversed(tests[1:]))
    assert holds[REDUCED, *pair]
    pair = (f"ridge-laplace-{test}" for test in reversed(tests[1:]))
    assert holds[REDUCED, *pair] is False
