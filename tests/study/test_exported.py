"""Programs are kept between runs, and are taken for nothing else than what they are."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax.study import exported, filling, identity
from nrjax.study.settings import RunSettings
from tests.study import cheap
from tests.study.test_compiled import _TRACED, programs

KEY = jax.random.key(0)
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


def test_a_second_process_traces_nothing_and_has_the_same_bits(cache, tmp_path, monkeypatch):
    first, traced = ran(tmp_path / "first", keep="summary")
    assert traced == len(list(cache.iterdir())) == 2
    second, traced = ran(tmp_path / "second", keep="summary")
    assert traced == 0
    monkeypatch.setattr(exported, "from_cache", lambda: None)
    plain, _ = ran(tmp_path / "plain", keep="summary")
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


def name_of(**changes):
    """What the program of a case is known by."""
    keep = changes.pop("keep", "trials")
    case: Any = nrjax.Case(trial=cheap.interaction(-0.37), quantities={"scaled": scaled})
    settings = RunSettings(out=Path("nowhere"), keep=keep)
    plans = cheap.study({"goal": dataclasses.replace(case, **changes)}).plans(settings)
    (program,) = filling.programs(plans, identity.fingerprints(plans)).values()
    return program._idle(KEY, lambda *arrays, **static: program.launch._name(arrays, static))


def test_other_programs_have_other_names(cache, monkeypatch):
    """After an edit, under another flag, with other devices, options, shapes or bins."""
    first = name_of()
    assert name_of() == first
    assert name_of(trial=cheap.interaction(-0.61), goal=-0.61) == first  # numbers
    others = [
        name_of(batching=nrjax.Batching(devices=jax.devices()[:1])),
        name_of(batching=nrjax.Batching(inner_steps=3)),
        name_of(trial=cheap.interaction(process=nrjax.Laplace(()), guarantee=None)),
        name_of(quantities={}),
        *(name_of(keep="summary", epsilons=of) for of in ((0.1, 1.0, 9.0), (0.01, 1.0, 99.0))),
    ]
    with jax.default_matmul_precision("highest"):
        others.append(name_of())
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    others.append(name_of())
    monkeypatch.setattr(exported, "_source", lambda: "edited")
    others.append(name_of())
    assert len({first, *others}) == 1 + len(others)


def test_what_jax_cannot_export_is_run_all_the_same(cache, tmp_path, monkeypatch):
    first, _ = ran(tmp_path / "first")

    def refused(*given, **options):
        raise NotImplementedError("not to be exported")

    for path in cache.iterdir():
        path.unlink()
    monkeypatch.setattr(jax.export, "export", refused)
    assert alike(first, ran(tmp_path / "second")[0])
    assert not list(cache.iterdir())
