"""Programs are compiled in a thread while others run; results are those of one after the other."""

import threading

import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.simulation.program import Program
from tests.study import cheap

CASES = {"walk": cheap.Walk(np.float32(0)), "drift": cheap.Walk(np.ones(4, np.float32))}


def run(out):
    return cheap.study(CASES).run(out, trials=20, chunk=8, progress=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run")


def test_each_program_is_compiled_once_in_another_thread(finished, tmp_path, monkeypatch):
    here, seen, prepare = threading.get_ident(), [], Program.prepare

    def watched(self, key):
        seen.append(threading.get_ident())
        prepare(self, key)

    monkeypatch.setattr(Program, "prepare", watched)
    results = run(tmp_path / "run")
    assert len(seen) == 2
    assert here not in seen
    for name in CASES:
        assert results[name].identical(finished[name])
        assert results.store.seconds(name)["compile"] > 0


def test_what_fails_there_is_raised_where_it_is_needed(finished, tmp_path, monkeypatch):
    def failing(self, key):
        raise RuntimeError("not in a thread")

    monkeypatch.setattr(Program, "prepare", failing)
    assert run(tmp_path / "one")["walk"].identical(finished["walk"])
    monkeypatch.setattr(Program, "compile", failing)
    with pytest.raises(RuntimeError, match="not in a thread"):
        run(tmp_path / "two")
