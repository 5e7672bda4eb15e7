"""The summary keeps its contract: strict JSON, and infinite epsilons in no finite average."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")
from nrjax._base.outcome import Outcome, Status
from nrjax.statistics.sample import Sample
from nrjax.study import formats, report
from nrjax.study.case import FIELDS
from nrjax.study.formats import lower, lowest, span, upper, within
from nrjax.study.results import Outcomes
from tests.invented import invented
from tests.study import cheap

FACTS = dict(zip(("study", "nrjax", "jax", "device", "precision"), "abcde", strict=True))
SETTINGS = {**FACTS, "seed": 0, "settings": {"trials": 8}, "jaxlib": "not in the summary"}
LABELS = {"task": "logistic", "goal": -0.41}
KEYS = ["mean", "q05", "q25", "q50", "q75", "q90", "q95"]
S, E, N = Status.STOPPED, Status.EXHAUSTED, Status.NAN_UTILITY
NAMES = ("epsilon", "step", "status", "privacy_loss", "utility")


class WithFacts(cheap.Quiet):
    case_facts = ("task",)


def results_of(folder, *outcomes, labels=LABELS):
    """Return results with a case per outcome: its trials' values of `NAMES`."""
    cases = {}
    for number, outcome in enumerate(outcomes):
        arrays = dict.fromkeys(FIELDS, np.zeros(len(outcome[0]), "float32"))
        for name, values in zip(NAMES, outcome, strict=True):
            arrays[name] = np.array(values, "int32" if name in ("step", "status") else "float32")
        cases[f"case{number}"] = labels, arrays
    return invented(folder, cases, WithFacts(), seconds=(2.0, 1.0), **SETTINGS)


def write(results):
    with results.store.writer() as writer:
        results.write_reports(writer)


def test_the_contract(tmp_path):
    epsilon = [0.5, 0.25, 1.0, 0.75, 2.0, 0.5, 4.0, 8.0]
    status = [S, S, S, S, S, S, E, N]
    loss = [0.1, 0.2, np.nan, np.nan, 0.4, 0.3, np.nan, np.nan]
    utility = [-0.41, 0.0, -0.5, -0.75, -0.3, -1.25, -9, np.nan]  # the last two did not stop
    results = results_of(tmp_path, (epsilon, range(8), status, loss, utility))
    write(results)
    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary == results.summary()
    assert list(summary) == [*FACTS, "seed", "settings", "cases"]
    assert summary["settings"] == {"trials": 8}
    (case,) = summary["cases"]
    assert list(case)[:2] == ["task", "case"]
    epsilons = ("stopping_epsilon", "stopping_epsilon_interval", "stopped_epsilon")
    names = (*epsilons, "privacy_loss", "shortfall")
    blocks = {name: case.pop(name) for name in (*names, "stopped_interval", "met_interval")}
    assert case == {
        **LABELS,
        "case": "case0",
        "trials": 8,
        "stopped": 0.75,
        "met": 0.375,
        "status": {"STOPPED": 6, "EXHAUSTED": 1, "NAN_UTILITY": 1},
        "step": {"mean": 3.5, "q50": 3.0},
        "stopped_at_first_step": 0.125,
        # Eight trials bound no quartile on its outer side, and so no interquartile range.
        "quartile_distance": {"value": 1.5, "interval": [0.0, None]},
        "band": pytest.approx(0.4801614),  # sqrt(log(40) / 16)
        "resolution": 0.0,
        "seconds": {"compile": 1.0, "run": 2.0, "curves": 0.0},
    }
    # All in order: 0.25 0.5 0.5 0.75 1 2 inf inf. The two that did not stop cost 4 and 8 so far.
    expected = [None, 0.25, 0.5, 0.75, 2.0, None, None]
    assert blocks["stopping_epsilon"] == dict(zip(KEYS, expected, strict=True))
    # P(B < 1) = 1/256 is at most 2.5 %, P(B < 2) = 9/256 is not; B is Binomial(8, 1/2).
    assert blocks["stopping_epsilon_interval"]["q50"] == [0.25, None]
    assert blocks["stopping_epsilon_interval"]["mean"] == [None, None]
    assert blocks["stopping_epsilon_interval"]["q05"][0] is None
    assert blocks["stopped_interval"] == pytest.approx([0.3491, 0.9681], abs=5e-5)
    assert blocks["met_interval"] == pytest.approx([0.0852, 0.7551], abs=5e-5)
    # Three trials stopped below the goal, by 0.09, 0.34 and 0.84.
    expected = {"share": 0.5, "mean": 1.27 / 3, "q50": 0.34, "q95": 0.84, "max": 0.84}
    assert blocks["shortfall"] == pytest.approx(expected, rel=1e-6)
    expected = [5 / 6, 0.25, 0.5, 0.5, 1.0, 2.0, 2.0]
    assert blocks["stopped_epsilon"] == pytest.approx(dict(zip(KEYS, expected, strict=True)))
    expected = [0.25, 0.1, 0.1, 0.2, 0.3, 0.4, 0.4]
    assert blocks["privacy_loss"] == pytest.approx(dict(zip(KEYS, expected, strict=True)))


