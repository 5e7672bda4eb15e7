"""Data, runs of studies, and comparison of samples, for tests of the papers."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from nrjax.study.results import Results

PAPERS_DATA = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))

on_papers_data = pytest.mark.skipif(
    not PAPERS_DATA.is_dir(), reason=f"no folder {PAPERS_DATA} with the papers' data"
)


def run(study, folder, **options):
    """Return the results of a study, without figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "write_figures", lambda self, writer: None)
        return study.run(folder, progress=False, **options)


def summary_of(results):
    """Return `summary.json`."""
    return json.loads((results.folder / "summary.json").read_text())


ITEMS = {"a": 31, "b": 60, "c": 55, "d": 12, "e": 0, "f": 8, "g, h": 25, "i": 47}


def rows_file(path, rows=400, features=4):
    """Write a user's rows, with labels for logistic and two targets for ridge regression."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    y = x @ np.resize([1.0, -1.0, 0.5, 0.0], features) + rng.normal(size=rows) > 0
    score = np.where(y, 0.3, 0.0) + 0.1 * rng.uniform(size=rows)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cost = unit @ np.resize([0.5, -0.2, 0.3, 0.1], features) + 0.1 * rng.normal(size=rows)
    np.savez(path, x=x, late=np.where(y, 1.0, -1.0), score=score, cost=cost)
    return path


def counts_file(path, counts):
    """Write a user's file of counts by item, with a custom header."""
    path.write_text("word,times\n" + "".join(f'"{k}",{n:.0f}\n' for k, n in counts.items()))
    return path


COUNTS_REMARK = "own.csv: the groups are its column 'word', the counts 'times'."
"""The remark of reports on such a file."""


def apart(ours, theirs):
    """Return the samples whose means differ by more than 4 standard errors, with this number.

    A file compares some 40 numbers, so by Bonferroni 1 of 400 files fails by chance.
    """
    differing = {}
    for name, a in ours.items():
        b = theirs[name]
        error = math.hypot(*(np.std(s, dtype=float) / math.sqrt(s.size) for s in (a, b)))
        difference = abs(np.mean(a, dtype=float) - np.mean(b, dtype=float))
        # Constants agree to float32's last bits.
        if difference > 4 * error + 1e-5 * abs(np.mean(b, dtype=float)):
            differing[name] = round(float(difference / max(error, 1e-300)), 1)
    return differing
