"""Buzz in social media, Twitter: how many discussions a topic will have (UCI repository).

From a local folder only: the checksum of the published file is not verified here.
"""

from pathlib import Path

import numpy as np

from nrjax.datasets._dataset import Raw, first_rows
from nrjax.datasets._files import Arrays, PathLike, data_folder, drawn_rows, first_present

TASKS = ("ridge",)
WHOLE = 583_250
DRAWN = 100_000  # as many as Ligett et al. (2017) used
FEATURES = 77
HOW = "put twitter_buzz_20000.npz, or the UCI repository's Twitter.data, into the data folder"

_NPZ = "twitter_buzz_20000.npz"
_WHOLE_FILE = "Twitter.data"
_FILES = (_NPZ, _WHOLE_FILE)
_RECIPE = "twitter-1"  # raise the number when the prepared arrays change
_MEASURES = ("NCD", "AI", "AS(NA)", "BL", "NAC", "AS(NAC)", "CS", "AT", "NA", "ADL", "NAD")
_NAMES = tuple(f"{measure}_{week}" for measure in _MEASURES for week in range(7))


def where(data_dir: PathLike | None = None) -> Path | None:
    """The file that would be read, or None; the NPZ comes first."""
    return first_present(data_dir, _FILES)


def most_rows(path: Path | None) -> int:
    """Most rows that `read` gives from the file at `path`."""
    return 20_000 if path is None or path.name == _NPZ else DRAWN


def read(task: str, rows: int, data_dir: PathLike | None = None) -> Raw:
    """The first `rows` topics, not yet scaled: 77 features as they stand, target log1p.

    `twitter_buzz_20000.npz` holds a uniform draw of 20,000 rows. `Twitter.data` is drawn from
    by `default_rng(0).choice(583250, 100000, replace=False)`: other rows of the same table.

    A `FileNotFoundError` says which file to put where; a `ValueError`, that it gives fewer rows, or
    is not what its name says.
    """
    path = where(data_dir)
    if path is None:
        raise FileNotFoundError(
            f"The data set twitter was not found: put the file {_NPZ}, or the UCI repository's "
            f"{_WHOLE_FILE} (Buzz in social media, regression), into {data_folder(data_dir)}."
        )
    target = (lambda y: ~(y < 0), "not negative")
    x, y = first_rows(path, rows, FEATURES, _RECIPE, _draw, target)
    return Raw(x, np.log1p(y), _NAMES)


def _draw(path: Path) -> Arrays:
    """The drawn rows of the whole file: `x` (100000, 77) and `y`, float32."""
    shape = (WHOLE, FEATURES + 1)
    drawn = drawn_rows(path, "UCI Twitter", shape, DRAWN, dtype=np.float32).to_numpy()
    return {"x": drawn[:, :FEATURES], "y": drawn[:, FEATURES]}
