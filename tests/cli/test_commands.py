"""The command: its help, runs of a paper's study and a custom one, and reports of results."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import filelock
import numpy as np
import pytest

import nrjax
from nrjax.cli import main
from nrjax.cli.loading import from_json
from nrjax.cli.options import checked
from nrjax.study.options import to_json
from nrjax.study.release_error import RELEASE_ERROR
from nrjax.study.store import Store
from tests.problems import small_data

OWN = '''
"""A custom study."""

import dataclasses
from pathlib import Path

import numpy as np

import nrjax
from tests.study import cheap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """A number that must not be missed by much."""

    data: Path
    """File of the number."""
    miss: tuple[float, ...] = (0.5,)
    """Largest distances."""
    seed: int = 7


class Noted(cheap.Quiet):
    def findings(self, results):
        return {"note": "custom text"}


reporting = Noted()


def study(settings: Settings) -> nrjax.Study:
    value = np.loadtxt(settings.data).astype("float32")
    cases = {f"{miss:g}": cheap.interaction(-miss, value=value) for miss in settings.miss}
    return nrjax.Study("mine", cases, reporting=reporting)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to a working directory with a study in a file, and its data."""
    monkeypatch.chdir(tmp_path)
    Path("my_study.py").write_text(OWN)
    Path("number.txt").write_text("3.0")
    return tmp_path


def run(*more):
    call = "run my_study.py --data number.txt --out out --trials 80 --chunk 64"
    return main([*call.split(), *more])


def summary(out="out"):
    return json.loads(Path(out, "summary.json").read_text())


