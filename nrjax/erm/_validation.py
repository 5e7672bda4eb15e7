"""Argument checks shared by all problems. No message quotes a row or a label of the data."""

from typing import Any, Literal

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.arrays import as_array, as_numbers
from nrjax._base.numerics import row_blocks
from nrjax._base.validation import as_numeric, check, check_choice, check_complete

RowNorm = Literal["l2", "l1"]

_NORM_SLACK = 1e-6
"""Relative tolerance of row norms, for rows that were scaled to norm 1 in float32."""


def check_version(name: str, value: str) -> None:
    """Check that a value is "paper" or "tight"."""
    check_choice(name, value, ("paper", "tight"))


def as_positive(name: str, value: Any) -> Any:
    """Return a scalar or array in float64 after checking that it is positive and finite."""
    number = as_array(value).astype(np.float64)[()]
    check(np.isfinite(number) & (number > 0), name, value, "positive and finite")
    return number


def check_rows(ok: Any, name: str, expected: str, hint: str = "") -> None:
    """Raise a ValueError with the number of the first row where `ok` is false."""
    if not np.all(ok):
        advice = f" {hint}" if hint else ""
        raise ValueError(f"{name} must be {expected} (row {int(np.argmin(ok))} is not).{advice}")


def _as_float64(name: str, table: ArrayLike) -> np.ndarray:
    """Return a float64 copy of an array of numbers without missing values."""
    check_complete(name, table, is_text=False)
    array = as_numbers(table)
    check(array is not None, name, type(table).__name__, "an array of numbers")
    assert array is not None
    return array


def check_data(
    features: ArrayLike,
    labels: ArrayLike,
    regularisation: float,
    row_norm: RowNorm = "l2",
    max_norm: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Check features, shape (rows, dimension), and labels, shape (rows,), and return both.

    The results are in float64. Rows whose norm exceeds `max_norm` by rounding only are scaled down
    to it. The caller checks the range of the labels.
    """
    check_choice("row_norm", row_norm, ("l2", "l1"))
    x, y = _as_float64("features", features), _as_float64("labels", labels)
    ok = x.ndim == 2 and x.size > 0
    check(ok, "features", x.shape, "an array of shape (rows, dimension), not empty")
    check(y.shape == x.shape[:1], "labels", y.shape, f"an array of shape {x.shape[:1]}")
    check_rows(np.isfinite(x).all(axis=1), "features", "finite")
    number = as_numeric("regularisation", regularisation, "above 0")
    ok = number is not None and number.ndim == 0 and 0 < number < np.inf
    check(ok, "regularisation", regularisation, "above 0")
    x /= max_norm  # in place: `x` is a copy
    order, blocks = 1 if row_norm == "l1" else 2, row_blocks(*x.shape)
    norms = np.concatenate([np.linalg.norm(x[block], order, axis=1) for block in blocks])
    expected = f"of {row_norm} norm at most {max_norm:.6g}"
    hint = "Divide each row by its norm, or all by the largest."
    check_rows(norms <= 1 + _NORM_SLACK, "each row of features", expected, hint)
    x /= np.maximum(norms, 1)[:, None]
    x *= max_norm
    return x, y


def check_length(release: Array, length: int, what: str = "the noisy optimum") -> None:
    """Check that a release (or a private value) is a vector of the given length."""
    hint = "Take value and utility from one and the same `released(...)`."
    expected = f"of shape {(length,)}, {what}"
    check(np.shape(release) == (length,), "the value", np.shape(release), expected, hint)
