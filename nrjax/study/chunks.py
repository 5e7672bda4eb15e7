"""A chunk of trials is one file: arrays as NumPy's `.npz` has them, and a checksum of all of it."""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nrjax.study.folder import DamagedError

_DIGEST = 64
"""Characters of the checksum, which is the archive's comment: the last bytes of the file."""


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The contents of a chunk's file; the same bytes for the same arrays."""
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
    return content + _checksum(content)


def unpacked(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a chunk's file.

    Raises:
        DamagedError: a bit of the file is not as it was written.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if len(data) <= _DIGEST or _checksum(data[:-_DIGEST]) != data[-_DIGEST:]:
        raise DamagedError(
            f"{path} is broken: its checksum is not that of its contents; restore it from a copy, "
            "or remove it, and `nrjax resume` will run that chunk again"
        )
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
