"""A separate cache for these tests, the papers' data if present, and a plain NumPy fit."""

import os
from pathlib import Path

import numpy as np
import pytest

SIBLING = Path(__file__).parents[3] / "shared" / "data"
DATA = os.environ.get("NRJAX_DATA")  # read before the tests clear it


@pytest.fixture(scope="session")
def papers_data():
    """Return the folder of the papers' data: NRJAX_DATA, or a sibling of the checkout."""
    folder = Path(DATA or SIBLING)
    if not (folder / "kdd99_100000.npz").is_file():
        pytest.skip(f"no kdd99_100000.npz in {folder}: set NRJAX_DATA")
    return folder


@pytest.fixture
def papers_file(papers_data):
    """Return a function that skips the test if a file of the papers is missing."""

    def require(name):
        if not (papers_data / name).is_file():
            pytest.skip(f"no {name} in {papers_data}")

    return require


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Return one cache folder for the whole run, so that the flights are prepared once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch, cache):
    monkeypatch.setenv("NRJAX_CACHE", str(cache))
    monkeypatch.delenv("NRJAX_DATA", raising=False)


@pytest.fixture(scope="session")
def optimum():
    """Return a function for the least regularised risk, by Newton's method in plain NumPy."""

    def least(x, y, task, strength=0.05):
        n, d = x.shape
        if task == "ridge":
            theta = np.linalg.solve(x.T @ x / n + strength * np.eye(d), x.T @ y / n)
            return 0.5 * np.mean((x @ theta - y) ** 2) + 0.5 * strength * theta @ theta
        theta = np.zeros(d)
        for _ in range(8):
            p = 1 / (1 + np.exp(y * (x @ theta)))
            gradient = -x.T @ (y * p) / n + strength * theta
            hessian = (x.T * (p * (1 - p))) @ x / n + strength * np.eye(d)
            theta = theta - np.linalg.solve(hessian, gradient)
        assert np.linalg.norm(gradient) < 1e-12
        return np.mean(np.logaddexp(0, -y * (x @ theta))) + 0.5 * strength * theta @ theta

    return least
