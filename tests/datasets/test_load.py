"""Names, tasks and scalings of all data sets."""

import numpy as np
import pytest

from nrjax.datasets import (
    available,
    data_folder,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    fetch,
    load,
    load_counts,
    resolve,
    unit_l2_rows,
)


def test_scalings():
    x = np.array([[3.0, -4.0], [0.0, 0.0], [1e-200, 0.0], [-2.0, 6.0]])
    np.testing.assert_allclose(np.linalg.norm(unit_l2_rows(x), axis=1), [1, 0, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(unit_l2_rows(x)[0], [0.6, -0.8], rtol=1e-15)
    np.testing.assert_allclose(divided_by_largest_l1_norm(x), x / 8, rtol=1e-15)
    np.testing.assert_array_equal(divided_by_largest_l1_norm(np.zeros((2, 2))), np.zeros((2, 2)))
    np.testing.assert_array_equal(divided_by_largest_value(np.array([1.0, -4.0])), [0.25, -1])
    np.testing.assert_array_equal(divided_by_largest_value(np.zeros(3)), np.zeros(3))


def test_the_largest_l1_norm_is_that_of_the_rows_used(tmp_path):
    x = np.array([[1.0, -1.0], [2.0, 0.5], [5.0, 5.0]])
    np.savez(tmp_path / "own.npz", x=x, y=np.array([1.0, 2.0, 3.0]))
    data = load(tmp_path / "own.npz", "ridge", rows=2, normalise="max_l1")
    np.testing.assert_allclose(data.x, x[:2] / 2.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kdd99", {"task": "ridge"}, "'logistic' for kdd99 .*For ridge load flights or twitter"),
        ("twitter", {}, "task must be 'ridge' for twitter"),
        ("flights", {"task": "probit"}, "task must be one of"),
        ("paper", {"task": "probit"}, "task must be one of"),
        ("kdd", {}, "data must be one of 'flights', 'kdd99', 'twitter', 'paper'"),
        ("own.rds", {}, r"data must be one of .* \.sas7bdat or \.npz"),
        *(("flights", {"rows": n}, "must be a positive integer") for n in (0, -1, 2.0, True, "10")),
        ("flights", {"rows": 100_001}, "rows must be at most 100000"),
        ("flights", {"normalise": "l2"}, "normalise must be one of"),
        ("flights", {"target": "y"}, "target must be None for flights"),
    ],
)
def test_wrong_arguments_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        load(name, **{"task": "logistic"} | options)


def test_paper_stands_for_the_papers_data():
    assert (resolve("paper", "logistic"), resolve("paper", "ridge")) == ("kdd99", "twitter")
    assert resolve("flights", "ridge") == "flights"


def test_available_lists_present_and_absent_data(tmp_path):
    rows = {"flights": 100_000, "kdd99": 100_000, "twitter": 20_000}
    tasks = [("logistic", "ridge"), ("logistic",), ("ridge",)]
    listed = available(tmp_path)
    assert {entry.name: entry.rows for entry in listed} == rows
    assert [entry.tasks for entry in listed] == tasks
    assert [entry.features for entry in listed] == [39, 38, 77]
    assert [entry.where is not None for entry in listed] == [True, False, False]
    assert all(entry.how for entry in listed)
    (tmp_path / "kdd99_100000.npz").write_bytes(b"")
    assert available(tmp_path)[1].where == tmp_path / "kdd99_100000.npz"


def read(name, folder):
    if name == "reddit":
        return load_counts(name, folder)
    return load(name, "logistic" if name == "kdd99" else "ridge", rows=3, data_dir=folder)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("kdd99", "kdd99_100000.npz, or kddcup.data_10_percent.gz"),
        ("twitter", "twitter_buzz_20000.npz, or Twitter.data"),
        ("reddit", "reddit_top5000_post_counts.csv"),
    ],
)
def test_an_absent_file_is_named_with_its_place(name, files, tmp_path, monkeypatch, cache):
    assert data_folder() == cache
    monkeypatch.setenv("NRJAX_DATA", str(tmp_path / "other"))
    for argument, folder in ((tmp_path, tmp_path), (None, tmp_path / "other")):
        with pytest.raises(FileNotFoundError, match=f"put the file {files}.* into {folder}"):
            read(name, argument)


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("kdd99", {"x": np.zeros((4, 37)), "y": np.ones(4)}, r"\(n, 38\) .*got \(\[?\(4, 37\)"),
        ("kdd99", {"x": np.zeros((4, 38)), "y": np.zeros(4)}, "y of kdd99 must be -1 or 1"),
        ("kdd99", {"x": np.zeros((4, 38))}, r"must be 'x' and 'y' \(got \['x'\]"),
        ("twitter", {"x": np.ones((3, 77)), "y": -np.ones(3)}, "y of twitter must be not negative"),
        ("twitter", b"PK\x03\x04 cut", "could not be read as NPZ"),
    ],
)
def test_a_damaged_npz_is_refused(name, arrays, message, tmp_path):
    path = tmp_path / {"kdd99": "kdd99_100000.npz", "twitter": "twitter_buzz_20000.npz"}[name]
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    else:
        np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        read(name, tmp_path)


def test_data_that_cannot_be_fetched_come_with_advice():
    for name, advice in (
        ("flights", r"\. Get flights otherwise: pip install"),
        ("twitter", r"\. Get twitter otherwise: put"),
        ("cifar", ""),
    ):
        with pytest.raises(ValueError, match=rf"name must be 'kdd99' \(got '{name}'\){advice}"):
            fetch(name)
