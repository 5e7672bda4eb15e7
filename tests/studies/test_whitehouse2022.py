"""The study from its settings to its store, summary and figures."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest

from nrjax.studies import common, whitehouse2022
from nrjax.studies.store import Store
from nrjax.types import Status
from tests.problems import small_data

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
        for stem in ("epsilon_distribution", "loss_against_epsilon")
        for kind in ("png", "svg")
    }


class Interrupted(Exception):
    pass


class StopsAfter:
    """Progress that breaks off after so many chunks."""

    def __init__(self, chunks):
        self.left = chunks

    def begin(self, case, name, trials, done):
        assert 0 <= done <= trials

    def advance(self, trials, seconds):
        assert trials > 0
        assert seconds > 0
        self.left -= 1
        if self.left == 0:
            raise Interrupted


def test_an_interrupted_run_can_be_filled_up_to_the_same_arrays(finished, tmp_path, data_file):
    options = settings(tmp_path / "again", data_file)
    with pytest.raises(Interrupted):
        whitehouse2022.run(options, StopsAfter(4))
    store = Store.open(options.out)
    assert not store.done("logistic-brownian-public", "curve").all()
    cases = whitehouse2022.setups(options)
    common.fill(store, jax.random.key(0), whitehouse2022.programs(cases))
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


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder {SHARED} with the papers' data")
def test_the_paper_finding_holds_on_the_paper_data(tmp_path):
    """Whitehouse 2022, section 6: Brownian median below Laplace's, and a tighter spread."""
    options = whitehouse2022.Settings(
        out=tmp_path / "kdd", data=("kdd99",), data_dir=SHARED, trials=400
    )
    store = whitehouse2022.run(options)
    brownian, laplace = json.loads((store.folder / "summary.json").read_text())["cases"]
    for case in (brownian, laplace):
        assert case["optimum"] == pytest.approx(0.39673, abs=5e-6)
        assert case["target"] == 0.41
        assert case["stopped"] == 1.0
    assert brownian["epsilon"]["q50"] < laplace["epsilon"]["q50"]
    spreads = [
        np.log(case["epsilon"]["q95"] / case["epsilon"]["q05"]) for case in (brownian, laplace)
    ]
    assert spreads[0] < spreads[1]
