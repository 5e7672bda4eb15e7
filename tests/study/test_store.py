"""The store gives back exactly what was written, or says what is broken."""

import dataclasses
import os

import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")
import xarray

from nrjax.study.folder import DamagedError, StoreError
from nrjax.study.layout import Case, Coordinate, Pass, Variable
from nrjax.study.store import Store

NAME = "logistic-brownian-public"
MISSING = [np.nan, np.inf, -np.inf, 0.0, -0.0]
"""Values that could be taken for missing."""


def a_case(trials=10, chunk=4, dtype="float32"):
    outcome = Pass(trials, chunk, {"epsilon": Variable(dtype), "step": Variable("int32")})
    curve = Pass(
        6,
        3,
        {"utility": Variable(dtype, (("level", 2),), {"unit": "nat"})},
        {"epsilon": Coordinate("level", (0.1, 0.3), {"long_name": "ex-post epsilon"})},
    )
    return Case(NAME, {"task": "logistic", "target": 0.41}, {"outcome": outcome, "curve": curve})


def arrays(case, name, span):
    """What each trial should hold: numbers of the variable and trial; some seem to be missing."""
    layout = case.passes[name]
    result = {}
    for number, (key, variable) in enumerate(layout.variables.items()):
        shape = (layout.trials, *(size for _, size in variable.dims))
        values = np.arange(np.prod(shape), dtype=variable.dtype).reshape(shape) + 7 * number + 1
        if values.dtype.kind == "f":
            values.flat[: len(MISSING)] = MISSING
        result[key] = values[span.start : span.stop]
    return result


def write_all(store, case, name):
    with store.writer() as writer:
        for span in store.pending(case.name, name):
            writer.write(case.name, name, span, arrays(case, name, span))


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path, {"seed": 0}, [a_case()])


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
        for key, expected in arrays(case, name, range(layout.trials)).items():
            np.testing.assert_array_equal(dataset[key].values, expected, strict=True)
            assert dataset[key].values.tobytes() == expected.tobytes()
    assert outcome.attrs == {"task": "logistic", "target": 0.41}
    np.testing.assert_array_equal(outcome.trial, np.arange(10))
    np.testing.assert_array_equal(curve.epsilon.values, [0.1, 0.3])
    assert curve.utility.dims == ("trial", "level")
    assert curve.utility.attrs["unit"] == "nat"


def test_xarray_opens_a_pass_and_all_of_them(store, tmp_path):
    case = a_case()
    for name in ("outcome", "curve"):
        write_all(store, case, name)
    dataset = xarray.open_dataset(tmp_path, engine="nrjax", group=f"{NAME}/curve")
    assert set(dataset.coords) == {"epsilon", "trial"}
    assert dataset.attrs["task"] == "logistic"
    np.testing.assert_array_equal(dataset.utility[:3], arrays(case, "curve", range(3))["utility"])
    one = xarray.open_dataset(tmp_path, engine="nrjax", group=NAME, drop_variables="step")
    assert set(one) == {"epsilon"}
    tree = xarray.open_datatree(tmp_path, engine="nrjax")
    xarray.testing.assert_identical(tree[f"{NAME}/curve"].to_dataset(), dataset)
    with pytest.raises(ValueError, match=f"group must be one of .*{NAME}/curve"):
        xarray.open_dataset(tmp_path, engine="nrjax", group="x")


def test_room_asked_for_histograms_is_what_they_take(tmp_path):
    """Of a million trials, in a third of the bins."""
    bins = Variable("int32", (("bin", 60_000),))
    layout = Pass(1_000_000, 1_000_000, {"counts": bins}, axis="chunk")
    places = np.random.default_rng(0).normal(30_000, 3_000, 1_000_000).astype(int)
    counts = np.bincount(places, minlength=60_000).astype("int32")
    store = Store.create(tmp_path, {}, [Case("a", {}, {"outcome": layout})])
    with store.writer() as writer:
        writer.write("a", "outcome", range(1_000_000), {"counts": counts})
    (file,) = store.path_of("a", "outcome").iterdir()
    assert file.stat().st_size < layout.bytes_of(range(1_000_000)) < counts.nbytes / 2


