"""A study traces and compiles each program once, in a thread while others run."""

import contextlib
import threading

import jax.monitoring
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.simulation import program
from tests.study import cheap

_COMPILED = "/jax/core/compile/backend_compile_duration"
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_PROGRAM = "_on_devices"


def run(cases, folder):
    return cheap.study(cases).run(folder, trials=40, chunk=24, progress=False)


@contextlib.contextmanager
def programs():
    """Count, by event, the programs of studies that are traced and compiled."""
    found = {_TRACED: 0, _COMPILED: 0}

    def heard(event: str, duration_secs: float, **rest: str | int) -> None:
        if event in found and _PROGRAM in str(rest.get("fun_name")):
            found[event] += 1

    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)


def padded(steps, length):
    """Return an interaction whose levels beyond `steps` only pad the shape."""
    times = np.geomspace(50.0, 0.1, steps)
    grid = nrjax.Grid.explicit(np.pad(times, (0, length - steps), mode="edge"))
    return cheap.interaction(schedule=grid, max_steps=steps)


WALKS = {str(start): cheap.Walk(np.float32(start)) for start in (0.5, 1.5, 2.5)}


@pytest.mark.parametrize(
    ("cases", "wanted"),
    [
        (WALKS | {str(goal): cheap.interaction(-goal) for goal in (0.37, 0.61, 0.83)}, 2),
        pytest.param(
            {str(steps): padded(steps, 17) for steps in (3, 11, 17)} | {"other": padded(3, 3)},
            2,
            marks=pytest.mark.long,
        ),
    ],
    ids=["other numbers", "grids of other lengths, and of another form"],
)
def test_cases_of_one_form_are_one_program_and_others_are_seen(tmp_path, cases, wanted):
    program._on_devices.clear_cache()  # other tests have the same programs
    with programs() as found:
        run(cases, tmp_path / "run")
    assert found == {_TRACED: wanted, _COMPILED: wanted}


CASES = {"walk": cheap.Walk(np.float32(0)), "drift": cheap.Walk(np.ones(4, np.float32))}


def test_programs_are_compiled_in_another_thread_and_fail_where_they_are_needed(
    tmp_path, monkeypatch
):
    whole, here, seen = run(CASES, tmp_path / "whole"), threading.get_ident(), []
    prepare = program.Program.prepare

    def watched(self, key):
        seen.append(threading.get_ident())
        prepare(self, key)

    def failing(self, key):
        raise RuntimeError("not in a thread")

    for prepared in (watched, failing):
        monkeypatch.setattr(program.Program, "prepare", prepared)
        results = run(CASES, tmp_path / prepared.__name__)
        for name in CASES:
            assert results[name].identical(whole[name])
            assert results.store.seconds(name)["compile"] > 0
    assert len(seen) == 2
    assert here not in seen
    monkeypatch.setattr(program.Program, "compile", failing)
    with pytest.raises(RuntimeError, match="not in a thread"):
        run(CASES, tmp_path / "run")
