"""What tests of the papers share: their data, running a study, and comparing samples."""

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
    """Results of a study, without figures: tests of these draw those they look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "draw", lambda self: None)
        return study.run(folder, progress=False, **options)


def summary_of(results):
    """What `summary.json` says."""
    return json.loads((results.folder / "summary.json").read_text())


def arrays_of(results, name):
    """What was kept of a case, by name."""
    return {str(variable): values.values for variable, values in results[name].items()}


ITEMS = {"a": 31, "b": 60, "c": 55, "d": 12, "e": 0, "f": 8, "g, h": 25, "i": 47}


def rows_file(path, rows=400, features=4):
    """A user's own rows, with labels for logistic and two targets for ridge regression."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    y = x @ np.resize([1.0, -1.0, 0.5, 0.0], features) + rng.normal(size=rows) > 0
    score = np.where(y, 0.3, 0.0) + 0.1 * rng.uniform(size=rows)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cost = unit @ np.resize([0.5, -0.2, 0.3, 0.1], features) + 0.1 * rng.normal(size=rows)
    np.savez(path, x=x, late=np.where(y, 1.0, -1.0), score=score, cost=cost)
    return path


def counts_file(path, counts):
    """A user's own file of counts by item, with a header of its own."""
    path.write_text("word,times\n" + "".join(f'"{k}",{n:.0f}\n' for k, n in counts.items()))
    return path


COUNTS_REMARK = "own.csv: the groups are its column 'word', the counts 'times'."
"""What reports say of such a file."""


def apart(ours, theirs):
    """Names of the samples whose means differ by more than 4 standard errors, and by how many.

    Files compare some 40 numbers: by Bonferroni, chance puts one out in 1 of 400 files.
    """
    found = {}
    for name, a in ours.items():
        b = theirs[name]
        error = math.hypot(*(np.std(s, dtype=float) / math.sqrt(s.size) for s in (a, b)))
        away = abs(np.mean(a, dtype=float) - np.mean(b, dtype=float))
        # What does not vary agrees to float32's last bits.
        if away > 4 * error + 1e-5 * abs(np.mean(b, dtype=float)):
            found[name] = round(float(away / max(error, 1e-300)), 1)
    return found
