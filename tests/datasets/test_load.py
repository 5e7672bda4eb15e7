"""Names, tasks, scalings: what all data sets share."""

import dataclasses

import numpy as np
import pytest

from nrjax.datasets import (
    available,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    load,
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


def test_largest_l1_norm_of_the_rows_used(tmp_path):
    x = np.array([[1.0, -1.0], [2.0, 0.5], [5.0, 5.0]])
    np.savez(tmp_path / "own.npz", x=x, y=np.array([1.0, 2.0, 3.0]))
    data = load(tmp_path / "own.npz", "ridge", rows=2, normalise="max_l1")
    np.testing.assert_allclose(data.x, x[:2] / 2.5, rtol=1e-15)


def test_ligett_rows(papers_data):
    data = load("kdd99", "logistic", rows=100_000, data_dir=papers_data, normalise="max_l1")
    raw = np.load(papers_data / "kdd99_100000.npz")["x"].astype(np.float64)
    raw[:, :3] = np.log1p(raw[:, :3])
    np.testing.assert_allclose(data.x, raw / np.abs(raw).sum(axis=1).max(), rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("kdd99", "ridge", "task = 'ridge': must be 'logistic' for kdd99; for ridge .*flights, tw"),
        ("twitter", "logistic", "task = 'logistic': must be 'ridge' for twitter"),
        ("flights", "probit", "task = 'probit': must be one of"),
        ("paper", "probit", "task = 'probit': must be one of"),
        ("kdd", "logistic", "data = 'kdd': must be one of 'flights', 'kdd99', 'twitter', 'paper'"),
        ("own.txt", "logistic", r"data = 'own.txt': must be one of .* \.csv or \.npz file"),
    ],
)
def test_wrong_names_and_tasks(name, task, message):
    with pytest.raises(ValueError, match=message):
        load(name, task)


@pytest.mark.parametrize("rows", [0, -1, 2.0, True, "10"])
def test_wrong_rows(rows):
    with pytest.raises(ValueError, match=r"rows = .*: must be a positive integer"):
        load("flights", "logistic", rows=rows)


def test_wrong_options():
    with pytest.raises(ValueError, match="normalise = 'l2': must be one of"):
        load("flights", "logistic", normalise="l2")
    with pytest.raises(ValueError, match="target = 'y': must be None for flights"):
        load("flights", "logistic", target="y")


def test_paper_stands_for_the_papers_data():
    assert (resolve("paper", "logistic"), resolve("paper", "ridge")) == ("kdd99", "twitter")
    assert resolve("flights", "ridge") == "flights"


def test_available_lists_what_is_there_and_how_to_get_the_rest(tmp_path):
    listed = available(tmp_path)
    assert [entry.name for entry in listed] == ["flights", "kdd99", "twitter"]
    assert [entry.tasks for entry in listed] == [("logistic", "ridge"), ("logistic",), ("ridge",)]
    assert [entry.features for entry in listed] == [39, 38, 77]
    assert [entry.rows for entry in listed] == [100_000, 100_000, 20_000]
    assert [entry.where is not None for entry in listed] == [True, False, False]
    assert all(entry.how for entry in listed)
    (tmp_path / "kdd99_100000.npz").write_bytes(b"")
    assert available(tmp_path)[1].where == tmp_path / "kdd99_100000.npz"


def test_loading_leaves_the_data_folder_alone(papers_data, tmp_path):
    for path in papers_data.glob("*.npz"):
        (tmp_path / path.name).symlink_to(path)
    before = sorted(path.name for path in tmp_path.iterdir())
    load("kdd99", "logistic", rows=10, data_dir=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_data_set_is_frozen(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.eye(3), y=np.arange(3.0))
    data = load(tmp_path / "own.npz", "ridge")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.x = np.zeros((3, 3))  # pyright: ignore[reportAttributeAccessIssue]
