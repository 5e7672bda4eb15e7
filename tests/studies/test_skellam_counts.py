"""The study of counts by group: its losses, what is said of them, and its folder."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax import Skellam, montecarlo
from nrjax.counts import MeanAbsoluteError, Neighbour, ShareOutside
from nrjax.studies import skellam_counts
from nrjax.studies.skellam_counts.findings import loss_of, losses, median_deviation
from nrjax.types import Status

ITEMS = {"a": 31, "b": 60, "c": 55, "d": 12, "e": 0, "f": 8, "g, h": 25, "i": 47}
TRIALS = 2000
ALARM = 1e-6  # of a false alarm, for a whole family


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "own.csv"
    path.write_text("item,count\n" + "".join(f'"{k}",{n}\n' for k, n in ITEMS.items()))
    return path


def settings(out, data_file, **changes):
    options = {
        "out": out,
        "data": str(data_file),
        "neighbour": ("replace", "remove"),
        "highest_deviation": 20.0,
        "lowest_deviation": 1.0,
        "relative_error": 0.2,
        "target_loss": 0.5,
        "levels": 12,
        "curve_levels": 4,
        "trials": TRIALS,
        "chunk": TRIALS,
        "delta": 0.001,
    }
    return skellam_counts.Settings(**(options | changes))


@pytest.fixture(scope="module")
def seeing(tmp_path_factory, data_file):
    """The finished run; and all that the Skellam case's program gave, with the releases."""
    seen, outcomes = [], montecarlo.outcomes

    def with_releases(trial, chunk, fields, batching):
        program = outcomes(trial, chunk, (*fields, "release", "hypothesis"), batching)
        run = program.run

        def kept(*arguments):
            seen.append(run(*arguments))
            return seen[-1]

        program.run = kept
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(montecarlo, "outcomes", with_releases)
        out = tmp_path_factory.mktemp("run") / "results"
        store = skellam_counts.run(settings(out, data_file))
    assert next(iter(store.cases)) == "counts-skellam-replace"
    return store, seen[0]


@pytest.fixture(scope="module")
def finished(seeing):
    return seeing[0]


@pytest.fixture(scope="module")
def seen(seeing):
    return seeing[1]


def losses_of(store, name):
    """Realised loss of each trial, in float64."""
    return loss_of(store.read(name, "outcome")).astype(float)


def deviations(store, name):
    """Standard deviation of the noise where each trial ended."""
    return np.geomspace(20, 1, 12)[store.read(name, "outcome")["step"].values]


def test_summary_keeps_the_contract(finished):
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert summary["study"] == "skellam_counts"
    names = [
        f"counts-{mechanism}-{neighbour}"
        for neighbour in ("replace", "remove")
        for mechanism in ("skellam", "brownian", "laplace")
    ]
    assert list(summary["realised"]) == list(finished.cases) == names
    for case, name in zip(summary["cases"], names, strict=True):
        assert f"{case['task']}-{case['mechanism']}-{case['neighbour']}" == name
        assert (case["test"], case["optimum"], case["target"]) == ("public", 0.0, 0.5)
        assert (case["trials"], case["rows"], case["dimension"]) == (TRIALS, 238, 8)
        assert case["groups"] == (["b", "c"] if case["neighbour"] == "replace" else ["b"])
        assert case["stopped"] > 0.9
        if case["mechanism"] == "skellam":
            assert case["epsilon"] is case["stopped_epsilon"] is case["epsilon_interval"] is None
            assert "delta" not in case
        else:
            assert case["epsilon"]["q50"] > 0
            assert case["delta"] == (0.001 if case["mechanism"] == "brownian" else 0)
        loss = np.sort(finished.read(name, "outcome")["privacy_loss"].values)
        found = summary["realised"][name]
        assert found["q99"]["value"] == loss[int(0.99 * TRIALS) - 1]
        assert found["mean"]["value"] == pytest.approx(loss.mean(dtype=float))
        for noted in (found["mean"], found["q05"], found["q50"], found["q95"]):
            assert noted["interval"][0] <= noted["value"] <= noted["interval"][1]


def test_skellam_releases_are_whole_numbers(seen):
    release = seen["release"]
    np.testing.assert_array_equal(release, np.round(release))
    assert len(np.unique(release[:, 0])) > 5
    np.testing.assert_array_equal(seen["hypothesis"], np.maximum(release, 0))


