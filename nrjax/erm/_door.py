"""Checks of the rows that every regularised problem starts from."""

from typing import Literal

import numpy as np
from jax.typing import ArrayLike

from nrjax._numerics import check, numbers
from nrjax._shown import shown

RowNorm = Literal["l2", "l1"]

NORM_SLACK = 1e-6
"""Rows scaled to unit norm in float32 may exceed it by rounding."""


def floats(name: str, table: ArrayLike) -> np.ndarray:
    """A table of numbers in float64.

    Raises:
        ValueError: it is something else, such as None, strings or rows of unequal length.
    """
    try:
        array = np.asarray(table)
    except ValueError:  # NumPy's own names no argument
        array = np.empty((), object)
    check(array.dtype.kind in "biuf", name, table, "an array of numbers")
    return array.astype(np.float64)


def checked(
    features: ArrayLike, labels: ArrayLike, regularisation: float, row_norm: RowNorm = "l2"
) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, dimension) and labels (rows,) in float64, with norms at most 1.

    What rounding left above a norm of 1 is scaled away. What the labels may be depends on the
    task, and is the caller's to check.

    Raises:
        ValueError: a shape does not fit, a feature is not finite, a row's norm is above 1, the
            regularisation is not a positive number, or there is no such norm.
    """
    check(row_norm in ("l2", "l1"), "row_norm", row_norm, "'l2' or 'l1'")
    x, y = floats("features", features), floats("labels", labels)
    if x.ndim != 2 or x.size == 0:
        raise ValueError(f"features has shape {x.shape}: must be (rows, dimension), not empty")
    if y.shape != x.shape[:1]:
        raise ValueError(f"labels has shape {y.shape}: must be {x.shape[:1]}, one for each row")
    if not np.all(np.isfinite(x)):
        row = int(np.argwhere(~np.isfinite(x))[0, 0])
        raise ValueError(f"features[{row}] = {shown(x[row])}: must be finite")
    number = numbers("regularisation", regularisation, "above 0")
    ok = number is not None and number.ndim == 0 and 0 < number < np.inf
    check(ok, "regularisation", regularisation, "above 0")
    norms = np.linalg.norm(x, 1 if row_norm == "l1" else 2, axis=1)
    if norms.max() > 1 + NORM_SLACK:
        row = int(norms.argmax())
        raise ValueError(
            f"features[{row}] has {row_norm} norm {norms[row]:.6g}: must be at most 1, "
            "for the sensitivity to hold; divide each row by its norm"
        )
    return x / np.maximum(norms, 1)[:, None], y
