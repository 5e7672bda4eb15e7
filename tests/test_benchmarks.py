"""The table of `python -m benchmarks`, and the counts of operations."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import growing, leaderboard, roofline, scaling, summary, table

ROOT = Path(__file__).parents[1]

SOUND = """
from benchmarks.rows import Row

def rows(quick):
    held = b"x" * (200 * 2**20)
    print("not in the table")
    return [Row("tiny" if quick else "whole", 1234.5, 0.987, "NumPy", 0.5, f"held {len(held)}")]
"""
LACKING = """
def rows(quick):
    raise FileNotFoundError("The data set is not there.")
"""
BROKEN = """
from benchmarks.rows import check_same_distribution

def rows(quick):
    check_same_distribution(["one case"])
"""


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Return modules of small benchmarks without JAX, by name."""
    texts = {"sound": SOUND, "lacking": LACKING, "broken": BROKEN}
    for name, text in texts.items():
        (tmp_path / f"{name}_benchmark.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return {name: f"{name}_benchmark" for name in texts}


def cells(line):
    """Return the cells of a line, by the widths of the headings."""
    texts, at = [], 0
    for width in (*table._WIDTHS[:-1], len(line)):
        texts.append(line[at : at + width].strip())
        at += width + 2
    return texts


def test_a_line_has_the_measurements_of_a_process(known, capsys):
    assert command.main(["sound", "lacking", "--quick"], known) == 0
    headings, sound, lacking = capsys.readouterr().out.splitlines()
    assert cells(headings)[:5] == ["benchmark", "claim", "trials/s", "ratio", "to"]
    got = cells(sound)
    assert got[:5] == ["sound", "tiny", "1,234", "0.987", "NumPy"]
    assert got[6:] == ["", "50.0%", "held 209715200"]
    assert 200 / 1024 < float(got[5]) < 0.5  # GiB of the benchmark's process only
    assert cells(lacking)[-1] == "skipped: The data set is not there."


def test_the_page_keeps_the_last_rows_of_each_benchmark(known, monkeypatch, tmp_path):
    stored, page = tmp_path / "measured.json", tmp_path / "benchmarks.md"
    shown = (
        summary.Line("a tiny thing", "sound", "a loop", "NumPy", ("tiny", "small")),
        summary.Line("absent", "other", "a loop", "NumPy"),
    )
    monkeypatch.setattr(summary, "LINES", shown)
    monkeypatch.setattr(summary.write, "__defaults__", (stored,))
    old = {"benchmark": "sound", "claim": "tiny", "ratio": "77", "baseline": "NumPy", "note": ""}
    kept = {"benchmark": "broken", "claim": "old", "ratio": "5", "baseline": "NumPy", "note": ""}
    stored.write_text(json.dumps([each | {"setting": "before"} for each in (old, kept)]))
    assert command.main(["sound", "broken", "--quick", "--page", str(page)], known) == 1
    text = page.read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| a tiny thing")]
    assert row.startswith("| a tiny thing | a loop | 0.987 |  | B | `python -m benchmarks sound` |")
    assert "`python -m benchmarks sound broken --quick --page" in text
    assert "absent" not in text
    # Rows of the failed benchmark stay, and those of the other are replaced.
    rows = {row["benchmark"]: row["ratio"] for row in json.loads(stored.read_text())}
    assert rows == {"broken": "5", "sound": "0.987"}
    assert (tmp_path / "figures" / "speed.png").stat().st_size > 1000


def test_the_page_of_the_site_is_that_of_the_stored_measurements():
    stored = json.loads(summary.STORED.read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    (written,) = re.findall(r"`(python -m benchmarks[^`]*--page [^`]*)`", page)
    assert page == summary.text(stored, written)
    assert [len(summary.ratios(line, stored)) > 0 for line in summary.LINES] == [True] * len(
        summary.LINES
    )
    assert summary.mean([2.0, 8.0]) == pytest.approx(4.0)


def test_a_failing_benchmark_is_shown_and_the_others_run(known, capsys):
    assert command.main([], {name: known[name] for name in ("broken", "sound")}) == 1
    seen = capsys.readouterr()
    _, broken, sound = seen.out.splitlines()
    assert cells(broken)[0] == "broken"
    assert cells(broken)[-1] == "failed: RuntimeError: different distributions: one case"
    assert cells(sound)[:2] == ["sound", "whole"]
    assert "Traceback" in seen.err


def test_a_wrong_name_is_one_sentence(capsys):
    assert command.main(["stepping", "nothing"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("There is no benchmark 'nothing': choose among ")
    assert seen.err.count("\n") == 1


def test_every_claim_is_in_the_table():
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text()
        if text.startswith('"""Claim'):
            assert path.stem in command.NAMES
            assert "\ndef rows(quick" in text
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in command.NAMES)


@pytest.mark.long
def test_the_whole_table_with_tiny_sizes():
    command_line = [sys.executable, "-m", "benchmarks", "--quick"]
    ended = subprocess.run(command_line, capture_output=True, text=True, timeout=500, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [cells(line) for line in ended.stdout.splitlines()[1:]]
    assert {line[0] for line in lines} == set(command.NAMES)
    for line in lines:
        if line[0] in ("start_up", "leaderboard", "phase", "scaling"):  # without trials
            continue
        assert float(line[2].replace(",", "")) > 0
        assert line[3] == "" or float(line[3].replace(",", "")) > 0
        assert 0.1 < float(line[5]) < 4
        assert line[6].endswith("cpu")


def test_the_leaderboard_has_the_numbers_of_the_page():
    ratios = {row.claim: row.ratio for row in leaderboard.rows(quick=True)}
    for claim, ratio in (
        ("discrete Laplace, deviation 1", 0.931),
        ("one-sided test", 0.834),
        ("Gaussian test, box 1, stopped at 5", 0.507),
        ("GridBoundary, 5 looks", 0.906),
        ("RenyiBoundary, 0.3", 0.785),
        ("100 rounds at 0.1, certificate of Laplace noise", 0.585),
        ("100 rounds at 0.1, capped at 0.1", 0.507),
    ):
        assert ratios[claim] == pytest.approx(ratio, abs=6e-4)


def test_operations_are_those_that_xla_counts():
    a = jnp.ones((64, 64), jnp.float32)
    product = roofline.cost(lambda a: a @ a, a)
    np.testing.assert_allclose(product.flops, 2 * 64**3, rtol=0.05)
    np.testing.assert_allclose(product.moved, 3 * 4 * 64**2, rtol=0.5)
    both = product * 3 + roofline.Cost(1.0, 2.0)
    assert both == roofline.Cost(3 * product.flops + 1, 3 * product.moved + 2)


def test_the_roofline_is_the_slower_of_its_two_sides():
    peaks = roofline.measure_peaks(matrix=64, vector=1000)
    assert peaks.flops > 0
    assert peaks.bandwidth > 0
    peaks = roofline.Peaks(flops=10.0, bandwidth=5.0)
    assert peaks.seconds(roofline.Cost(100.0, 10.0)) == 10
    assert peaks.seconds(roofline.Cost(10.0, 100.0)) == 20


def test_an_exponent_is_that_of_the_largest_sizes():
    curve = scaling.CURVES["fitted_rows"]
    points = [
        scaling.Point(size, 9.0, max(1e-3, 2e-6 * size), 64.0 + size**0.5, 300.0)
        for size in curve.sizes
    ]
    seconds, memory = scaling.exponents(curve, points)
    assert seconds == pytest.approx(1, abs=1e-9)
    assert 0.4 < memory < 0.5
    assert all(hasattr(growing, name) for name in scaling.CURVES)


@pytest.mark.long
def test_a_size_is_measured_apart_and_drawn(tmp_path, capsys):
    """Memory of a run is what it makes and holds, without what was there before."""
    options = ["--only", "kept_trials", "--quick", "--save", str(tmp_path / "points.json")]
    figure = tmp_path / "scaling.png"
    parsed = scaling.parser().parse_args([*options, "--figure", str(figure)])
    (row,) = scaling.race(parsed)
    assert row.claim == "trials: all fields kept"
    assert row.note.endswith("s at 1,000")
    assert figure.stat().st_size > 10_000
    ((size, wall, processor, mib, idle),) = json.loads((tmp_path / "points.json").read_text())[
        "kept_trials"
    ]
    assert size == 1000
    assert min(wall, processor) > 0
    assert mib < 50 < idle


def test_memory_is_that_of_a_run(monkeypatch):
    def work(size):
        before = np.ones(2**24)
        return growing.Work(lambda: before[: size // 8] + 1, lambda: before)

    monkeypatch.setattr(growing, "kept_trials", work)
    point = scaling.measure("kept_trials", 2**26)
    assert 60 < point.mib < 80
