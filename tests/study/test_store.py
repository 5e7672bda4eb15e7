"""The store gives back exactly what was written, and survives whatever interrupts it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")
import xarray

from nrjax.study import folder as folder_module
from nrjax.study import store as store_module
from nrjax.study.store import (
    Case,
    Coordinate,
    DamagedError,
    Pass,
    Store,
    StoreBusyError,
    Variable,
)

HERE = Path(__file__).parent
NAME = "logistic-brownian-public"
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and resource limits")


def a_case(trials=10, chunk=4, dtype="float32"):
    outcome = Pass(trials, chunk, {"epsilon": Variable(dtype), "step": Variable("int32")})
    curve = Pass(
        6,
        3,
        {"utility": Variable(dtype, (("level", 2),), {"unit": "nat"})},
        {"epsilon": Coordinate("level", (0.1, 0.3), {"long_name": "ex-post epsilon"})},
    )
    return Case(NAME, {"task": "logistic", "target": 0.41}, {"outcome": outcome, "curve": curve})


def arrays(case, name, chunk):
    """What each trial should hold: numbers that depend on the variable and the trial."""
    layout = case.passes[name]
    span = layout.span(chunk)
    result = {}
    for number, (key, variable) in enumerate(layout.variables.items()):
        shape = (layout.trials, *(size for _, size in variable.dims))
        values = np.arange(np.prod(shape), dtype=variable.dtype).reshape(shape) + 7 * number + 1
        result[key] = values[span]
    return result


def write_all(store, case, name):
    with store.writer() as writer:
        for chunk in writer.pending(case.name, name):
            writer.write(case.name, name, chunk, arrays(case, name, chunk))


def test_gives_back_what_was_written(tmp_path, dtype):
    case = a_case(dtype=np.dtype(dtype).name)
    store = Store.create(tmp_path / "run", {"seed": 0, "grid": (1, 2)}, [case])
    write_all(store, case, "outcome")
    write_all(store, case, "curve")
    again = Store.open(tmp_path / "run")
    assert again.settings == {"seed": 0, "grid": [1, 2]}
    assert again.cases == {NAME: case}
    outcome, curve = again.read(NAME, "outcome"), again.read(NAME, "curve")
    for name, dataset in (("outcome", outcome), ("curve", curve)):
        layout = case.passes[name]
        chunks = [arrays(case, name, chunk) for chunk in range(layout.chunks)]
        for key in layout.variables:
            expected = np.concatenate([chunk[key] for chunk in chunks])
            np.testing.assert_array_equal(dataset[key].values, expected, strict=True)
    assert outcome.attrs == {"task": "logistic", "target": 0.41}
    np.testing.assert_array_equal(outcome.trial, np.arange(10))
    np.testing.assert_array_equal(curve.epsilon.values, [0.1, 0.3])
    assert curve.utility.dims == ("trial", "level")
    assert curve.utility.attrs["unit"] == "nat"


def test_xarray_opens_a_pass_and_all_of_them(tmp_path):
    case = a_case()
    store = Store.create(tmp_path, {}, [case])
    for name in ("outcome", "curve"):
        write_all(store, case, name)
    dataset = xarray.open_dataset(tmp_path, engine="nrjax", group=f"{NAME}/curve")
    assert set(dataset.coords) == {"epsilon", "trial"}
    assert dataset.attrs["task"] == "logistic"
    np.testing.assert_array_equal(dataset.utility[:3], arrays(case, "curve", 0)["utility"])
    one = xarray.open_dataset(tmp_path, engine="nrjax", group=NAME, drop_variables="step")
    assert set(one) == {"epsilon"}
    tree = xarray.open_datatree(tmp_path, engine="nrjax")
    xarray.testing.assert_identical(tree[f"{NAME}/curve"].to_dataset(), dataset)
    with pytest.raises(ValueError, match=f"group = 'x': must be one of .*{NAME}/curve"):
        xarray.open_dataset(tmp_path, engine="nrjax", group="x")


def test_room_asked_for_histograms_is_what_they_take(tmp_path):
    """Of a million trials, in a third of the bins."""
    bins = Variable("int32", (("bin", 60_000),))
    layout = Pass(1_000_000, 1_000_000, {"counts": bins}, axis="chunk")
    places = np.random.default_rng(0).normal(30_000, 3_000, 1_000_000).astype(int)
    counts = np.bincount(places, minlength=60_000).astype("int32")
    store = Store.create(tmp_path, {}, [Case("a", {}, {"outcome": layout})])
    with store.writer() as writer:
        writer.write("a", "outcome", 0, {"counts": counts})
    (file,) = store.path_of("a", "outcome").iterdir()
    assert file.stat().st_size < layout.bytes_of(1) < counts.nbytes / 2


def test_folded_chunks_have_a_row_each_and_more_can_be_added(tmp_path):
    counts = {"count": Variable("int64", (("bin", 3),)), "mean": Variable("float64")}
    case = Case("a", {"trials": 10}, {"outcome": Pass(10, 4, counts, axis="chunk")})

    def rows(chunk, layout):
        size = layout.span(chunk).stop - layout.span(chunk).start
        return {"count": np.array([size, chunk, 7]), "mean": np.float64(size / 3)}

    def finish(store):
        layout, ran = store.cases["a"].passes["outcome"], []
        with store.writer() as writer:
            for chunk in writer.pending("a", "outcome"):
                writer.write("a", "outcome", chunk, rows(chunk, layout), 0.5)
                ran.append(chunk)
        return ran

    store = Store.create(tmp_path, {}, [case])
    with store.writer() as writer:
        one = {"count": np.zeros((1, 3), "int64"), "mean": np.float64(0)}
        with pytest.raises(ValueError, match=r"shape of count = \(1, 3\): must be \(3,\)"):
            writer.write("a", "outcome", 0, one)
        writer.write("a", "outcome", 2, rows(2, case.passes["outcome"]))
    partial = store.read("a", "outcome", partial=True)
    assert dict(partial.sizes) == {"chunk": 1, "bin": 3}
    assert partial["chunk"].values.tolist() == [2]
    assert finish(store) == [0, 1]
    got = store.read("a", "outcome")
    assert got["count"].values.tolist() == [[4, 0, 7], [4, 1, 7], [2, 2, 7]]
    assert got["count"].dims == ("chunk", "bin")
    store = store.extend(18)
    assert finish(store) == [2, 3, 4]  # the short chunk anew
    assert store.read("a", "outcome")["count"].values[:, 0].tolist() == [4, 4, 4, 4, 2]
    assert store.seconds("a") == {"compile": 0.0, "run": 2.5}
    assert store.cases["a"].attributes["trials"] == 18


def test_a_chunk_may_be_more_than_the_trials(tmp_path):
    """A small study can grow in chunks of a sensible size."""
    case = Case("a", {}, {"outcome": Pass(3, 100, {"x": Variable("float32")})})
    store = Store.create(tmp_path, {}, [case])
    for trials in (3, 70, 250):
        store = store.extend(trials)
        values = np.arange(trials, dtype="float32")
        layout = store.cases["a"].passes["outcome"]
        with store.writer() as writer:
            pending = writer.pending("a", "outcome")
            assert pending == ([0] if trials <= 100 else [0, 1, 2])
            for chunk in pending:
                writer.write("a", "outcome", chunk, {"x": values[layout.span(chunk)]})
        np.testing.assert_array_equal(store.read("a", "outcome")["x"], values)
        assert store.finished()
    assert len(list(store.path_of("a", "outcome").iterdir())) == 3  # the short ones are gone


def everything(folder):
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_every_flipped_bit_is_noticed(tmp_path):
    """Of a chunk: refused by name; of the manifest: refused, or of no importance."""
    store = Store.create(tmp_path, {"seed": 0}, [a_case()])
    write_all(store, a_case(), "outcome")
    whole = store.read(NAME, "outcome")
    rng = np.random.default_rng(0)
    for path in (tmp_path / "results" / "manifest.json", *store.path_of(NAME, "outcome").iterdir()):
        good = path.read_bytes()
        for bit in rng.choice(8 * len(good), 150, replace=False).tolist():
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            try:
                found = Store.open(tmp_path)
                assert found.settings == {"seed": 0}
                assert found.cases == store.cases
                xarray.testing.assert_identical(found.read(NAME, "outcome"), whole)
                said = "manifest.json"  # white space
            except (ValueError, DamagedError) as error:  # also of the name of the format
                said = str(error).replace("has store format", "manifest.json")
            assert path.name in said
        path.write_bytes(good)
    xarray.testing.assert_identical(Store.open(tmp_path).read(NAME, "outcome"), whole)


@pytest.mark.parametrize("how", ["removed", "cut", "emptied"])
def test_a_broken_manifest_is_refused_and_nothing_is_changed(tmp_path, how):
    store = Store.create(tmp_path, {}, [a_case()])
    write_all(store, a_case(), "outcome")
    path = tmp_path / "results" / "manifest.json"
    good = path.read_bytes()
    path.unlink() if how == "removed" else path.write_bytes(good[:40] if how == "cut" else b"")
    before = everything(tmp_path)
    for act in (Store.open, lambda folder: store.writer().__enter__()):
        with pytest.raises(ValueError, match=r"manifest\.json is missing, broken or not nrjax's"):
            act(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            Store.create(tmp_path, {}, [a_case()], overwrite=overwrite)
    assert everything(tmp_path) == before


def test_a_broken_or_lost_chunk_can_be_run_again(tmp_path):
    store = Store.create(tmp_path, {}, [a_case()])
    write_all(store, a_case(), "outcome")
    whole = store.read(NAME, "outcome")
    path = store.path_of(NAME, "outcome") / "0000000004-0000000008.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedError, match=f"{path} is broken.*remove it, and `nrjax resume`"):
        Store.open(tmp_path).read(NAME, "outcome")
    path.unlink()
    assert Store.open(tmp_path).done(NAME, "outcome").tolist() == [True, False, True]
    write_all(store, a_case(), "outcome")
    xarray.testing.assert_identical(Store.open(tmp_path).read(NAME, "outcome"), whole)


def test_unfinished_trials_are_an_error_or_left_out(tmp_path):
    case = a_case()
    store = Store.create(tmp_path, {}, [case])
    with store.writer() as writer:
        for chunk in (2, 0):
            writer.write(NAME, "outcome", chunk, arrays(case, "outcome", chunk))
        assert writer.pending(NAME, "outcome") == [1]
        assert writer.pending(NAME, "curve") == [0, 1]
    with pytest.raises(RuntimeError, match="1 of 3 chunks are missing"):
        store.read(NAME, "outcome")
    partial = store.read(NAME, "outcome", partial=True)
    np.testing.assert_array_equal(partial.trial, [0, 1, 2, 3, 8, 9])
    expected = [arrays(case, "outcome", chunk)["step"] for chunk in (0, 2)]
    np.testing.assert_array_equal(partial.step, np.concatenate(expected))
    assert store.read(NAME, "curve", partial=True).sizes["trial"] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0])
def test_values_that_could_be_taken_for_missing_survive(tmp_path, value, dtype):
    case = a_case(dtype=np.dtype(dtype).name)
    store = Store.create(tmp_path, {}, [case])
    with store.writer() as writer:
        for chunk, count in enumerate((4, 4, 2)):
            step = np.zeros(count, "int32")
            epsilon = np.full(count, value, dtype)
            writer.write(NAME, "outcome", chunk, {"step": step, "epsilon": epsilon})
        assert writer.pending(NAME, "outcome") == []
    got = store.read(NAME, "outcome")
    assert got.step.dtype == np.int32
    np.testing.assert_array_equal(got.step, np.zeros(10))
    np.testing.assert_array_equal(got.epsilon.values, np.full(10, value, dtype), strict=True)
    np.testing.assert_array_equal(np.signbit(got.epsilon), np.full(10, np.signbit(value)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": None}, r"arrays = \['epsilon'\]: must be all variables"),
        ({"more": np.zeros(4)}, "arrays = .*'more'"),
        ({"step": np.zeros(4, "int64")}, "step = 'int64': must be int32"),
        ({"step": np.zeros(3, "int32")}, r"shape of step = \(3,\): must be \(4,\)"),
        ({"step": np.zeros((4, 1), "int32")}, r"shape of step = \(4, 1\)"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused(tmp_path, change, words):
    case = a_case()
    store = Store.create(tmp_path, {}, [case])
    chunk = {**arrays(case, "outcome", 0), **change}
    chunk = {name: values for name, values in chunk.items() if values is not None}
    with store.writer() as writer:
        with pytest.raises(ValueError, match=words):
            writer.write(NAME, "outcome", 0, chunk)
        assert writer.pending(NAME, "outcome") == [0, 1, 2]


def test_a_chunk_out_of_range_is_refused(tmp_path):
    case = a_case()
    store = Store.create(tmp_path, {}, [case])
    with store.writer() as writer:
        for chunk in (-1, 3):
            with pytest.raises(ValueError, match=f"chunk = {chunk}: must be from 0 to 2"):
                writer.write(NAME, "outcome", chunk, {})
        with pytest.raises(ValueError, match="case = 'x': must be one of"):
            writer.pending("x", "outcome")
        with pytest.raises(ValueError, match="pass = 'x': must be one of"):
            writer.pending(NAME, "x")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("a/b", {}, {}), "name = 'a/b'"),
        (Case("a", {"x": np.inf}, {}), "strict JSON"),
        (Case("a", {"x": np.zeros(2)}, {}), "strict JSON"),
        (Case("a", {}, {"p": Pass(0, 1, {})}), "trials = 0: must be a positive integer"),
        (Case("a", {}, {"p": Pass(1, 1, {"trial": Variable("bool")})}), "variable = 'trial'"),
        (Case("a", {}, {"p": Pass(1, 1, {"x": Variable("object")})}), "dtype = 'object'"),
        (
            Case("a", {}, {"p": Pass(1, 1, {}, {"e": Coordinate("level", (1.0,))})}),
            "values of e = 1: must be None, the size of 'level'",
        ),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(tmp_path, case, words):
    with pytest.raises(ValueError, match=words):
        Store.create(tmp_path / "run", {}, [case])
    assert not (tmp_path / "run").exists()


def test_two_cases_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="the name of one case only"):
        Store.create(tmp_path, {}, [a_case(), a_case()])


def test_seconds_add_up(tmp_path):
    store = Store.create(tmp_path, {}, [a_case()])
    assert store.seconds(NAME) == {"compile": 0.0, "run": 0.0}
    for _ in range(2):
        with store.writer() as writer:
            for name in ("outcome", "curve"):
                chunk = writer.pending(NAME, name)[0]
                writer.write(NAME, name, chunk, arrays(a_case(), name, chunk), 0.25, 0.75)
    assert Store.open(tmp_path).seconds(NAME) == {"compile": 3.0, "run": 1.0}


def test_a_second_writer_is_told_at_once(tmp_path):
    store = Store.create(tmp_path, {}, [a_case()])
    with store.writer():
        with pytest.raises(StoreBusyError, match="another run is writing"):
            store.writer().__enter__()
        with pytest.raises(StoreBusyError, match="another run is writing"):
            Store.create(tmp_path, {}, [a_case()], overwrite=True)
        assert Store.open(tmp_path).done(NAME, "curve").tolist() == [False, False]
    with store.writer() as writer:
        assert writer.pending(NAME, "curve") == [0, 1]


def test_a_store_replaced_meanwhile_is_not_written_to(tmp_path):
    store = Store.create(tmp_path, {"seed": 0}, [a_case()])
    Store.create(tmp_path, {"seed": 1}, [a_case()], overwrite=True)
    with pytest.raises(RuntimeError, match="replaced by another run"), store.writer():
        pass


def test_results_are_replaced_on_request_only_and_strangers_files_never(tmp_path):
    strange = tmp_path / "notes.txt"
    strange.write_text("mine")
    store = Store.create(tmp_path, {"seed": 0}, [a_case()])
    write_all(store, a_case(), "outcome")
    figure = store.write_figure("loss.png", b"ours")
    mine = figure.with_name("mine.png")
    mine.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"mine\.png was not written by nrjax"):
        store.write_figure("mine.png", b"ours")
    with pytest.raises(FileExistsError, match="holds results already"):
        Store.create(tmp_path, {"seed": 1}, [a_case()])
    with pytest.raises(FileExistsError, match="holds results already"):
        Store.check(tmp_path)
    assert Store.open(tmp_path).settings == {"seed": 0}
    store = Store.create(tmp_path, {"seed": 1}, [a_case()], overwrite=True)
    assert store.settings == {"seed": 1}
    assert not store.done(NAME, "outcome").any()
    assert not figure.exists()
    assert mine.read_bytes() == b"mine"
    assert strange.read_text() == "mine"


@pytest.mark.parametrize("name", ["results", "summary.json"])
def test_files_that_only_look_like_results_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(FileExistsError, match="was not written by nrjax"):
        Store.create(tmp_path, {}, [a_case()], overwrite=True)
    assert (tmp_path / name).read_text() == '{"a": 1}'


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="cannot write results to the folder"):
            Store.check(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError, match="cannot write results to the folder"):
        Store.check(tmp_path)


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


def test_a_full_disk_ends_clearly_and_the_store_reopens(tmp_path, monkeypatch):
    case = a_case()
    store = Store.create(tmp_path, {}, [case])

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with store.writer() as writer:
        writer.write(NAME, "outcome", 0, arrays(case, "outcome", 0))
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "write_whole", no_space)
            with pytest.raises(OSError, match=r"cannot write chunk 1 .*No space left") as caught:
                writer.write(NAME, "outcome", 1, arrays(case, "outcome", 1))
    assert caught.value.errno == errno.ENOSPC
    store = Store.open(tmp_path)
    np.testing.assert_array_equal(store.done(NAME, "outcome"), [True, False, False])
    write_all(store, case, "outcome")
    expected = [arrays(case, "outcome", chunk)["step"] for chunk in range(3)]
    np.testing.assert_array_equal(store.read(NAME, "outcome").step, np.concatenate(expected))


@posix
def test_kills_at_any_moment_lose_nothing_that_was_done(tmp_path):
    """One interpreter forks many writers, kills them, and inspects what they leave."""
    command = [sys.executable, str(HERE / "killed_writers.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert facts["random"]["faults"] == 0
    assert facts["random"]["interrupted"] >= 6  # kills that hit unfinished work
    assert facts["create"]["faults"] == 0
    for moment in ("in the data", "before the rename", "after the rename"):
        assert facts[moment] == {"faults": 0, "completed": True}, moment
    # Planted fault: written in its place, the same kill is caught by the same check.
    assert facts["in place"]["faults"] > 0


@posix
def test_a_real_limit_on_file_size(tmp_path):
    """The operating system refuses the write, not a stand-in."""
    program = f"""
