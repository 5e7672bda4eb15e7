"""The store gives back exactly what was written, or says what is broken."""

import dataclasses
import os

import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")

from nrjax.study.files import DamagedError, StoreError
from nrjax.study.schema import Pass, StoredCase, Variable
from nrjax.study.store import Store
from tests.study.stored import NAME, a_case, arrays, write_all


def test_arrays_come_back_bit_for_bit(tmp_path, dtype):
    case = a_case(dtype=np.dtype(dtype).name)
    store = Store.create(tmp_path / "run", {"seed": 0, "grid": (1, 2)}, [case])
    write_all(store, case, "outcome")
    write_all(store, case, "curve")
    again = Store.open(tmp_path / "run")
    assert again.settings == {"seed": 0, "grid": [1, 2]}
    assert again.cases == {NAME: case}
    outcome, curve = (
        again.pass_of(NAME, name).dataset(again.arrays(NAME, name), case.attributes)
        for name in ("outcome", "curve")
    )
    for name, dataset in (("outcome", outcome), ("curve", curve)):
        for key, expected in arrays(case, name, range(case.passes[name].trials)).items():
            np.testing.assert_array_equal(dataset[key].values, expected, strict=True)
            assert dataset[key].values.tobytes() == expected.tobytes()
    assert outcome.attrs == {"task": "logistic", "target": 0.41}
    np.testing.assert_array_equal(outcome.trial, np.arange(10))
    np.testing.assert_array_equal(curve.epsilon.values, [0.1, 0.3])
    assert curve.utility.dims == ("trial", "level")
    assert curve.utility.attrs["unit"] == "nat"


def test_summarised_chunks_have_a_row_each_and_can_be_extended(tmp_path):
    counts = {"count": Variable("int64", (("bin", 3),)), "mean": Variable("float64")}
    case = StoredCase("a", {"trials": 10}, {"outcome": Pass(10, 4, counts, axis="chunk")})

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
    got = store.arrays("a", "outcome")
    assert got["count"].tolist() == [[4, 0, 7], [4, 4, 7], [2, 8, 7]]
    assert case.passes["outcome"].dataset(got, {})["count"].dims == ("chunk", "bin")
    before, store = store, store.extend(18, {})
    assert store.done("a", "outcome") == [range(4), range(4, 8), range(8, 10)]
    write(store)
    assert before.arrays("a", "outcome")["count"][:, 0].tolist() == [4, 4, 2]
    assert store.arrays("a", "outcome")["count"][:, 0].tolist() == [4, 4, 2, 2, 4, 2]
    assert store.seconds("a") == {"compile": 4.5, "run": 3.0, "curves": 0.0}
    assert store.cases["a"].attributes["trials"] == 18


def test_writing_a_chunk_does_not_list_the_others(tmp_path, monkeypatch):
    """Otherwise the time of a run would grow with the square of its chunks."""
    store, listed = Store.create(tmp_path, {}, [a_case(trials=100)]), []
    for name in ("listdir", "scandir"):
        original = getattr(os, name)

        def counted(*arguments, original=original):
            listed.append(arguments)
            return original(*arguments)

        monkeypatch.setattr(os, name, counted)
    write_all(store, a_case(trials=100), "outcome")
    assert len(list(store.path_of(NAME, "outcome").iterdir())) == 25
    assert len(listed) < 15


PENDING = [  # the chunk, and the pending trials of 3, then of 70, then of 250
    (None, [[range(3)], [range(3, 70)], [range(70, 250)]]),
    (100, [[range(3)], [range(3, 70)], [range(70, 100), range(100, 200), range(200, 250)]]),
]


@pytest.mark.parametrize(("chunk", "expected"), PENDING)
def test_more_trials_are_more_files(tmp_path, chunk, expected):
    """Files have any sizes, and a store that was opened earlier reads its own trials."""
    case = StoredCase("a", {}, {"outcome": Pass(3, chunk, {"x": Variable("float32")})})
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
            view._cache.clear()
            np.testing.assert_array_equal(view.arrays("a", "outcome")["x"], np.arange(size))


def test_trials_are_done_in_any_order_and_any_files(tmp_path):
    case = StoredCase("a", {}, {"outcome": Pass(10, None, {"x": Variable("int32")})})
    store = Store.create(tmp_path, {}, [case])
    for span, pending in [
        (range(6, 7), [range(6), range(7, 10)]),
        (range(2), [range(2, 6), range(7, 10)]),
        (range(7, 10), [range(2, 6)]),
        (range(2, 6), []),
    ]:
        with store.writer() as writer:
            writer.write("a", "outcome", span, {"x": np.array(span, "int32")})
        assert store.pending("a", "outcome") == pending
        assert store.finished() == (not pending)
    assert store.arrays("a", "outcome")["x"].tolist() == list(range(10))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_flipped_bit_is_noticed(store, tmp_path):
    """A bit is flipped in a chunk or in the manifest, where white space may change."""
    write_all(store, a_case(), "outcome")
    whole = store.arrays(NAME, "outcome")
    rng = np.random.default_rng(0)
    for path in (tmp_path / "results" / "manifest.json", *store.path_of(NAME, "outcome").iterdir()):
        good = path.read_bytes()
        for bit in rng.choice(8 * len(good), 150, replace=False).tolist():
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            try:
                opened = Store.open(tmp_path)
                assert opened.settings == {"seed": 0}
                assert opened.cases == store.cases
                np.testing.assert_equal(opened.arrays(NAME, "outcome"), whole)
                message = "manifest.json"  # white space
            except (ValueError, DamagedError) as error:  # in the name of the format too
                message = str(error).replace("has store format", "manifest.json")
            assert path.name in message
        path.write_bytes(good)
    np.testing.assert_equal(Store.open(tmp_path).arrays(NAME, "outcome"), whole)


