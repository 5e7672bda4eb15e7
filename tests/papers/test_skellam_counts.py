"""The study of counts by group: realised losses, report and figures."""

import dataclasses
import re

import numpy as np
import pytest
from scipy import stats

from nrjax.papers import skellam_counts
from nrjax.papers.skellam_counts.settings import median_deviation
from nrjax.study.figures import standard
from tests.invented import check_margin
from tests.papers.shared import COUNTS_REMARK, ITEMS, counts_file, run, summary_of

TRIALS = 2000
ALARM = 1e-6  # probability of a false alarm in a family of tests
SKELLAM = "counts-skellam-replace"


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    return counts_file(tmp_path_factory.mktemp("data") / "own.csv", ITEMS)


def settings(data_file, **changes):
    options = {
        "data": str(data_file),
        "neighbour": ("replace", "remove"),
        "highest_deviation": 20.0,
        "lowest_deviation": 1.0,
        "relative_error": 0.2,
        "target_loss": 0.5,
        "levels": 12,
        "curve_levels": 4,
        "delta": 0.001,
    }
    return skellam_counts.Settings(**(options | changes))


# Programs take seconds to compile; `test_ex_post.py` has Brownian noise by default.
EVERY = ("skellam", "brownian", "laplace", "discrete_laplace")
SOME = EVERY[:1] + EVERY[2:]


@pytest.fixture(scope="module", params=[SOME, pytest.param(EVERY, marks=pytest.mark.long)], ids=len)
def finished(request, tmp_path_factory, data_file):
    """Return results, with the releases of the Skellam cases."""
    study = skellam_counts.study(settings(data_file, mechanism=request.param))
    for name in (SKELLAM, "counts-skellam-remove"):  # both, as they share a compiled program
        case = study.cases[name]
        quantities = {**case.quantities, "noisy": lambda outcome: outcome.release}
        study.cases[name] = dataclasses.replace(case, quantities=quantities)
    return run(study, tmp_path_factory.mktemp("run"), trials=TRIALS, chunk=TRIALS)


def losses_of(results, name):
    """Return the realised loss of each trial in float64."""
    return results[name]["realised_loss"].values.astype(float)


def deviations(results, name):
    """Return the standard deviation of the noise where each trial ended."""
    return np.geomspace(20, 1, 12)[results[name]["step"].values]


@pytest.mark.long
def test_the_summary_has_realised_losses(finished):
    summary = summary_of(finished)
    names = [f"counts-{case['mechanism']}-{case['neighbour']}" for case in summary["cases"]]
    assert list(summary["realised"]) == list(finished) == names
    assert len(set(names)) == 2 * len(summary["settings"]["mechanism"])
    for case, name in zip(summary["cases"], names, strict=True):
        assert (case["target"], case["rows"], case["dimension"]) == (0.5, 238, 8)
        assert case["groups"] == (["b", "c"] if case["neighbour"] == "replace" else ["b"])
        assert case["stopped"] > 0.9
        deltas = {"brownian": 0.001, "laplace": 0.0, "discrete_laplace": 0.0}
        assert case.get("delta") == deltas.get(case["mechanism"])
        assert (case["stopping_epsilon"] is None) == (case["mechanism"] == "skellam")
        loss, realised = np.sort(losses_of(finished, name)), summary["realised"][name]
        assert realised["q99"]["value"] == loss[int(0.99 * TRIALS) - 1]
        assert realised["mean"]["value"] == pytest.approx(loss.mean())
        for key in ("mean", "q05", "q50", "q95"):
            low, high = realised[key]["interval"]
            assert low <= realised[key]["value"] <= high


def test_losses_are_those_of_an_independent_formula(finished):
    """SciPy's Skellam distribution in float64. Planted: rates that are a tenth too large."""
    arrays = finished.arrays(SKELLAM)
    noise = arrays["noisy"].astype(float) - np.array(list(ITEMS.values()))
    mean = arrays["time"].astype(float)[:, None] / 2
    shift = np.zeros(len(ITEMS))
    shift[1], shift[2] = 1, -1  # of the largest two groups

    def loss(mean):
        skellam = stats.skellam(mean, mean)
        return (skellam.logpmf(noise) - skellam.logpmf(noise + shift)).sum(axis=1)

    realised = arrays["privacy_loss"]
    np.testing.assert_array_equal(realised, arrays["realised_loss"])
    # The time is rounded to float32, which changes the distribution.
    assert np.abs(realised - loss(mean)).max() < (2e-5 if realised.dtype == np.float32 else 1e-9)
    assert np.abs(realised - loss(1.1 * mean)).max() > 1e-2


def _identity_scores(loss):
    """Return z-scores of `E exp(-loss) = 1` along the last axis."""
    inverse = np.exp(-loss.astype(float))
    spread = inverse.std(axis=-1, ddof=1)
    return (inverse.mean(axis=-1) - 1) / (spread / np.sqrt(loss.shape[-1]))


