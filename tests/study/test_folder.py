"""The folder of a run: one writer, nobody else's files, and whatever interrupts a write."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")

from nrjax.study import folder as disk
from nrjax.study.folder import StoreBusyError
from nrjax.study.layout import Case, Pass, Variable
from nrjax.study.store import Store
from tests.study import test_store
from tests.study.test_store import NAME, a_case, write_all

store = test_store.store


def test_a_second_writer_is_told_at_once(store, tmp_path):
    with store.writer():
        with pytest.raises(StoreBusyError, match="another run is writing"):
            store.writer().__enter__()
        with pytest.raises(StoreBusyError, match="another run is writing"):
            Store.create(tmp_path, {}, [a_case()], overwrite=True)
        assert Store.open(tmp_path).done(NAME, "curve") == []
    with store.writer():
        assert store.pending(NAME, "curve") == [range(3), range(3, 6)]
    Store.create(tmp_path, {"seed": 1}, [a_case()], overwrite=True)
    with pytest.raises(RuntimeError, match="replaced by another run"), store.writer():
        pass


def test_results_are_replaced_on_request_only_and_strangers_files_never(store, tmp_path):
    strange = tmp_path / "notes.txt"
    strange.write_text("mine")
    write_all(store, a_case(), "outcome")
    for content in (b"first", b"ours"):
        figure = disk.write_document(tmp_path, "figures/loss.png", content)
    mine = figure.with_name("mine.png")
    mine.write_bytes(b"ours")
    with pytest.raises(FileExistsError, match=r"mine\.png was not written by nrjax"):
        disk.write_document(tmp_path, "figures/mine.png", b"more")
    with pytest.raises(FileExistsError, match="holds results already"):
        Store.create(tmp_path, {"seed": 1}, [a_case()])
    assert Store.open(tmp_path).settings == {"seed": 0}
    store = Store.create(tmp_path, {"seed": 1}, [a_case()], overwrite=True)
    assert store.settings == {"seed": 1}
    assert store.done(NAME, "outcome") == []
    assert not figure.exists()
    assert mine.read_bytes() == b"ours"
    assert strange.read_text() == "mine"


@pytest.mark.parametrize("name", ["results", "summary.json"])
def test_files_that_only_look_like_results_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(FileExistsError, match="was not written by nrjax"):
        Store.create(tmp_path, {}, [a_case()], overwrite=True)
    assert (tmp_path / name).read_text() == '{"a": 1}'


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError, match="cannot write results to the folder"):
        disk.check_folder(tmp_path, overwrite=False)


def test_a_folder_without_results_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the folder of an earlier run"):
        Store.open(tmp_path)
    Store.create(tmp_path, {}, [a_case()])
    path = tmp_path / "results" / "manifest.json"
    manifest = json.loads(path.read_text())
    for version in (1, 99):
        path.write_text(json.dumps(manifest | {"nrjax_store": version}))
        with pytest.raises(ValueError, match=f"has store format {version}; this version"):
            Store.open(tmp_path)
        with pytest.raises(FileExistsError, match="holds results already"):
            Store.create(tmp_path, {}, [a_case()])


def test_kills_at_any_moment_of_beginning_anew_leave_a_store_or_none(tmp_path, monkeypatch):
    """Between all steps; what is left is opened, or begun anew."""
    for number in itertools.count():
        folder, steps = tmp_path / str(number), itertools.count()
        write_all(Store.create(folder, {"seed": 0}, [a_case()]), a_case(), "outcome")
        disk.write_document(folder, "summary.json", "{}")

        def dying(step, steps=steps, number=number):
            def step_or_die(*given, **options):
                if next(steps) == number:
                    raise KeyboardInterrupt
                return step(*given, **options)

            return step_or_die

        with monkeypatch.context() as patch:
            for owner, name in ((Path, "replace"), (Path, "rename"), (shutil, "rmtree")):
                patch.setattr(owner, name, dying(getattr(owner, name)))
            try:
                Store.create(folder, {"seed": 1}, [a_case()], overwrite=True)
                break
            except KeyboardInterrupt:
                pass
        if (folder / "results").exists():
            left = Store.open(folder)
            assert left.settings == {"seed": 0}
            assert left.pending(NAME, "outcome") == []
        again = Store.create(folder, {"seed": 1}, [a_case()], overwrite=True)
        assert again.done(NAME, "outcome") == []
        assert sorted(one.name for one in folder.iterdir()) == [".nrjax.lock", "results"]
    assert number >= 5


@pytest.mark.skipif(os.name != "posix", reason="needs resource limits")
def test_a_write_that_fails_ends_clearly_and_the_store_reopens(tmp_path):
    """The operating system refuses it, not a stand-in."""
    import resource

    case = Case("a", {}, {"p": Pass(200_000, 100_000, {"x": Variable("float64")})})
    first, second = range(100_000), range(100_000, 200_000)
    values = {"x": np.random.default_rng(0).random(100_000)}
    store, limits = Store.create(tmp_path, {}, [case]), resource.getrlimit(resource.RLIMIT_FSIZE)
    with store.writer() as writer:
        writer.write("a", "p", first, values)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
        try:
            with pytest.raises(OSError, match=r"cannot write trials 100000 to 199999 of a/p to"):
                writer.write("a", "p", second, values)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store = Store.open(tmp_path)
    assert store.done("a", "p") == [first]
    np.testing.assert_array_equal(store.arrays("a", "p", partial=True)["x"], values["x"])
    with store.writer() as writer:
        writer.write("a", "p", second, values)
    np.testing.assert_array_equal(store.read("a", "p")["x"], np.tile(values["x"], 2))


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import nrjax
nrjax.Study("study", {})
"""


@pytest.mark.parametrize("name", ["filelock", "scipy", "tyro"])
def test_a_missing_package_is_named_with_the_remedy_before_a_run(name):
    """A program needs no parser of command lines."""
    command = [sys.executable, "-c", WITHOUT, name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if name == "tyro":
        assert "ValueError: cases must be at least one" in ended.stderr
    else:
        assert f'a study needs {name}: run pip install ".[studies]" in' in ended.stderr
