"""The study of Whitehouse 2022: costs, report and figures."""

import itertools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax import GridBoundary, LinearBoundary
from nrjax._base.outcome import Status
from nrjax.guarantees.notions import PUBLIC_TEST
from nrjax.papers import regression, whitehouse2022
from nrjax.papers.whitehouse2022.figures import boundaries
from nrjax.papers.whitehouse2022.report import (
    exponential_tests,
    public_optimum,
    sentence,
    targets_from_data,
)
from nrjax.stopping import accuracy
from nrjax.study.figures import standard
from nrjax.study.plotting import STYLES
from tests.invented import bands, check_margin, check_margin_sees, ends_of, legend_of
from tests.papers.shared import PAPERS_DATA, on_papers_data, rows_file, run, summary_of

LEVELS, TRIALS = 60, 150


def settings(data_file, **changes):
    options = {
        "task": ("logistic",),
        "mechanism": ("laplace",),
        "test": ("public",),
        "data": (str(data_file),),
        "target": "late",
        "levels": LEVELS,
        "curve_levels": 6,
        "lowest_epsilon": 1.0,
        "tight_at": 2.0,
        "highest_epsilon": 60.0,
    }
    return whitehouse2022.Settings(**(options | changes))


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    # Programs of ridge regression grow with the number of features.
    return rows_file(tmp_path_factory.mktemp("data") / "own.npz", 2000, 2)


@pytest.fixture(scope="module")
def logistic(tmp_path_factory, data_file):
    study = whitehouse2022.study(settings(data_file, rows=300))
    return run(study, tmp_path_factory.mktemp("run"), trials=TRIALS, chunk=64)


# Each program takes seconds to compile: by default each mechanism, test and task runs once.
MECHANISMS = ("brownian", "laplace")
TESTS = ("public", "above_threshold", "reduced_above_threshold")
SOME = pytest.param((MECHANISMS[:1], TESTS[1:]), id="some")
EVERY = pytest.param((MECHANISMS, TESTS), marks=pytest.mark.long, id="every")


@pytest.fixture(scope="module", params=[SOME, EVERY])
def ridge(request, tmp_path_factory, data_file):
    mechanisms, tests = request.param
    changes = {"task": ("ridge",), "target": "cost", "mechanism": mechanisms, "test": tests}
    changes |= {"target_loss": (0.12,), "regularisation": 0.2, "test_epsilon": 5.0}
    study = whitehouse2022.study(settings(data_file, **changes))
    return run(study, tmp_path_factory.mktemp("ridge"), trials=60)


@pytest.mark.long
def test_public_tests_stop_at_the_target_and_losses_fall_with_epsilon(logistic):
    for name, case in zip(logistic, summary_of(logistic)["cases"], strict=True):
        assert name == f"logistic-{case['mechanism']}-public"
        assert case["target"] == -case["goal"] == pytest.approx(1.03 * case["optimum"])
        assert 0 < case["stopped"] == case["met"] <= 1
        outcome, curve = logistic[name], logistic[f"{name}/curve"]
        target = np.asarray(case["target"], jnp.result_type(float))
        assert np.all(outcome["utility"].values[outcome["stopped"].values] >= -target)
        assert np.all(np.isfinite(outcome["epsilon"].values))
        assert np.unique(outcome["time"].values).size > 5
        assert curve["utility"].shape == (TRIALS, 6)
        losses = -curve["utility"].values.mean(axis=0)
        assert losses[0] > losses[2] > losses[-1] > case["optimum"]
        np.testing.assert_allclose(curve["epsilon"].values[[0, -1]], [1.0, 60.0])


def test_the_noise_of_private_tests_is_the_settings(data_file):
    private = {"test": TESTS[1:]}
    for changes, noise in (({}, "laplace"), ({"test_noise": "exponential"}, "exponential")):
        for case in whitehouse2022.cases(settings(data_file, **private, **changes)).values():
            assert case.trial.rule.noise == case.labels["test_noise"] == noise
            assert case.trial.rule.threshold == -case.labels["target"]
        assert bool(exponential_tests([case.labels])) == (noise == "exponential")


