"""What a run says of itself where there is no terminal."""

import io
import re
import time

import chex
import jax
import rich.console

import nrjax
from nrjax import progress
from tests.problems import scalar


def test_lines_come_also_while_nothing_is_finished(monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.05)
    log = io.StringIO()
    with progress.progress(rich.console.Console(file=log)) as lines:
        lines.begin("walk", "outcome", 1000, 0)
        time.sleep(0.2)
        lines.advance(400, 2.0)
        time.sleep(0.2)
        lines.advance(600, 3.0)
    said = log.getvalue().splitlines()
    assert said[0] == "walk outcome: 0 of 1,000 trials, compiling"
    assert "walk outcome: 0 of 1,000 trials, under way" in said
    assert "walk outcome: 400 of 1,000 trials, 200 trials/s, 3 s left" in said
    assert said[-1] == "walk outcome: 1,000 of 1,000 trials, 200 trials/s"
    time.sleep(0.2)
    assert log.getvalue().splitlines() == said


def test_a_bar_is_drawn_on_a_terminal():
    out = io.StringIO()
    with progress.progress(rich.console.Console(file=out, force_terminal=True, width=100)) as bar:
        bar.begin("case", "outcome", 30, 10)
        bar.advance(5, 0.5)
        bar.advance(15, 1.5)
    assert "30/30" in out.getvalue()
    assert "10 trials/s" in out.getvalue()


def test_simulate_and_sweep_show_it_if_asked(capsys):
    key, trial = jax.random.key(3), nrjax.Interaction(**scalar())
    quiet = nrjax.simulate(key, trial, trials=70)
    assert capsys.readouterr().out == ""
    chex.assert_trees_all_equal(nrjax.simulate(key, trial, trials=70, progress=True), quiet)
    assert re.search(r"simulate: 70 of 70 trials, [\d,]+ trials/s", capsys.readouterr().out)
    nrjax.sweep(key, [trial, trial], trials=5, progress=True)
    assert "5 of 5 trials" in capsys.readouterr().out
