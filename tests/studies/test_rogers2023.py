"""The study of counts within a relative error: its contract, its store, what it says."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.cli import main
from nrjax.datasets import zipf_counts
from nrjax.datasets.counts import REDDIT
from nrjax.studies import rogers2023, runner
from nrjax.studies.rogers2023 import findings
from nrjax.studies.store import Store

COUNTS = np.round(3000 * np.arange(1, 31) ** -0.9).astype(int)
TRIALS = 240
NAMES = ["own-brownian-unified", "own-doubling-unified"]


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "own.csv"
    lines = [f'"word {number}",{count}\n' for number, count in enumerate(COUNTS)]
    path.write_text("item,count\n" + "".join(lines))
    return path


def settings(out, data_file, **changes):
    """The same study as the command of `finished`."""
    options = {
        "out": out,
        "data": (str(data_file),),
        "epsilon": 1.0,
        "selection": 0.02,
        "levels": 50,
        "trials": TRIALS,
        "chunk": 128,
    }
    return rogers2023.Settings(**(options | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data_file):
    out = tmp_path_factory.mktemp("run") / "results"
    words = f"run rogers2023 --data {data_file} --method brownian doubling --filter unified"
    numbers = f"--epsilon 1 --selection 0.02 --levels 50 --trials {TRIALS} --chunk 128 --seed 0"
    assert main([*words.split(), *numbers.split(), "--out", str(out)]) == 0
    return Store.open(out)


@pytest.fixture(scope="module")
def summary(finished):
    return json.loads((finished.folder / "summary.json").read_text())


def outcome(store, name):
    arrays = store.read(name, "outcome")
    return {str(variable): arrays[variable].values for variable in arrays}


def test_summary_keeps_the_contract(summary, finished):
    facts = ("study", "nrjax", "jax", "device", "precision", "seed", "settings", "cases")
    assert set(facts) <= set(summary)
    assert (summary["study"], summary["seed"]) == ("rogers2023", 0)
    assert list(finished.cases) == NAMES
    for case, name, method in zip(summary["cases"], NAMES, ("brownian", "doubling"), strict=True):
        known = {"data": "own.csv", "samples": None, "method": method, "filter": "unified"}
        known |= {"trials": TRIALS, "items": 30, "total": int(COUNTS.sum()), "currency": "rho"}
        known |= {"alpha": 0.1, "epsilon": 1.0, "delta": 1e-6, "selection": 0.02, "levels": 50}
        assert case.items() >= known.items()
        assert not {"task", "stopped", "status", "epsilon_interval"} & set(case)
        found = outcome(finished, name)
        returned = found["returned"].astype(float)
        share = found["precise"] / returned
        assert case["returned"] == {
            "mean": pytest.approx(returned.mean()),
            "std": pytest.approx(returned.std()),
            "min": returned.min(),
            "max": returned.max(),
            "standard_error": pytest.approx(returned.std(ddof=1) / TRIALS**0.5),
            "interval": pytest.approx(
                stats.t.interval(0.95, TRIALS - 1, returned.mean(), stats.sem(returned))
            ),
        }
        assert {name: case["precision"][name] for name in ("mean", "std", "min")} == {
            "mean": pytest.approx(share.mean()),
            "std": pytest.approx(share.std()),
            "min": pytest.approx(share.min()),
        }
        assert case["spent"]["mean"] == pytest.approx(found["spent"].mean(dtype=float))
        assert case["spent"]["share"] == pytest.approx(case["spent"]["mean"] / case["budget"])
        assert case["seconds"]["compile"] > 0
        assert case["seconds"]["run"] > 0
        # At (1, 1e-6) the squared parameters may add up to 0.03494.
        assert case["budget"] == pytest.approx(0.03494 / 2, rel=2e-4)
        assert 5 < case["returned"]["mean"] < 29
        assert 0.9 < case["precision"]["mean"] <= 1


def test_the_store_holds_each_trial_and_the_counts(summary, finished):
    assert finished.settings["counts"] == {"own": {"counts": COUNTS.tolist(), "expected": None}}
    for case, name in zip(summary["cases"], NAMES, strict=True):
        found = outcome(finished, name)
        assert found["spent"].dtype == jnp.result_type(float)
        assert (found["spent"] <= case["budget"]).all()
        assert (found["spent"] > 0.8 * case["budget"]).all()
        for whole, by in (("returned", "returned_by"), ("precise", "precise_by")):
            assert found[by].shape == (TRIALS, 100)
            assert (np.diff(found[by], axis=1) >= 0).all()
            np.testing.assert_array_equal(found[by][:, -1], found[whole])
        assert (found["precise"] <= found["returned"]).all()
        assert (found["returned"] <= found["attempted"]).all()
        assert found["attempted"].max() <= 30
        share = finished.read(name, "outcome")["share"].values
        np.testing.assert_allclose(share, np.arange(1, 101) / 100)


def test_comparisons_are_paired_by_trial(summary, finished):
    first, second = (outcome(finished, name) for name in NAMES)
    (found,) = summary["comparisons"]
    assert found["methods"] == ["brownian", "doubling"]
    assert found["filters"] == ["unified", "unified"]
    difference = second["returned"] - first["returned"].astype(float)
    assert found["returned"]["difference"] == pytest.approx(difference.mean())
    error = difference.std(ddof=1) / TRIALS**0.5
    assert found["returned"]["standard_error"] == pytest.approx(error)
    assert found["more"] == (difference > 0).mean()
    assert found["ratio"] == pytest.approx(second["returned"].mean() / first["returned"].mean())
    # The paper's statement, and by far.
    assert found["returned"]["difference"] < -10 * error


def test_the_report_says_what_was_found(summary, finished):
    report = rogers2023.report(finished)
    assert [row[0] for row in report.rows] == ["own.csv brownian", "own.csv doubling"]
    for row, case in zip(report.rows, summary["cases"], strict=True):
        cells = dict(zip(report.headings[:2], row[:2], strict=True))
        found = case["returned"]
        assert cells["returned"] == f"{found['mean']:.2f} ± {found['standard_error']:.2f}"
    text = "\n".join(report.remarks)
    assert f"counts of rows by 30 items, {COUNTS.sum():,} in all; relative error 0.1" in text
    assert "Budget of the filter unified at epsilon 1: rho = 0.017469" in text
    assert re.search(r"own.csv: doubling against brownian: -\d.*paired by trial: fewer", text)
    assert "in 1 of 1 comparisons under the same filter" in text
    assert "Reddit" not in text
    assert text.replace("\n", "\n- ") in (finished.folder / "report.md").read_text()
    names = {path.name for path in (finished.folder / "figures").iterdir()}
    stems = ("counts", "returned", "budget")
    assert {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")} <= names


@pytest.mark.long  # test_resume.py has it in CI
def test_an_interrupted_run_is_finished_where_it_stopped(tmp_path, data_file, finished):
    class Interrupted:
        def begin(self, case, name, trials, done):
            pass

        def advance(self, trials, seconds):
            raise KeyboardInterrupt

    chosen = settings(tmp_path / "out", data_file)
    with pytest.raises(KeyboardInterrupt):
        rogers2023.run(chosen, Interrupted())
    store = Store.open(tmp_path / "out")
    assert store.done(NAMES[0], "outcome").tolist() == [True, False]
    with pytest.raises(RuntimeError, match="not finished"):
        findings.comparisons(store)
    store = runner.resume(tmp_path / "out")
    assert store.settings["counts"] == finished.settings["counts"]
    for name in NAMES:
        for variable, values in outcome(finished, name).items():
            np.testing.assert_array_equal(outcome(store, name)[variable], values)


def test_zipf_sizes_share_a_layout_and_with_it_a_compilation(tmp_path):
    chosen = rogers2023.Settings(out=tmp_path, samples=(8000, 128_000), seed=3)
    cases = rogers2023.setups(chosen)
    assert [setup.case.name for setup in cases] == [
        f"zipf-{size}-{method}-unified"
        for size in (8000, 128_000)
        for method in ("brownian", "doubling")
    ]
    for setup in cases:
        facts = setup.case.attributes
        assert (facts["data"], facts["total"]) == ("zipf", facts["samples"])
        expected = zipf_counts(facts["samples"], 3).counts
        np.testing.assert_array_equal(setup.release.counts, expected)
        assert rogers2023.also(cases)["counts"][facts["dataset"]]["counts"] == list(expected)
    for one, other in (cases[::2], cases[1::2]):
        leaves = [jax.tree.leaves(setup.release) for setup in (one, other)]
        assert jax.tree.structure(one.release) == jax.tree.structure(other.release)
        kinds = [[(type(leaf), np.shape(leaf)) for leaf in some] for some in leaves]
        assert kinds[0] == kinds[1]
    assert (
        len(
            {
                (s.case.attributes["samples"])
                for s in rogers2023.setups(rogers2023.Settings(out=tmp_path))
            }
        )
        == 5
    )


def test_reddit_has_both_readings_of_the_paper(tmp_path):
    (tmp_path / REDDIT).write_text("item,count\n" + "".join(f"w{n},{n}\n" for n in range(1, 1201)))
    chosen = rogers2023.Settings(out=tmp_path / "out", data=("reddit",), data_dir=tmp_path)
    cases = rogers2023.setups(chosen)
    assert [setup.case.name for setup in cases] == [
        f"reddit-{method}-unified-{smallest}"
        for smallest in ("0.0001", "1e-08")
        for method in ("brownian", "doubling")
    ]
    for setup in cases:
        known = {"alpha": 0.01, "selection": 0.01, "epsilon": 1.0, "items": 1000, "samples": None}
        assert setup.case.attributes.items() >= known.items()
        assert setup.counts.counts.min() == 201  # the largest thousand
    own = rogers2023.Settings(
        out=tmp_path / "out",
        data=("reddit",),
        data_dir=tmp_path,
        top=7,
        alpha=0.05,
        smallest=(1e-5,),
        neighbour="replace",
    )
    (one, _) = rogers2023.setups(own)
    known = {"alpha": 0.05, "smallest": 1e-5, "items": 7, "selection": 0.01}
    assert one.case.attributes.items() >= known.items()
    assert one.case.name == "reddit-brownian-unified"
    assert not one.release.selection.monotone


def test_filters_are_those_of_the_settings(tmp_path, data_file):
    options = {"method": ("brownian", "doubling", "laplace"), "filter": ("renyi",)}
    cases = rogers2023.setups(settings(tmp_path, data_file, **options))
    orders = [setup.case.attributes["order"] for setup in cases]
    assert orders[0] == orders[1] > orders[2] > 1  # Laplace noise has heavier tails
    for setup in rogers2023.setups(settings(tmp_path, data_file, **options, order=30.0)):
        assert setup.case.attributes["order"] == 30
        assert setup.case.attributes["currency"] == "Renyi divergence"
        assert setup.case.attributes["budget"] == pytest.approx(float(setup.release.filter.budget))
    (gaussian,) = rogers2023.setups(
        settings(tmp_path, data_file, method=("brownian",), filter=("gaussian",))
    )
    assert gaussian.case.attributes["budget"] == pytest.approx(0.05603, rel=2e-4)
    assert gaussian.case.attributes["order"] is None


def test_no_result_has_precision_one():
    returned, precise = np.array([0, 4, 3]), np.array([0, 4, 0])
    np.testing.assert_array_equal(findings.precision(returned, precise), [1, 1, 0])
    assert findings.standard_error(np.ones(1)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--method laplace", "filter = 'unified': must be renyi with the method laplace"),
        ("--method brownian laplace --filter renyi gaussian", "filter = 'gaussian': must be renyi"),
        ("--data flights --samples 8000", "samples = (8000,): must be none for flights: only zipf"),
        ("--samples 8000 8000", "samples = (8000, 8000): must be without repetition"),
        ("--samples 0", "samples = 0: must be from 1 to 2^31"),
        ("--alpha 1", "alpha = 1.0: must be below 1"),
        ("--alpha nan", "alpha = nan: must be positive and finite"),
        ("--epsilon 0", "epsilon = 0.0: must be positive and finite"),
        ("--delta 1", "delta = 1.0: must be strictly between 0 and 1"),
        ("--smallest 1e-4 0", "smallest = 0.0: must be positive and finite"),
        ("--order 3", "order = 3.0: must be None without the filter renyi"),
        ("--filter renyi --order 1", "order = 1.0: must be finite and above 1"),
        ("--levels 1", "levels = 1: must be at least 2"),
        ("--trials 0", "trials = 0: must be at least 1"),
        ("--top 0", "top = 0: must be at least 1"),
        ("--seed -1", "seed = -1: must be in [0, 2^32)"),
    ],
)
def test_wrong_choices_are_named_at_the_door(tmp_path, arguments, message, capsys):
    assert main(["run", "rogers2023", *arguments.split(), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selection": 1.0}, r"selection = 1.0: must be small enough for one selection and one"),
        ({"smallest": (1.0,)}, r"selection = 0.02: must be small enough .* \(smallest is 1;"),
        ({"top": 31}, "number of groups = 31: must be from 1 to 30, the groups of own.csv"),
        ({"data": ("nothing",)}, "data = 'nothing': must be zipf, flights, reddit, or the path"),
        ({"data": ("a/own.csv", "b/own.csv")}, "data = .*: must be files of different names"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(tmp_path, data_file, changes, message):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        rogers2023.run(settings(out, data_file, **changes))
    assert not out.exists()