def test_stored_losses_are_those_of_an_independent_formula(finished, seen):
    """Against SciPy's Skellam law, in float64; the fault: the two rates' sum a tenth too large."""
    stored = finished.read("counts-skellam-replace", "outcome")
    np.testing.assert_array_equal(stored["step"].values, seen["step"])
    np.testing.assert_array_equal(stored["status"].values, seen["status"])
    noise = seen["release"].astype(float) - np.array(list(ITEMS.values()))
    mean = seen["time"].astype(float)[:, None] / 2
    shift = np.zeros(len(ITEMS))
    shift[1], shift[2] = 1, -1  # of the largest two groups

    def loss(mean):
        law = stats.skellam(mean, mean)
        return (law.logpmf(noise) - law.logpmf(noise + shift)).sum(axis=1)

    # The float32 of the time itself moves the law.
    for found in (stored["privacy_loss"].values, seen["privacy_loss"]):
        error = np.abs(found - loss(mean))
        assert error.max() < (2e-5 if found.dtype == np.float32 else 1e-9)
    assert np.abs(found - loss(1.1 * mean)).max() > 1e-2


def test_utilities_are_shares_of_the_groups(seen):
    counts = np.array(list(ITEMS.values()))
    off = np.abs(seen["hypothesis"] - counts) > np.floor(0.2 * counts + 1e-6)
    np.testing.assert_allclose(-seen["utility"], off.mean(axis=1), atol=1e-6)
    np.testing.assert_array_equal(seen["status"] == Status.STOPPED, off.mean(axis=1) <= 0.5)


def _identity_scores(loss):
    """z-scores of `E exp(-loss) = 1`, along the last axis."""
    inverse = np.exp(-loss.astype(float))
    spread = inverse.std(axis=-1, ddof=1)
    return (inverse.mean(axis=-1) - 1) / (spread / np.sqrt(loss.shape[-1]))


def _alarm(scores):
    return bool(np.max(np.abs(scores)) > stats.norm.isf(ALARM / (2 * np.size(scores))))


@jax.jit
def _levels(process, other, keys):
    """Losses at falling times, by the process's own law and by another's."""
    shift = jnp.array([1.0, -1.0])

    def rewound(state, inputs):
        state = process.rewind(inputs[0], state, inputs[1])
        return state, jnp.array([one.privacy_loss(state, shift) for one in (process, other)])

    def trial(key):
        first, *rest = jax.random.split(key, 3)
        state = process.init(first, 40.0)
        return jax.lax.scan(rewound, state, (jnp.stack(rest), jnp.array([9.0, 2.0])))[1]

    return jax.vmap(trial, out_axes=2)(keys)


@pytest.mark.long  # of the process alone, and one more program: CI has it in tests/processes
def test_likelihood_ratios_have_mean_1_at_each_level():
    """`exp(-loss)` is a likelihood ratio; with wrong rates it is none."""
    keys = jax.random.split(jax.random.key(2), 20_000)
    loss = np.asarray(_levels(Skellam((2,), 0.5, 0.5), Skellam((2,), 0.4, 0.4), keys))
    assert not _alarm(_identity_scores(loss[:, 0]))
    assert _alarm(_identity_scores(loss[:, 1]))


def test_likelihood_ratios_have_mean_1_where_trials_stop(finished):
    """The error seen is a function of the release, so a stop is a stopping time."""
    loss = np.stack([losses_of(finished, name) for name in finished.cases])
    assert not _alarm(_identity_scores(loss))
    assert _alarm(_identity_scores(-loss))
    for name, score in zip(finished.cases, _identity_scores(loss), strict=True):
        noted = skellam_counts.realised(finished)[name]["exp_minus_loss"]
        assert (noted["value"] - 1) / noted["standard_error"] == pytest.approx(score)


def test_likelihood_ratios_have_mean_1_along_the_path(finished):
    curves = [finished.read(name, "curve")["privacy_loss"].values.T for name in finished.cases]
    loss = np.concatenate([curve[:-1] for curve in curves])  # the last is too rare to average
    assert not _alarm(_identity_scores(loss))
    assert _alarm(_identity_scores(-loss))


