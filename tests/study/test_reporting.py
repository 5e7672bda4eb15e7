"""What tells of results: each hook of `Reporting`, and what is told in the standard way."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

import nrjax
from nrjax.study import figures
from nrjax.study.report import Report
from tests.study import cheap

CASES = {
    "near": nrjax.Case(trial=cheap.interaction(shift=1.0), labels={"kind": "close"}),
    "far": nrjax.Case(trial=cheap.interaction(-2.0, shift=1.0), labels={"kind": "loose"}),
}


class Own(nrjax.Reporting):
    """Every hook in words of its own."""

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
    study = nrjax.Study("told", CASES, **options)
    return study.run(folder, trials=60, progress=False)


def test_every_hook_is_asked(tmp_path):
    results = run(tmp_path, reporting=Own())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == results.summary()
    assert list(summary["cases"][0])[:3] == ["kind", "trials", "case"]
    assert [case["longest"] for case in summary["cases"]] == [11, 10]
    assert summary["comparison"] == str(results.compare("near", "far"))
    written = (tmp_path / "report.md").read_text()
    assert written == str(results.table())
    assert "| close | 11 |" in written
    assert "- a|b\n" in written
    names = ["other.png", "other.svg", "steps.png", "steps.svg"]
    folder = tmp_path / "figures"
    assert sorted(path.name for path in folder.glob("[!.]*")) == names
    assert list(results.plot("steps")) == ["steps"]
    # Opened without the study, they are told of in the standard way.
    plain = nrjax.Results.open(tmp_path)
    assert "longest" not in plain.summary()["cases"][0]
    assert plain.table().headings[:3] == ("case", "stopped", "met goal")


def test_what_hooks_say_must_fit(tmp_path):
    class Lacking(cheap.Quiet):
        case_facts = ("colour",)

    class Infinite(cheap.Quiet):
        def measure(self, results, case):
            return {"most": np.inf}

    message = "'colour' is missing from the labels of case near"
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "one", reporting=Lacking())
    with pytest.raises(ValueError, match="JSON compliant"):
        run(tmp_path / "two", reporting=Infinite())
    assert not (tmp_path / "two" / "summary.json").exists()
    # The trials are there: mended, the study goes on from them.
    results = run(tmp_path / "two", reporting=Own())
    assert results.summary()["cases"][0]["longest"] == 11


def test_the_standard_way(tmp_path):
    results = run(tmp_path)
    names = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert names == set(figures.standard(results))
    table = results.table()
    assert table.title == "told: stopping epsilon, over all trials"
    assert [row[0] for row in table.rows] == ["near", "far"]
    assert all(len(row) == len(table.headings) for row in table.rows)
    assert str(table) == (tmp_path / "report.md").read_text()
    walks = cheap.study({"walk": cheap.Walk(np.float32(0))})
    sessions = walks.run(tmp_path / "walks", trials=20, progress=False)
    assert sessions.table().rows[0][1:] == ("-",) * 6
