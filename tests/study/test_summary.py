"""The summary keeps the contract: strict JSON, and infinity never averaged away."""

import json

import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.study.distribution import Sample
from nrjax.study.report import Report, lowest, span, within, write_report
from nrjax.study.store import Case, Pass, Store, Variable
from nrjax.study.summary import described, quartile_distance, summarise, write_summary
from nrjax.study.variables import total_epsilon
from nrjax.types import Status

SETTINGS = {
    "study": "whitehouse2022",
    "nrjax": "0.1.0",
    "jax": "0.10.2",
    "device": "cpu",
    "precision": "float32",
    "seed": 0,
    "settings": {"trials": 8},
    "jaxlib": "kept in the store, not in the summary",
}
ATTRIBUTES = {
    "task": "logistic",
    "mechanism": "brownian",
    "test": "public",
    "data": "kdd99",
    "optimum": 0.3967,
    "target": 0.41,
}
KEYS = ["mean", "q05", "q25", "q50", "q75", "q95"]
S, E, N = Status.STOPPED, Status.EXHAUSTED, Status.NAN_UTILITY


def store_of(folder, *outcomes, attributes=ATTRIBUTES, settings=SETTINGS):
    """A store with one case for each outcome: (epsilon, step, status, privacy_loss)."""
    names = {"epsilon": "float32", "step": "int32", "status": "int32", "privacy_loss": "float32"}
    variables = {name: Variable(dtype) for name, dtype in names.items()}
    cases = [
        Case(f"case{i}", attributes, {"outcome": Pass(len(outcome[0]), 100, variables)})
        for i, outcome in enumerate(outcomes)
    ]
    store = Store.create(folder, settings, cases)
    with store.writer() as writer:
        for case, outcome in zip(cases, outcomes, strict=True):
            arrays = {k: np.array(v, names[k]) for k, v in zip(names, outcome, strict=True)}
            writer.write(case.name, "outcome", 0, arrays, 2.0, 1.0)
    return store


def test_the_contract(tmp_path):
    epsilon = [0.5, 0.25, 1.0, 0.75, 2.0, 0.5, 4.0, 8.0]
    status = [S, S, S, S, S, S, E, N]
    loss = [0.1, 0.2, np.nan, np.nan, 0.4, 0.3, np.nan, np.nan]
    path = write_summary(store_of(tmp_path, (epsilon, range(8), status, loss)))
    assert path == tmp_path / "summary.json"
    summary = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert list(summary) == [
        *("study", "nrjax", "jax", "device", "precision", "seed", "settings", "cases")
    ]
    assert summary["settings"] == {"trials": 8}
    (case,) = summary["cases"]
    names = ("epsilon", "stopped_epsilon", "privacy_loss", "epsilon_interval", "stopped_interval")
    blocks = {name: case.pop(name) for name in names}
    assert case == {
        **ATTRIBUTES,
        "trials": 8,
        "stopped": 0.75,
        "status": {"STOPPED": 6, "EXHAUSTED": 1, "NAN_UTILITY": 1},
        "step": {"mean": 3.5, "q50": 3.0},
        "stopped_at_first_step": 0.125,
        # Eight trials bound no quartile on its outer side, nor the distance of the two.
        "quartile_distance": {"value": 1.5, "interval": [0.0, None]},
        "band": pytest.approx(0.4801614),  # sqrt(log(40) / 16)
        "resolution": 0.0,
        "seconds": {"compile": 1.0, "run": 2.0},
    }
    # Sorted, of all: 0.25 0.5 0.5 0.75 1 2 inf inf; the two that did not stop cost 4 and 8 so far.
    expected = [None, 0.25, 0.5, 0.75, 2.0, None]
    assert blocks["epsilon"] == dict(zip(KEYS, expected, strict=True))
    # P(B < 1) = 1/256 is at most 2.5 %, P(B < 2) = 9/256 is not; B is Binomial(8, 1/2).
    assert blocks["epsilon_interval"]["q50"] == [0.25, None]
    assert blocks["epsilon_interval"]["mean"] == [None, None]
    assert blocks["epsilon_interval"]["q05"][0] is None
    assert blocks["stopped_interval"] == pytest.approx([0.3491, 0.9681], abs=5e-5)
    expected = [5 / 6, 0.25, 0.5, 0.5, 1.0, 2.0]
    assert blocks["stopped_epsilon"] == pytest.approx(dict(zip(KEYS, expected, strict=True)))
    expected = [0.25, 0.1, 0.1, 0.2, 0.3, 0.4]
    assert blocks["privacy_loss"] == pytest.approx(dict(zip(KEYS, expected, strict=True)))


