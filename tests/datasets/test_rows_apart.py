"""What becomes of a row of a table does not depend on the other rows.

NumPy and pandas hold a column in one type, so that one cell can turn 7 into 7.0 or "7" in all rows.
"""

import datetime
import io
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("pandas")
import pandas as pd

from nrjax.datasets import count_keys, from_frame
from nrjax.datasets._cells import canonical
from nrjax.datasets._columns import match

ROWS = 60


def read(cells):
    """Return a column as pandas reads it from a file."""
    lines = "g,end\n" + "".join(f"{cell},.\n" for cell in cells)
    return pd.read_csv(io.StringIO(lines))["g"]


def changed(column, last, stated, of=read, **options):
    """Return how many rows differ, besides the last, if another cell stands in the last row."""
    y = np.linspace(0, 1, ROWS)
    one, two = (
        from_frame({"g": of(cells), "y": y}, "y", bounds={"g": stated, "y": (0, 1)}, **options)
        for cells in (column, [*column[:-1], last])
    )
    assert one.feature_names == two.feature_names
    return int(np.sum((one.x != two.x).any(axis=1)[:-1])), one.x[:, 0]


COLUMNS = {
    "whole numbers": (["1.0"] * 3 + ["1"] * 27 + ["2"] * 30, "x", [1, 2]),
    "numbers in text": (["1.0"] * 30 + ["2.0"] * 30, "x", ["1", "2"]),
    "zeros before": (["01"] * 30 + ["02"] * 30, "x", ["01", "02"]),
    "codes as text": (["7"] * 30 + ["12"] * 30, "x", ["007", "7", "12"]),
    "with a word": (["1.0"] * 30 + ["2"] * 30, "x", ["1", "2", "other"]),
    "dates": (["2020-01-01"] * 30 + ["2020-01-01 00:00"] * 30, "x", ["2020-01-01", "2020-01-02"]),
    "booleans": (["True"] * 30 + ["False"] * 30, "maybe", [True, False]),
    "ones": (["True"] * 30 + ["False"] * 30, "maybe", [1, 0]),
    "fractions": (["1"] * 30 + ["2"] * 30, "2.5", [1, 2]),
}


@pytest.mark.filterwarnings("ignore:.* rows:UserWarning", "ignore:.* categor:UserWarning")
@pytest.mark.parametrize("of", [read, list, lambda cells: np.array(cells, object)])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_cell_changes_its_row_only(name, of):
    cells, last, stated = COLUMNS[name]
    rows, first = changed(cells, last, stated, of)
    assert rows == 0
    if name != "codes as text":
        assert (first > 0).sum() in (30, 60)  # no row has lost its category


@pytest.mark.filterwarnings("ignore:.* rows:UserWarning", "ignore:.* categor:UserWarning")
def test_a_missing_cell_changes_its_row_only():
    y = np.linspace(0, 1, ROWS)
    cells, options = ["1.0"] * 30 + ["2.0"] * 30, {"missing": {"g": "2"}}
    one, two = (
        from_frame(
            {"g": read(column), "y": y}, "y", bounds={"g": ["1", "2"], "y": (0, 1)}, **options
        )
        for column in (cells, [*cells[:-1], ""])
    )
    np.testing.assert_array_equal(one.x, two.x)


def test_a_person_changes_few_counts():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(100), 6)
    keys = np.concatenate([rng.choice(20, 6, replace=False) for _ in range(100)])
    base = held(count_keys(people, keys, most=2, seed=1))
    for person, key in ((0.5, 3), ("x", 3), (100, 2.5), (100, "w"), (True, 3), (10**30, 3)):
        for columns in ((people, keys), (people.tolist(), keys.tolist())):
            more = count_keys(
                *(_with(column, cell) for column, cell in zip(columns, (person, key), strict=True)),
                most=2,
                seed=1,
            )
            found = held(more)
            change = sum(abs(found.get(k, 0) - base.get(k, 0)) for k in {*found, *base})
            assert change <= 2, (person, key)