def test_trials_that_fail_are_a_warning_per_case(tmp_path):
    nothing, numbers = [0.0] * 4, [1, 1, 1, 1]
    plain = (nothing, numbers, [S, E, E, S], nothing, nothing)
    failed = (nothing, numbers, [N, S, N, Status.OVERFLOW], nothing, nothing)
    results = results_of(tmp_path, plain, failed, failed)
    write(results)
    for text in (str(results.table()), (tmp_path / "report.md").read_text()):
        assert "trials of case0 failed" not in text
        for name in ("case1", "case2"):
            start = f"- Warning: 3 of 4 trials of {name} failed: 2 NAN_UTILITY (the utility of the"
            assert f"{start} last release was NaN), 1 OVERFLOW (the noise left its " in text
    outcome = Outcome(np.ones(4, np.int32), *[np.ones(4)] * 8, np.array([N, S, S, E]))
    assert "Warning: 1 of 4 trials of a failed: NAN_UTILITY" in str(
        Outcomes({"a": outcome}).table()
    )


def test_without_a_guarantee_a_stop_or_a_goal(tmp_path):
    nan, two, good = [np.nan, np.nan], [3.0, 4.0], [0.0, 0.0]
    plain = (two, [1, 2], [S, S], nan, good)
    others = (nan, [1, 2], [S, S], nan, good), (two, [1, 2], [E, E], two, good)
    cases = results_of(tmp_path / "goal", *others, plain).summary()["cases"]
    no_guarantee, no_stop, all_stop = cases
    assert no_guarantee["stopping_epsilon"] is no_guarantee["stopped_epsilon"] is None
    assert no_guarantee["privacy_loss"] is None
    assert no_guarantee["stopped"] == no_guarantee["met"] == 1.0
    assert no_stop["stopping_epsilon"] == no_stop["stopped_epsilon"] == dict.fromkeys(KEYS)
    assert no_stop["stopped"] == no_stop["met"] == 0.0
    nothing = dict.fromkeys(("share", "mean", "q50", "q95", "max"))
    assert no_stop["shortfall"] == nothing
    assert all_stop["shortfall"] == nothing | {"share": 0.0}
    assert all_stop["stopping_epsilon"] == all_stop["stopped_epsilon"]
    assert all_stop["stopping_epsilon"]["mean"] == 3.5
    results = results_of(tmp_path / "none", plain, labels={"task": "logistic"})
    assert not {"met", "shortfall", "goal"} & set(results.summary()["cases"][0])


