"""The progress of a run: lines in a log, and a line that is redrawn on a terminal."""

import io
import re
import time

import chex
import jax
import pytest

import nrjax
from nrjax._base import progress
from tests.problems import interaction


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_gets_lines_while_no_trial_finishes(monkeypatch):
    monkeypatch.setattr(progress, "_LOG_PAUSE", 0.05)
    log = io.StringIO()
    with progress.progress(log, clock=Clock()) as reporter:
        reporter.begin("walk", "outcome", 1000, 0)
        time.sleep(0.2)
        reporter.advance(400, 2.0)
        time.sleep(0.2)
        reporter.advance(600, 3.0)
    lines = log.getvalue().splitlines()
    assert lines[:2] == ["walk outcome: 0 of 1,000 trials, compiling"] * 2
    assert "walk outcome: 400 of 1,000 trials, 200 trials/s, 3 s left" in lines
    assert lines[-1] == "walk outcome: 1,000 of 1,000 trials, 200 trials/s"
    time.sleep(0.2)
    assert log.getvalue().splitlines() == lines


TIMES = [  # an event, seconds after it, and the state then
    (("begin", "ridge", "outcome", 1000, 0), 0, "compiling"),
    ((), 50, "compiling for 50 s"),
    (("compiled",), 0, "first trials"),
    ((), 8, "first trials for 8 s"),
    (("advance", 250, 10.0), 0, "25 trials/s, 30 s left"),
    ((), 9, "25 trials/s, 21 s left"),
    (("advance", 250, 15.0), 0, "20 trials/s, 25 s left"),
    (("advance", 500, 15.0), 9, "25 trials/s"),
    (("begin", "ridge", "curve", 1000, 1000), 60, "finished before"),
    (("begin", "ridge", "other", 3, 0), 0, "compiling"),
    (("advance", 2, 8.0), 0, "0.25 trials/s, 4 s left"),
]


@pytest.mark.parametrize("is_drawn", [False, True])
def test_the_state_of_a_pass_is_shown(is_drawn):
    clock, out = Clock(), io.StringIO()
    with progress.progress(out, is_drawn, clock) as reporter:
        for event, seconds, state in TIMES:
            if event:
                getattr(reporter, event[0])(*event[1:])
            clock.now += seconds
            with reporter._changed:
                reporter._show()
            *_, last = re.split(r"[\r\n]+", out.getvalue().rstrip())
            assert "ridge" in last
            assert last.rstrip().endswith(state)


def test_a_line_with_a_bar_is_redrawn_on_a_terminal():
    out = io.StringIO()
    with progress.progress(out, True, Clock()) as reporter:
        reporter.begin("case", "outcome", 30, 10)
        reporter.advance(5, 0.5)
        reporter.advance(15, 1.5)
    (line,) = out.getvalue().splitlines(keepends=True)[-1:]
    drawn = line.rstrip().split("\r")[-1]
    assert drawn.startswith("█" * 10 + " case outcome: 30 of 30 trials, 10 trials/s")


@pytest.mark.long
def test_simulate_and_sweep_show_progress_on_request(capsys):
    key, trial = jax.random.key(3), interaction([0.25])
    quiet = nrjax.simulate(key, trial, trials=70)
    assert capsys.readouterr().out == ""
    chex.assert_trees_all_equal(nrjax.simulate(key, trial, trials=70, progress=True), quiet)
    assert re.search(r"simulate: 70 of 70 trials, [\d,]+ trials/s", capsys.readouterr().out)


@pytest.mark.long
def test_a_sweep_shows_progress_on_request(capsys):
    trial = interaction([0.25])
    nrjax.sweep(jax.random.key(3), [trial, trial], trials=5, progress=True)
    assert "5 of 5 trials" in capsys.readouterr().out


class Terminal(io.TextIOWrapper):
    """A terminal of an encoding."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("encoding", "bar", "name"),
    [
        ("utf-8", "█████░░░░░", "größe ε"),
        ("latin-1", "#####-----", "größe ?"),
        ("ascii", "#####-----", "gr??e ?"),
        ("cp437", "█████░░░░░", "größe ε"),
    ],
)
def test_terminals_of_any_encoding(encoding, bar, name):
    for is_drawn in (None, False):
        held = io.BytesIO()
        terminal = Terminal(held, encoding=encoding)
        with progress.progress(terminal, is_drawn, Clock()) as reporter:
            reporter.begin("größe ε", "", 10, 0)
            reporter.advance(5, 1.0)
            with reporter._changed:
                reporter._show()
        shown = held.getvalue().decode(encoding)
        assert name in shown
        assert (bar in shown) == (is_drawn is None)
