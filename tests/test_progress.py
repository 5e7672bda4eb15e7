"""What a run says of itself where there is no terminal."""

import io
import re
import time
from typing import Any

import chex
import jax
import pytest
import rich.console

import nrjax
from nrjax import progress
from tests.problems import scalar


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def __call__(self):
        return self.now


def format_value(clock, **options) -> tuple[io.StringIO, Any]:
    """A file, and the progress that is shown in it."""
    file = io.StringIO()
    return file, progress.progress(rich.console.Console(file=file, **options), clock)


def test_lines_come_also_while_nothing_is_finished(monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.05)
    log, lines = format_value(Clock())
    with lines:
        lines.begin("walk", "outcome", 1000, 0)
        time.sleep(0.2)
        lines.advance(400, 2.0)
        time.sleep(0.2)
        lines.advance(600, 3.0)
    said = log.getvalue().splitlines()
    assert said[:2] == ["walk outcome: 0 of 1,000 trials, compiling"] * 2
    assert "walk outcome: 400 of 1,000 trials, 200 trials/s, 3 s left" in said
    assert said[-1] == "walk outcome: 1,000 of 1,000 trials, 200 trials/s"
    time.sleep(0.2)
    assert log.getvalue().splitlines() == said


TIMES = [  # what happens, seconds after it, and what is said then
    (("begin", "ridge", "outcome", 1000, 0), 0, "compiling"),
    ((), 50, "compiling for 50 s"),
    (("compiled",), 0, "first trials"),
    ((), 8, "first trials for 8 s"),
    (("advance", 250, 10.0), 0, "25 trials/s, 30 s left"),
    ((), 9, "25 trials/s, 21 s left"),
    (("advance", 250, 15.0), 0, "20 trials/s, 25 s left"),
    (("advance", 500, 15.0), 9, "25 trials/s"),
    (("begin", "ridge", "curve", 1000, 1000), 60, "there already"),
    (("begin", "ridge", "other", 3, 0), 0, "compiling"),
    (("advance", 2, 8.0), 0, "0.25 trials/s, 4 s left"),
]


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_waited_for_and_how_long_it_takes(terminal):
    """Compilation is named as long as it lasts; the time left is known with the first trials."""
    clock = Clock()
    out, bar = format_value(clock, force_terminal=terminal, width=100)
    with bar:
        for act, seconds, words in TIMES:
            if act:
                getattr(bar, act[0])(*act[1:])
            clock.now += seconds
            if terminal:
                bar._bar.refresh()
            else:
                with bar._told:
                    bar._tell()
            *_, last = (line for line in out.getvalue().splitlines() if "ridge" in line)
            assert last.rstrip().endswith(words)


def test_a_bar_is_drawn_on_a_terminal():
    out, bar = format_value(Clock(), force_terminal=True, width=100)
    with bar:
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
