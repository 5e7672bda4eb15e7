"""What is kept between runs: the same bits as without, or made anew."""

import dataclasses
import os

import jax
import numpy as np
import pytest

from nrjax import datasets, erm
from nrjax.datasets import _prepared

NAMES = ("numbers", "counts")


class Work:
    """Counts how often it is done."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {
            "numbers": np.array([0.1, -0.0, np.nan, np.inf, 5e-324]),
            "counts": np.array(7, np.int32),
        }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def code(tmp_path):
    (tmp_path / "work.py").write_text("one = 1\n")
    return tmp_path


INPUTS = (1.0, np.arange(3))


def ask(work, code, inputs=INPUTS):
    found = datasets.remembered("test", inputs, code, NAMES, work)
    for name, right in Work()().items():
        assert found[name].dtype == right.dtype
        assert found[name].shape == right.shape
        assert found[name].tobytes() == right.tobytes()
    return work.calls


def test_work_is_done_once_and_its_bits_are_kept(folder, code):
    work = Work()
    assert ask(work, code) == 1
    assert ask(work, code) == 1
    assert len(list(folder.iterdir())) == 1


def test_other_inputs_code_or_surroundings_are_other_work(folder, code, monkeypatch):
    work = Work()
    assert ask(work, code) == 1
    assert ask(work, code, (np.nextafter(1.0, 2), np.arange(3))) == 2
    assert ask(work, code, (1.0, np.arange(3, dtype=np.float64))) == 3
    assert ask(work, code, (1.0, np.arange(3)[:, None])) == 4
    (code / "work.py").write_text("one = 2\n")
    assert ask(work, code) == 5
    monkeypatch.setattr(_prepared, "cores", lambda: 10**6)
    assert ask(work, code) == 6


@pytest.mark.parametrize("fault", ["cut", "flipped", "empty", "foreign", "folder"])
def test_a_damaged_file_is_made_anew(folder, code, fault):
    work = Work()
    ask(work, code)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    if fault == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif fault == "flipped":
        at = whole.index(b"numbers.npy") + 60  # in the compressed numbers
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "foreign":
        with path.open("wb") as file:
            np.savez(file, other=np.zeros(3))
    else:
        path.unlink()
        path.mkdir()
    assert ask(work, code) == 2
    assert ask(work, code) == (3 if fault == "folder" else 2)


def test_a_folder_that_cannot_be_written_is_no_error(code, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NRJAX_CACHE", str(tmp_path / "file" / "cache"))
    work = Work()
    assert [ask(work, code), ask(work, code)] == [1, 2]
    assert (tmp_path / "file").read_text() == "in the way"


def test_the_oldest_files_go(folder, code, monkeypatch):
    monkeypatch.setattr(_prepared, "_MOST", 2)
    work = Work()
    for number in range(4):
        ask(work, code, (float(number),))
        for age, path in enumerate(sorted(folder.iterdir(), key=os.path.getmtime)[::-1]):
            os.utime(path, (1e9 - age, 1e9 - age))
    assert len(list(folder.iterdir())) == 2
    assert ask(work, code, (3.0,)) == 4


def test_a_problem_from_the_cache_has_the_same_bits(folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).round(1)
    x = np.concatenate([x, x[:10]])  # rows alike
    x /= np.linalg.norm(x, axis=1).max()
    y = np.sign(x[:, 0] + 0.3 * rng.normal(size=len(x)))

    def bits(**options):
        problem = erm.LogisticProblem.fit(x, y, 0.1, **options)
        assert problem.utility.rows.shape[0] < len(x)
        fields = dataclasses.astuple(dataclasses.replace(problem, utility=problem.minimum))
        leaves = jax.tree.leaves((fields, problem.utility))
        return [(type(leaf), np.asarray(leaf).tobytes()) for leaf in leaves]

    plain = bits()
    assert bits(memory=datasets.remembered) == plain
    assert len(list(folder.iterdir())) == 1
    assert bits(memory=datasets.remembered) == plain
    # Not merely made again: what is kept is what is taken.
    (path,) = folder.iterdir()
    with np.load(path) as file:
        planted = {name: file[name] for name in file.files}
    planted["value"] = planted["value"] + 1.0
    with path.open("wb") as file:
        np.savez(file, **planted)
    assert bits(memory=datasets.remembered) != plain
