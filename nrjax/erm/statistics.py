"""The statistics of ridge regression, X'X and X'y: how a release of them is laid out and bounded.

A release is one vector: X'X in a layout that suits the noise, then X'y. Only the symmetric part of
the noise on X'X matters.

* "isometric": `a_ii` and `sqrt(2) a_ij`, i < j. Its l2 norm is that of the matrix, and independent
  Gaussian noise on it is in law the symmetric part of such noise on all d^2 entries.
* "matrix": all d^2 entries.
* "triangle": `a_ij`, i <= j, mirrored; half the l1 norm, and half as many draws of Laplace noise.

Neighbours differ in one row: `x x' - z z'` and `y x - w z`, with `|x|, |z| <= 1`, `|y|, |w| <= 1`.
Constants "paper" and "tight" are for l2 norms of rows, "l1_rows" for l1 norms. Proofs:
docs/mathematics.md.
"""

import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.erm._validation import check_length
from nrjax.sensitivities import Noise, Sensitivity, norm_of

Constants = Literal["paper", "tight", "l1_rows"]
Layout = Literal["isometric", "matrix", "triangle"]


def layout(noise: Noise, constants: Constants) -> Layout:
    """The layout that goes with a noise and its constants; a `ValueError` if there are none such.

    With l1 rows the triangle would move as far as the matrix, whose entries off the diagonal come
    out as the mean of two.
    """
    norm = norm_of(noise)
    known = ("paper", "tight", "l1_rows")
    check(constants in known, "constants", constants, "'paper' or 'tight', or 'l1_rows'")
    if norm == "l2":
        return "isometric"
    return "triangle" if constants == "tight" else "matrix"


def sensitivity(noise: Noise, constants: Constants, dimension: int) -> Sensitivity:
    """Of the layout that goes with a noise and these constants, for d features.

    l2, isometric, matrix and vector jointly: "paper" (Whitehouse 2022) `2 sqrt(2)`; "tight"
    `3/sqrt(2)`, and "l1_rows" 2, both reached. l1: "paper" (Whitehouse 2022), all entries,
    `2 d + 2 sqrt(d)`; "tight", upper triangle, half of `sqrt(2) d` for all entries and of 2 for the
    diagonal, `d/sqrt(2) + 1`, and `2 sqrt(d)`; "l1_rows" (Ligett 2017, Lemma A.6), all entries, 4,
    reached.
    """
    d, vector = dimension, 2 * math.sqrt(dimension)
    if layout(noise, constants) == "isometric":
        l2 = {"paper": 2 * math.sqrt(2), "tight": 3 / math.sqrt(2), "l1_rows": 2.0}
        return Sensitivity(l2[constants], "l2")
    # In one dimension the matrix is one number, and sqrt(2) the smaller of two bounds.
    triangle = min(d / math.sqrt(2) + 1, math.sqrt(2) * d)
    l1 = {"paper": 2 * d + vector, "tight": triangle + vector, "l1_rows": 4.0}
    return Sensitivity(l1[constants], "l1")


def _weights(dimension: int, layout: Layout) -> np.ndarray:
    """What the entries of the upper triangle are multiplied with, row by row."""
    i, j = np.triu_indices(dimension)
    return np.where(i == j, 1.0, math.sqrt(2) if layout == "isometric" else 1.0)


class Packed(np.ndarray):
    """A vector of statistics that knows its layout: two of them are of one length."""

    layout: Layout | None

    def __array_finalize__(self, other: Any) -> None:
        """Keep the layout in copies and views."""
        self.layout = getattr(other, "layout", None)


def pack(matrix: np.ndarray, vector: np.ndarray, layout: Layout) -> Packed:
    """X'X, shape (d, d), and X'y, shape (d,), as one vector."""
    if layout == "matrix":
        entries = matrix.ravel()
    else:
        entries = _weights(vector.size, layout) * matrix[np.triu_indices(vector.size)]
    packed = np.concatenate([entries, vector]).view(Packed)
    packed.layout = layout
    return packed


def unpack(release: Array, dimension: int, layout: Layout) -> tuple[Array, Array]:
    """The symmetric matrix, shape (d, d), and the vector, shape (d,), of a release laid out so."""
    d = dimension
    count = d * d if layout == "matrix" else d * (d + 1) // 2
    check_length(release, count + d, f"X'X in the {layout!r} layout and X'y, for {d} features")
    if layout == "matrix":
        matrix = release[:count].reshape(d, d)
        return 0.5 * (matrix + matrix.T), release[count:]
    triangle = release[:count] / _weights(d, layout).astype(release.dtype)
    i, j = np.triu_indices(d)
    place = np.empty((d, d), np.int32)
    place[i, j] = place[j, i] = np.arange(count, dtype=np.int32)
    # Places of the lane's own, under `vmap`: else XLA gathers across lanes, and transposes.
    lane = 0 * (release[0] > 0)
    return jnp.take(triangle, place + lane, mode="clip"), release[count:]