def test_without_a_guarantee_or_a_stop(tmp_path):
    nan, two = [np.nan, np.nan], [3.0, 4.0]
    store = store_of(
        tmp_path, (nan, [1, 2], [S, S], nan), (two, [1, 2], [E, E], two), (two, [1, 2], [S, S], nan)
    )
    no_guarantee, no_stop, plain = summarise(store)["cases"]
    assert no_guarantee["epsilon"] is no_guarantee["stopped_epsilon"] is None
    assert no_guarantee["privacy_loss"] is None
    assert no_guarantee["stopped"] == 1.0
    assert no_stop["epsilon"] == no_stop["stopped_epsilon"] == dict.fromkeys(KEYS)
    assert no_stop["stopped"] == 0.0
    assert plain["epsilon"] == plain["stopped_epsilon"]
    assert plain["epsilon"]["mean"] == 3.5


def test_a_nan_epsilon_beside_numbers_counts_as_infinite():
    status = np.array([S, S, E])
    got = total_epsilon(np.array([1.0, np.nan, 2.0]), status)
    np.testing.assert_array_equal(got, [1.0, np.inf, np.inf])


def test_the_distance_of_quartiles_is_bounded_by_their_intervals():
    values = Sample(np.arange(1000.0))
    found = quartile_distance(values)
    assert found["value"] == 500.0
    (low, _), (_, high) = (values.quantile_interval(percent, 0.975) for percent in (25, 75))
    assert found["interval"][1] == high - low
    assert 400 < found["interval"][0] < 500 < found["interval"][1] < 600
    nothing = quartile_distance(Sample(np.full(1000, np.inf)))
    assert nothing["value"] is None


def test_the_mean_is_taken_in_double_precision():
    values = np.full(3_000_000, 0.1, "float32")
    assert described(Sample(values))["mean"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_intervals_in_tables_look_no_shorter_than_they_are():
    assert within(1.0, (0.5, 1.991)) == "1 ±100%"
    assert within(2.0, (2.0, 5.01)) == "2 ±160%"
    assert within(0.0, (0.0, 0.12)) == "0 ±0.12"
    # An infinite median is between infinite ones, unless there are too few trials for a lower end.
    assert span((None, None), lowest(1000, 50)) == "inf-inf"
    assert span((None, None), lowest(5, 50)) == "-inf-inf"
    assert span((3.6336, 3.6344), digits=4) == "3.634-3.634"


@pytest.mark.parametrize("missing", ["seed", "settings"])
def test_a_missing_setting_is_named(tmp_path, missing):
    settings = {name: value for name, value in SETTINGS.items() if name != missing}
    with pytest.raises(ValueError, match=f"'{missing}' is missing from the settings"):
        summarise(store_of(tmp_path, ([1.0], [0], [S], [1.0]), settings=settings))


def test_a_missing_attribute_is_named(tmp_path):
    attributes = {name: value for name, value in ATTRIBUTES.items() if name != "target"}
    with pytest.raises(ValueError, match="'target' is missing from the attributes of case case0"):
        summarise(store_of(tmp_path, ([1.0], [0], [S], [1.0]), attributes=attributes))


def test_an_unfinished_run_has_no_summary_and_keeps_the_old_one(tmp_path):
    store = store_of(tmp_path, ([1.0], [0], [S], [1.0]))
    before = write_summary(store).read_text()
    assert write_summary(store).read_text() == before
    variables = {"epsilon": Variable("float32")}
    case = Case("case", ATTRIBUTES, {"outcome": Pass(2, 1, variables)})
    unfinished = Store.create(tmp_path / "other", SETTINGS, [case])
    with pytest.raises(RuntimeError, match="is not finished"):
        write_summary(unfinished)
    assert not (tmp_path / "other" / "summary.json").exists()


def test_a_failed_write_leaves_the_old_summary(tmp_path, monkeypatch):
    store = store_of(tmp_path, ([1.0], [0], [S], [1.0]))
    path = write_summary(store)
    old = path.read_text()
    path.write_text(old + " ")

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nrjax.study.folder.os.fsync", no_space)
    with pytest.raises(OSError, match=r"cannot write .*summary\.json: No space left"):
        write_summary(store)
    assert path.read_text() == old + " "
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("name", ["summary.json", "report.md"])
def test_what_somebody_else_wrote_stays(tmp_path, name):
    store = store_of(tmp_path, ([1.0], [0], [S], [1.0]))
    report = Report("title", ("case",), (("a",),), ())
    for _ in range(2):  # our own is replaced
        write_summary(store)
        write_report(store, report)
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        FileExistsError, match=rf"{name} was not written by nrjax and is left alone"
    ):
        write_report(store, report) if name == "report.md" else write_summary(store)
    assert (tmp_path / name).read_text() == "mine"
