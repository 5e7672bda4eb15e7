"""Small versions of all studies: the papers' and the example."""

import numpy as np
import pytest

from nrjax.papers import (
    ligett2017,
    rogers2023,
    skellam_counts,
    tuning,
    unknown_keys,
    whitehouse2022,
)
from tests.study import example

NAMES = (
    *("example", "whitehouse2022", "ligett2017", "skellam_counts", "rogers2023"),
    *("tuning", "unknown_keys"),
)
TRIALS, CHUNK = 20, 8


def data(folder):
    """Write files of a hundred rows and of six counts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(x @ [1.0, -1.0, 0.5] + 0.3 * rng.normal(size=100) > 0, 1.0, -1.0)
    np.savez(folder / "own.npz", x=x, y=y)
    rows = "".join(f"{n},{4000 - 500 * n}\n" for n in range(6))
    (folder / "own.csv").write_text("item,count\n" + rows)


def study(name, folder, **changes):
    """Return the study of that name, on these data."""
    table, counts = str(folder / "own.npz"), str(folder / "own.csv")
    if name == "example":
        return example.study(example.Settings(**changes))
    if name == "whitehouse2022":
        own = {"task": ("logistic",), "test": ("public", "reduced_above_threshold")}
        own |= {"data": (table,), "target": "y", "levels": 12, "curve_levels": 4}
        own |= {"tight_at": 3.0, "highest_epsilon": 400.0, "utility_sensitivity": "loss"}
        return whitehouse2022.study(whitehouse2022.Settings(**own | changes))
    if name == "ligett2017":
        own = {"task": ("logistic",), "method": ("noise_reduction", "theory"), "levels": 12}
        own |= {"data": (table,), "target": "y", "alpha": (0.2, 0.4)}
        return ligett2017.study(ligett2017.Settings(**own | changes))
    if name == "skellam_counts":
        own = {"data": counts, "mechanism": ("skellam", "brownian"), "levels": 8}
        return skellam_counts.study(skellam_counts.Settings(**own | {"curve_levels": 4} | changes))
    if name == "tuning":
        own = {"data": table, "rows": 99, "features": ("", "x0"), "gain": (0.3, 0.6), "levels": 3}
        own |= {"task": ("logistic",), "method": ("single", "liu_talwar", "poisson_reduction")}
        own |= {"lowest_epsilon": 2.0, "highest_epsilon": 100.0}
        return tuning.study(tuning.Settings(**own | changes))
    if name == "unknown_keys":
        own = {"data": counts, "wanted": 3, "epsilon": (1.0,)}
        return unknown_keys.study(unknown_keys.Settings(**own | changes))
    own = {"data": (counts,), "levels": 20, "epsilon": 3.0}
    return rogers2023.study(rogers2023.Settings(**own | changes))


PAPERS_LONG = (NAMES[0], *(pytest.param(name, marks=pytest.mark.long) for name in NAMES[1:]))
"""The example, and the papers' studies as long tests, since each takes seconds of compilation. The
tests in tests/papers cover their programs, reports and figures."""
