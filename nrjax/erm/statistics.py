"""The statistics X'X and X'y of ridge regression: layouts of a release, and sensitivities.

A release is one vector: X'X in a layout that suits the noise, then X'y. Only the symmetric part of
the noise on X'X matters. The layouts of a matrix with entries `a_ij`:

* "isometric": `a_ii`, and `sqrt(2) a_ij` for i < j. The l2 norm of this vector is the l2 norm of
  all entries. Independent Gaussian noise on the vector is distributed as the symmetric part of
  independent noise on all d^2 entries.
* "matrix": all d^2 entries.
* "triangle": `a_ij` for i <= j. This vector has about half the l1 norm of all entries, and takes
  about half as many draws of Laplace noise.

Neighbours differ in one row, so that X'X changes by `x x' - z z'` and X'y by `y x - w z`, with rows
x, z of norm at most 1 and labels y, w in [-1, 1]. Constants "paper" and "tight" are for rows of l2
norm at most 1, constants "l1_rows" for rows of l1 norm at most 1. Proofs:
`docs/proofs/regression.md`.
"""

import math
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.sensitivities import Noise, Sensitivity, norm_of
from nrjax._base.validation import check
from nrjax.erm._validation import check_length

Constants = Literal["paper", "tight", "l1_rows"]
Layout = Literal["isometric", "matrix", "triangle"]


def layout(noise: Noise, constants: Constants) -> Layout:
    """Return the layout for a kind of noise and a choice of constants, and check both.

    For "l1_rows" and Laplace noise the layout is "matrix": "triangle" would be as sensitive, while
    "matrix" averages two entries of noise off the diagonal.
    """
    norm = norm_of(noise)
    ok = constants in ("paper", "tight", "l1_rows")
    check(ok, "constants", constants, "'paper', 'tight' or 'l1_rows'")
    if norm == "l2":
        return "isometric"
    return "triangle" if constants == "tight" else "matrix"


def sensitivity(noise: Noise, constants: Constants, dimension: int) -> Sensitivity:
    """Return the joint sensitivity of X'X and X'y, in the layout for a kind of noise.

    For Gaussian and spherical Laplace noise it is the l2-sensitivity in the "isometric" layout:

    * "paper" (Whitehouse 2022): `2 sqrt(2)`;
    * "tight": `3/sqrt(2)`, which is attained;
    * "l1_rows": 2, which is attained.

    For Laplace noise and d features it is the l1-sensitivity:

    * "paper" (Whitehouse 2022), in the "matrix" layout: `2 d + 2 sqrt(d)`;
    * "tight", in the "triangle" layout: `d/sqrt(2) + 1` for X'X (half of `sqrt(2) d` for all
      entries and of 2 for the diagonal), plus `2 sqrt(d)` for X'y;
    * "l1_rows" (Ligett 2017, Lemma A.6), in the "matrix" layout: 4, which is attained.
    """
    d, vector = dimension, 2 * math.sqrt(dimension)
    if layout(noise, constants) == "isometric":
        l2 = {"paper": 2 * math.sqrt(2), "tight": 3 / math.sqrt(2), "l1_rows": 2.0}
        return Sensitivity(l2[constants], "l2", "replace")
    # In one dimension X'X is one number, and the second bound, sqrt(2), is the smaller.
    triangle = min(d / math.sqrt(2) + 1, math.sqrt(2) * d)
    l1 = {"paper": 2 * d + vector, "tight": triangle + vector, "l1_rows": 4.0}
    return Sensitivity(l1[constants], "l1", "replace")


def _weights(dimension: int, layout: Layout) -> np.ndarray:
    """Return the factors that multiply the packed upper triangle of X'X, row by row."""
    i, j = np.triu_indices(dimension)
    return np.where(i == j, 1.0, math.sqrt(2) if layout == "isometric" else 1.0)


def pack(matrix: np.ndarray, vector: np.ndarray, layout: Layout) -> np.ndarray:
    """Return X'X, shape (d, d), and X'y, shape (d,), as one vector in the layout."""
    if layout == "matrix":
        entries = matrix.ravel()
    else:
        entries = _weights(vector.size, layout) * matrix[np.triu_indices(vector.size)]
    return np.concatenate([entries, vector])


def unpack(release: Array, dimension: int, layout: Layout) -> tuple[Array, Array]:
    """Return the noisy X'X, symmetric, shape (d, d), and X'y, shape (d,), of a release."""
    d = dimension
    count = d * d if layout == "matrix" else d * (d + 1) // 2
    check_length(release, count + d, f"X'X in the {layout!r} layout and X'y, for {d} features")
    if layout == "matrix":
        matrix = release[:count].reshape(d, d)
        return 0.5 * (matrix + matrix.T), release[count:]
    triangle = release[:count] / _weights(d, layout).astype(release.dtype)
    i, j = np.triu_indices(d)
    index = np.empty((d, d), np.int32)
    index[i, j] = index[j, i] = np.arange(count, dtype=np.int32)
    # The index is made to depend on the release: under `vmap` XLA then gathers within each lane,
    # and does not transpose all lanes.
    index = index + 0 * (release[0] > 0)
    return jnp.take(triangle, index, mode="clip"), release[count:]