import resource, sys
import numpy as np
from nrjax.study.store import *
case = Case("a", {{}}, {{"p": Pass(200_000, 100_000, {{"x": Variable("float64")}})}})
store = Store.create({str(tmp_path)!r}, {{}}, [case])
with store.writer() as writer:
    values = np.random.default_rng(0).random(100_000)
    writer.write("a", "p", 0, {{"x": values}})
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
    try:
        writer.write("a", "p", 1, {{"x": values}})
    except OSError as error:
        print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "cannot write chunk 1 of a/p" in done.stdout
    store = Store.open(tmp_path)
    assert store.done("a", "p").tolist() == [True, False]
    expected = np.random.default_rng(0).random(100_000)
    np.testing.assert_array_equal(store.read("a", "p", partial=True).x, expected)
    with store.writer() as writer:
        writer.write("a", "p", 1, {"x": expected})
    np.testing.assert_array_equal(store.read("a", "p").x, np.tile(expected, 2))


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    """Importing the module without filelock says what to install."""
    monkeypatch.setitem(sys.modules, "filelock", None)
    source = Path(folder_module.__file__).read_text()
    with pytest.raises(ModuleNotFoundError, match=r'filelock: pip install "nrjax\[studies\]"'):
        exec(compile(source, "folder.py", "exec"), {"__name__": "again"})