def held(counts):
    return {canonical(item): n for item, n in zip(counts.items, counts.counts, strict=True)}


DAY, LATER = np.datetime64("2020-01-01"), np.datetime64("2020-01-02T03:00")
DAYS = pd.Series([DAY, DAY + 1])
KEYS = {  # a column, the last cells of two neighbours, and the names of the other cells
    "whole numbers": ([3, 4], (4, 3.5), [3, 4]),
    "complex numbers": ([3, 4], (4, 1j), [3, 4]),
    "booleans": ([True, False], (True, 2), [0, 1]),
    "floats of text": (["1.0", "1"], ("1", "2.5"), ["1", "1.0"]),
    "decimals": ([Decimal("0.10"), Decimal(2)], (2, Decimal("0.1")), [2, Decimal("0.1")]),
    "fractions": ([Fraction(4, 2), Fraction(1, 3)], (2.0, 5.5), [Fraction(1, 3), 2]),
    "large numbers": ([2**63, 2**53 + 1], (1, -0.5), [2**53 + 1, 2**63]),
    "tuples": ([(1.0, "a"), (2, "b")], ((1, "a"), (1.0, "c")), [(1, "a"), (2, "b")]),
    "days": ([DAY, DAY + 1], (DAY, LATER), [datetime.date(2020, 1, day) for day in (1, 2)]),
    "days of pandas": (DAYS, (DAY, LATER), [datetime.date(2020, 1, day) for day in (1, 2)]),
    "days beside text": (DAYS, (DAY, "x"), [datetime.date(2020, 1, day) for day in (1, 2)]),
    "spans": ([DAY - DAY], (DAY - DAY, LATER - DAY), [datetime.timedelta(0)]),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_name_of_a_key_depends_on_no_other_key(name):
    column, lasts, expected = KEYS[name]
    for last in lasts:
        for cells in (_with(column, last), _with(column, last)[::-1]):
            people = [str(place) for place in range(len(cells))]
            items = count_keys(people, cells, most=1).items
            assert set(map(repr, expected)) <= set(map(repr, items)), items
            assert len(items) == len(set(items)) <= len(expected) + 1


def test_a_csv_file_with_a_fraction_names_other_keys_alike():
    for last in ("2", "2.5"):
        items = count_keys(range(3), read(["1", "2", last]), most=1).items
        assert [repr(item) for item in items[:2]] == ["1", "2"]


def test_a_person_written_as_a_number_and_as_text_is_one_person():
    counts = count_keys([7, "7", 7.0, "x"], list("abca"), most=1)
    assert counts.counts.sum() == 2


def _with(column, cell):
    if isinstance(column, list):
        return [*column, cell]
    return pd.concat([pd.Series(column), pd.Series([cell])], ignore_index=True)


def test_an_unlisted_column_of_booleans_is_named():
    data = from_frame({"g": [True, False, True], "y": [0, 1, 0.5]}, "y", bounds={"y": (0, 1)})
    assert "the kind of g" in data.summary
    listed = {"g": [False, True], "y": (0, 1)}
    data = from_frame({"g": [True, False, True], "y": [0, 1, 0.5]}, "y", bounds=listed)
    assert "the kind of g" not in data.summary


def test_people_are_told_apart_by_their_value():
    frame = {"id": ["7", "7.0", "x"], "a": [0, 1, 2], "y": [0, 1, 0.5]}
    bounds = {"a": (0, 2), "y": (0, 1)}
    with pytest.raises(ValueError, match="rows_per_person must be at least 2"):
        from_frame(frame, "y", bounds=bounds, person="id", rows_per_person=1)


def test_missing_dates_are_filled_in_as_stated():
    months = np.array(["2020-01", "NaT", "2020-03"], "datetime64[M]")
    frame = {"day": months, "y": [0, 1, 0.5]}
    bounds = {"day": ("2020-01-01", "2020-12-31"), "y": (0, 1)}
    data = from_frame(frame, "y", bounds=bounds, missing={"day": "2020-06-15"})
    days = (data.x[:, 0] / data.x[0, 0] * -1 + 1) / 2 * 365
    assert days.round().tolist() == [0, 166, 60]
    frame["day"] = np.array([2020, 300_000, 2021], "datetime64[Y]")
    with pytest.raises(ValueError, match="1 dates beyond"):
        from_frame(frame, "y", bounds=bounds)


def test_dates_with_a_zone_are_those_of_the_clock_on_the_wall():
    arrow = pytest.importorskip("pyarrow")
    wall = pd.date_range("2020-01-01 20:00", periods=3, tz="America/New_York")
    frame = pd.DataFrame({"day": wall, "y": [0, 1, 0.5]})
    bounds = {"day": ("2020-01-01", "2020-12-31"), "y": (0, 1)}
    table = arrow.Table.from_pandas(frame)
    np.testing.assert_array_equal(
        *(from_frame(each, "y", bounds=bounds).x for each in (frame, table))
    )


def test_narrow_numbers_keep_their_value_beside_text():
    """0.1 in float16 is 0.09997..., also if another cell is text."""
    x = []
    for last in (0, "+4"):
        frame = {"c": [np.float16(0.1), np.float32(0.1), Fraction(1, 3), last], "y": [0, 1, 0, 1]}
        x.append(from_frame(frame, "y", bounds={"c": (-4, 4), "y": (0, 1)}).x[:3])
    np.testing.assert_array_equal(*x)


@pytest.mark.filterwarnings("ignore:.* categor:UserWarning")
@pytest.mark.parametrize("narrow", [np.float32, np.float16])
@pytest.mark.parametrize("stated", [[0.1, 0.2], ["0.1", "0.2"], [0.1, 0.2, "other"]])
def test_narrow_fractions_keep_their_category(narrow, stated):
    cells = list(np.array([0.1, 0.2, 0.1, 0.2], narrow))
    lasts = narrow(0.2), 0.2, "0.2", Decimal("0.2"), None, "x", 2**70, 1e30, Fraction(1, 3)
    options = {"bounds": {"c": stated, "y": (0, 1)}, "missing": {"c": 0.2}}
    for place, last in enumerate(lasts):
        frame = {"c": [*cells, last], "y": [0, 0.5, 1, 0, 1]}
        x = from_frame(frame, "y", **options).x[:, :2] > 0
        assert x.tolist() == [[True, False], [False, True]] * 2 + [[False, place < 5]], last


def test_a_number_that_a_narrow_type_would_round_to_a_category_is_none():
    column = [1000.5, 1000.3, 0.1, float(np.float32(0.1)), 2.0**24, 1 / 3, float(np.float32(1 / 3))]
    stated = [1000.3, 0.1, 2**24 + 1, 1 / 3]
    assert match("c", np.array(column), stated)[0].tolist() == [-1, 0, 1, 1, -1, 3, 3]
    assert match("c", np.float32([0.1, 0.5]), [0.1, 0.1000000001])[0].tolist() == [-1, -1]


def test_a_number_filled_in_is_not_rounded_to_a_narrow_column():
    x = []
    for column in (np.array([np.nan, 0.5, 1], np.float32), [np.nan, np.float32(0.5), 0.25]):
        frame, bounds = {"c": column, "y": [0, 1, 0.5]}, {"c": (0, 1), "y": (0, 1)}
        x.append(from_frame(frame, "y", bounds=bounds, missing={"c": 0.1}).x[:2])
    np.testing.assert_array_equal(*x)


def test_integers_of_numpy_and_of_more_than_64_bits_stand_in_one_column():
    frame = {"c": [np.int8(3), 2**70, 5], "y": [0, 1, 0]}
    with pytest.warns(UserWarning, match="1 above 10"):
        x = from_frame(frame, "y", bounds={"c": (0, 10), "y": (0, 1)}).x[:, 0]
    np.testing.assert_allclose(x / x[1], [-0.4, 1, 0], atol=1e-15)
