"""The schema of a store, to and from JSON: its cases, their passes and arrays."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nrjax._validation import check, check_integer
from nrjax.study.checks import RESERVED, check_known, check_name

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Variable:
    """One array of a pass, of shape (trials or chunks, *sizes of `dims`).

    Attributes:
        dtype: name of its dtype, such as "float32".
        dims: name and size of each axis after the first.
        attributes: descriptions to store with it, such as {"unit": "nat"}, as strict JSON.
    """

    dtype: str
    dims: tuple[tuple[str, int], ...] = ()
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all axes after the first."""
        return tuple(size for _, size in self.dims)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Finite numbers along one axis of a pass, such as the epsilon of each level.

    Attributes:
        dim: name of the axis.
        values: a number per position along the axis.
        attributes: descriptions to store with it, as strict JSON.
    """

    dim: str
    values: tuple[float, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over the trials of a case: its arrays, and how trials are cut into files.

    Each file holds consecutive trials.

    Attributes:
        trials: number of trials; more can be added later.
        chunk: number of trials at whose multiples files end; may exceed `trials`. None if files
            may end anywhere.
        variables: the arrays, by name.
        coordinates: numbers along axes of the arrays, by name.
        axis: "trial" if each trial is stored; "chunk" if the trials of a file are counted in one
            row. Then arrays are of shape (files, *sizes), and `chunk` is the file's first trial.
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

    def rows(self, span: range) -> np.ndarray:
        """Return the positions of a file's rows along the first axis."""
        return np.arange(span.start, span.stop if self.axis == "trial" else span.start + 1)

    def checked(self, span: range, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays of a file after a check of names, dtypes and shapes."""
        expected = f"trials of this pass, of {self.trials}"
        check(self.holds(span), "trials", (span.start, span.stop), expected)
        names = sorted(self.variables)
        check(sorted(arrays) == names, "arrays", sorted(arrays), f"all variables: {names}")
        length = (len(span),) if self.axis == "trial" else ()
        result = {name: np.asarray(arrays[name]) for name in self.variables}
        for name, values in result.items():
            variable = self.variables[name]
            # No cast: float64 results stored as float32 would hide a mistake in the study.
            check(values.dtype.name == variable.dtype, name, values.dtype.name, variable.dtype)
            shape = (*length, *variable.shape)
            check(values.shape == shape, f"shape of {name}", values.shape, str(shape))
        return result

    @property
    def row_bytes(self) -> int:
        """The approximate size of a row of all variables on disk.

        Most bins of a histogram are empty, so that its counts shrink to less than a quarter.
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
        """Return arrays, and the labels of their first axis, as an xarray dataset."""
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
        """Raise ValueError if a size, name, dtype or axis cannot be stored."""
        check_integer("trials", self.trials, 1)
        if self.chunk is not None:
            check_integer("chunk", self.chunk, 1, 2**32 - 1)
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
    """A case of a study as its store describes it.

    Attributes:
        name: name of the case, such as "logistic-brownian-public".
        attributes: its labels, such as {"task": "logistic", "target": 0.41}, as strict JSON.
        passes: its passes by name, such as "outcome" and "curve".
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
        """Return the case from the JSON that `to_json` made of it."""
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
    """Return settings and cases as strict JSON, checked.

    Raises:
        ValueError: a name, size, dtype or axis cannot be stored, or something is not strict JSON
            (an infinity, an array).
    """
    for name, count in Counter(case.name for case in cases).items():
        check(count == 1, "name", name, "the name of one case only")
        check_name("name", name)
    for case in cases:
        for name, one in case.passes.items():
            check_name("pass", name)
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