def test_mechanisms_share_the_standard_deviations(finished, data_file):
    grid = np.geomspace(20, 1, 12)
    for name in finished.cases:
        middle = np.sort(deviations(finished, name))[TRIALS // 2 - 1]
        assert median_deviation(finished, name) == middle
    for setup in skellam_counts.setups(settings(finished.folder, data_file)):
        trial, name = setup.interactions["outcome"], setup.case.name
        np.testing.assert_allclose(trial.process.deviation(trial.schedule.times), grid, rtol=1e-5)
        outcome = finished.read(name, "outcome")
        found = trial.process.deviation(outcome["time"].values)
        np.testing.assert_allclose(deviations(finished, name), found, rtol=1e-5)
        levels = finished.read(name, "curve")["deviation"].values
        np.testing.assert_allclose(levels, grid[[0, 4, 7, 11]])


def test_what_is_stated_holds(finished):
    for neighbour, length in (("replace", 2), ("remove", 1)):
        outcome = finished.read(f"counts-laplace-{neighbour}", "outcome")
        scale = deviations(finished, f"counts-laplace-{neighbour}") / np.sqrt(2)
        np.testing.assert_allclose(outcome["epsilon"].values, length / scale, rtol=1e-5)
        assert (outcome["privacy_loss"] <= outcome["epsilon"]).all()
        assert (outcome["privacy_loss"] > 0.99 * outcome["epsilon"]).any()
        outcome = finished.read(f"counts-brownian-{neighbour}", "outcome")
        # delta = 0.001: more than 12 of 2000 have a probability below 1e-6.
        assert (outcome["privacy_loss"] > outcome["epsilon"]).sum() <= 12
        curve = finished.read(f"counts-brownian-{neighbour}", "curve")
        above = (curve["privacy_loss"] > curve["epsilon"]).any("level")
        assert above.sum() <= 12


def test_report_and_figures(finished):
    report = skellam_counts.report(finished)
    rows = {row[0]: dict(zip(report.headings, row, strict=True)) for row in report.rows}
    assert len(rows) == 6
    for neighbour in ("replace", "remove"):
        assert rows[f"skellam {neighbour}"]["epsilon"] == "none"
        assert float(rows[f"brownian {neighbour}"]["epsilon"]) > 0
    loss = np.sort(losses_of(finished, "counts-brownian-remove"))
    assert rows["brownian remove"]["95 %"] == f"{loss[int(0.95 * TRIALS) - 1]:.3g}"
    assert losses(finished, "counts-brownian-remove").quantile(95) == loss[int(0.95 * TRIALS) - 1]
    remarks = "\n".join(report.remarks)
    assert "238 rows in 8 groups" in remarks
    assert "one of the rows of 'b' is in 'c' instead" in remarks
    assert "one of the rows of 'b' is missing" in remarks
    assert "no published guarantee" in remarks
    assert "show no quantile" not in remarks
    (sentence,) = (remark for remark in report.remarks if remark.startswith("skellam replace: "))
    assert re.search(r", 1 - 0.001 \S+ \(\S+ to inf\)", sentence)  # 0.999^2000 is above 2.5 %
    text = (finished.folder / "report.md").read_text()
    assert all(remark in text for remark in report.remarks)
    names = {path.name for path in (finished.folder / "figures").glob("*.*g")}
    assert names == {
        f"{stem}.{kind}"
        for stem in ("realised_loss", "loss_cdf", "loss_along_path")
        for kind in ("png", "svg")
    }


def test_few_trials_show_no_extreme_quantile(finished, monkeypatch):
    monkeypatch.setitem(finished.settings["settings"], "delta", 1e-4)
    for found in skellam_counts.realised(finished).values():
        noted = found["one_minus_delta"]
        assert noted["value"] is None
        assert noted["interval"][0] is not None
        assert noted["interval"][1] is None


def test_utilities_of_counts():
    share = ShareOutside.relative([30, 0, 100, 7], 0.1)
    np.testing.assert_array_equal(share.slack, [3, 0, 10, 0])
    release = jnp.array([33.4, -5.0, 89.4, np.nan])
    hypothesis = share.hypothesis(release)
    np.testing.assert_array_equal(hypothesis, [33, 0, 89, np.nan])
    assert share.evaluate(hypothesis) == -0.5
    error = MeanAbsoluteError(np.array([30, 0, 100, 7]))
    assert error.evaluate(error.hypothesis(release.at[3].set(6.6))) == -14 / 4
    for utility in (share, error):  # halfway between k and k + 1 of 4 groups
        for target, threshold in ((0.0, -0.125), (0.25, -0.375), (0.3, -0.375), (0.5, -0.625)):
            assert utility.threshold(target) == threshold
    for counts in ([1.5], [-1], [np.nan], []):
        with pytest.raises(ValueError, match="counts = "):
            MeanAbsoluteError(np.array(counts))
    with pytest.raises(ValueError, match=r"error = -0\.1: must be"):
        ShareOutside.relative([1], -0.1)


def test_neighbours():
    moved, gone = Neighbour.replace(4, 2, 0), Neighbour.remove(4, 1)
    np.testing.assert_array_equal(moved.shift, [-1, 0, 1, 0])
    np.testing.assert_array_equal(gone.shift, [0, 1, 0, 0])
    assert (moved.l1_sensitivity, moved.l2_sensitivity) == (2, np.sqrt(2))
    assert (gone.l1_sensitivity, gone.l2_sensitivity) == (1, 1)
    for build, match in (
        (lambda: Neighbour.replace(4, 4, 0), r"i = 4: must be in \[0, 4\)"),
        (lambda: Neighbour.replace(4, 1, 1), r"j = 1: must be .* not i = 1"),
        (lambda: Neighbour.remove(4, -1), r"i = -1: must be"),
    ):
        with pytest.raises(ValueError, match=match):
            build()


def test_the_absolute_criterion_and_named_groups(tmp_path, data_file):
    chosen = settings(
        tmp_path,
        data_file,
        criterion="absolute",
        target_loss=None,
        highest_deviation=None,
        groups=("g, h", "a"),
    )
    (setup, *_) = skellam_counts.setups(chosen)
    mean = np.mean(list(ITEMS.values()))
    assert setup.case.attributes["target"] == pytest.approx(0.2 * mean)
    assert setup.case.attributes["highest_deviation"] == pytest.approx(2 * mean)
    assert setup.case.attributes["groups"] == ["g, h", "a"]
    np.testing.assert_array_equal(setup.interactions["outcome"].shift, [-1, 0, 0, 0, 0, 0, 1, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": ("a", "z")}, r"groups = 'z': must be the names of two groups of own.csv"),
        ({"highest_deviation": 1e5}, "highest_deviation = 100000.0: must be at most 57"),
        ({"highest_deviation": 1e9}, r"largest count of own.csv is 60 and noise .* must fit"),
        (
            {"relative_error": 0.01, "highest_deviation": None},
            "highest_deviation = None: must be above",
        ),
        ({"data": "nothing"}, "data = 'nothing'"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(
    tmp_path, data_file, changes, message, monkeypatch
):
    monkeypatch.setattr(skellam_counts.cases, "largest_count", lambda dtype: 2.0**24)
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        skellam_counts.run(settings(out, data_file, **changes))
    assert not out.exists()


def test_the_noise_ends_where_large_counts_still_resolve_it(tmp_path):
    path = tmp_path / "large.csv"
    path.write_text("item,count\na,938870\nb,4\n")
    chosen = settings(tmp_path, path, lowest_deviation=None)
    lowest = skellam_counts.setups(chosen)[0].case.attributes["lowest_deviation"]
    expected = max(0.5, 17 * float(np.spacing(np.asarray(938870, jnp.result_type(float)))))
    assert lowest == pytest.approx(expected)
    assert lowest == pytest.approx(1.0625 if jnp.result_type(float) == np.float32 else 0.5)


def test_one_group_has_no_row_to_move(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("item,count\na,5\n")
    with pytest.raises(ValueError, match="neighbour = 'replace': must be remove"):
        skellam_counts.setups(settings(tmp_path, path))
    one = settings(tmp_path, path, neighbour=("remove",), mechanism=("skellam",))
    assert len(skellam_counts.setups(one)) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": ()}, "mechanism = .*: must be at least one value"),
        ({"neighbour": ("remove", "remove")}, "must be without repetition"),
        ({"groups": ("a",)}, "groups = .*: must be the names of two groups"),
        ({"groups": ("a", "a")}, "groups = .*: must be the names of two groups"),
        ({"trials": 0}, "trials = 0: must be at least 1"),
        ({"curve_levels": 13}, "curve_levels = 13: must be at most levels = 12"),
        ({"seed": -1}, "seed = -1"),
        ({"delta": 0.0}, "delta = 0.0: must be strictly between 0 and 1"),
        ({"relative_error": 0.0}, "relative_error = 0.0: must be positive"),
        ({"lowest_deviation": 30.0}, "lowest_deviation = 30.0: must be below highest_deviation"),
        ({"target_loss": 1.0}, "target_loss = 1.0: must be below 1, a share of the groups"),
        ({"target_loss": -1.0}, "target_loss = -1.0: must be 0 or more"),
        ({"tight_at": np.nan}, "tight_at = nan: must be positive"),
    ],
)
def test_bad_settings_are_named(tmp_path, data_file, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, data_file, **changes)
