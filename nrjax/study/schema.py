"""The schema of a store, which describes cases, passes and arrays, and its JSON form."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nrjax._base.validation import check
from nrjax.study.checks import RESERVED, check_known, check_name

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Variable:
    """A description of one array of a pass.

    The first axis of the array is trials or chunks (see `Pass`).

    Attributes:
        dtype: name of the array's dtype, such as "float32".
        dims: name and size of each axis after the first.
        attributes: descriptions to store with the array, such as {"units": "nat"}, as strict JSON.
    """

    dtype: str
    dims: tuple[tuple[str, int], ...] = ()
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the array's axes after the first."""
        return tuple(size for _, size in self.dims)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """A coordinate along one axis of a pass, such as the epsilon of each level.

    Attributes:
        dim: name of the axis.
        values: one finite number per position along the axis.
        attributes: descriptions to store with the coordinate, as strict JSON.
    """

    dim: str
    values: tuple[float, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pass:
    """A description of one pass over the trials of a case: its arrays and its files.

    Each file holds consecutive trials.

    Attributes:
        trials: number of trials; more can be added later.
        chunk: largest number of trials per file; may exceed `trials`. No file crosses a multiple of
            `chunk`. None allows files of any size.
        variables: descriptions of the arrays, by name.
        coordinates: numbers along axes of the arrays, by name.
        axis: name of the first axis of every array. With "trial" the axis has one row per trial.
            With "chunk" it has one row per file, which counts the file's trials, and the
            coordinate `chunk` is the first trial of each file.
    """

    trials: int
    chunk: int | None
    variables: dict[str, Variable]
    coordinates: dict[str, Coordinate] = dataclasses.field(default_factory=dict)
    axis: Literal["trial", "chunk"] = "trial"

    def pieces(self, span: range) -> list[range]:
        """Return consecutive trials in pieces, cut at the multiples of `chunk`."""
        if self.chunk is None:
            return [span]
        cuts = range(span.start // self.chunk * self.chunk, span.stop, self.chunk)
        return [range(max(at, span.start), min(at + self.chunk, span.stop)) for at in cuts]

    def holds(self, span: range) -> bool:
        """Return whether all trials of `span` are trials of the pass."""
        return 0 <= span.start < span.stop <= self.trials

    def rows(self, span: range) -> np.ndarray:
        """Return the coordinates of a file's rows along the first axis, given the file's trials."""
        return np.arange(span.start, span.stop if self.axis == "trial" else span.start + 1)

    def checked(self, span: range, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays of a file, or raise ValueError for a wrong name, dtype or shape."""
        expected = f"trials of this pass, of {self.trials}"
        check(self.holds(span), "trials", (span.start, span.stop), expected)
        names = sorted(self.variables)
        check(sorted(arrays) == names, "arrays", sorted(arrays), f"all variables: {names}")
        length = (len(span),) if self.axis == "trial" else ()
        result = {name: np.asarray(arrays[name]) for name in self.variables}
        for name, values in result.items():
            variable = self.variables[name]
            # No cast: storing float64 results as float32 would hide a mistake in the study.
            check(values.dtype.name == variable.dtype, name, values.dtype.name, variable.dtype)
            shape = (*length, *variable.shape)
            check(values.shape == shape, f"shape of {name}", values.shape, str(shape))
        return result

    @property
    def row_bytes(self) -> int:
        """The approximate bytes on disk per row of all variables.

        Compression reduces the counts of a histogram to less than a quarter, because most bins are
        empty.
        """
        total = 0
        for variable in self.variables.values():
            dtype = np.dtype(variable.dtype)
            shrinkage = 4 if self.axis == "chunk" and dtype.kind in "iu" else 1
            total += math.prod(variable.shape) * dtype.itemsize // shrinkage
        return total

    def dataset(
        self, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]
    ) -> "xarray.Dataset":
        """Return arrays of the pass, and the array named by `axis`, as an xarray dataset."""
        import xarray  # slow to import

        data: dict[str, Any] = {self.axis: (self.axis, arrays[self.axis])}
        for name, variable in self.variables.items():
            dims = [self.axis, *(dim for dim, _ in variable.dims)]
            data[name] = dims, arrays[name], variable.attributes
        for name, coordinate in self.coordinates.items():
            data[name] = coordinate.dim, np.array(coordinate.values), coordinate.attributes
        dataset = xarray.Dataset(data, attrs=dict(attributes))
        return dataset.set_coords([self.axis, *self.coordinates])

    def check(self) -> None:
        """Raise ValueError if a variable or a coordinate cannot be stored."""
        sizes: dict[str, int] = {}
        for name, variable in self.variables.items():
            check_name("variable", name, RESERVED)
            is_stored = np.dtype(variable.dtype).kind in "biuf"
            expected = "a boolean, integer or float dtype"
            check(is_stored, f"dtype of {name}", variable.dtype, expected)
            for dim, size in variable.dims:
                check_name("dimension", dim, RESERVED)
                expected = f"{sizes.get(dim)}, its size elsewhere in the pass"
                check(sizes.setdefault(dim, size) == size, f"size of {dim}", size, expected)
        for name, coordinate in self.coordinates.items():
            check_name("coordinate", name, (*RESERVED, *self.variables))
            count, size = len(coordinate.values), sizes.get(coordinate.dim)
            expected = f"{size}, the size of {coordinate.dim!r} in the variables of the pass"
            check(count == size, f"values of {name}", count, expected)


@dataclasses.dataclass(frozen=True)
class StoredCase:
    """The description of a case in a store.

    Attributes:
        name: name of the case, such as "logistic-brownian-public".
        attributes: labels of the case, such as {"task": "logistic", "goal": 0.41}, as strict JSON.
        passes: passes of the case by name: "outcome" and the names of its curves.
    """

    name: str
    attributes: dict[str, Any]
    passes: dict[str, Pass]

    def with_trials(self, trials: int) -> "StoredCase":
        """Return the case with another number of trials in every pass and in its attributes."""
        passes = {key: dataclasses.replace(one, trials=trials) for key, one in self.passes.items()}
        changed = {"trials": trials} if "trials" in self.attributes else {}
        return StoredCase(self.name, self.attributes | changed, passes)

    @classmethod
    def from_dict(cls, case: Mapping[str, Any]) -> "StoredCase":
        """Return the stored case that an entry of the manifest's `cases` describes."""
        return cls(
            case["name"], case["attributes"], {k: _to_pass(v) for k, v in case["passes"].items()}
        )


def _to_pass(stored: Mapping[str, Any]) -> Pass:
    variables = {
        name: Variable(
            one["dtype"], tuple((dim, size) for dim, size in one["dims"]), one["attributes"]
        )
        for name, one in stored["variables"].items()
    }
    coordinates = {
        name: Coordinate(one["dim"], tuple(one["values"]), one["attributes"])
        for name, one in stored["coordinates"].items()
    }
    return Pass(stored["trials"], stored["chunk"], variables, coordinates, stored["axis"])


def to_json(settings: Mapping[str, Any], cases: Sequence[StoredCase]) -> dict[str, Any]:
    """Check settings and cases, and return them as strict JSON.

    Raises:
        ValueError: a variable or a coordinate cannot be stored, or a value is not strict JSON,
            such as an infinity or an array.
    """
    for case in cases:
        for one in case.passes.values():
            one.check()
    schema = {"settings": dict(settings), "cases": [dataclasses.asdict(case) for case in cases]}
    try:
        return json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings and attributes must be strict JSON: {error}") from error


def pass_of(cases: Mapping[str, StoredCase], case: str, name: str) -> Pass:
    """Return a pass of a case, or raise KeyError if there is none."""
    check_known("case", case, cases)
    passes = cases[case].passes
    check_known("pass", name, passes)
    return passes[name]
