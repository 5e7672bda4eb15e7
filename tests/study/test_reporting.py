"""Each hook of `Reporting`, the standard report, and the notions of privacy in it."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

import nrjax
from nrjax import composition, guarantees
from nrjax.guarantees.notions import NOTIONS, PUBLIC_TEST, notion_of
from nrjax.study import figures, frame, report
from nrjax.study.report import Report, standard
from nrjax.study.results import _public_tests
from tests.study import cheap
from tests.study.cheap import outcomes

CASES = {
    "near": nrjax.Case(trial=cheap.interaction(shift=1.0), labels={"kind": "close"}),
    "far": nrjax.Case(trial=cheap.interaction(-2.0, shift=1.0), labels={"kind": "loose"}),
}


class Custom(nrjax.Reporting):
    """A reporting that overrides every hook."""

    case_facts = ("kind", "trials")

    def measure(self, results, case):
        return {"longest": int(results[case]["step"].max())}

    def findings(self, results):
        return {"comparison": str(results.compare(*results))}

    def report(self, results, summary):
        rows = tuple((case["kind"], str(case["longest"])) for case in summary["cases"])
        return Report("steps", ("kind", "longest"), rows, (summary["comparison"], "a|b"))

    def figures(self, results):
        return {"steps": lambda results: Figure(figsize=(1, 1)), "other": draw}


def draw(results):
    figure = Figure(figsize=(2, 1))
    figure.subplots().hist(results["near"]["step"])
    return figure


def run(folder, **options):
    study = nrjax.Study("reported", CASES, **options)
    return study.run(folder, trials=60, progress=False)


def test_every_hook_is_used(tmp_path):
    results = run(tmp_path, reporting=Custom())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == results.summary()
    assert list(summary["cases"][0])[:3] == ["kind", "trials", "case"]
    longest = [int(results[name]["step"].max()) for name in ("near", "far")]
    assert [case["longest"] for case in summary["cases"]] == longest
    assert summary["comparison"] == str(results.compare("near", "far"))
    written = (tmp_path / "report.md").read_text()
    assert written == str(results.table())
    assert f"| close | {longest[0]} |" in written
    assert "- a|b\n" in written
    assert "](figures/steps.png)" in written
    names = ["other.png", "other.svg", "steps.png", "steps.svg"]
    folder = tmp_path / "figures"
    assert sorted(path.name for path in folder.glob("[!.]*")) == names
    assert list(results.plot("steps")) == ["steps"]
    # Results that are opened without the study have the standard report.
    plain = nrjax.Results.open(tmp_path)
    assert "longest" not in plain.summary()["cases"][0]
    assert plain.table().headings[:3] == ("case", "ended", "good enough")


def test_many_trials_are_prepared_in_threads_and_reported_alike(tmp_path, monkeypatch):
    def documents():
        files = [tmp_path / "summary.json", *(tmp_path / "figures").iterdir()]
        return {file.name: file.read_bytes() for file in files}

    run(tmp_path)
    before = documents()
    monkeypatch.setattr(frame, "_MANY", 1)
    run(tmp_path)
    assert documents() == before
    results = nrjax.Results.open(tmp_path)
    results._prepare()
    monkeypatch.setattr(frame, "Sample", None)  # no further distribution is needed
    assert results.summary() == json.loads(before["summary.json"])
    assert set(results.plot()) == {file.stem for file in (tmp_path / "figures").iterdir()}


def test_wrong_hooks_are_named_and_the_trials_are_kept(tmp_path):
    class Lacking(cheap.Quiet):
        case_facts = ("colour",)

    class Infinite(cheap.Quiet):
        def measure(self, results, case):
            return {"most": np.inf}

    with pytest.raises(ValueError, match="labels of case near must be a mapping with 'colour'"):
        run(tmp_path / "one", reporting=Lacking())
    with pytest.raises(ValueError, match="JSON compliant"):
        run(tmp_path / "two", reporting=Infinite())
    assert not (tmp_path / "two" / "summary.json").exists()
    results = run(tmp_path / "two", reporting=Custom())
    assert results.summary()["cases"][0]["longest"] == 11


RENYI = nrjax.RenyiBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6)


class Free(nrjax.Guarantee):
    """A custom guarantee without a delta."""

    def epsilon(self, time):
        return 1 / time


def hockey(**changes):
    """Return an interaction whose epsilon is of the hockey-stick notion."""
    schedule = nrjax.Grid.geometric(RENYI, 0.3, 9.0, 12)
    return cheap.interaction(guarantee=RENYI, schedule=schedule, **changes)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return results of two notions and of a custom trial, with the standard report."""
    cases = {
        "by-chance": nrjax.Case(trial=cheap.interaction(shift=1.0), labels={"delta": 1e-6}),
        "by-sets": nrjax.Case(trial=hockey(shift=1.0), labels={"delta": 1e-6}),
        "walk": cheap.Walk(0.0),
    }
    folder = tmp_path_factory.mktemp("run")
    return nrjax.Study("standard", cases).run(folder, trials=60, progress=False)