def test_a_confidence_sets_private_tests_up(data_file):
    options = {"test": TESTS, "lowest_epsilon": 0.1, "confidence": 0.9}
    cases = whitehouse2022.cases(settings(data_file, **options))
    public, fixed, reduced = (cases[f"logistic-laplace-{test}"] for test in TESTS)
    target, optimum = public.labels["target"], public.labels["optimum"]
    threshold = -target + 0.75 * (target - optimum)
    for case in (fixed, reduced):
        assert case.goal == public.goal == pytest.approx(-target)
        assert case.trial.rule.threshold == pytest.approx(threshold)
    # A model at the target is accepted at any level with probability 0.1 at most.
    gap, sensitivity = threshold + target, fixed.labels["utility_sensitivity"]
    wrong = accuracy.acceptance_probability(gap, fixed.trial.rule.epsilon, sensitivity)
    assert LEVELS * float(wrong) == pytest.approx(0.1, rel=1e-3)
    assert public.trial.steps == fixed.trial.steps == LEVELS
    costs = reduced.trial.guarantee.epsilon(reduced.trial.schedule.times)
    wrong = accuracy.acceptance_probability(gap, costs, sensitivity)
    assert 0.05 < float(wrong.sum()) <= 0.1
    assert 1 < reduced.trial.steps < LEVELS
    chosen = {"confidence": 0.9, "test": TESTS}
    assert "non-private optimum" in public_optimum(chosen)[0]
    for change in ({"confidence": None}, {"test": ["public"]}):
        assert not public_optimum(chosen | change)


def test_private_tests_of_your_own_table_are_set_up(data_file):
    options = {"data": str(data_file), "target": "late", "mechanism": ("laplace",)}
    chosen = regression.Settings(**options, test=TESTS[1:])
    for case in regression.study(chosen).cases.values():
        target, optimum = case.labels["target"], case.labels["optimum"]
        assert case.trial.rule.threshold == pytest.approx(-target + 0.75 * (target - optimum))
    few = {"test": TESTS[2:], "highest_epsilon": 0.1}
    with pytest.raises(ValueError, match=r"margin must .* raise --target-loss or --highest-eps"):
        regression.study(regression.Settings(**options, **few))


def test_every_mechanism_and_test_is_a_case(ridge):
    summary = summary_of(ridge)
    names = [(case["mechanism"], case["test"]) for case in summary["cases"]]
    chosen = summary["settings"]
    assert names == list(itertools.product(chosen["mechanism"], chosen["test"]))
    for case in summary["cases"]:
        outcome = ridge[f"ridge-{case['mechanism']}-{case['test']}"]
        stopped = outcome["status"].values == Status.STOPPED
        assert stopped.mean() > 0.5
        mechanism, charged = (outcome[f"{kind}_epsilon"].values for kind in ("mechanism", "test"))
        expected = {
            "public": np.zeros_like(mechanism),
            "above_threshold": np.where(stopped, 5.0, 2.5),
            "reduced_above_threshold": np.where(stopped, mechanism, mechanism / 2),
        }[case["test"]]
        np.testing.assert_allclose(charged, expected, rtol=1e-6)
        np.testing.assert_allclose(outcome["epsilon"].values, mechanism + charged, rtol=1e-6)
        # Only the private tests may accept a model that misses the target.
        goal = np.asarray(-case["target"], jnp.result_type(float))
        below = outcome["utility"].values[stopped] < goal
        assert case["test"] != "public" or not below.any()
        assert case["met"] == np.sum(~below) / 60
        low, high = case["stopping_epsilon_interval"]["q50"]
        assert low <= case["stopping_epsilon"]["q50"] <= high
        if case["test"] != "public":
            radius = 1 / np.sqrt(case["regularisation"])
            assert case["utility_sensitivity"] == pytest.approx((radius + 1) ** 2 / 4000, rel=1e-3)


def test_the_boundary_of_the_grid(data_file):
    """It has the same times and smaller epsilons, and does not change Laplace noise."""
    linear, exact = (
        whitehouse2022.cases(settings(data_file, mechanism=MECHANISMS, boundary=boundary))
        for boundary in ("linear", "grid")
    )
    for name, case in exact.items():
        before, now = linear[name].trial, case.trial
        times = np.asarray(now.schedule.times)
        np.testing.assert_array_equal(times, before.schedule.times)
        large, small = (np.asarray(one.guarantee.epsilon(times), float) for one in (before, now))
        if "laplace" in name:
            np.testing.assert_array_equal(small, large)
            continue
        assert isinstance(before.guarantee, LinearBoundary)
        assert isinstance(now.guarantee, GridBoundary)
        assert np.all(small < 0.98 * large)
        curve, linear_curve = (cases[name].curves["curve"] for cases in (exact, linear))
        np.testing.assert_allclose(curve.along["epsilon"][::5], small[[0, -1]])
        assert linear_curve.along["epsilon"][0] == 1.0


def test_ridge_curves_are_measured_once_under_both_constants(ridge):
    chosen = ridge.store.settings["settings"]
    names = [f"ridge-{mechanism}-{chosen['test'][0]}" for mechanism in chosen["mechanism"]]
    passes = {name: list(case.passes) for name, case in ridge.cases.items()}
    curves = ["outcome", "curve", "curve_tight"]
    assert [name for name in passes if len(passes[name]) > 1] == names
    for name in names:
        assert passes[name] == curves
        paper, tight = (
            -ridge[f"{name}/{curve}"]["utility"].values.mean(axis=0) for curve in curves[1:]
        )
        middle = slice(1, -1)
        assert np.all(tight[middle] < paper[middle])
    figure = ridge.plot("ridge_constants")["ridge_constants"]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    for mechanism in chosen["mechanism"]:
        assert {f"{mechanism}, paper", f"{mechanism}, tight"} <= set(labels)
    check_margin(figure)


