"""The study of Rogers 2023: stored arrays, comparisons and report."""

import math
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks import numpy_rogers
from nrjax.datasets import zipf_counts
from nrjax.datasets.counts import REDDIT
from nrjax.papers import rogers2023
from tests.papers.shared import COUNTS_REMARK, apart, counts_file, run, summary_of

COUNTS = np.round(3000 * np.arange(1, 31) ** -0.9).astype(int)
TRIALS = 240
NAMES = ["own-brownian-unified", "own-doubling-unified"]


def settings(data_file, **changes):
    options = {"data": (str(data_file),), "epsilon": 1.0, "selection": 0.02, "levels": 50}
    return rogers2023.Settings(**(options | changes))


def cases(settings):
    """Return names and cases, and the facts for the store."""
    built, facts = rogers2023.cases(settings)
    return list(built), list(built.values()), facts


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    counts = {f"word {number}": count for number, count in enumerate(COUNTS)}
    return counts_file(tmp_path_factory.mktemp("data") / "own.csv", counts)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data_file):
    study = rogers2023.study(settings(data_file))
    return run(study, tmp_path_factory.mktemp("run"), trials=TRIALS, chunk=128)


@pytest.fixture(scope="module")
def summary(finished):
    return summary_of(finished)


@pytest.mark.long
def test_the_summary_has_moments_of_the_trials_in_the_store(summary, finished):
    assert list(finished) == NAMES
    for case, name, method in zip(summary["cases"], NAMES, ("brownian", "doubling"), strict=True):
        known = {"data": "own.csv", "samples": None, "method": method, "filter": "unified"}
        known |= {"trials": TRIALS, "items": 30, "total": int(COUNTS.sum()), "currency": "rho"}
        known |= {"alpha": 0.1, "epsilon": 1.0, "delta": 1e-6, "selection": 0.02, "levels": 50}
        assert case.items() >= known.items()
        assert not {"task", "stopped", "status", "stopping_epsilon_interval"} & set(case)
        arrays = finished.arrays(name)
        returned = arrays["returned"].astype(float)
        share = arrays["precise"] / returned
        for key, values in (("returned", returned), ("precision", share)):
            error = values.std(ddof=1) / TRIALS**0.5
            span = stats.t.interval(0.95, TRIALS - 1, values.mean(), error)
            expected = {"mean": values.mean(), "std": values.std(), "min": values.min()}
            expected |= {"standard_error": error}
            moments = dict(case[key])
            assert moments.pop("interval") == pytest.approx(span, rel=1e-6)
            assert moments.pop("max", returned.max()) == returned.max()
            assert moments == pytest.approx(expected, rel=1e-4)
        assert case["spent"]["mean"] == pytest.approx(arrays["spent"].mean(dtype=float))
        assert case["spent"]["share"] == pytest.approx(case["spent"]["mean"] / case["budget"])
        # At (1, 1e-6) the squared parameters may add up to 0.03494.
        assert case["budget"] == pytest.approx(0.03494 / 2, rel=2e-4)
        assert 5 < case["returned"]["mean"] < 29
        assert 0.9 < case["precision"]["mean"] <= 1
        assert arrays["spent"].dtype == jnp.result_type(float)
        assert (arrays["spent"] <= case["budget"]).all()
        assert (arrays["spent"] > 0.8 * case["budget"]).all()
        for whole, by in (("returned", "returned_by"), ("precise", "precise_by")):
            assert arrays[by].shape == (TRIALS, 100)
            np.testing.assert_array_equal(arrays[by][:, -1], arrays[whole])
        assert (arrays["precise"] <= arrays["returned"]).all()
        np.testing.assert_allclose(finished[name]["share"].values, np.arange(1, 101) / 100)
    counts = finished.store.settings["counts"]
    assert counts == {"own": {"counts": COUNTS.tolist(), "expected": None}}


def test_comparisons_are_paired_by_trial(summary, finished):
    first, second = (finished.arrays(name) for name in NAMES)
    (pair,) = summary["comparisons"]
    assert pair["methods"] == ["brownian", "doubling"]
    assert pair["filters"] == ["unified", "unified"]
    difference = second["returned"] - first["returned"].astype(float)
    assert pair["returned"]["difference"] == pytest.approx(difference.mean())
    error = difference.std(ddof=1) / TRIALS**0.5
    assert pair["returned"]["standard_error"] == pytest.approx(error)
    assert pair["more"] == (difference > 0).mean()
    assert pair["ratio"] == pytest.approx(second["returned"].mean() / first["returned"].mean())
    assert pair["returned"]["difference"] < -10 * error  # as the paper states


def samples(returned, precise, attempted, squared):
    """Return the samples whose means are compared, given the `squared` parameters spent."""
    share = np.where(returned > 0, precise / np.maximum(returned, 1), 1.0)
    counts = {"returned": returned, "returned squared": (returned - 20.0) ** 2}
    return counts | {"precision": share, "attempted": attempted, "spent": squared}


def numpy_samples(method, selection=0.02):
    """Run the benchmark's NumPy loop."""
    rng, budget = np.random.default_rng(0), numpy_rogers.unified(1.0, 1e-6, selection)
    numbers = COUNTS.astype(float), method, 0.1, 0.02, budget, 1e-4, 50
    return samples(*np.array([numpy_rogers.run_trial(rng, *numbers) for _ in range(800)]).T)


def fresh_reduction(rng, count, alpha, smallest, most, levels):
    """Draw fresh noise at each level, right at every level but without the joint law."""
    squared = np.linspace(smallest, most, levels)
    noisy = count + rng.standard_normal(levels) / np.sqrt(squared)
    good = numpy_rogers.accepted(noisy, np.sqrt(squared), alpha)
    first = int(np.argmax(good))
    return (noisy[first], squared[first]) if good[first] else (math.nan, most)


