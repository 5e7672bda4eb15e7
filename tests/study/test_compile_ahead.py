"""Programs are compiled in a thread while others run; results are those of one after the other."""

import threading

import pytest

pytest.importorskip("xarray")

from nrjax.program import Program
from nrjax.study import runner
from tests.studies import tiny


def arrays(store):
    return {name: store.read("walk", name).load() for name in ("outcome", "curve")}


def settings(out):
    return tiny.Settings(out=out, trials=20, chunk=8)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return runner.run(tiny, settings(tmp_path_factory.mktemp("whole") / "run"))


def test_each_program_is_compiled_once_in_another_thread(finished, tmp_path, monkeypatch):
    here, seen, prepare = threading.get_ident(), [], Program.prepare

    def watched(self, key):
        seen.append(threading.get_ident())
        prepare(self, key)

    monkeypatch.setattr(Program, "prepare", watched)
    store = runner.run(tiny, settings(tmp_path / "run"))
    assert len(seen) == 2
    assert here not in seen
    for name, right in arrays(finished).items():
        assert arrays(store)[name].identical(right)
    assert store.seconds("walk")["compile"] > 0


def test_what_fails_there_is_raised_where_it_is_needed(finished, tmp_path, monkeypatch):
    def failing(self, key):
        raise RuntimeError("not in a thread")

    monkeypatch.setattr(Program, "prepare", failing)
    store = runner.run(tiny, settings(tmp_path / "one"))
    assert arrays(store)["outcome"].identical(arrays(finished)["outcome"])
    monkeypatch.setattr(Program, "compile", failing)
    with pytest.raises(RuntimeError, match="not in a thread"):
        runner.run(tiny, settings(tmp_path / "two"))