def test_folded_chunks_have_a_row_each_and_more_can_be_added(tmp_path):
    counts = {"count": Variable("int64", (("bin", 3),)), "mean": Variable("float64")}
    case = Case("a", {"trials": 10}, {"outcome": Pass(10, 4, counts, axis="chunk")})

    def write(store, *spans):
        with store.writer() as writer:
            for span in spans or store.pending("a", "outcome"):
                row = {"count": np.array([len(span), span.start, 7]), "mean": np.float64(1 / 3)}
                writer.write("a", "outcome", span, row, 0.5, 0.75)

    store = Store.create(tmp_path, {}, [case])
    with store.writer() as writer:
        one = {"count": np.zeros((1, 3), "int64"), "mean": np.float64(0)}
        with pytest.raises(ValueError, match=r"shape of count must be \(3,\)"):
            writer.write("a", "outcome", range(4), one)
    write(store, range(8, 10))
    partial = store.arrays("a", "outcome", partial=True)
    assert partial["count"].shape == (1, 3)
    assert partial["chunk"].tolist() == [8]
    write(store)
    got = store.read("a", "outcome")
    assert got["count"].values.tolist() == [[4, 0, 7], [4, 4, 7], [2, 8, 7]]
    assert got["count"].dims == ("chunk", "bin")
    before, store = store, store.extend(18, {})
    assert store.done("a", "outcome") == [range(4), range(4, 8), range(8, 10)]
    write(store)
    assert Store.read(before, "a", "outcome")["count"].values[:, 0].tolist() == [4, 4, 2]
    assert store.read("a", "outcome")["count"].values[:, 0].tolist() == [4, 4, 2, 2, 4, 2]
    assert store.seconds("a") == {"compile": 4.5, "run": 3.0, "curves": 0.0}
    assert store.cases["a"].attributes["trials"] == 18


def test_writing_a_chunk_does_not_list_the_others(tmp_path, monkeypatch):
    """Else so many chunks take a time of their square."""
    store, listed = Store.create(tmp_path, {}, [a_case(trials=100)]), []
    for name in ("listdir", "scandir"):
        whole = getattr(os, name)

        def noted(*given, whole=whole):
            listed.append(given)
            return whole(*given)

        monkeypatch.setattr(os, name, noted)
    write_all(store, a_case(trials=100), "outcome")
    assert len(list(store.path_of(NAME, "outcome").iterdir())) == 25
    assert len(listed) < 15


PENDING = [  # the chunk, and what is to be done after 3 trials of 3, then of 70, then of 250
    (None, [[range(3)], [range(3, 70)], [range(70, 250)]]),
    (100, [[range(3)], [range(3, 70)], [range(70, 100), range(100, 200), range(200, 250)]]),
]


@pytest.mark.parametrize(("chunk", "expected"), PENDING)
def test_more_trials_are_more_files(tmp_path, chunk, expected):
    """Whatever their sizes, and an earlier view of the folder is as it was."""
    case = Case("a", {}, {"outcome": Pass(3, chunk, {"x": Variable("float32")})})
    store = Store.create(tmp_path, {}, [case])
    views = {}
    for trials, pending in zip((3, 70, 250), expected, strict=True):
        views[trials] = store = store.extend(trials, {})
        assert store.pending("a", "outcome") == pending
        with store.writer() as writer:
            for span in pending:
                values = np.arange(span.start, span.stop, dtype="float32")
                writer.write("a", "outcome", span, {"x": values})
        assert store.finished()
        for size, view in views.items():
            found = Store(view.folder, view.settings, [*view.cases.values()]).read("a", "outcome")
            np.testing.assert_array_equal(found["x"], np.arange(size))


def test_trials_are_done_in_any_order_and_any_files(tmp_path):
    case = Case("a", {}, {"outcome": Pass(10, None, {"x": Variable("int32")})})
    store = Store.create(tmp_path, {}, [case])
    for span, left in [
        (range(6, 7), [range(6), range(7, 10)]),
        (range(2), [range(2, 6), range(7, 10)]),
        (range(7, 10), [range(2, 6)]),
        (range(2, 6), []),
    ]:
        with store.writer() as writer:
            writer.write("a", "outcome", span, {"x": np.array(span, "int32")})
        assert store.pending("a", "outcome") == left
        assert store.finished() == (not left)
    assert store.read("a", "outcome")["x"].values.tolist() == list(range(10))


def everything(folder):
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_every_flipped_bit_is_noticed(store, tmp_path):
    """Of a chunk: refused by name; of the manifest: refused, or of no importance."""
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


def test_chunks_of_another_run_case_or_place_are_noticed(tmp_path):
    """Whole files, each with a checksum of its own."""
    cases = [a_case(), dataclasses.replace(a_case(), name="other")]
    runs = [Store.create(tmp_path / str(seed), {"seed": seed}, cases) for seed in (0, 1)]
    for run in runs:
        for case in cases:
            write_all(run, case, "outcome")
    here = runs[0].path_of(NAME, "outcome")
    first = here / "0000000000-0000000004.npz"
    mine = first.read_bytes()
    for stranger in (
        runs[1].path_of(NAME, "outcome") / first.name,
        runs[0].path_of("other", "outcome") / first.name,
        here / "0000000004-0000000008.npz",
    ):
        assert len(stranger.read_bytes()) == len(mine)
        first.write_bytes(stranger.read_bytes())
        with pytest.raises(DamagedError, match="is broken, or of another run"):
            Store.open(runs[0].folder).read(NAME, "outcome")
    first.write_bytes(mine)
    Store.open(runs[0].folder).read(NAME, "outcome")