def test_the_standard_report(results):
    folder, table = results.folder, results.table()
    written = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert written == set(figures.standard(results))
    assert table.title.startswith("standard: privacy cost of ")
    assert [row[0] for row in table.rows] == list(results)
    assert all(len(row) == len(table.headings) for row in table.rows)
    assert table.rows[2][1:] == ("-",) * 8  # of a custom trial
    assert str(table) == (folder / "report.md").read_text()


def test_there_is_one_vocabulary():
    kinds = [getattr(guarantees, name) for name in guarantees.__all__ if name != "NOTIONS"]
    kinds += [getattr(composition, name) for name in composition.__all__]
    stated = {kind.notion for kind in kinds if hasattr(kind, "notion")}
    assert stated - {None} == set(NOTIONS)  # None: a request, before it is made
    owners = [kind for kind in kinds if hasattr(kind, "bound") or hasattr(kind, "admits")]
    assert len(owners) == 10
    assert {kind.notion for kind in owners} == {"(epsilon, delta)-DP", "probabilistic"}
    named = [notion_of(guarantee) for guarantee in (None, Free(), nrjax.PureGuarantee(1.0), RENYI)]
    assert named == [None, "pure", "pure", "hockey-stick"]


def test_representations_name_it_with_a_delta():
    for owner, notion in (
        (cheap.interaction(), "probabilistic"),
        (hockey(), "hockey-stick"),
        (cheap.BOUNDARY, "probabilistic"),
        (composition.GaussianFilter(1.0, 1e-6), "(epsilon, delta)-DP"),
        (composition.RenyiOdometer(5.0, 1e-6), "probabilistic"),
    ):
        assert f"notion='{notion}'" in repr(owner)
    assert "notion" not in repr(nrjax.PureGuarantee(1.0))  # without a delta
    assert "notion" not in repr(composition.ExPost(0.1, 1e-6))  # with a delta of any notion


def test_the_summary_and_the_report_name_it(results):
    summary = json.loads((results.folder / "summary.json").read_text())
    notions = [case.get("notion") for case in summary["cases"]]
    assert notions == ["probabilistic", "hockey-stick", None]
    remarks = (results.folder / "report.md").read_text()
    for notion, case in zip(notions[:2], results, strict=False):
        named = f"{notion.capitalize()} epsilon ({case})"
        assert f"{named}: {NOTIONS[notion]} (delta = 1e-06, one of 1,000,000 runs)." in remarks
    assert "Warning: epsilons of different notions" in remarks
    for case in summary["cases"]:  # negative control: equal notions
        case["notion"] = "pure"
    alike = str(standard(results, summary))
    assert "Pure epsilon (all cases)" in alike
    assert "different notions" not in alike


