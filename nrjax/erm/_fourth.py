"""Bounds on the fourth moment of rows along any direction, from their fourth-order tensor.

`docs/proofs/regression.md`, "Bounds on G", has the proof.
"""

import numpy as np

from nrjax._base.numerics import row_blocks

_ROWS = 512
"""Number of rows that are added in float32 before their sum is added in float64."""

_SHIFTS = (0.0, 1.0, 2.0)
"""Shifts of the matrix that are tried, in units of its shift for rows without a direction."""


def _tensor(rows: np.ndarray) -> np.ndarray:
    """Return the sum of `y_i y_j y_k y_l` over float32 rows y, shape (k, k, k, k).

    It is set only where `i <= j <= k <= l`.
    """
    size = rows.shape[1]
    first, second = np.triu_indices(size)
    starts = np.searchsorted(first, np.arange(size))
    sums = [np.zeros((j + 1, first.size - start)) for j, start in enumerate(starts)]
    for begin in range(0, len(rows), _ROWS):
        part = rows[begin : begin + _ROWS]
        pairs = part[:, first] * part[:, second]
        for j, start in enumerate(starts):
            sums[j] += (part[:, : j + 1] * part[:, j, None]).T @ pairs[:, start:]
    tensor = np.zeros((size,) * 4)
    for j, start in enumerate(starts):
        tensor[: j + 1, j, first[start:], second[start:]] = sums[j]
    return tensor


def fourth_moment(
    rows: np.ndarray, weights: np.ndarray, directions: np.ndarray
) -> tuple[float, float]:
    """Return bounds (low, high) on `sum(weights (rows @ directions @ v)**4)` over |v| = 1.

    Args:
        rows: shape (rows, dimension).
        weights: not negative, shape (rows,).
        directions: shape (dimension, k).
    """
    size = directions.shape[1]
    blocks = row_blocks(len(rows), max(size * size, rows.shape[1]))
    longest, total = 0.0, 0.0
    for part in blocks:
        powers = weights[part] * np.sum((rows[part] @ directions) ** 2, axis=1) ** 2
        longest, total = max(longest, float(powers.max())), total + float(powers.sum())
    if not 0 < longest < np.inf:
        return 0.0, longest
    tensor = np.zeros(1)
    for part in blocks:
        scaled = (rows[part] @ directions) * (weights[part, None] / longest) ** 0.25
        tensor = tensor + _tensor(scaled.astype(np.float32))
    pairs = np.stack(np.triu_indices(size), axis=1).astype(np.int8)  # small, for the sort below
    count = len(pairs)
    shape = (count, count, 2)
    places = [np.broadcast_to(pairs[:, None], shape), np.broadcast_to(pairs, shape)]
    ordered = np.sort(np.concatenate(places, axis=2), axis=2)
    # A matrix on the symmetric matrices V of Frobenius norm 1, in an orthonormal basis.
    unit = np.where(pairs[:, 0] == pairs[:, 1], 1.0, np.sqrt(2.0))
    matrix = tensor[tuple(np.moveaxis(ordered, 2, 0))] * unit * unit[:, None]
    trace = (pairs[:, 0] == pairs[:, 1]).astype(float)
    # The form of `shift` is 0 on V = v v', for which `trace(V)**2 = |V|**2 = 1`.
    shift = np.outer(trace, trace) - np.eye(count)
    centre = float(trace @ matrix @ trace) / (size * (size + 2))
    spectra = [np.linalg.eigvalsh(matrix - factor * centre * shift) for factor in _SHIFTS]
    total /= longest
    error = (_ROWS + 16) * 2.0**-24 * total + (len(rows) + 100 * count) * 2.0**-52 * total
    low = max(float(spectrum[0]) for spectrum in spectra) - error
    high = min(float(spectrum[-1]) for spectrum in spectra) + error
    return max(low, 0.0) * longest, high * longest
