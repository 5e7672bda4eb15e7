"""The groups and arrays of a store on disk: laid out, checked, made longer.

Zarr v3: the description of an array is the file `zarr.json` in its folder, its chunk i the file
`c/i` (and `/0` for each further axis). Beside the variables of a pass are `done`, for each chunk
how many trials of it are there, and `seconds`, how long they took to simulate.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from nrjax.studies.folder import DamagedError
from nrjax.studies.layout import BLOCK, Case, Pass, from_json

BESIDES = {"done": "uint32", "seconds": "float64"}
"""Arrays of a pass with one number a chunk, each in a file of its own, so that no process rewrites
another's."""

_REMEDY = "restore it from a copy, or run the study again in another folder"


def lay_out(path: Path, layout: dict[str, Any]) -> None:
    """Groups, and arrays without data."""
    _write_group(path, layout)
    made: list[tuple[Pass, Path]] = []
    for case in from_json(layout)[1]:
        _write_group(path / case.name, {"compile_seconds": 0.0})
        # The length of the arrays says how many trials there are, and can grow.
        attributes = {key: one for key, one in case.attributes.items() if key != "trials"}
        for name, one in case.passes.items():
            here = path / case.name / name
            # Zarr takes a tenth of a second for the arrays of a pass; copies of files take none.
            like = next((there for other, there in made if other == one), None)
            if like is None:
                _lay_out_arrays(zarr.create_group(here, zarr_format=3), one)
                made.append((one, here))
            else:
                shutil.copytree(like, here, copy_function=shutil.copyfile)
            # `coordinates` is how xarray finds them when it opens the group on its own.
            names = {"coordinates": " ".join(one.coordinates)} if one.coordinates else {}
            _write_group(here, {**attributes, **names})


def _write_group(folder: Path, attributes: dict[str, Any]) -> None:
    """As Zarr has it, which takes milliseconds for each."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    replace_file(folder / "zarr.json", json.dumps(content, indent=2).encode())


def attributes_of(folder: Path) -> dict[str, Any]:
    """The attributes of a group.

    Raises:
        DamagedError: its description is missing or broken.
    """
    return _description(folder, "group").get("attributes", {})


def set_attributes(folder: Path, attributes: dict[str, Any]) -> None:
    """Replace the attributes of a group, whole or not at all."""
    content = _description(folder, "group") | {"attributes": attributes}
    replace_file(folder / "zarr.json", json.dumps(content, indent=2).encode())


def read_marks(here: Path, name: str, chunks: int) -> np.ndarray:
    """An array of `BESIDES`, shape (chunks,); 0 where nothing was written."""
    marks = np.zeros(chunks, BESIDES[name])
    folder = here / name / "c"
    for entry in os.listdir(folder) if folder.is_dir() else ():
        if entry.isdecimal() and int(entry) < chunks:
            marks[int(entry)] = read_mark(here, name, int(entry))
    return marks


def read_mark(here: Path, name: str, chunk: int) -> float:
    """One number of an array of `BESIDES`; 0 where nothing was written."""
    path = here / name / "c" / str(chunk)
    dtype = np.dtype(BESIDES[name]).newbyteorder("<")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if len(data) != dtype.itemsize:
        raise DamagedError(
            f"{path} is broken: remove it, and `nrjax resume` will run that chunk again"
        )
    return np.frombuffer(data, dtype)[0].item()


def write_mark(here: Path, name: str, chunk: int, value: float) -> None:
    """One number of an array of `BESIDES`, by a rename."""
    folder = here / name / "c"
    folder.mkdir(exist_ok=True)
    dtype = np.dtype(BESIDES[name]).newbyteorder("<")
    replace_file(folder / str(chunk), np.array(value, dtype).tobytes())


def _lay_out_arrays(group: zarr.Group, layout: Pass) -> None:
    for name, variable in layout.variables.items():
        dims, sizes = [dim for dim, _ in variable.dims], [size for _, size in variable.dims]
        group.create_array(
            name,
            shape=(layout.rows, *sizes),
            chunks=(layout.chunk_rows, *sizes),
            dtype=variable.dtype,
            fill_value=np.nan if np.dtype(variable.dtype).kind == "f" else 0,
            dimension_names=(layout.axis, *dims),
            attributes=variable.attributes,
        )
    for name, coordinate in layout.coordinates.items():
        array = group.create_array(
            name,
            shape=(len(coordinate.values),),
            dtype="float64",
            dimension_names=(coordinate.dim,),
            attributes=coordinate.attributes,
        )
        array[:] = np.array(coordinate.values)
    for name, dtype in BESIDES.items():
        group.create_array(
            name,
            shape=(layout.chunks,),
            chunks=(1,),
            dtype=dtype,
            fill_value=0,
            compressors=None,  # so that `read_marks` can do without Zarr
            dimension_names=("chunk",),
        )


def check_whole(results: Path, cases: Sequence[Case]) -> None:
    """Raise if the description of a group or an array is missing, broken or another one.

    Raises:
        DamagedError: naming the file.
    """
    for case in cases:
        _description(results / case.name, "group")
        for name, layout in case.passes.items():
            here = results / case.name / name
            _description(here, "group")
            for key, length, sizes in _arrays(layout):
                found = _description(here / key, "array").get("shape")
                # Longer where a killed process was about to add trials: nothing is there yet.
                if not isinstance(found, list) or found[1:] != sizes or found[0] < length:
                    raise DamagedError(
                        f"{here / key / 'zarr.json'} has shape {found}, and should have "
                        f"{[length, *sizes]}: the results are damaged; {_REMEDY}"
                    )
            for key, coordinate in layout.coordinates.items():
                _description(here / key, "array")
                _check_file(here / key / "c" / "0", f"coordinate {key!r}", bool(coordinate.values))


def _arrays(layout: Pass) -> list[tuple[str, int, list[int]]]:
    """Name, length and other sizes of each array that has a row a trial or chunk."""
    variables = [
        (name, layout.rows, [size for _, size in variable.dims])
        for name, variable in layout.variables.items()
    ]
    return [*variables, *((name, layout.chunks, []) for name in BESIDES)]


def _description(folder: Path, kind: str) -> dict[str, Any]:
    """The contents of a folder's `zarr.json`."""
    path = folder / "zarr.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{path} is missing: the results are damaged; {_REMEDY}") from error
    except ValueError as error:
        raise DamagedError(f"{path} is broken: the results are damaged; {_REMEDY}") from error
    if not isinstance(found, dict) or found.get("node_type") != kind:
        raise DamagedError(f"{path} does not describe a Zarr {kind}: the results are damaged")
    return found