def _alarm(scores):
    return bool(np.max(np.abs(scores)) > stats.norm.isf(ALARM / (2 * np.size(scores))))


def test_likelihood_ratios_have_mean_1_at_the_stop_and_along_the_path(finished):
    """The error is a function of the release, so trials end at a stopping time."""
    at_stop = np.stack([losses_of(finished, name) for name in finished])
    curves = [finished[f"{name}/curve"]["privacy_loss_along"].values.T for name in finished]
    along = np.concatenate([curve[:-1] for curve in curves])  # the last is too rare to average
    for loss in (at_stop, along):
        assert not _alarm(_identity_scores(loss))
        assert _alarm(_identity_scores(-loss))
    realised = summary_of(finished)["realised"]
    for name, score in zip(finished, _identity_scores(at_stop), strict=True):
        ratio = realised[name]["exp_minus_loss"]
        assert (ratio["value"] - 1) / ratio["standard_error"] == pytest.approx(score, rel=1e-4)


def test_mechanisms_share_the_standard_deviations(finished, data_file):
    grid = np.geomspace(20, 1, 12)
    chosen = settings(data_file, mechanism=tuple(summary_of(finished)["settings"]["mechanism"]))
    for name, case in skellam_counts.cases(chosen).items():
        ends = deviations(finished, name)
        assert median_deviation(finished, name) == np.sort(ends)[TRIALS // 2 - 1]
        trial = case.trial
        np.testing.assert_allclose(trial.process.deviation(trial.schedule.times), grid, rtol=1e-5)
        kept = trial.process.deviation(finished[name]["time"].values)
        np.testing.assert_allclose(ends, kept, rtol=1e-5)
        levels = finished[f"{name}/curve"]["deviation"].values
        np.testing.assert_allclose(levels, grid[[0, 4, 7, 11]])


def test_stated_epsilons_hold(finished):
    realised = summary_of(finished)["realised"]
    for neighbour, length in (("replace", 2), ("remove", 1)):
        for mechanism in ("laplace", "discrete_laplace"):
            name = f"counts-{mechanism}-{neighbour}"
            outcome, rate = finished[name], np.sqrt(2) / deviations(finished, name)
            if mechanism == "discrete_laplace":
                rate = 2 * np.arcsinh(rate / 2)
            np.testing.assert_allclose(outcome["epsilon"].values, length * rate, rtol=1e-5)
            assert (outcome["privacy_loss"] <= outcome["epsilon"]).all()
            assert (outcome["privacy_loss"] > 0.99 * outcome["epsilon"]).any()
            assert realised[name]["exceeded"] == 0
            # Planted: an epsilon that is a tenth smaller does not hold.
            assert (outcome["privacy_loss"] > 0.9 * outcome["epsilon"]).mean() > 0.01
        assert realised[f"counts-skellam-{neighbour}"]["exceeded"] is None
        if f"counts-brownian-{neighbour}" not in finished:
            continue
        outcome = finished[f"counts-brownian-{neighbour}"]
        # At delta = 0.001 more than 12 of 2000 trials have a probability below 1e-6.
        assert (outcome["privacy_loss"] > outcome["epsilon"]).sum() <= 12
        curve = finished[f"counts-brownian-{neighbour}/curve"]
        above = (curve["privacy_loss_along"] > curve["epsilon"]).any("level")
        assert above.sum() <= 12


def test_whole_numbers_cost_less_than_real_ones(finished):
    """At one standard deviation, and trial by trial."""
    comparisons = summary_of(finished)["comparisons"]
    assert [one["neighbour"] for one in comparisons] == ["replace", "remove"]
    for one in comparisons:
        first, second = (np.sort(finished[name]["stopping_epsilon"]) for name in one["cases"])
        difference = first[TRIALS // 2 - 1] - second[TRIALS // 2 - 1]
        assert one["difference"] == pytest.approx(difference, rel=1e-5)
        assert one["interval"][0] <= difference <= one["interval"][1]
        curves = (finished[f"{name}/curve"]["epsilon"].values for name in one["cases"])
        assert np.all(np.divide(*curves) < 1)


def test_neighbours_are_not_compared_with_each_other(finished):
    figure = finished.plot("paired_differences")["paired_differences"]
    titles = [axes.get_title().split("\n")[0] for axes in figure.axes]
    assert [title[-9:] for title in titles] == ["(replace)", " (remove)"]
    for axes in figure.axes:
        names = {line.get_label() for line in axes.lines if " minus " in str(line.get_label())}
        _, first, *others = summary_of(finished)["settings"]["mechanism"]
        assert names == {f"{one.replace('_', ' ')} minus {first}" for one in others}


def test_the_report_has_stated_epsilons_and_realised_losses(finished):
    report = finished.table()
    rows = {row[0]: dict(zip(report.headings, row, strict=True)) for row in report.rows}
    assert len(rows) == len(finished)
    stated = ("stopping epsilon", "q90", "q95")
    for neighbour in ("replace", "remove"):
        assert rows[f"skellam {neighbour}"]["stopping epsilon"] == "none"
        paid = [float(rows[f"laplace {neighbour}"][one]) for one in stated]
        assert 0 < paid[0] <= paid[1] <= paid[2]
    loss = np.sort(losses_of(finished, "counts-laplace-remove"))
    assert rows["laplace remove"]["95 %"] == f"{loss[int(0.95 * TRIALS) - 1]:.3g}"
    assert report.remarks.count(COUNTS_REMARK) == 1
    remarks = "\n".join(report.remarks)
    assert "238 rows in 8 groups" in remarks
    assert "one of the rows of 'b' is in 'c' instead" in remarks
    assert "one of the rows of 'b' is missing" in remarks
    assert "no published guarantee" in remarks
    assert "discrete Laplace noise (whole numbers)" in remarks
    assert "exceeded in 0 % of the trials" in remarks
    assert "show no quantile" not in remarks
    (sentence,) = (remark for remark in report.remarks if remark.startswith("skellam replace: "))
    assert re.search(r", 1 - 0.001 \S+ \(\S+ to inf\)", sentence)  # 0.999^2000 is above 2.5 %


def test_few_trials_show_no_extreme_quantile(finished, monkeypatch):
    monkeypatch.setitem(finished.store.settings["settings"], "delta", 1e-4)
    for realised in finished.reporting.findings(finished)["realised"].values():
        extreme = realised["one_minus_delta"]
        assert extreme["value"] is None
        assert extreme["interval"][0] is not None
        assert extreme["interval"][1] is None


@pytest.mark.long
def test_figures_show_losses_and_stated_epsilons(finished):
    own = ("realised_loss", "loss_cdf", "loss_along_path")
    assert set(finished.reporting.figures(finished)) == {*own, *standard(finished)}
    figures = finished.plot(*own)
    for figure in figures.values():
        check_margin(figure)
    loss = losses_of(finished, SKELLAM)
    line = next(one for one in figures["loss_cdf"].axes[0].lines if one.get_label() == "skellam")
    x, share = line.get_data()
    np.testing.assert_allclose(share, [100 * np.mean(loss <= one) for one in x], atol=1e-9)
    for axes, name in zip(figures["loss_along_path"].axes, finished, strict=True):
        along = finished[f"{name}/curve"]
        lines = [line for line in axes.lines if len(line.get_xdata()) == 4]
        quantiles = [line for line in lines if line.get_linewidth() == 1.6]
        stated = [line.get_ydata() for line in lines if line.get_linewidth() == 3.5]
        assert len(stated) == ("skellam" not in name)
        ordered = np.sort(along["privacy_loss_along"].values, axis=0)
        np.testing.assert_array_equal(quantiles[1].get_ydata(), ordered[TRIALS // 2 - 1])
        if stated:
            np.testing.assert_array_equal(stated[0], along["epsilon"].values)


def test_the_absolute_criterion_and_named_groups(data_file):
    chosen = settings(
        data_file,
        criterion="absolute",
        target_loss=None,
        highest_deviation=None,
        groups=("g, h", "a"),
    )
    case = skellam_counts.cases(chosen)[SKELLAM]
    mean = np.mean(list(ITEMS.values()))
    assert case.labels["target"] == pytest.approx(0.2 * mean)
    assert case.labels["highest_deviation"] == pytest.approx(2 * mean)
    assert case.labels["groups"] == ["g, h", "a"]
    np.testing.assert_array_equal(case.trial.shift, [-1, 0, 0, 0, 0, 0, 1, 0])


def test_the_last_noise_is_not_lost_in_the_rounding_of_large_counts(tmp_path, dtype):
    path = counts_file(tmp_path / "large.csv", {"a": 938870, "b": 4})
    case = skellam_counts.cases(settings(path, lowest_deviation=None))[SKELLAM]
    lowest = case.labels["lowest_deviation"]
    assert lowest == pytest.approx(max(0.5, 17 * float(np.spacing(np.asarray(938870, dtype)))))
    assert lowest == pytest.approx(1.0625 if dtype == np.float32 else 0.5)


def test_one_group_has_no_row_to_move(tmp_path):
    path = counts_file(tmp_path / "one.csv", {"a": 5})
    with pytest.raises(ValueError, match="neighbour must be remove"):
        skellam_counts.study(settings(path))
    one = settings(path, neighbour=("remove",), mechanism=("skellam",))
    assert len(skellam_counts.study(one).cases) == 1