def test_the_report_states_which_claims_hold(ridge):
    summary, report = summary_of(ridge), (ridge.folder / "report.md").read_text()
    met = {case["case"]: case["met"] for case in summary["cases"]}
    assert len(summary["findings"]) == {2: 2, 6: 10}[len(ridge)]
    for finding in summary["findings"]:
        assert finding["finding"] in report
        first, second = finding["values"]
        assert finding["difference"] == pytest.approx(first - second)
        assert finding["met"] == [met[name] for name in finding["cases"]]
        if finding["interval"] is not None:
            low, high = finding["interval"]
            assert finding["holds"] == (True if high < 0 else False if low > 0 else None)
    assert report.count("| ridge-") == len(ridge)
    for case in summary["cases"]:
        case["remarks"] = ["Warning: one column."]
    assert ridge.reporting.report(ridge, summary).remarks.count("Warning: one column.") == 1
    assert "test" in legend_of(ridge.plot("epsilon_split")["epsilon_split"])


def test_a_report_has_no_words_on_what_the_study_lacks(logistic, ridge):
    for results, is_private in ((logistic, False), (ridge, True)):
        words = "A private test can be wrong"
        assert (words in (results.folder / "report.md").read_text()) == is_private
    summary = summary_of(ridge) | {"study": "regression"}
    remarks = "\n".join(ridge.reporting.report(ridge, summary).remarks)
    assert summary["findings"]
    assert not any(finding["finding"] in remarks for finding in summary["findings"])


def test_only_the_papers_data_can_be_unlike_the_paper():
    finding = {
        "task": "ridge",
        "finding": "Brownian median below Laplace's",
        "cases": ["ridge-brownian-public", "ridge-laplace-public"],
        "values": [2.0, 1.0],
        "difference": 1.0,
        "interval": [0.5, 1.5],
        "holds": False,
        "met": [1.0, 1.0],
    }
    for data in ("flights", "own.csv", "kdd99.csv"):
        stated = sentence(finding | {"data": data})
        assert f"Laplace's (ridge). Not here, on {data}: 2 (brownian, public)" in stated
    for data in ("kdd99", "twitter"):
        stated = sentence(finding | {"data": data})
        assert f"NOT HERE, although the data are the paper's, on {data}: 2 (" in stated
    finding |= {"data": "kdd99"}
    assert "These runs do not decide it, on kdd99: 2 (" in sentence(finding | {"holds": None})
    assert "But" not in sentence(finding)
    unlike = sentence(finding | {"met": [1.0, 0.5]})
    assert "But" in unlike
    assert "100 % and 50 % of the trials" in unlike


def test_a_warning_comes_with_the_options_to_change(logistic):
    summary = summary_of(logistic)
    summary["cases"][0]["stopping_epsilon"]["q50"] = None
    remarks = "\n".join(logistic.reporting.report(logistic, summary).remarks)
    assert "so does the median" in remarks
    assert "--target-loss sets the target" in remarks


def test_a_target_from_the_data_is_named_as_not_private(logistic, ridge):
    written = (logistic.folder / "report.md").read_text()
    assert "The target loss of logistic on own.npz is 1.03 times the non-private opt" in written
    assert f"- {PUBLIC_TEST} (all cases)." in written
    assert "times the non-private optimum" not in (ridge.folder / "report.md").read_text()
    case = {"task": "ridge", "data": "twitter", "target": 0.025, "optimum": 0.013}
    assert targets_from_data({"settings": {"target_loss": []}, "cases": [case]}) == []


def test_curves_of_losses_are_means_with_their_intervals(logistic):
    names = logistic.reporting.figures(logistic)
    assert {"boundaries", "loss_against_epsilon"} == set(names) - set(standard(logistic))
    figure = logistic.plot("loss_against_epsilon")["loss_against_epsilon"]
    (axes,) = figure.axes
    assert axes.get_title() == f"logistic on own.npz, {TRIALS} trials"
    lines = {line.get_label(): line for line in axes.lines}
    assert "laplace" in lines
    curve = logistic["logistic-laplace-public/curve"]
    loss, level = -curve["utility"].values.astype(float), curve["epsilon"].values
    np.testing.assert_allclose(axes.lines[0].get_xdata(), level)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), loss.mean(0), rtol=1e-6)
    half = stats.t.ppf(0.975, TRIALS - 1) * np.sqrt(loss.var(0, ddof=1) / TRIALS)
    (band,) = bands(axes, STYLES[0])
    widths = [high - low for low, high in ends_of(band).values()]
    np.testing.assert_allclose(widths[1:-1], 2 * half[1:-1], rtol=1e-3)
    facts = logistic.cases["logistic-laplace-public"].attributes
    for label, name in (("target", "target"), ("optimum without privacy", "optimum")):
        assert lines[f"{label}: {facts[name]:.4g}"].get_ydata()[0] == facts[name]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ex-post ε (nat)", "mean regularised loss")
    assert axes.get_legend() is not None
    check_margin(figure)
    check_margin_sees(figure)