def pay_last_try_only(rng, count, alpha, smallest, most, levels):
    """Double, but pay for the last try only."""
    noisy, spent = numpy_rogers.doubling(rng, count, alpha, smallest, most, levels)
    return noisy, (spent + smallest) / 2  # 2^k = (1 + 2 + ... + 2^k + 1) / 2


@pytest.mark.parametrize(
    ("method", "faulty", "seen"),
    [("brownian", fresh_reduction, "precision"), ("doubling", pay_last_try_only, "returned")],
)
def test_trials_are_distributed_as_a_numpy_loop(finished, method, faulty, seen, monkeypatch):
    """Planted: other releases, and selections that cost more, as for replaced users."""
    arrays = finished.arrays(f"own-{method}-unified")
    counts = (arrays[name].astype(float) for name in ("returned", "precise", "attempted"))
    ours = samples(*counts, 2 * arrays["spent"])
    assert ours["returned"].std() > 0.5
    assert ours["attempted"].max() < COUNTS.size  # the budget ends a trial
    assert apart(ours, numpy_samples(method)) == {}
    assert "attempted" in apart(ours, numpy_samples(method, selection=0.04))
    monkeypatch.setitem(numpy_rogers.METHODS, method, faulty)
    assert seen in apart(ours, numpy_samples(method))


def test_the_report_states_means_budget_and_comparison(summary, finished):
    report = finished.table()
    assert [row[0] for row in report.rows] == ["own.csv brownian", "own.csv doubling"]
    for row, case in zip(report.rows, summary["cases"], strict=True):
        mean, error = case["returned"]["mean"], case["returned"]["standard_error"]
        assert row[1] == f"{mean:.2f} ± {error:.2f}"
    assert report.remarks.count(COUNTS_REMARK) == 1
    text = "\n".join(report.remarks)
    assert f"counts of rows by 30 items, {COUNTS.sum():,} in all; relative error 0.1" in text
    assert "Budget of the filter unified at epsilon 1: rho = 0.017469" in text
    assert re.search(r"own.csv: doubling against brownian: -\d.*paired by trial: fewer", text)
    assert "in 1 of 1 comparisons under the same filter" in text
    assert "Reddit" not in text


def test_zipf_sizes_share_shapes_and_so_a_compilation():
    names, built, facts = cases(rogers2023.Settings(samples=(8000, 128_000), seed=3))
    methods = ("brownian", "doubling")
    assert names == [
        f"zipf-{size}-{method}-unified" for size in (8000, 128_000) for method in methods
    ]
    for case in built:
        labels = case.labels
        assert (labels["data"], labels["total"]) == ("zipf", labels["samples"])
        expected = zipf_counts(labels["samples"], 3).counts
        np.testing.assert_array_equal(case.trial.counts, expected)
        assert facts["counts"][labels["dataset"]]["counts"] == list(expected)
    for pair in (built[::2], built[1::2]):
        first, second = (
            (
                jax.tree.structure(case.trial),
                [np.shape(leaf) for leaf in jax.tree.leaves(case.trial)],
            )
            for case in pair
        )
        assert first == second
    assert len({case.labels["samples"] for case in cases(rogers2023.Settings())[1]}) == 5


def test_reddit_has_both_readings_of_the_paper(tmp_path):
    (tmp_path / REDDIT).write_text("item,count\n" + "".join(f"w{n},{n}\n" for n in range(1, 1201)))
    names, built, _ = cases(rogers2023.Settings(data=("reddit",), data_dir=tmp_path))
    assert names == [
        f"reddit-{method}-unified-{smallest}"
        for smallest in ("0.0001", "1e-08")
        for method in ("brownian", "doubling")
    ]
    for case in built:
        known = {"alpha": 0.01, "selection": 0.01, "epsilon": 1.0, "items": 1000, "samples": None}
        assert case.labels.items() >= known.items()
        assert case.trial.counts.min() == 201  # the largest thousand
    own = {"top": 7, "alpha": 0.05, "smallest": (1e-5,), "neighbour": "replace"}
    chosen = rogers2023.Settings(data=("reddit",), data_dir=tmp_path, **own)
    names, (case, _), _ = cases(chosen)
    known = {"alpha": 0.05, "smallest": 1e-5, "items": 7, "selection": 0.01}
    assert case.labels.items() >= known.items()
    assert names[0] == "reddit-brownian-unified"
    assert not case.trial.selection.monotone


def test_filters_are_those_of_the_settings(data_file):
    methods = ("brownian", "doubling", "laplace", "discrete_laplace")
    options = {"method": methods, "filter": ("renyi",)}
    _, built, _ = cases(settings(data_file, **options))
    orders = [case.labels["order"] for case in built]
    assert orders[0] == orders[1] > orders[2] > 1  # Laplace noise has heavier tails
    assert orders[3] == pytest.approx(orders[2], rel=0.02)  # nearly the same cost
    for case in cases(settings(data_file, **options, order=30.0))[1]:
        assert case.labels["order"] == 30
        assert case.labels["currency"] == "Renyi divergence"
        assert case.labels["budget"] == pytest.approx(float(case.trial.filter.budget))
    _, (gaussian,), _ = cases(settings(data_file, method=("brownian",), filter=("gaussian",)))
    assert gaussian.labels["budget"] == pytest.approx(0.05603, rel=2e-4)
    assert gaussian.labels["order"] is None


def test_no_result_has_precision_one():
    trial = SimpleNamespace(returned=jnp.array([0, 4, 3]), precise=jnp.array([0, 4, 0]))
    np.testing.assert_array_equal(rogers2023.precision(trial), [1, 1, 0])