@pytest.mark.long
def test_an_interrupted_study_is_resumed_and_reported(tmp_path, capsys, monkeypatch):
    """The message on an interrupt names the folder only if there is one."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    x, y = small_data()
    np.savez("own.npz", x=x, y=y)
    call = "run whitehouse2022 --data own.npz --target y --task logistic --out out --trials 80"
    call += " --mechanism laplace --test public --levels 60 --curve-levels 6"
    kept = "; finished trials are kept in out: `nrjax resume out` resumes the run"
    for place, hint in (
        ("nrjax.papers.whitehouse2022.study", ""),
        ("nrjax._base.progress.Reporter.begin", kept),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, stop)
            assert main(call.split()) == 130
        assert capsys.readouterr().err == f"nrjax: interrupted{hint}\n"
        assert Path("out").exists() == bool(hint)
    assert main(["resume", "out"]) == 0
    printed = capsys.readouterr().out
    (case,) = summary()["cases"]
    for word in ("laplace", "median", "step", "trials/s", f"{case['stopping_epsilon']['q50']:.4g}"):
        assert word in printed
    assert "80 of 80 trials" in printed
    assert "Results, summary.json, report.html, report.md and figures are in out" in printed
    # The reports are made again without the data.
    Path("own.npz").unlink()
    before = {path: path.read_bytes() for path in Path("out").glob("[!r]*/*.png")}
    assert before
    for path in (*before, Path("out/summary.json"), Path("out/report.md")):
        path.unlink()
    assert main(["summary", "out"]) == 0
    assert "median" in capsys.readouterr().out
    assert summary()["cases"] == [case]
    assert Path("out/report.md").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_a_custom_study_is_run_and_replaced_on_request_only(folder, capsys):
    assert run("--miss", "0.5", "2") == 0
    before = summary()
    assert [case["case"] for case in before["cases"]] == ["0.5", "2"]
    assert (before["seed"], before["note"]) == (7, "custom text")
    assert before["settings"]["data"] == str(folder / "number.txt")
    assert "0.5" in capsys.readouterr().out
    assert run("--seed", "1") == 2
    error = capsys.readouterr().err
    assert "holds results already" in error
    assert "Traceback" not in error
    assert summary() == before
    assert run("--miss", "0.5", "--seed", "1", "--overwrite") == 0
    assert summary()["seed"] == 1
    assert summary()["cases"][0]["stopping_epsilon"] != before["cases"][0]["stopping_epsilon"]


def test_a_custom_study_is_resumed_and_extended(folder, capsys, monkeypatch):
    assert run() == 0
    first = Store.open("out").arrays("0.5", "outcome")
    data = Path("number.txt").rename("kept.txt")
    capsys.readouterr()

    # As if the run were killed: a part has no report, and without data nothing runs.
    sorted(Path("out").glob("results/*/outcome/*.npz"))[1].unlink()
    Path("out/summary.json").unlink()
    for call, message in (
        (lambda: main(["summary", "out"]), "is not finished: `nrjax resume out` finishes it"),
        (lambda: main(["plot", "out"]), "is not finished: `nrjax resume out` finishes it"),
        (run, "(unfinished): resume them with `nrjax resume out`"),
    ):
        assert call() == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["resume", "out"]) == 2
    assert "number.txt" in capsys.readouterr().err
    data.rename("number.txt")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(["resume", "../out"]) == 0
    assert "64 of 80 trials" in capsys.readouterr().out
    np.testing.assert_equal(Store.open("../out").arrays("0.5", "outcome"), first)
    assert main(["resume", "../out", "--trials", "130"]) == 0
    assert "130 of 130 trials" in capsys.readouterr().out
    more = Store.open("../out").arrays("0.5", "outcome")
    assert more["trial"].size == 130
    np.testing.assert_equal({name: values[:80] for name, values in more.items()}, first)
    assert main(["resume", "../out", "--trials", "129"]) == 2
    assert "trials must be an integer, at least 130" in capsys.readouterr().err
    assert main(["resume", "../out", "--until-se", "9", "--most-trials", "2000"]) == 0
    assert summary("../out")["cases"][0]["trials"] == 1000
    assert "standard error of every median stopping epsilon at most 9" in capsys.readouterr().out
    # Other data would be another study.
    (folder / "number.txt").write_text("3.5")
    assert main(["resume", "../out", "--trials", "1100"]) == 2
    assert "the data of 0.5/outcome differ" in capsys.readouterr().err


SHORT = "import nrjax\nfrom tests.study import cheap\n"


@pytest.mark.parametrize(
    "text",
    [
        "study = nrjax.Study('mine', {'walk': cheap.Walk(0.0)}, reporting=cheap.Quiet())",
        "def study():\n    return cheap.study({'walk': cheap.Walk(0.0)})",
    ],
    ids=["a study", "a function"],
)
def test_a_file_may_have_no_settings(folder, capsys, text):
    Path("short.py").write_text(SHORT + text)
    assert main(["run", "short.py", "--out", "out", "--trials", "20"]) == 0
    assert main(["resume", "out", "--trials", "30"]) == 0
    assert summary()["cases"][0]["trials"] == 30
    assert main(["summary", "out"]) == 0
    Path("short.py").unlink()
    capsys.readouterr()
    assert main(["summary", "out"]) == 2
    assert "must be a file, and there is none at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "study in short.py must be an nrjax.Study called study, or a function"),
        ("def study(): return 3", "must be an nrjax.Study, or a function that returns one (got 3)"),
        (
            "def study(a, b): pass",
            "arguments of study in short.py must be none, or one",
        ),
        ("def study(settings): pass", "annotation of settings in short.py must be a dataclass"),
        ("def study(:", "short.py, line 3: invalid syntax"),
        ("import missing_one", "short.py: No module named 'missing_one'"),
        ("study = nrjax.Study('s', {'near': 3})", "case 'near': trial must be an nrjax.Int"),
    ],
)
def test_a_file_without_a_study_is_refused(folder, capsys, text, words):
    Path("short.py").write_text(SHORT + text)
    assert main(["run", "short.py", "--out", "out"]) == 2
    assert words in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_run_from_python_is_resumed_there(folder, capsys, monkeypatch):
    from tests.study import cheap

    cheap.study({"walk": cheap.Walk(0.0)}).run("out", trials=20, progress=False)
    assert main(["summary", "out"]) == 0  # with the standard report
    assert main(["resume", "out", "--trials", "30"]) == 2
    assert (
        "out was started from Python: resume it by the same call of Study.run"
        in capsys.readouterr().err
    )
    # The report of a read-only folder is printed.
    refused = PermissionError(13, "Permission denied")
    monkeypatch.setattr(filelock.FileLock, "acquire", mock.Mock(side_effect=refused))
    assert main(["summary", "out"]) == 2
    printed = capsys.readouterr()
    assert "cheap: privacy cost of 20 simulated runs" in printed.out
    words = "cannot write to out, which needs a lock there: Permission denied\n"
    assert printed.err == f"nrjax: error: {words}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["run", "design", "audit", "resume", "plot", "summary", "fingerprint"]),
        (["fingerprint", "--help"], ["--against", "--out", "diff -r before after"]),
        (["design", "--help"], ["LOW HIGH COUNT", "--objective", "nrjax design 0.2 0.6"]),
        (["resume", "--help"], ["--trials", "--scheduler", "--workers", "--until-se"]),
        (["run", "--help"], ["ligett2017", "rogers2023", "nrjax run --data my.csv", "my_study.py"]),
        (["run", "--data", "own.csv", "--help"], ["COLUMN=LOW:HIGH", "without the word"]),
        (["run", "ligett2017", "--help"], ["--constants", "--alpha", "--ridge-perturbation"]),
        (["run", "whitehouse2022", "--help"], ["--mechanism", "--target-loss", "--overwrite"]),
        (["run", "my_study.py", "--help"], ["must not be missed", "--miss", "--keep", "--workers"]),
        (["data", "--help"], ["--fetch", "--data-dir"]),
    ],
)
def test_help_lists_commands_and_options(folder, arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for word in words:
        assert word in printed


def test_data_lists_the_data_sets(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path))
    assert main(["data"]) == 0
    printed = capsys.readouterr().out
    for word in ("flights", "kdd99", "twitter"):
        assert word in printed
    assert main(["data", "--fetch", "twitter"]) == 2
    assert "Get twitter otherwise: put twitter_buzz" in capsys.readouterr().err


def test_the_command_can_be_run():
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["nrjax", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PATH": beside},
    )
    assert (result.returncode, result.stdout) == (0, f"nrjax {nrjax.__version__}\n"), result.stderr


def test_your_own_table_needs_no_study(tmp_path, monkeypatch):
    """The settings are those of a stored run too, whose file may be elsewhere by then."""
    chosen = {}

    def run(source, settings, output, options, cluster):
        study = source.study(checked(settings))
        chosen.update(study=study, out=output.out, trials=options.trials)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nrjax.cli.commands._run", run)
    rows = "".join(f"{n},{'AB'[n % 2]},{('no', 'yes')[n > 20 + n % 9]}\n" for n in range(60))
    Path("churn.csv").write_text(f"age,city,churned\n{rows}")
    call = "run --trials 9 --data churn.csv --target churned --bounds age=0:100 churned=no,yes"
    long = call.replace("run", "run regression", 1)
    for more, out in (("", "runs/churn"), (" --out x", "x"), (" --out=x", "x")):
        assert main([*long.split(), *more.split()]) == 0
        of_long_form = chosen["out"], chosen["trials"]
        assert main([*call.split(), *more.split()]) == 0
        assert of_long_form == (chosen["out"], chosen["trials"])
        assert (chosen["out"], chosen["trials"]) == (Path(out), 9)
    study = chosen["study"]
    assert (study.name, study.source) == ("regression", "regression")
    tests = "reduced_above_threshold", "public"
    names = [f"logistic-{noise}-{test}" for noise in ("brownian", "laplace") for test in tests]
    assert list(study.cases) == names
    case = study.cases["logistic-brownian-public"]
    assert [*case.quantities] == [*RELEASE_ERROR, "loss", "accuracy", "auc"]
    trial = case.trial
    levels = trial.guarantee.epsilon(trial.schedule.times)
    np.testing.assert_allclose([levels[0], levels.size], [0.01, 200], rtol=1e-3)
    assert levels[-1] > 19.9  # more if the noise of the private test needs it
    remarks = study.cases["logistic-laplace-public"].labels["remarks"]
    assert "churned (no is -1, yes is 1) on age [0, 100], city (2 categories)" in remarks[0]
    assert remarks[1].endswith("two values, the categories of city.")
    kind = type(study.settings)
    assert from_json(kind, json.loads(json.dumps(to_json(study.settings)))) == study.settings
    assert study.settings.data == str(tmp_path / "churn.csv")