def test_comparisons_name_it(results):
    mixed, *pair = "probabilistic against hockey-stick", "by-chance", "by-sets"
    assert f"not of the same privacy notion: {mixed}" in str(results.compare(*pair))
    for first, second, quantity in (
        ("by-chance", "by-chance", "stopping_epsilon"),
        ("by-chance", "by-sets", "step"),
    ):
        assert "notion" not in str(results.compare(first, second, quantity))
    for notions in ({"a": "probabilistic", "b": "hockey-stick"}, None):
        memory = outcomes(a=[1.0, 2.0], b=[2.0, 3.0], notions=notions)
        assert (mixed in str(memory.compare("a", "b"))) == (notions is not None)


def test_figures_name_it(results):
    (axes,) = figures.epsilon_distribution(results).axes
    labels = [label.get_text().splitlines() for label in axes.get_xticklabels()]
    assert [label[:2] for label in labels] == [
        ["by chance", "δ = 1e-06"],
        ["by sets (hockey-stick)", "δ = 1e-06"],
    ]
    assert labels[0][2] == "probabilistic"
    (axes,) = figures.loss_against_stated(results).axes
    names = axes.get_legend_handles_labels()[1]
    assert [("hockey-stick" in name) for name in names] == [False, True, False]


@pytest.fixture(scope="module")
def of_three_tests(tmp_path_factory):
    """Return results of a public test, a private one and one release, which mostly stop at once."""
    grid = nrjax.Grid.geometric(cheap.BOUNDARY, 5.0, 20.0, 4)
    private = nrjax.ReducedAboveThreshold(-5.0, 0.01)
    cases = {
        "public": cheap.interaction(-5.0, schedule=grid),
        "private": cheap.interaction(schedule=grid, rule=private),
        "once": cheap.interaction(-5.0, schedule=nrjax.Grid.explicit(grid.times[:1])),
    }
    study = nrjax.Study("tests", cases, reporting=cheap.Quiet())
    return study.run(tmp_path_factory.mktemp("tests"), trials=60, progress=False)


def test_epsilons_without_the_decision_to_stop_are_named(of_three_tests):
    marks = [case["public_test"] for case in of_three_tests.summary()["cases"]]
    assert marks == [True, False, False]
    written = (of_three_tests.folder / "report.md").read_text()
    assert f"- {PUBLIC_TEST} (public). If the score reads private data, these numbers" in written
    # Without an epsilon there is nothing to cover.
    case = {"case": "free", "notion": None, "public_test": True}
    assert _public_tests({"cases": [case]}) == []
    assert "(all cases)" in _public_tests({"cases": [case | {"notion": "pure"}]})[0]


def test_only_a_public_test_of_several_levels_can_start_lower(of_three_tests):
    cases = of_three_tests.summary()["cases"]
    assert all(case["stopped_at_first_step"] > 0.5 for case in cases)
    lines = [line for line in of_three_tests.table().remarks if "start it lower" in line]
    assert ["the runs of public stopped" in line for line in lines] == [True]
    del cases[1]["public_test"]  # as of outcomes in memory
    assert "start it lower" in report.warnings({"cases": cases[1:2]})[-1]
    table = of_three_tests.table()
    assert table.headings[-1] == "covers the stop"
    assert [row[-1] for row in table.rows] == ["no", "yes", "yes"]


def test_the_label_notion_is_reserved():
    with pytest.raises(ValueError, match=r"labels must .*got \['notion'\]"):
        nrjax.Case(trial=cheap.interaction(), labels={"notion": "mine"})


def test_missed_goals_are_explained():
    case = {"case": "private", "stopping_epsilon": {"q50": 1.0}, "stopped_at_first_step": 0.0}
    for stopped, met, count in ((1.0, 0.3, 1), (1.0, 0.6, 0), (0.3, 0.3, 0)):
        lines = report.warnings({"cases": [case | {"stopped": stopped, "met": met}]})
        assert sum("test accepts worse scores" in line for line in lines) == count
