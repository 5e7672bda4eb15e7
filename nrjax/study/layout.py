"""What a store holds: cases, passes over them, and the arrays of a pass; checks, and JSON of it."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from nrjax._numerics import check

FORMAT = 3
"""Raised when a store written before could be misread."""

BLOCK = 4096
"""Bytes in which file systems usually hand out space."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = ("seconds", "trial", "chunk")


@dataclasses.dataclass(frozen=True)
class Variable:
    """One array of a pass, of shape (trials or chunks, *sizes of `dims`).

    Attributes:
        dtype: its NumPy dtype, such as "float32".
        dims: (name, size) of each axis after the first.
        attributes: what to store with it, such as {"unit": "nat"}; strict JSON.
    """

    dtype: str
    dims: tuple[tuple[str, int], ...] = ()
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Finite numbers along one dimension of a pass, such as the epsilon of each level."""

    dim: str
    values: tuple[float, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pass:
    """`trials` trials, written `chunk` at a time; the last chunk may be short.

    Attributes:
        trials: how many; more can be added later.
        chunk: trials of a chunk; it may be more than there are.
        variables: the arrays, by name.
        coordinates: numbers along their dimensions, by name.
        axis: "trial" where each trial is kept; "chunk" where the trials of a chunk were folded
            into one row, so that arrays are of shape (chunks, *sizes).
    """

    trials: int
    chunk: int
    variables: dict[str, Variable]
    coordinates: dict[str, Coordinate] = dataclasses.field(default_factory=dict)
    axis: Literal["trial", "chunk"] = "trial"

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.trials // self.chunk)

    @property
    def largest(self) -> int:
        """Trials of the largest chunk, for which a program must have room."""
        return min(self.chunk, self.trials)

    @property
    def rows(self) -> int:
        """Length of the first axis of the arrays."""
        return self.trials if self.axis == "trial" else self.chunks

    def span(self, chunk: int) -> slice:
        """The trials of a chunk."""
        return slice(chunk * self.chunk, min((chunk + 1) * self.chunk, self.trials))

    def sizes(self) -> np.ndarray:
        """How many trials each chunk has: int64, shape (chunks,)."""
        ends = np.minimum(np.arange(1, self.chunks + 1) * self.chunk, self.trials)
        return np.diff(ends, prepend=0)

    def file_of(self, chunk: int) -> str:
        """The name of a chunk's file: its first trial and the one after its last."""
        span = self.span(chunk)
        return f"{span.start:010}-{span.stop:010}.npz"

    def shapes(self, chunk: int) -> dict[str, tuple[int, ...]]:
        """Of the variables of a chunk."""
        span = self.span(chunk)
        rows = (span.stop - span.start,) if self.axis == "trial" else ()
        return {
            name: (*rows, *(size for _, size in variable.dims))
            for name, variable in self.variables.items()
        }

    def bytes_of(self, chunks: int) -> int:
        """About what so many chunks take on disk, each file rounded up to a block.

        Most bins of histograms are empty: they shrink to less than a quarter.
        """
        whole = 0
        for name, shape in self.shapes(0).items():
            dtype = np.dtype(self.variables[name].dtype)
            shrunk = 4 if self.axis == "chunk" and dtype.kind in "iu" else 1
            whole += math.prod(shape) * dtype.itemsize // shrunk
        return chunks * -(-whole // BLOCK) * BLOCK


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that was simulated.

    Attributes:
        name: letters, digits, dots, dashes and underscores, such as "logistic-brownian-public".
        attributes: what it was, such as {"task": "logistic", "target": 0.41}; strict JSON.
        passes: by name, such as "outcome" and "curve".
    """

    name: str
    attributes: dict[str, Any]
    passes: dict[str, Pass]


def to_json(settings: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """Settings and cases as strict JSON, checked.

    Raises:
        ValueError: a name, size, dtype or dimension that does not fit, or attributes that are not
            strict JSON (an infinity, an array).
    """
    for name, count in Counter(case.name for case in cases).items():
        check(count == 1, "name", name, "the name of one case only")
    for case in cases:
        _check_name("name", case.name)
        for name, layout in case.passes.items():
            _check_name("pass", name)
            _check_pass(layout)
    layout = {"settings": dict(settings), "cases": [dataclasses.asdict(case) for case in cases]}
    try:
        return json.loads(json.dumps(layout, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings and attributes must be strict JSON: {error}") from error


def from_json(layout: Mapping[str, Any]) -> tuple[dict[str, Any], list[Case]]:
    """The inverse of `to_json`."""

    def one_pass(fields: dict[str, Any]) -> Pass:
        variables = {
            name: Variable(**value | {"dims": tuple(map(tuple, value["dims"]))})
            for name, value in fields["variables"].items()
        }
        coordinates = {
            name: Coordinate(**value | {"values": tuple(value["values"])})
            for name, value in fields["coordinates"].items()
        }
        return Pass(**fields | {"variables": variables, "coordinates": coordinates})

    cases = [
        Case(**one | {"passes": {name: one_pass(value) for name, value in one["passes"].items()}})
        for one in layout["cases"]
    ]
    return layout["settings"], cases


def with_trials(case: Case, trials: int) -> Case:
    """The case with so many trials in every pass, and in its attributes where they name them."""
    passes = {name: dataclasses.replace(one, trials=trials) for name, one in case.passes.items()}
    named = {"trials": trials} if "trials" in case.attributes else {}
    return Case(case.name, case.attributes | named, passes)


def checked_arrays(layout: Pass, chunk: int, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The variables of one chunk, if names, dtypes and shapes are exactly the pass's.

    Raises:
        ValueError: they are not.
    """
    right = f"from 0 to {layout.chunks - 1}, the chunks of this pass"
    check(0 <= chunk < layout.chunks, "chunk", chunk, right)
    names = sorted(layout.variables)
    check(sorted(arrays) == names, "arrays", sorted(arrays), f"all variables of the pass: {names}")
    result = {}
    for name, shape in layout.shapes(chunk).items():
        values, dtype = np.asarray(arrays[name]), layout.variables[name].dtype
        # No cast: float64 results quietly stored as float32 would hide a mistake in the study.
        check(values.dtype == np.dtype(dtype), name, values.dtype.name, dtype)
        check(values.shape == shape, f"shape of {name}", values.shape, f"{shape} in chunk {chunk}")
        result[name] = values
    return result


def _check_name(what: str, name: str) -> None:
    right = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"
    check(_NAME.fullmatch(name), what, name, right)


def _check_pass(layout: Pass) -> None:
    for what in ("trials", "chunk"):
        size = getattr(layout, what)
        check(type(size) is int and size > 0, what, size, "a positive integer")
        check(size < 2**32 or what == "trials", what, size, "below 2^32")
    check(layout.axis in ("trial", "chunk"), "axis", layout.axis, "'trial' or 'chunk'")
    sizes: dict[str, int] = {}
    for name, variable in layout.variables.items():
        _check_name("variable", name)
        check(name not in _RESERVED, "variable", name, f"none of {_RESERVED}")
        kind = np.dtype(variable.dtype).kind
        check(kind in "biuf", "dtype", variable.dtype, "a boolean, integer or float dtype")
        for dim, size in variable.dims:
            _check_name("dimension", dim)
            check(dim not in _RESERVED, "dimension", dim, f"none of {_RESERVED}")
            right = f"{sizes.get(dim)}, its size elsewhere in the pass"
            check(sizes.setdefault(dim, size) == size, f"size of {dim}", size, right)
    for name, coordinate in layout.coordinates.items():
        _check_name("coordinate", name)
        taken = (*_RESERVED, *layout.variables)
        check(name not in taken, "coordinate", name, f"none of {taken}")
        count, size = len(coordinate.values), sizes.get(coordinate.dim)
        right = f"{size}, the size of {coordinate.dim!r} in the variables of the pass"
        check(count == size, f"values of {name}", count, right)
