"""What a store holds: cases, passes over them, the arrays of a pass; as JSON, and as files."""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import math
import re
import types
import typing
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nrjax._validation import check, check_integer
from nrjax.study.checks import RESERVED, check_known, check_name
from nrjax.study.folder import DamagedError

if TYPE_CHECKING:
    import xarray

FORMAT = 5
"""Raised when a store written before could be misread."""

_BLOCK = 4096
"""Bytes in which file systems usually hand out space."""

_DIGEST = 64
"""Characters of a chunk's checksum, which is its archive's comment: the last bytes of the file."""

_FILE = re.compile(r"(\d{10})-(\d{10})\.npz")


@dataclasses.dataclass(frozen=True)
class Variable:
    """One array of a pass, of shape (trials or chunks, *sizes of `dims`)."""

    dtype: str
    """Such as "float32"."""
    dims: tuple[tuple[str, int], ...] = ()
    """Name and size of each axis after the first."""
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What to store with it, such as {"unit": "nat"}; strict JSON."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all axes after the first."""
        return tuple(size for _, size in self.dims)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Finite numbers along one dimension of a pass, such as the epsilon of each level."""

    dim: str
    values: tuple[float, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pass:
    """A number of trials, in files of consecutive trials that are named by them.

    Attributes:
        trials: how many; more can be added later.
        chunk: files end at multiples of it; it may be more than there are trials. None if files
            end anywhere.
        variables: the arrays, by name.
        coordinates: numbers along their dimensions, by name.
        axis: "trial" if each trial is kept; "chunk" if the trials of a file are counted in one
            row, so that arrays are of shape (files, *sizes); `chunk` is the file's first trial.
    """

    trials: int
    chunk: int | None
    variables: dict[str, Variable]
    coordinates: dict[str, Coordinate] = dataclasses.field(default_factory=dict)
    axis: Literal["trial", "chunk"] = "trial"

    def pieces(self, span: range) -> list[range]:
        """Cut consecutive trials at the multiples of `chunk`."""
        if self.chunk is None:
            return [span]
        cuts = range(span.start // self.chunk * self.chunk, span.stop, self.chunk)
        return [range(max(at, span.start), min(at + self.chunk, span.stop)) for at in cuts]

    def holds(self, span: range) -> bool:
        """Return whether a file of these trials is part of the pass."""
        return 0 <= span.start < span.stop <= self.trials

    def as_numeric(self, span: range) -> np.ndarray:
        """Return where the rows of a file are along the first axis."""
        return np.arange(span.start, span.stop if self.axis == "trial" else span.start + 1)

    def shapes(self, span: range) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the variables in a file."""
        rows = (len(span),) if self.axis == "trial" else ()
        return {name: (*rows, *variable.shape) for name, variable in self.variables.items()}

    @property
    def row_bytes(self) -> int:
        """About what a row of all variables takes on disk.

        Most bins of histograms are empty: they shrink to less than a quarter.
        """
        whole = 0
        for variable in self.variables.values():
            dtype = np.dtype(variable.dtype)
            shrunk = 4 if self.axis == "chunk" and dtype.kind in "iu" else 1
            whole += math.prod(variable.shape) * dtype.itemsize // shrunk
        return whole

    def bytes_of(self, span: range) -> int:
        """About what a file takes on disk, rounded up to a block."""
        rows = len(span) if self.axis == "trial" else 1
        return -(-self.row_bytes * rows // _BLOCK) * _BLOCK

    def dataset(
        self, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
    ) -> "xarray.Dataset":
        """Its variables, with their coordinates; `arrays` has their axis too."""
        import xarray  # slow to import

        found: dict[str, Any] = {self.axis: (self.axis, arrays[self.axis])}
        for name, of in self.variables.items():
            found[name] = [self.axis, *(dim for dim, _ in of.dims)], arrays[name], of.attributes
        for name, along in self.coordinates.items():
            found[name] = along.dim, np.array(along.values), along.attributes
        made = xarray.Dataset(found, attrs=dict(about))
        return made.set_coords([self.axis, *self.coordinates])


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that was simulated."""

    name: str
    """Such as "logistic-brownian-public"."""
    attributes: dict[str, Any]
    """What it was, such as {"task": "logistic", "target": 0.41}; strict JSON."""
    passes: dict[str, Pass]
    """By name, such as "outcome" and "curve"."""


def to_json(settings: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """Settings and cases as strict JSON, checked: names, sizes, dtypes, dimensions, attributes.

    Raises:
        ValueError: something does not fit, or is not strict JSON (an infinity, an array).
    """
    for name, count in Counter(case.name for case in cases).items():
        check(count == 1, "name", name, "the name of one case only")
        check_name("name", name)
    for case in cases:
        for name, layout in case.passes.items():
            check_name("pass", name)
            _check_pass(layout)
    layout = {"settings": dict(settings), "cases": [dataclasses.asdict(case) for case in cases]}
    try:
        return json.loads(json.dumps(layout, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings and attributes must be strict JSON: {error}") from error


def from_json(layout: Mapping[str, Any]) -> tuple[dict[str, Any], list[Case]]:
    """The inverse of `to_json`."""
    return layout["settings"], [from_plain(Case, one) for one in layout["cases"]]


def to_plain(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass of settings as strict JSON: paths as strings, tuples as lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        return [plain(one) for one in value] if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in dataclasses.asdict(settings).items()}


_hints = functools.cache(typing.get_type_hints)


def from_plain(kind: type, fields: Mapping[str, Any], **changes: Any) -> Any:
    """Settings of this class from what `to_plain` gave, besides other fields, with some changes.

    Raises:
        ValueError: a field is missing, or has a value that it cannot have.
    """
    hints = _hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    missing = ", ".join(map(repr, sorted(known - set(fields))))
    if missing:
        raise ValueError(
            f"the stored settings lack {missing}, and this version of the study has them: use the "
            "version that wrote them"
        )
    made = {name: _typed(name, hints[name], fields[name]) for name in known}
    return kind(**made | changes)


def _typed(name: str, hint: Any, value: Any) -> Any:
    """A value of JSON as the type of its field has it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        for one in (kind for kind in arguments if kind is not type(None)):
            with contextlib.suppress(ValueError):
                return _typed(name, one, value)
        raise ValueError(f"{name} = {value!r}: must be of type {hint}")
    if hint is Any:
        return value
    if origin is Literal:
        check(value in arguments, name, value, f"one of {arguments}")
        return value
    if origin is dict:
        check(isinstance(value, dict), name, value, "a dict")
        return {key: _typed(f"{name}[{key!r}]", arguments[1], one) for key, one in value.items()}
    if origin in (tuple, list):
        check(isinstance(value, list), name, value, "a list")
        each = arguments[:1] * len(value) if origin is list or ... in arguments else arguments
        check(len(each) == len(value), name, value, f"a list of {len(each)}")
        return origin(_typed(name, kind, one) for kind, one in zip(each, value, strict=True))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        check(isinstance(value, dict), name, value, "a dict")
        return from_plain(hint, value)
    kinds = {float: (int, float), Path: (str,)}.get(hint, (hint,))
    check(type(value) in kinds, name, value, f"of type {hint.__name__}")
    return Path(value) if hint is Path else value


def pass_of(cases: Mapping[str, Case], case: str, name: str) -> Pass:
    """Return the pass of a case; raises KeyError if there is no such case or pass."""
    check_known("case", case, cases)
    passes = cases[case].passes
    check_known("pass", name, passes)
    return passes[name]


def with_trials(case: Case, trials: int) -> Case:
    """The case with so many trials in every pass, and in its attributes where they name them."""
    passes = {name: dataclasses.replace(one, trials=trials) for name, one in case.passes.items()}
    named = {"trials": trials} if "trials" in case.attributes else {}
    return Case(case.name, case.attributes | named, passes)


def packed(arrays: Mapping[str, np.ndarray], tag: bytes) -> bytes:
    """A chunk as a file: arrays as NumPy's `.npz` has them, and a checksum of all of it.

    `tag` says which chunk of which run it is, and is in the checksum alone.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = bytes(_DIGEST)
        for name, values in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, values, allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date
            # Noise hardly shrinks; the counts of histograms do, as most of them are zero.
            small = values.dtype.kind in "biu"
            member.compress_type = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
            archive.writestr(member, content.getvalue(), compresslevel=1 if small else None)
    content = buffer.getvalue()[:-_DIGEST]
    return content + hashlib.sha256(tag + content).hexdigest().encode()


def unpacked(path: Path, tag: bytes) -> dict[str, np.ndarray]:
    """The arrays of a chunk's file; DamagedError if a bit of it is not as it was written here."""
    data = path.read_bytes()
    if hashlib.sha256(tag + data[:-_DIGEST]).hexdigest().encode() != data[-_DIGEST:]:
        raise DamagedError(
            f"{path} is broken, or of another run: its checksum is not that of its contents; "
            "restore it from a copy, or remove it, and `nrjax resume` will run that chunk again"
        )
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def file_of(span: range) -> str:
    """Return the name of a file: its first trial and the trial after its last."""
    return f"{span.start:010}-{span.stop:010}.npz"


def span_of(file: str) -> range | None:
    """Return the trials of a file by its name; None if it is no chunk of trials."""
    found = _FILE.fullmatch(file)
    return None if found is None else range(int(found[1]), int(found[2]))


def checked_arrays(layout: Pass, span: range, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the variables of a file; names, dtypes and shapes must be exactly the pass's."""
    right = f"trials of this pass, of {layout.trials}"
    check(layout.holds(span), "trials", (span.start, span.stop), right)
    names = sorted(layout.variables)
    check(sorted(arrays) == names, "arrays", sorted(arrays), f"all variables of the pass: {names}")
    result = {name: np.asarray(arrays[name]) for name in layout.variables}
    for name, shape in layout.shapes(span).items():
        values, dtype = result[name], layout.variables[name].dtype
        # No cast: float64 results quietly stored as float32 would hide a mistake in the study.
        check(values.dtype == np.dtype(dtype), name, values.dtype.name, dtype)
        right = f"{shape} for {len(span)} trials"
        check(values.shape == shape, f"shape of {name}", values.shape, right)
    return result


def _check_pass(layout: Pass) -> None:
    check_integer("trials", layout.trials, 1)
    if layout.chunk is not None:
        check_integer("chunk", layout.chunk, 1, 2**32 - 1)
    check(layout.axis in ("trial", "chunk"), "axis", layout.axis, "'trial' or 'chunk'")
    sizes: dict[str, int] = {}
    for name, variable in layout.variables.items():
        check_name("variable", name, RESERVED)
        kind = np.dtype(variable.dtype).kind
        right = "a boolean, integer or float dtype"
        check(kind in "biuf", f"dtype of {name}", variable.dtype, right)
        for dim, size in variable.dims:
            check_name("dimension", dim, RESERVED)
            right = f"{sizes.get(dim)}, its size elsewhere in the pass"
            check(sizes.setdefault(dim, size) == size, f"size of {dim}", size, right)
    for name, coordinate in layout.coordinates.items():
        check_name("coordinate", name, (*RESERVED, *layout.variables))
        count, size = len(coordinate.values), sizes.get(coordinate.dim)
        right = f"{size}, the size of {coordinate.dim!r} in the variables of the pass"
        check(count == size, f"values of {name}", count, right)