@pytest.mark.parametrize("tight_at", [0.005, 12.0])
def test_boundaries_are_tight_where_the_runs_is(tight_at):
    chosen = {"settings": {"delta": 1e-5, "tight_at": tight_at}}
    figure = boundaries(SimpleNamespace(about=chosen))
    left, right = figure.axes
    assert left.get_title() == f"boundaries, tight at ε = {tight_at:g}, δ = 1e-05"
    assert list(left.lines[3].get_ydata()) == list(right.lines[3].get_xdata()) == [tight_at] * 2
    linear = left.lines[0]
    exact = LinearBoundary.tight_at_epsilon(tight_at, 1.0, 1e-5)
    times = linear.get_xdata()
    assert times[0] < float(exact.time(tight_at)) < times[-1]
    np.testing.assert_allclose(linear.get_ydata(), exact.epsilon(times), rtol=1e-5)


@pytest.mark.long
@on_papers_data
@pytest.mark.parametrize(
    ("task", "tests", "trials"),
    [("logistic", TESTS[:1], 300), ("logistic", TESTS[1:], 300), ("ridge", TESTS, 200)],
)
def test_the_papers_findings_on_its_data(tmp_path, task, tests, trials):
    """Whitehouse 2022, section 6: KDD-99 for logistic, Twitter for ridge regression."""
    options = {"data": ("paper",), "data_dir": PAPERS_DATA, "curve_levels": 2}
    chosen = whitehouse2022.Settings(task=(task,), test=tests, **options)
    summary = summary_of(run(whitehouse2022.study(chosen), tmp_path, trials=trials))
    optimum, target = {"logistic": (0.39673, 0.41), "ridge": (0.013443, 0.025)}[task]
    for case in summary["cases"]:
        assert case["optimum"] == pytest.approx(optimum, rel=4e-5)
        assert case["target"] == target
        assert case["stopped"] > 0.99
    checked = 0
    for one in summary["findings"]:
        lower, higher = one["cases"]
        if lower.endswith("public"):  # Brownian noise against Laplace noise
            assert one["holds"] is True
        elif lower.endswith("reduced_above_threshold") and higher.endswith("-above_threshold"):
            # For ridge regression the reduced test makes Laplace noise more expensive.
            assert one["holds"] is (task == "logistic" or "brownian" in lower)
        else:
            continue
        checked += 1
    assert checked == 2 * (len(tests) - (len(tests) > 1))


def test_objective_perturbation_is_a_curve_without_a_guarantee(data_file):
    chosen = settings(data_file, rows=300, mechanism=MECHANISMS, baseline=("objective",))
    brownian, laplace = whitehouse2022.cases(chosen).values()
    assert set(laplace.curves) == {"curve"}
    curve = brownian.curves["objective"]
    assert curve.interaction.guarantee is None  # several releases have none
    assert curve.along == brownian.curves["curve"].along
    epsilons = np.asarray(curve.along["epsilon"])
    paid = 2 * np.log1p(0.25 / (300 * chosen.regularisation))
    times = np.asarray(curve.interaction.schedule.times)
    allowance = 1 + 300 * 4 * np.finfo(times.dtype).eps  # for what the solver leaves
    np.testing.assert_allclose(times, 2 * allowance / (epsilons - paid), rtol=5e-5)


@pytest.mark.long
def test_objective_perturbation_has_the_smallest_loss_of_pure_releases(tmp_path, data_file):
    changes = {"rows": 300, "mechanism": ("spherical",), "baseline": ("objective",)}
    results = run(whitehouse2022.study(settings(data_file, **changes)), tmp_path, trials=TRIALS)
    case = results["logistic-spherical-public/curve"]
    other = results["logistic-spherical-public/objective"]
    losses = [-each["utility"].values.astype(float) for each in (case, other)]
    assert np.all(losses[1].mean(0)[:3] < losses[0].mean(0)[:3])
    figure = results.plot("loss_against_epsilon")["loss_against_epsilon"]
    (axes,) = figure.axes
    assert "objective, one release" in [line.get_label() for line in axes.lines]