def test_chunks_of_another_run_case_or_place_are_noticed(tmp_path):
    """Complete files, each with a valid checksum."""
    cases = [a_case(), dataclasses.replace(a_case(), name="other")]
    runs = [Store.create(tmp_path / str(seed), {"seed": seed}, cases) for seed in (0, 1)]
    for run in runs:
        for case in cases:
            write_all(run, case, "outcome")
    folder = runs[0].path_of(NAME, "outcome")
    first = folder / "0000000000-0000000004.npz"
    mine = first.read_bytes()
    for other in (
        runs[1].path_of(NAME, "outcome") / first.name,
        runs[0].path_of("other", "outcome") / first.name,
        folder / "0000000004-0000000008.npz",
    ):
        assert len(other.read_bytes()) == len(mine)
        first.write_bytes(other.read_bytes())
        with pytest.raises(DamagedError, match="is broken, or belongs to another run"):
            Store.open(runs[0].folder).arrays(NAME, "outcome")
    first.write_bytes(mine)
    Store.open(runs[0].folder).arrays(NAME, "outcome")


@pytest.mark.parametrize("how", ["removed", "cut", "emptied"])
def test_a_broken_manifest_is_refused_and_nothing_is_changed(store, tmp_path, how):
    write_all(store, a_case(), "outcome")
    path = tmp_path / "results" / "manifest.json"
    good = path.read_bytes()
    path.unlink() if how == "removed" else path.write_bytes(good[:40] if how == "cut" else b"")
    before = contents(tmp_path)
    for action in (Store.open, lambda folder: store.writer().__enter__()):
        with pytest.raises(
            ValueError, match=r"manifest\.json is missing, broken or not written by nrjax"
        ):
            action(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            Store.create(tmp_path, {}, [a_case()], overwrite=overwrite)
    assert contents(tmp_path) == before


def test_unfinished_trials_are_an_error_or_skipped(store):
    case = a_case()
    with store.writer() as writer:
        for span in (range(8, 10), range(4)):
            writer.write(NAME, "outcome", span, arrays(case, "outcome", span))
        assert store.pending(NAME, "outcome") == [range(4, 8)]
        assert store.pending(NAME, "curve") == [range(3), range(3, 6)]
    with pytest.raises(RuntimeError, match="is not finished: the same call"):
        store.arrays(NAME, "outcome")
    partial = store.arrays(NAME, "outcome", partial=True)
    np.testing.assert_array_equal(partial["trial"], [0, 1, 2, 3, 8, 9])
    whole = arrays(case, "outcome", range(10))["step"]
    np.testing.assert_array_equal(partial["step"], whole[partial["trial"]])
    assert store.arrays(NAME, "curve", partial=True)["trial"].size == 0


@pytest.mark.parametrize(
    ("case", "name", "first", "change", "words"),
    [
        (NAME, "outcome", 0, {"step": None}, r"arrays must be all variables"),
        (NAME, "outcome", 0, {"more": np.zeros(4)}, "arrays must be .*'more'"),
        (NAME, "outcome", 0, {"step": np.zeros(4, "int64")}, "step must be int32"),
        (NAME, "outcome", 0, {"step": np.zeros(3, "int32")}, r"shape of step must be \("),
        (
            NAME,
            "outcome",
            0,
            {"step": np.zeros((4, 1), "int32")},
            r"shape of step must .*got \(4, 1\)",
        ),
        (NAME, "outcome", -1, {}, r"trials must be trials of this pass"),
        (NAME, "outcome", 8, {}, r"trials must be trials of this pass"),
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


def of(**variables):
    return StoredCase("a", {}, {"p": Pass(1, 1, variables)})


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (StoredCase("a", {"x": np.zeros(2)}, {}), "strict JSON"),
        (of(trial=Variable("bool")), "variable must be none of the reserved names"),
        (of(x=Variable("object")), "dtype of x must be a boolean, integer or float"),
    ],
)
def test_a_schema_that_cannot_be_stored_is_refused(tmp_path, case, words):
    with pytest.raises(ValueError, match=words):
        Store.create(tmp_path / "run", {}, [a_case(), case])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("axis", ["trial", "chunk"])
def test_open_results_stay_readable_when_trials_are_added(tmp_path, axis):
    """They keep the trials that they were opened with."""
    summarised = axis == "chunk"
    pass_ = Pass(6, 4, {"x": Variable("float64")}, axis=axis)
    cases = [StoredCase("a", {}, {"outcome": pass_})]
    store = Store.create(tmp_path, {}, cases)

    def fill(store, files=None):
        with store.writer() as writer:
            for span in store.pending("a", "outcome")[:files]:
                x = np.float64(sum(span)) if summarised else np.array(span, float)
                writer.write("a", "outcome", span, {"x": x}, 1.0)

    def read(store):
        store._cache.clear()
        return store.arrays("a", "outcome")["x"].tolist()

    fill(store)
    before = read(store)
    assert before == ([6, 9] if summarised else list(range(6)))
    longer = store.extend(20, {})
    for files in (0, 1, None):  # with none, one and all of the longer files
        fill(longer, files)
        assert read(store) == before
        assert store.finished()
    assert sum(read(Store.open(tmp_path))) == sum(range(20))
    Store.create(tmp_path, {"seed": 1}, cases, overwrite=True)
    with pytest.raises(StoreError, match="were extended, or replaced by another run, since"):
        read(store)