def _check_file(path: Path, what: str, needed: bool) -> None:
    if needed and not (path.is_file() and path.stat().st_size):
        raise DamagedError(f"{path} with the {what} is missing or empty; {_REMEDY}")


def check_chunks(here: Path, layout: Pass, done: np.ndarray) -> None:
    """Raise if a chunk that counts as done lacks a file: Zarr would make up its contents.

    Args:
        here: the folder of the pass.
        layout: the pass.
        done: which chunks are done.

    Raises:
        DamagedError: naming the file, and how to have the chunk run again.
    """
    axes = {name: len(variable.dims) for name, variable in layout.variables.items()}
    for name, more in (axes | {"seconds": 0}).items():
        for chunk in np.flatnonzero(done).tolist():
            path = here.joinpath(name, "c", str(chunk), *["0"] * more)
            try:
                there = os.stat(path).st_size > 0
            except FileNotFoundError:
                there = False
            if not there:
                raise _lost(path, "is missing or empty", here, chunk)


def _lost(path: Path, what: str, here: Path, chunk: int) -> DamagedError:
    """What to do about a file of a chunk that counts as done."""
    return DamagedError(
        f"{path} {what}, though chunk {chunk} is marked as done: restore it from a copy, or remove "
        f"the mark {here / 'done' / 'c' / str(chunk)}, and `nrjax resume` will run that chunk again"
    )


def check_contents(here: Path, layout: Pass, done: np.ndarray) -> None:
    """Raise if a file of a chunk that is done, or of a coordinate, cannot be decoded.

    Args:
        here: the folder of the pass.
        layout: the pass.
        done: which chunks are done.

    Raises:
        DamagedError: naming the file, and how to have the chunk run again.
    """
    check_chunks(here, layout, done)
    for name, variable in layout.variables.items():
        array = zarr.open_array(here / name, mode="r")
        for chunk in np.flatnonzero(done).tolist():
            if not _decodes(array, layout.rows_of(chunk)):
                path = here.joinpath(name, "c", str(chunk), *["0"] * len(variable.dims))
                raise _lost(path, "is broken", here, chunk)
    for name in layout.coordinates:
        if not _decodes(zarr.open_array(here / name, mode="r"), slice(None)):
            raise DamagedError(f"{here / name / 'c' / '0'} is broken; {_REMEDY}")


def _decodes(array: zarr.Array, rows: slice) -> bool:
    try:
        _ = array[rows]
    except (RuntimeError, ValueError):  # not to be decompressed; or of another size
        return False
    return True


def fits(here: Path, layout: Pass) -> bool:
    """Whether the arrays in the folder of a pass are exactly as long as it says."""
    return all(
        _description(here / key, "array")["shape"][0] == length
        for key, length, _ in _arrays(layout)
    )


def fit(results: Path, cases: Sequence[Case]) -> None:
    """Make all arrays as long as their passes say; each file by a rename.

    Killed meanwhile, it leaves some of them longer than the layout of the store says, which is
    written afterwards; what is beyond it holds nothing.
    """
    for case in cases:
        for name, layout in case.passes.items():
            for key, length, sizes in _arrays(layout):
                folder = results / case.name / name / key
                found = _description(folder, "array")
                if found["shape"] != [length, *sizes]:
                    text = json.dumps(found | {"shape": [length, *sizes]}, indent=2)
                    replace_file(folder / "zarr.json", text.encode())


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file of the store, by a rename as Zarr does it."""
    temporary = path.with_suffix(f".{os.getpid()}.partial")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def space(cases: Sequence[Case]) -> int:
    """Bytes that the results take: chunks, and of each array three small files."""
    passes = [one for case in cases for one in case.passes.values()]
    return sum(one.bytes_of(one.chunks) + 3 * BLOCK * len(_arrays(one)) for one in passes)
