"""Programs are kept between runs, and are taken for nothing else than what they are."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.study import exported
from tests.study import cheap
from tests.study.test_compiled import _TRACED, programs

CASES = {"walk": cheap.Walk(np.float32(0.5)), "goal": cheap.interaction(-0.37)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of our own, in which nothing is."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(exported, "_FOUND", {})
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "nrjax"
    jax.config.update("jax_compilation_cache_dir", before)


def ran(out, cases=CASES, **options):
    """Results as of another process, and how many programs it traced."""
    exported._FOUND.clear()
    with programs() as found:
        results = cheap.study(cases).run(out, trials=20, chunk=8, progress=False, **options)
    return results, found[_TRACED]


def alike(one, other):
    return all(one[name].identical(other[name]) for name in one)


@pytest.mark.parametrize("keep", ["trials", "summary"])
def test_a_second_process_traces_nothing_and_has_the_same_bits(cache, tmp_path, keep, monkeypatch):
    first, traced = ran(tmp_path / "first", keep=keep)
    assert traced == len(list(cache.iterdir())) == 2
    second, traced = ran(tmp_path / "second", keep=keep)
    assert traced == 0
    monkeypatch.setattr(exported, "from_cache", lambda: None)
    plain, _ = ran(tmp_path / "plain", keep=keep)
    assert alike(first, second)
    assert alike(first, plain)


def test_damaged_files_are_written_again(cache, tmp_path):
    first, _ = ran(tmp_path / "first")
    for number, path in enumerate(sorted(cache.iterdir())):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if number else data[: len(data) // 2])
    second, traced = ran(tmp_path / "second")
    assert traced == 2
    assert ran(tmp_path / "third")[1] == 0
    assert alike(first, second)


SCALE = 1.0


def scaled(outcome):
    return SCALE * outcome.utility


def test_other_programs_are_not_taken_for_it(cache, tmp_path, monkeypatch):
    """After an edit, and under another flag, with other devices, options or bins."""
    goal: Any = nrjax.Case(trial=cheap.interaction(-0.37), quantities={"scaled": scaled})
    first, _ = ran(tmp_path / "first", {"goal": goal})
    assert ran(tmp_path / "again", {"goal": goal})[1] == 0
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    edited, traced = ran(tmp_path / "edited", {"goal": goal})
    assert traced == 1
    np.testing.assert_array_equal(2 * first["goal"]["scaled"], edited["goal"]["scaled"])
    with jax.default_matmul_precision("highest"):
        assert ran(tmp_path / "precise", {"goal": goal})[1] > 0
    for number, batching in enumerate(
        (nrjax.Batching(devices=jax.devices()[:1]), nrjax.Batching(inner_steps=3))
    ):
        other = {"goal": dataclasses.replace(goal, batching=batching)}
        assert ran(tmp_path / f"batching{number}", other)[1] == 1
    for number, epsilons in enumerate(((0.1, 1.0, 9.0), (0.01, 1.0, 99.0))):
        binned = {"goal": dataclasses.replace(goal, epsilons=epsilons)}
        assert ran(tmp_path / f"binned{number}", binned, keep="summary")[1] == 1


def test_what_jax_cannot_export_is_run_all_the_same(cache, tmp_path, monkeypatch):
    first, _ = ran(tmp_path / "first")

    def refused(*given, **options):
        raise NotImplementedError("not to be exported")

    for path in cache.iterdir():
        path.unlink()
    monkeypatch.setattr(jax.export, "export", refused)
    assert alike(first, ran(tmp_path / "second")[0])
    assert not list(cache.iterdir())
