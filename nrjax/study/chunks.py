"""Chunks: files of consecutive trials, in NumPy's `.npz` format with a checksum."""

import bisect
import hashlib
import io
import itertools
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
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
    with path.open("rb") as file:
        data = np.fromfile(file, np.uint8)  # faster than bytes, since it uses large pages
        if _digest(data.data, tag) != data[-_DIGEST:].tobytes():
            raise DamagedError(
                f"{path} is broken, or belongs to another run: its checksum does not match. "
                "Restore it from a copy, or remove it, and `nrjax resume` will run that chunk again"
            )
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            return {each.filename[: -len(".npy")]: _array(archive, each, data) for each in members}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: np.ndarray) -> np.ndarray:
    """Return the array of a member of the archive `data`, as a view if it is not compressed."""
    with archive.open(member) as file:
        np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if member.compress_type == zipfile.ZIP_STORED:
            # The header of a member ends with the lengths of its name and of an extra field.
            name, extra = data[member.header_offset + 26 :][:4].view("<u2").tolist()
            start = member.header_offset + 30 + name + extra + file.tell()
            numbers = data[start:][: math.prod(shape) * dtype.itemsize].view(dtype)
        else:
            numbers = np.frombuffer(file.read(), dtype)
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


def overlap(first: range, second: range) -> bool:
    """Return whether two ranges of trials have a trial in common."""
    return first.start < second.stop and second.start < first.stop


def disjoint(spans: Iterable[range]) -> list[range]:
    """Return spans without common trials that hold the most trials, in order.

    Of choices that hold equally many, one with the fewest spans is returned.
    """
    ordered = sorted(spans, key=lambda span: (span.start, span.stop))
    if not any(overlap(one, other) for one, other in itertools.pairwise(ordered)):
        return ordered
    ordered.sort(key=lambda span: (span.stop, span.start))
    stops = [span.stop for span in ordered]
    best = [(0, 0)]  # the most trials among the first n spans, and minus the number of spans
    last: list[int] = []  # the number of spans that come before the n-th, if it is chosen
    for span in ordered:
        last.append(bisect.bisect_right(stops, span.start, hi=len(last)))
        trials, minus = best[last[-1]]
        best.append(max(best[-1], (trials + len(span), minus - 1)))
    chosen, n = [], len(ordered)
    while n:
        if best[n] == best[n - 1]:
            n -= 1
        else:
            chosen.append(ordered[n - 1])
            n = last[n - 1]
    return chosen[::-1]