@pytest.mark.parametrize("how", ["removed", "cut", "emptied"])
def test_a_broken_manifest_is_refused_and_nothing_is_changed(store, tmp_path, how):
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


def test_unfinished_trials_are_an_error_or_left_out(store):
    case = a_case()
    with store.writer() as writer:
        for span in (range(8, 10), range(4)):
            writer.write(NAME, "outcome", span, arrays(case, "outcome", span))
        assert store.pending(NAME, "outcome") == [range(4, 8)]
        assert store.pending(NAME, "curve") == [range(3), range(3, 6)]
    with pytest.raises(RuntimeError, match="is not finished: the same call"):
        store.read(NAME, "outcome")
    partial = store.arrays(NAME, "outcome", partial=True)
    np.testing.assert_array_equal(partial["trial"], [0, 1, 2, 3, 8, 9])
    whole = arrays(case, "outcome", range(10))["step"]
    np.testing.assert_array_equal(partial["step"], whole[partial["trial"]])
    assert store.arrays(NAME, "curve", partial=True)["trial"].size == 0


@pytest.mark.parametrize(
    ("case", "name", "first", "change", "words"),
    [
        (NAME, "outcome", 0, {"step": None}, r"arrays must be all variables"),
        (NAME, "outcome", 0, {"more": np.zeros(4)}, "arrays = .*'more'"),
        (NAME, "outcome", 0, {"step": np.zeros(4, "int64")}, "step must be int32"),
        (NAME, "outcome", 0, {"step": np.zeros(3, "int32")}, r"shape of step must be \("),
        (NAME, "outcome", 0, {"step": np.zeros((4, 1), "int32")}, r"shape of step = \(4, 1\)"),
        (NAME, "outcome", -1, {}, r"trials must be trials of this pass, of 10"),
        (NAME, "outcome", 8, {}, r"trials must be trials of this pass, of 10"),
        ("x", "outcome", 0, {}, "case must be one of"),
        (NAME, "x", 0, {}, "pass must be one of"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused(store, case, name, first, change, words):
    given = arrays(a_case(), "outcome", range(4)) | change
    given = {name: values for name, values in given.items() if values is not None}
    with store.writer() as writer:
        with pytest.raises(ValueError, match=words):
            writer.write(case, name, range(first, first + 4), given)
        assert store.done(NAME, "outcome") == []


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("a", {"x": np.zeros(2)}, {}), "strict JSON"),
        (Case("a", {}, {"p": Pass(0, 1, {})}), "trials must be an integer, at least 1"),
        (Case("a", {}, {"p": Pass(1, 1, {"trial": Variable("bool")})}), "variable = 'trial'"),
        (Case("a", {}, {"p": Pass(1, 1, {"x": Variable("object")})}), "dtype of x = 'object'"),
        (a_case(), "the name of one case only"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(tmp_path, case, words):
    with pytest.raises(ValueError, match=words):
        Store.create(tmp_path / "run", {}, [a_case(), case])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("axis", ["trial", "chunk"])
def test_open_results_stay_readable_when_trials_are_added(tmp_path, axis):
    """They are those of the trials that were there."""
    folded = axis == "chunk"
    layout = Pass(6, 4, {"x": Variable("float64")}, axis=axis)
    cases = [Case("a", {}, {"outcome": layout})]
    store = Store.create(tmp_path, {}, cases)

    def fill(store, files=None):
        with store.writer() as writer:
            for span in store.pending("a", "outcome")[:files]:
                x = np.float64(sum(span)) if folded else np.array(span, float)
                writer.write("a", "outcome", span, {"x": x}, 1.0)

    def read(store):
        store._read.clear()
        return store.arrays("a", "outcome")["x"].tolist()

    fill(store)
    before = read(store)
    assert before == ([6, 9] if folded else list(range(6)))
    longer = store.extend(20, {})
    for files in (0, 1, None):  # before the longer files are there, when one is, and when all are
        fill(longer, files)
        assert read(store) == before
        assert store.finished()
    assert sum(read(Store.open(tmp_path))) == sum(range(20))
    # Results that were replaced say so.
    Store.create(tmp_path, {"seed": 1}, cases, overwrite=True)
    with pytest.raises(StoreError, match="were extended, or replaced by another run, since"):
        read(store)
