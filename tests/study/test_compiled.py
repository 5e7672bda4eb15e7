"""A study compiles each program once, and traces it once, whatever numbers its cases have."""

import contextlib

import jax.monitoring
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.simulation import program
from nrjax.study import exported
from tests.study import cheap

_COMPILED = "/jax/core/compile/backend_compile_duration"
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_PROGRAM = "_on_devices"


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Not taken from an earlier run."""
    monkeypatch.setattr(exported, "from_cache", lambda: None)


@contextlib.contextmanager
def programs():
    """Counts, by event, the programs of studies that are traced and compiled, or read again."""
    found = {_TRACED: 0, _COMPILED: 0}

    def heard(event: str, duration_secs: float, **rest: str | int) -> None:
        if event in found and _PROGRAM in str(rest.get("fun_name")):
            found[event] += 1

    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)


def counted(cases, folder):
    """How many programs a study of these cases traces and compiles."""
    program._on_devices.clear_cache()  # other tests have the same programs
    with programs() as found:
        cheap.study(cases).run(folder, trials=40, chunk=24, progress=False)
    assert found[_TRACED] == found[_COMPILED]
    return found[_COMPILED]


def padded(steps, length):
    """Levels beyond `steps` are there for the shape alone."""
    times = np.geomspace(50.0, 0.1, steps)
    grid = nrjax.Grid.explicit(np.pad(times, (0, length - steps), mode="edge"))
    return cheap.interaction(schedule=grid, max_steps=steps)


def test_cases_that_differ_in_numbers_are_one_program(tmp_path):
    walks = {str(start): cheap.Walk(np.float32(start)) for start in (0.5, 1.5, 2.5)}
    goals = {f"goal{goal}": cheap.interaction(-goal) for goal in (0.37, 0.61, 0.83)}
    assert counted(walks | goals, tmp_path / "run") == 2


def test_so_are_goals_whose_grids_differ_in_length(tmp_path):
    goals = {str(steps): padded(steps, 17) for steps in (3, 11, 17)}
    assert counted(goals, tmp_path / "run") == 1


def test_cases_of_another_form_are_seen(tmp_path):
    goals = {str(steps): padded(steps, steps) for steps in (3, 11)}
    assert counted(goals, tmp_path / "run") == 2
