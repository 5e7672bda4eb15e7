"""Checks that problems and what is stated of them share."""

from typing import Any, Literal

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._format import format_value
from nrjax._numerics import row_blocks
from nrjax._validation import as_numeric, check

RowNorm = Literal["l2", "l1"]

_NORM_SLACK = 1e-6
"""Rows scaled to unit norm in float32 may exceed it by rounding."""


def check_version(name: str, value: str) -> None:
    """Raise a `ValueError` unless a value is "paper" or "tight"."""
    check(value in ("paper", "tight"), name, value, "'paper' or 'tight'")


def positive(name: str, value: Any) -> Any:
    """The value in float64, a scalar or an array; a `ValueError` unless positive and finite."""
    number = np.asarray(value, np.float64)[()]
    check(np.isfinite(number) & (number > 0), name, value, "positive and finite")
    return number


def _floats(name: str, table: ArrayLike) -> np.ndarray:
    try:
        array = np.asarray(table)
    except ValueError:  # NumPy's own names no argument
        array = np.empty((), object)
    check(array.dtype.kind in "biuf", name, table, "an array of numbers")
    return array.astype(np.float64)


def checked(
    features: ArrayLike,
    labels: ArrayLike,
    regularisation: float,
    row_norm: RowNorm = "l2",
    max_norm: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, dimension) and labels (rows,) in float64, with norms at most `max_norm`.

    What rounding left above it is scaled away. Which labels are right is the caller's to check. A
    `max_norm` of None is 1, and no argument of the caller's. What is wrong is a `ValueError`.
    """
    check(row_norm in ("l2", "l1"), "row_norm", row_norm, "'l2' or 'l1'")
    x, y = _floats("features", features), _floats("labels", labels)
    if x.ndim != 2 or x.size == 0:
        raise ValueError(f"features has shape {x.shape}: must be (rows, dimension), not empty")
    if y.shape != x.shape[:1]:
        raise ValueError(f"labels has shape {y.shape}: must be {x.shape[:1]}, one for each row")
    if not np.all(np.isfinite(x)):
        row = int(np.argwhere(~np.isfinite(x))[0, 0])
        raise ValueError(f"features[{row}] = {format_value(x[row])}: must be finite")
    number = as_numeric("regularisation", regularisation, "above 0")
    ok = number is not None and number.ndim == 0 and 0 < number < np.inf
    check(ok, "regularisation", regularisation, "above 0")
    most, limit = (1.0, "1") if max_norm is None else (max_norm, f"max_norm = {max_norm:.6g}")
    x /= most  # a copy of our own
    order, blocks = 1 if row_norm == "l1" else 2, row_blocks(*x.shape)
    norms = np.concatenate([np.linalg.norm(x[some], order, axis=1) for some in blocks])
    if norms.max() > 1 + _NORM_SLACK:
        row = int(norms.argmax())
        raise ValueError(
            f"features[{row}] has {row_norm} norm {most * norms[row]:.6g}: must be at most "
            f"{limit}, for the sensitivity to hold; divide each row by its norm"
        )
    x /= np.maximum(norms, 1)[:, None]
    x *= most
    return x, y


def check_labels(y: np.ndarray, ok: np.ndarray, right: str) -> None:
    """Raise a `ValueError` unless all labels are right."""
    row = int(np.argmin(ok))
    check(ok[row], f"labels[{row}]", float(y[row]), right)


def check_length(release: Array, length: int, what: str = "the noisy optimum") -> None:
    """Raise a `ValueError` unless a release, or the value it is of, is a vector so long."""
    if np.shape(release) != (length,):
        raise ValueError(
            f"value, or release, has shape {np.shape(release)}: must be {(length,)}, {what}; "
            "release the value that comes with this utility"
        )
