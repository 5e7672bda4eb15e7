"""The fingerprint of a pass, and the parts from which it is made."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.keys import without_keys

PROGRAM = 16
"""The number of leading characters of a fingerprint that identify the program only."""


@explain_fields
class Leaf(NamedTuple):
    """An array or a number on which the trials of a pass depend.

    Attributes:
        path: position in the trial, such as ".utility.target"; "constant 0" for the first array
            that a function of the trial closes over.
        shape: shape of the array, () for a number.
        dtype: name of the dtype, with "weak " in front of that of a Python number.
        digest: first 16 characters of a SHA-256 hash of dtype, shape and bytes.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    digest: str

    def __str__(self) -> str:
        return f"{self.digest}  {self.dtype}{list(self.shape)}  {self.path}"


@explain_fields
class Fingerprint(NamedTuple):
    """The fingerprint of a pass of a case, by which a run is recognised when it is resumed.

    `nrjax.Study.fingerprints` returns it. Print it for its parts. Compare the `leaves` of two
    versions of a study to find the number that differs, and their `text` to find the code.

    Attributes:
        program: first half: 16 characters of a hash of `text`, `constants`, `tile` and whether
            `lanes` is 1.
        data: second half: 16 characters of a hash of `leaves`.
        tile: number of trials whose utilities are evaluated together.
        lanes: number of trials that run at a time.
        leaves: arrays and numbers of the trial, in order.
        constants: arrays that functions of the trial close over, if the text leaves them out.
        text: the program to which JAX lowers one trial (StableHLO), with numbers in place of
            function names. It depends on the version of JAX.
    """

    program: str
    data: str
    tile: int
    lanes: int
    leaves: tuple[Leaf, ...]
    constants: tuple[Leaf, ...]
    text: str

    @property
    def value(self) -> str:
        """The fingerprint, as a store records it."""
        return self.program + self.data

    def __str__(self) -> str:
        lines = [f"program {self.program}  tile {self.tile}, lanes {self.lanes}"]
        lines += [f"    {leaf}" for leaf in self.constants]
        lines += [f"data    {self.data}", *(f"    {leaf}" for leaf in self.leaves)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Fingerprint({self.value!r}, {len(self.leaves)} leaves)"


def digest(leaf: Any) -> bytes:
    """Return the SHA-256 hash of the dtype, the shape, the weak type and the bytes of an array."""
    aval = jax.typeof(leaf)
    kind = f"{aval.dtype}{aval.shape}{aval.weak_type}".encode()
    return hashlib.sha256(kind + np.ascontiguousarray(without_keys(leaf)).tobytes()).digest()


def leaf_of(path: str, array: Any, hashed: bytes) -> Leaf:
    """Return the description of an array with this hash."""
    aval = jax.typeof(array)
    weak = "weak " if aval.weak_type else ""
    return Leaf(path, aval.shape, f"{weak}{aval.dtype}", hashed.hex()[:PROGRAM])
