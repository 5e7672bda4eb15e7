"""The folder of a run: one writer, other files left alone, and interrupted writes."""

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

from nrjax.study import files
from nrjax.study.files import StoreBusyError
from nrjax.study.schema import Pass, StoredCase, Variable
from nrjax.study.store import Store
from tests.study.stored import NAME, a_case, arrays, write_all


def test_a_second_writer_is_refused(store, tmp_path):
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


def test_results_are_replaced_on_request_only_and_other_files_never(store, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    write_all(store, a_case(), "outcome")
    for content in (b"first", b"second"):
        figure = files.write_document(tmp_path, "figures/loss.png", content)
    assert figure.read_bytes() == b"second"
    table = figure.with_name("mine.csv")
    table.write_text("mine")
    with pytest.raises(FileExistsError, match="holds results already"):
        Store.create(tmp_path, {"seed": 1}, [a_case()])
    assert Store.open(tmp_path).settings == {"seed": 0}
    store = Store.create(tmp_path, {"seed": 1}, [a_case()], overwrite=True)
    assert store.settings == {"seed": 1}
    assert store.done(NAME, "outcome") == []
    assert not figure.exists()
    assert table.read_text() == notes.read_text() == "mine"


def test_an_earlier_run_stays_until_the_first_trials_are_written(store, tmp_path):
    write_all(store, a_case(), "outcome")
    summary = files.write_document(tmp_path, "summary.json", b"{}")
    options = {"overwrite": True, "deferred": True}
    new = Store.create(tmp_path, {"seed": 1}, [a_case()], **options)
    with new.writer() as writer:
        assert new.is_deferred
        assert new.done(NAME, "outcome") == []
        assert Store.open(tmp_path).settings == {"seed": 0}
        assert not Store.open(tmp_path).pending(NAME, "outcome")
        assert summary.exists()
        span = new.pending(NAME, "outcome")[0]
        writer.write(NAME, "outcome", span, arrays(a_case(), "outcome", span))
    assert not new.is_deferred
    assert not summary.exists()
    assert Store.open(tmp_path).settings == {"seed": 1}
    assert new.done(NAME, "outcome") == Store.open(tmp_path).done(NAME, "outcome") == [span]
    late = Store.create(tmp_path, {"seed": 2}, [a_case()], **options)
    Store.create(tmp_path, {"seed": 3}, [a_case()], overwrite=True)
    with pytest.raises(RuntimeError, match="replaced by another run"), late.writer():
        pass


@pytest.mark.parametrize("name", ["results", "summary.json", "report.md", "report.html"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused(tmp_path, name, overwrite):
    (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(FileExistsError, match=f"holds {name}, but no run of nrjax"):
        Store.create(tmp_path, {}, [a_case()], overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"a": 1}'


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError, match="cannot write results to the folder"):
        files.check_folder(tmp_path, overwrite=False)


def test_a_folder_without_results_or_of_another_format_cannot_be_opened(tmp_path):
    for folder, hint in ((tmp_path, "It has no subfolder"), (tmp_path / "no", "There is no such")):
        with pytest.raises(FileNotFoundError, match=f"folder must be .* {hint}"):
            Store.open(folder)
    Store.create(tmp_path, {}, [a_case()])
    path = tmp_path / "results" / "manifest.json"
    manifest = json.loads(path.read_text())
    for version in (5, 99):
        path.write_text(json.dumps(manifest | {"nrjax_store": version}))
        with pytest.raises(ValueError, match=f"has store format {version}; this version"):
            Store.open(tmp_path)
        with pytest.raises(FileExistsError, match="holds results already"):
            Store.create(tmp_path, {}, [a_case()])


def test_kills_at_any_moment_of_an_overwrite_leave_a_store_or_none(tmp_path, monkeypatch):
    """A process dies between two steps. Then the folder is opened, or overwritten again."""
    for number in itertools.count():
        folder, steps = tmp_path / str(number), itertools.count()
        write_all(Store.create(folder, {"seed": 0}, [a_case()]), a_case(), "outcome")
        for name in ("summary.json", "report.md", "report.html", "figures/loss.png"):
            files.write_document(folder, name, "{}")

        def dying(step, steps=steps, number=number):
            def step_or_die(*arguments, **options):
                if next(steps) == number:
                    raise KeyboardInterrupt
                return step(*arguments, **options)

            return step_or_die

        with monkeypatch.context() as patch:
            for owner, name in (
                *((Path, name) for name in ("replace", "rename", "unlink", "rmdir")),
                (shutil, "rmtree"),
            ):
                patch.setattr(owner, name, dying(getattr(owner, name)))
            try:
                Store.create(folder, {"seed": 1}, [a_case()], overwrite=True)
                break
            except KeyboardInterrupt:
                pass
        if (folder / "results").exists():
            left = Store.open(folder)
            is_new = left.settings == {"seed": 1}  # only the note on the lock was left to remove
            assert is_new or left.settings == {"seed": 0}
            assert (left.done(NAME, "outcome") if is_new else left.pending(NAME, "outcome")) == []
        again = Store.create(folder, {"seed": 1}, [a_case()], overwrite=True)
        assert again.done(NAME, "outcome") == []
        assert sorted(path.name for path in folder.iterdir()) == [".nrjax.lock", "results"]
    assert number >= 9


@pytest.mark.skipif(os.name != "posix", reason="needs resource limits")
def test_a_failed_write_is_explained_and_the_store_reopens(tmp_path):
    """The operating system refuses the write, not a stand-in."""
    import resource

    case = StoredCase("a", {}, {"p": Pass(200_000, 100_000, {"x": Variable("float64")})})
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
    np.testing.assert_array_equal(store.arrays("a", "p")["x"], np.tile(values["x"], 2))


WITHOUT = """
import sys
import numpy, nrjax
from tests.study import cheap
study = cheap.study({"walk": cheap.Walk(numpy.float32(0))})
for name in ("filelock", "matplotlib", "scipy"):
    sys.modules[name] = None
    try:
        study.run("out", trials=5)
    except ImportError as error:
        print(error)
    del sys.modules[name]
sys.modules.update(dict.fromkeys(("tyro", "rich")))
study.run("out", trials=5)
"""


def test_a_missing_package_is_named_before_a_run(tmp_path):
    """A program needs neither a parser of command lines nor a printer of tables."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    *refusals, ran = ended.stdout.splitlines()[:4]
    for name, refusal in zip(("filelock", "matplotlib", "scipy"), refusals, strict=True):
        assert f'a study needs {name}: run pip install ".[studies]" in' in refusal
    assert "trials" in ran  # nothing was run before
    assert (tmp_path / "out" / "summary.json").exists()
