"""Counts by group: your own table, reddit, and the Zipf law."""

import numpy as np
import pytest

from nrjax.datasets import Counts, counts, load_counts, zipf_counts, zipf_law


def table(tmp_path, text, name="own.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_other_flights_than_expected_are_refused(monkeypatch):
    monkeypatch.setattr(counts, "FLIGHTS", 336_777)
    monkeypatch.setattr(counts, "_RECIPE", "another")
    with pytest.raises(
        ValueError, match=r"must be \(336777, 105\) \(got \(336776, 105\)\). Install"
    ):
        load_counts("flights")


def test_a_table_is_read_in_its_order(tmp_path):
    text = 'item,count\nb,3\n"a, with a comma",0\n\n null ,+12\n"two\nlines",9007199254740992\n'
    for form in (text, "\ufeff" + text, text.replace("\n", "\r\n")):
        data = load_counts(table(tmp_path, form))
        lines = "two\r\nlines" if "\r" in form else "two\nlines"
        assert data.items == ("b", "a, with a comma", " null ", lines)
        assert data.counts.tolist() == [3, 0, 12, 2**53]
        assert (data.name, data.unit, data.remarks) == ("own.csv", "rows", ())


@pytest.mark.parametrize(
    ("first", "items", "remark"),
    [
        ("place,people", "bc", "own.csv: the groups are its column 'place', the counts 'people'."),
        (",", "bc", "own.csv: the groups are its column '', the counts ''."),
        ("a,7", "abc", "own.csv has no header: its first line is a group."),
    ],
)
def test_any_header_or_none_will_do_and_is_named(tmp_path, first, items, remark):
    data = load_counts(table(tmp_path, f"{first}\nb,3\nc,12\n"))
    assert data.items == tuple(items)
    assert data.counts.tolist() == [7, 3, 12][-len(items) :]
    assert data.largest(1).remarks == data.remarks == (remark,)


ROWS = r"must be an item and a count \(got '{} fields'\)\. Quote"
COUNT = "count on line {} of .*own.csv must be a whole number from 0 to 2"
GROUPS = "groups of .*own.csv must be at least one line"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item;count\na;1\n", "line 1 of .*own.csv " + ROWS.format(1)),
        ("place,people,area\na,1,2\n", ROWS.format(3)),
        ("item,count\na,1,2\n", "line 2 of .*own.csv " + ROWS.format(3)),
        ("item,count\na\n", ROWS.format(1)),
        ("", GROUPS),
        ("item,count\n", GROUPS),
        ("a,2.5\nb,2\n", COUNT.format(1)),
        ("item,count\na,1\nb,2.5\n", COUNT.format(3)),
        *(
            (f"item,count\na,{count}\n", COUNT.format(2))
            for count in (
                '"1,000"',
                "1e3",
                "",
                "nan",
                "-4",
                2**53 + 1,
                "1_000",
                "\u0663",
                "9" * 5000,
            )
        ),
        ("item,count\na,1\nb,2\na,3\n", "item on line 4 .*must be a name that no line before has"),
        ("item,count\n  ,1\n", "item on line 2 .*must be a name"),
        ('item,count\n"a,1\n', "could not be read as CSV"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_counts(table(tmp_path, text))


def test_neither_a_name_nor_a_file_nor_in_utf_8(tmp_path):
    latin = table(tmp_path, "item,count\ncaf\u00e9,1\n", encoding="latin-1")
    for data, error, message in (
        (latin, ValueError, "could not be read as CSV in UTF-8"),
        ("nothing", ValueError, "data must be 'flights', 'reddit', or the"),
        (tmp_path / "missing.csv", FileNotFoundError, "no file .*missing.csv"),
    ):
        with pytest.raises(error, match=message):
            load_counts(data)


def test_the_largest_groups_fall_and_ties_keep_their_order():
    data = Counts("own.csv", ("a", "b", "c", "d"), np.array([3.0, 7.0, 3.0, 9.0]), "words")
    kept = data.largest(3)
    assert (kept.name, kept.unit, kept.items) == ("own.csv", "words", ("d", "b", "a"))
    assert kept.counts.tolist() == [9, 7, 3]
    for number in (0, 5):
        with pytest.raises(ValueError, match="groups must be from 1 to 4, the groups"):
            data.largest(number)


def test_reddit_is_found_where_it_is_put(tmp_path, monkeypatch):
    table(tmp_path, "item,count\nthe,5\na,4\n", counts.REDDIT)
    monkeypatch.setenv("NRJAX_DATA", str(tmp_path))
    for data in (load_counts("reddit"), load_counts("reddit", tmp_path)):
        assert (data.name, data.unit, data.items) == ("reddit", "posts", ("the", "a"))


def test_reddit_has_the_numbers_of_the_paper(papers_data, papers_file):
    papers_file(counts.REDDIT)
    data = load_counts("reddit", papers_data)
    assert len(data.items) == 5000
    assert (data.items[0], data.counts[0]) == ("the", 938_870)
    assert (np.diff(data.counts) <= 0).all()


def test_the_zipf_law_is_that_of_its_formula():
    law = zipf_law()
    assert law.shape == (300,)
    np.testing.assert_allclose(law[[1, 7, 255]] / law[0], [2**-0.75, 8**-0.75, 2**-6], rtol=1e-12)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(zipf_law(3, 1.0), np.array([6, 3, 2]) / 11)


def test_zipf_counts_are_drawn_once_per_seed_and_size():
    data = zipf_counts(8000)
    assert (data.name, data.unit, len(data.items)) == ("zipf", "samples", 300)
    assert (data.items[0], data.items[-1], data.counts.sum()) == ("1", "300", 8000)
    assert data.counts.dtype == np.float64
    np.testing.assert_array_equal(data.counts, np.round(data.counts))
    np.testing.assert_array_equal(data.counts, zipf_counts(8000, 0).counts)
    for other in (zipf_counts(8000, 1), zipf_counts(8001)):
        assert (other.counts != data.counts).mean() > 0.5


def zipf_distance(sample):
    """Return Pearson's statistic for the law, in standard deviations of its chi-square law."""
    expected = sample.sum() * zipf_law()
    degrees = sample.size - 1
    return (np.sum((sample - expected) ** 2 / expected) - degrees) / np.sqrt(2 * degrees)


def test_zipf_counts_have_their_law():
    distances = [
        zipf_distance(zipf_counts(n, seed).counts) for n in (8000, 128_000) for seed in range(20)
    ]
    # Chi-square with 299 degrees of freedom is nearly normal; 5 is beyond 1e-6.
    assert max(np.abs(distances)) < 5
    assert abs(np.mean(distances)) < 5 / np.sqrt(len(distances))
    for other in (0.7, 0.8):  # planted faults
        assert zipf_distance(zipf_counts(128_000, exponent=other).counts) > 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, r"samples must be a whole number from 1 to 2\^53"),
        ({"samples": 10.5}, "samples must be a whole number"),
        ({"samples": 2.0**54}, "samples must be a whole number"),
        ({"samples": 10, "seed": -1}, r"seed must be in \[0, 2\^32\)"),
        ({"samples": 10, "elements": 0}, "elements must be at least 1"),
        ({"samples": 10, "exponent": 0.0}, "exponent must be positive and finite"),
        ({"samples": 10, "exponent": np.nan}, "exponent must be positive"),
    ],
)
def test_zipf_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        zipf_counts(**options)
