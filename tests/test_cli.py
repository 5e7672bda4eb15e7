"""The command: its help, a run, and what it says of wrong arguments."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rich.console
from nrjax.studies import whitehouse2022
from nrjax.studies.store import Store

from nrjax.cli import main
from nrjax.progress import progress
from tests.problems import small_data


@pytest.fixture
def data_file(tmp_path):
    x, y = small_data()
    path = tmp_path / "own.npz"
    np.savez(path, x=x, y=y)
    return path


def run(data_file, out, *more):
    """A small study of one mechanism; programs of these sizes are in test_whitehouse2022.py too."""
    small = "--trials 80 --chunk 64 --levels 60 --curve-levels 6 --tight-at 2 --lowest-epsilon 1"
    return main(
        [
            *("run", "whitehouse2022", "--data", str(data_file), "--target", "y"),
            *("--task", "logistic", "--mechanism", "laplace", "--test", "public"),
            *("--out", str(out), *small.split(), *more),
        ]
    )


def test_a_run_prints_a_table_and_leaves_its_results(data_file, tmp_path, capsys, monkeypatch):
    assert run(data_file, tmp_path / "out") == 0
    monkeypatch.setattr(whitehouse2022, "plot", lambda store: None)  # once is enough
    printed = capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    case = summary["cases"][0]
    for word in ("laplace", "median", "step", "trials/s", f"{case['epsilon']['q50']:.4g}"):
        assert word in printed
    assert "80 of 80 trials" in printed
    # A second run into the same folder is refused, and the first one's results stay.
    before = (tmp_path / "out" / "summary.json").read_bytes()
    assert run(data_file, tmp_path / "out", "--seed", "1") == 2
    error = capsys.readouterr().err
    assert "holds results already" in error
    assert "Traceback" not in error
    assert (tmp_path / "out" / "summary.json").read_bytes() == before
    assert run(data_file, tmp_path / "out", "--seed", "1", "--overwrite") == 0
    after = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert after["seed"] == 1
    assert after["cases"][0]["epsilon"] != case["epsilon"]


def test_results_are_looked_at_taken_up_and_added_to(data_file, tmp_path, capsys, monkeypatch):
    out, kept = tmp_path / "out", tmp_path / "kept.npz"
    assert run(data_file, out) == 0
    first = Store.open(out).read("logistic-laplace-public", "outcome").load()
    data_file.rename(kept)  # the store alone is enough
    for name in ("summary.json", "report.md"):
        (out / name).unlink()
    figure = next((out / "figures").glob("*.png"))
    drawn = figure.read_bytes()
    figure.unlink()
    capsys.readouterr()
    assert main(["summary", str(out)]) == 0
    assert "median" in capsys.readouterr().out
    assert json.loads((out / "summary.json").read_text())["cases"][0]["trials"] == 80
    assert (out / "report.md").exists()
    assert main(["plot", str(out)]) == 0
    assert figure.read_bytes() == drawn
    monkeypatch.setattr(whitehouse2022, "plot", lambda store: None)  # takes most of the time
    capsys.readouterr()

    # A chunk is lost: nothing is drawn or told of a part, and without its data nothing is run.
    mark = sorted(out.glob("results/*/outcome/*.npz"))[1]
    mark.unlink()
    for command in ("summary", "plot"):
        assert main([command, str(out)]) == 2
        error = capsys.readouterr().err
        assert f"is not finished: finish it with `nrjax resume {out}`" in error
        assert error.count("\n") == 1
    assert main(["resume", str(out)]) == 2
    assert "own.npz" in capsys.readouterr().err
    kept.rename(data_file)
    assert main(["resume", str(out)]) == 0
    assert "64 of 80 trials" in capsys.readouterr().out
    again = Store.open(out).read("logistic-laplace-public", "outcome").load()
    assert again.identical(first)
    assert main(["resume", str(out), "--trials", "130"]) == 0
    assert "130 of 130 trials" in capsys.readouterr().out
    more = Store.open(out).read("logistic-laplace-public", "outcome").load()
    assert more.sizes["trial"] == 130
    assert more.isel(trial=slice(80)).equals(first)
    assert main(["resume", str(out), "--trials", "129"]) == 2
    assert "trials = 129: must be at least 130" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["resume", "plot", "summary"])
def test_a_folder_without_a_run_is_named(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "nowhere")]) == 2
    error = capsys.readouterr().err
    assert "nowhere': must be the folder of an earlier run" in error
    assert "Traceback" not in error
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["run", "resume", "plot", "summary", "data"]),
        (["resume", "--help"], ["--trials", "--coordinator"]),
        (["run", "--help"], ["ligett2017", "rogers2023", "skellam_counts", "whitehouse2022"]),
        (["run", "ligett2017", "--help"], ["--constants", "--alpha", "--ridge-perturbation"]),
        (["run", "whitehouse2022", "--help"], ["--mechanism", "--target-loss", "--overwrite"]),
        (["data", "--help"], ["--fetch", "--data-dir"]),
    ],
)
def test_help_names_what_there_is(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for word in words:
        assert word in printed


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["run", "nothing"],
        ["run", "whitehouse2022"],
        ["run", "whitehouse2022", "--out", "x", "--mechanism", "gauss"],
        ["run", "whitehouse2022", "--out", "x", "--trials", "many"],
        ["run", "ligett2017", "--out", "x", "--constants", "printed"],
    ],
)
def test_calls_that_cannot_be_parsed_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "Traceback" not in "".join(capsys.readouterr())


def test_data_lists_the_data_sets(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path))
    assert main(["data"]) == 0
    printed = capsys.readouterr().out
    for word in ("flights", "kdd99", "twitter"):
        assert word in printed
    assert main(["data", "--fetch", "twitter"]) == 2
    assert "it is not downloaded" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[sys.executable, "-m", "nrjax"], ["nrjax"]])
def test_the_command_can_be_run(command):
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        [*command, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PATH": beside},
    )
    assert result.returncode == 0, result.stderr
    assert "whitehouse2022" not in result.stdout
    assert "run" in result.stdout


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_and_told_in_a_log(terminal):
    out = io.StringIO()
    console = rich.console.Console(file=out, force_terminal=terminal, width=100)
    with progress(console) as told:
        told.begin("case", "outcome", 30, 10)
        told.advance(5, 0.5)
        told.advance(15, 1.5)
    said = out.getvalue()
    assert "10 trials/s" in said
    lines = [
        "case outcome: 10 of 30 trials, compiling",
        "case outcome: 30 of 30 trials, 10 trials/s",
    ]
    assert ("30/30" in said) == terminal
    assert (said.splitlines() == lines) != terminal