@pytest.mark.parametrize(
    ("epsilon", "stopping_epsilon"),
    [
        ([1.0, 3.0, 2.0], [1.0, 3.0, np.inf]),
        ([np.nan] * 3, [np.nan, np.nan, np.inf]),  # no guarantee
        ([1.0, np.nan, 2.0], [1.0, np.inf, np.inf]),  # an unknown cost among known ones
    ],
)
def test_stored_trials_have_a_stopping_epsilon(tmp_path, epsilon, stopping_epsilon):
    outcome = (epsilon, [1, 1, 1], [S, S, E], [0, 0, 0], [0, 0, 0])
    results = results_of(tmp_path, outcome)
    np.testing.assert_array_equal(results["case0"]["stopping_epsilon"], stopping_epsilon)
    np.testing.assert_array_equal(results.values("case0"), stopping_epsilon)
    assert results["case0"]["stopping_epsilon"].dtype == "float32"
    distributions = [
        results.distribution("case0", name) for name in ("stopping_epsilon", "epsilon")
    ]
    assert [values is None for values in distributions] == [np.isnan(stopping_epsilon).any()] * 2


def test_the_interquartile_range_is_bounded_by_the_quartiles_intervals():
    values = Sample(np.arange(1000.0))
    iqr = report.interquartile_range(values)
    (low, _), (_, high) = (values.quantile_interval(q, 0.975) for q in (0.25, 0.75))
    assert iqr["value"] == 500.0
    assert iqr["interval"][1] == high - low
    assert 400 < iqr["interval"][0] < 500 < iqr["interval"][1] < 600
    assert report.interquartile_range(Sample(np.full(1000, np.inf)))["value"] is None


def test_intervals_in_tables_look_no_shorter_than_they_are():
    assert within(1.0, (0.5, 1.991)) == "1 ±100%"
    assert within(2.0, (2.0, 5.01)) == "2 ±160%"
    assert within(0.0, (0.0, 0.12)) == "0 ±0.12"
    # An infinite median is between infinite ends, unless trials are too few for a lower end.
    assert span((None, None), lowest(1000, 0.5)) == "inf"
    assert span((None, None), lowest(5, 0.5)) == "unknown"
    assert span((None, 2.0), lowest(5, 0.5)) == "up to 2"
    assert span((3.6336, 3.6344)) == "3.63"
    assert span((3.6336, 3.6351)) == "3.63-3.64"
    assert span((3.6336, 3.6351), outward=True) == "3.633-3.636"
    assert span((3.6331, 3.6331), outward=True) == "3.634"
    # A sentence with "at most" is true of the number that was rounded.
    assert [upper(x) for x in (2.0, 155.03, 0.123401, 0.0, None)] == [
        *"2",
        "155.1",
        "0.1235",
        *"0",
        "inf",
    ]
    assert upper(float(np.float32(0.1))) == "0.1"
    assert (upper(-2.34567), lower(-2.34567), lower(155.09)) == ("-2.345", "-2.346", "155")
    rng = np.random.default_rng(0)
    for value in 10 ** rng.uniform(-6, 6, 500):
        assert float(lower(value, 3)) <= value * (1 + 2e-7)
        assert value * (1 - 2e-7) <= float(upper(value, 3)) <= value * 1.011
    # Rounding makes no fraction 0 or 1.
    shares = [formats.percent(value) for value in (1.0, 0.999999, 0.0, None)]
    assert shares == ["100 %", "99.9999 %", "0 %", "-"]


def test_a_failed_write_leaves_the_old_summary(tmp_path, monkeypatch):
    results = results_of(tmp_path, ([1.0], [0], [S], [1.0], [0.0]))
    for _ in range(2):  # the second call replaces the files of the first
        write(results)
    path = tmp_path / "summary.json"
    old = path.read_bytes()
    results.about = {**results.about, "device": "another"}  # changes the summary

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nrjax.study.files.os.fsync", no_space)
    with pytest.raises(OSError, match=r"cannot write .*summary\.json: No space left"):
        write(results)
    assert path.read_bytes() == old
    assert not list(tmp_path.glob("**/*.tmp"))
