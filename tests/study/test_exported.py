"""Programs of the papers' studies are kept between runs, and known for what they are."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("xarray")
import nrjax
from nrjax import _command
from nrjax.study import exported, filling, identity
from nrjax.study.settings import RunSettings
from tests.study import cheap
from tests.study.test_compiled import _TRACED, programs

KEY = jax.random.key(0)
CASES = {"walk": cheap.Walk(np.float32(0.5)), "goal": cheap.interaction(-0.37)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of our own, in which nothing is, as of the command."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(exported, "_is_command", lambda: True)
    monkeypatch.setattr(_command, "AT_FIRST", _command.code())
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "nrjax"
    jax.config.update("jax_compilation_cache_dir", before)


def ran(out, cases=CASES, source: str | None = "whitehouse2022", **options):
    """Results as of another process, and how many programs it traced."""
    with programs() as found:
        study = cheap.study(cases, source=source)
        results = study.run(out, trials=20, chunk=8, progress=False, **options)
    return results, found[_TRACED]


def alike(one, other):
    return all(one[name].identical(other[name]) for name in one)


def test_a_second_process_traces_nothing_and_has_the_same_bits(cache, tmp_path):
    first, traced = ran(tmp_path / "first", keep="summary")
    assert traced == len(list(cache.iterdir())) == 2
    second, traced = ran(tmp_path / "second", keep="summary")
    assert traced == 0
    plain, _ = ran(tmp_path / "plain", source=None, keep="summary")
    assert alike(first, second)
    assert alike(first, plain)


@pytest.mark.parametrize("other", ["a study of one's own", "another process", "edited", "no cache"])
def test_others_are_traced_each_time(cache, tmp_path, monkeypatch, other):
    """Where there may be code that is not nrjax's as this process began with it."""
    source = "my_study.py" if other == "a study of one's own" else "whitehouse2022"
    if other == "another process":
        monkeypatch.undo()
    if other == "edited":
        monkeypatch.setattr(_command, "AT_FIRST", "code")
    if other == "no cache":
        jax.config.update("jax_compilation_cache_dir", None)
    ran(tmp_path / "run", {"walk": CASES["walk"]}, source=source)
    assert not cache.exists()


def test_what_is_traced_while_files_are_edited_is_not_kept(cache, tmp_path, monkeypatch):
    found = iter([_command.AT_FIRST])
    monkeypatch.setattr(_command, "code", lambda: next(found, None))
    ran(tmp_path / "run", {"walk": CASES["walk"]})
    assert not cache.exists()


def test_code_is_all_of_the_files(tmp_path):
    package = tmp_path / "nrjax"
    shutil.copytree(Path(_command.__file__).parent, package)
    first = _command.code(package)
    assert first == _command.code() is not None
    edited = package / "study" / "report.py"
    text = edited.read_text()
    edited.write_text(text + "#")
    assert _command.code(package) not in (first, None)
    edited.write_text(text)
    assert _command.code(package) == first
    (package / "study").rename(tmp_path / "elsewhere")
    (package / "study").symlink_to(tmp_path / "elsewhere")  # whose files are not looked at
    assert _command.code(package) is None
    assert _command.code(tmp_path / "nowhere") is None


def test_what_is_executed_is_known_by_what_python_has_compiled(tmp_path, monkeypatch):
    first = exported._executed()
    assert exported._executed() == first
    stale = tmp_path / "stale.pyc"
    stale.write_bytes(b"older")
    keys = sys.modules["nrjax.keys"]
    monkeypatch.setattr(keys, "__cached__", str(stale))
    second = exported._executed()
    assert second != first
    # A newer file is executed in its place, though it may not be replaced.
    copied = shutil.copyfile(str(keys.__file__), tmp_path / "keys.py")
    monkeypatch.setattr(keys, "__file__", str(copied))
    os.utime(copied, (0, 0))
    older = exported._executed()
    os.utime(copied, (9, 9))
    assert len({first, second, older, exported._executed()}) == 4


def test_the_command_is_what_was_installed(tmp_path, monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert not exported._is_command()  # neither a module nor a file
    main.__file__ = str(tmp_path / "nrjax")
    Path(main.__file__).write_text("from nrjax.__main__ import main; main()")
    assert not exported._is_command()
    files = importlib.metadata.distribution("nrjax").files or []
    scripts = [Path(str(one.locate())) for one in files if one.name == "nrjax"]
    for script in scripts:
        main.__file__ = str(script)
        assert exported._is_command()
    main.__spec__ = importlib.util.find_spec("nrjax.__main__")
    assert exported._is_command()
    main.__spec__ = importlib.util.find_spec("nrjax.cli")
    assert not exported._is_command()


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


def name_of(source="code", **changes):
    """What the program of a case is known by."""
    keep = changes.pop("keep", "trials")
    case: Any = nrjax.Case(trial=cheap.interaction(-0.37), quantities={"scaled": scaled})
    settings = RunSettings(out=Path("nowhere"), keep=keep)
    plans = cheap.study({"goal": dataclasses.replace(case, **changes)}).plans(settings)
    (program,) = filling.programs(plans, identity.fingerprints(plans)).values()
    kept = exported.Exported(Path("nowhere"), source)
    return program._idle(KEY, lambda *arrays, **static: kept._name(arrays, static))


def test_other_programs_have_other_names(monkeypatch):
    """After an edit, under another flag, with other devices, options, shapes or bins."""
    first = name_of()
    assert name_of() == first
    assert name_of(trial=cheap.interaction(-0.61), goal=-0.61) == first  # numbers
    others = [
        name_of(batching=nrjax.Batching(devices=jax.devices()[:1])),
        name_of(batching=nrjax.Batching(inner_steps=3)),
        name_of(trial=cheap.interaction(process=nrjax.Laplace(()), guarantee=None)),
        name_of(quantities={}),
        name_of("edited"),
        *(name_of(keep="summary", epsilons=of) for of in ((0.1, 1.0, 9.0), (0.01, 1.0, 99.0))),
    ]
    with jax.default_matmul_precision("highest"):
        others.append(name_of())
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    others.append(name_of())
    assert len({first, *others}) == 1 + len(others)


def test_what_cannot_be_exported_is_run_all_the_same(cache, tmp_path, monkeypatch):
    first, _ = ran(tmp_path / "first")
    shutil.rmtree(cache)

    def refused(*given, **options):
        raise NotImplementedError("not to be exported")

    monkeypatch.setattr(jax.export, "export", refused)
    assert alike(first, ran(tmp_path / "second")[0])
    assert not cache.exists()
