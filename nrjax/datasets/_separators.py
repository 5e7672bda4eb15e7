"""Separators and fields of text files: the encoding, the separator, rows of another length."""

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nrjax._base.validation import check

SEPARATORS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'", " ": "blanks"}
_HEAD = 2**16
"""Number of characters from which the separator is found."""

_ALL_BUT_C1 = bytes({*range(256)} - {*range(0x80, 0xA0)})

_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    b"\xef\xbb\xbf": "utf-8-sig",
}


def encoding_mark(path: Path) -> str:
    """Return the encoding of a byte-order mark at the start of a file, or ""."""
    with _opened(path) as stream:
        start = stream.read(4)
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")


def likely_encoding(path: Path) -> str:
    """Return an encoding with one byte per character for a file that is no UTF-8.

    The bytes from 0x80 to 0x9f are letters and signs in cp1252, and control characters in latin-1.
    """
    with _opened(path) as stream:
        while block := stream.read(2**20):
            if block.translate(None, _ALL_BUT_C1):
                return "cp1252"
    return "latin-1"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file of bytes, decompressed as its suffix says, as pandas does."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                check(len(names) == 1, f"content of {path}", f"{len(names)} files", "one file")
                with archive.open(names[0]) as stream:
                    yield stream
        else:
            module = {".gz": gzip, ".bz2": bz2, ".xz": lzma}.get(suffix, io)
            with module.open(path, "rb") as stream:
                yield stream
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} could not be decompressed: {error}") from error


def lines_of(path: Path, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a text file from its header on, without comments."""
    encoding = options.get("encoding") or "utf-8-sig"
    skipped, comment = options.get("skiprows"), options.get("comment")
    with _opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding, errors="replace", newline="")
        for number, line in enumerate(text):
            skip = number < skipped if isinstance(skipped, int) else False
            if not skip and not (comment and line.startswith(comment)):
                yield line


def count_fields(lines: Iterable[str], separator: str, options: Mapping[str, Any]) -> list[int]:
    """Return the number of fields of each row that is not blank, the header's first.

    Without a separator, the result is empty.
    """
    if not separator:
        return []
    blank = separator in (" ", r"\s+")
    limit = csv.field_size_limit(2**31 - 1)  # pandas has no limit
    try:
        rows = csv.reader(
            (line.strip() + "\n" for line in lines) if blank else lines,
            delimiter=" " if blank else separator,
            quotechar=options.get("quotechar", '"'),
            escapechar=options.get("escapechar"),
            doublequote=options.get("doublequote", True),
            skipinitialspace=blank or options.get("skipinitialspace", False),
        )
        return [len(row) for row in rows if row]
    finally:
        csv.field_size_limit(limit)


def exact_separator(options: Mapping[str, Any]) -> str:
    """Return the separator by which fields can be counted, or "" if only pandas knows them."""
    separator = options.get("sep", options.get("delimiter", ","))
    exact = isinstance(separator, str) and (len(separator) == 1 or separator == r"\s+")
    return (
        separator
        if exact and "dialect" not in options and options.get("quoting") != csv.QUOTE_NONE
        else ""
    )


def find_separator(path: Path, options: Mapping[str, Any]) -> str:
    """Return the separator of a text file: the one by which its rows are as long as its header.

    Raises:
        ValueError: rows are as long as the header by two separators.
    """
    head: list[str] = []
    size = 0
    for line in lines_of(path, options):
        if size + len(line) > _HEAD and len(head) > 1:
            break
        head.append(line)
        size += len(line)
        if "\0" in line:
            hint = "For example read={'encoding': 'utf-16'}, in the shell --read encoding=utf-16."
            check(False, f"encoding of {path}", "null characters", "stated", hint)
    even, split = [], []
    for separator in SEPARATORS:
        counts = count_fields(head, separator, options)
        if not counts or counts[0] < 2:
            continue
        # Blanks occur in any text, so they separate only what nothing else does.
        if separator == " " and split:
            break
        # Rows of one sentence each are not split, and a table with a few wrong rows is.
        if separator != " " or 2 * counts.count(counts[0]) > len(counts):
            split.append((counts[0], separator))
        # A row may have one field more than the header: the names of rows that R writes.
        if len(counts) > 1 and set(counts[1:]) in ({counts[0]}, {counts[0] + 1}):
            even.append(separator)
    names, first = " or ".join(SEPARATORS[each] for each in even), "".join(even[:1])
    hint = f"State it: read={{'sep': {first!r}}}, in the shell --read sep='{first}'."
    check(len(even) < 2, f"separator of {path}", f"{names}, which fit alike", "clear", hint)
    if even:
        return first
    hint = "For lines of comments: read={'comment': '#'}, in the shell --read comment='#'."
    ok = not (head and head[0].startswith("#"))
    check(ok, f"header of {path}", "#", "names of columns", hint)
    return max(split)[1] if split else ","


def check_lengths(path: Path, options: Mapping[str, Any], named: bool) -> None:
    """Check that no row has fewer fields than the header, which pandas would fill.

    `named` is whether each row has one field more than the header, its name.
    """
    counts = count_fields(lines_of(path, options), exact_separator(options), options)
    counts = counts[: None if options.get("nrows") is None else options["nrows"] + 1]
    short = sum(count < counts[0] + named for count in counts[1:])
    expected, hint = "as long as the header", "A missing value needs a separator too."
    check(short == 0, f"rows of {path}", f"{short:,} with fewer fields", expected, hint)
