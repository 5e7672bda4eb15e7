"""Chunks: files of consecutive trials, in NumPy's `.npz` format with a checksum."""

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nrjax.study.files import DamagedError

_DIGEST = 64
"""The number of characters of the checksum, which is stored at the end of the file."""

_FILE = re.compile(r"(\d{10})-(\d{10})\.npz")


def encode_chunk(arrays: Mapping[str, np.ndarray], tag: bytes) -> bytes:
    """Return arrays as the content of an `.npz` file that ends with a checksum.

    The checksum depends on `tag`, which identifies the run, the case, the pass and the trials.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = bytes(_DIGEST)
        for name, values in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, values, allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # has a fixed date
            # Counts of histograms are mostly zero and compress well. Results of trials do not.
            shrinks = values.dtype == np.int64
            member.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            archive.writestr(member, content.getvalue(), compresslevel=1 if shrinks else None)
    with buffer.getbuffer() as content:  # without a copy, since it may be large
        content[-_DIGEST:] = _digest(content, tag)
    return buffer.getvalue()


def decode_chunk(path: Path, tag: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a chunk, or raise DamagedError if the checksum does not match."""
    data = path.read_bytes()
    if _digest(data, tag) != data[-_DIGEST:]:
        raise DamagedError(
            f"{path} is broken, or belongs to another run: its checksum does not match. Restore it "
            "from a copy, or remove it, and `nrjax resume` will run that chunk again"
        )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        return {name.removesuffix(".npy"): _array(archive.read(name)) for name in names}


def _array(content: bytes) -> np.ndarray:
    """Return the array in an `.npy` file, without a copy of its numbers."""
    file = io.BytesIO(content)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    numbers = np.frombuffer(content, dtype, offset=file.tell())
    return numbers.reshape(shape, order="F" if fortran else "C")


def _digest(data: bytes | memoryview, tag: bytes) -> bytes:
    """Return the checksum of a tag and of all data but the place of the checksum."""
    digest = hashlib.sha256(tag)
    digest.update(memoryview(data)[:-_DIGEST])
    return digest.hexdigest().encode()


def file_of(span: range) -> str:
    """Return the file name of a chunk, made of its first trial and the trial after its last."""
    return f"{span.start:010}-{span.stop:010}.npz"


def span_of(file: str) -> range | None:
    """Return the trials in the name of a file, or None if the file is not a chunk."""
    match = _FILE.fullmatch(file)
    return None if match is None else range(int(match[1]), int(match[2]))
