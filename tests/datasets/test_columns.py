"""What a column means: kinds of cells, categories, labels, and warnings about them."""

import datetime
import re
import warnings
from decimal import Decimal

import numpy as np
import pytest

from nrjax.cli.options import joined
from nrjax.datasets import from_file, from_frame, load
from nrjax.papers._settings import parsed_bounds, parsed_missing

pandas = pytest.importorskip("pandas")

AGE, YES = [20, 30, 40, 50], ["no", "yes", "no", "yes"]
SECRET = "8675309"
"""A value of the data, which no message has."""


def prepared(column, stated=None, **options):
    """Return the data set of one column `a`, whose warnings are remarks."""
    bounds = {"y": ["no", "yes"]} | ({} if stated is None else {"a": stated})
    frame = {"a": column, "y": (YES * len(column))[: len(column)]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return from_frame(frame, "y", bounds=bounds, task="logistic", **options)


def signs(data):
    """Return the features before rows are scaled, without the intercept: 0 or 1 if indicators."""
    return (data.x / data.x[:, -1:])[:, :-1]


def warned(data):
    return [remark for remark in data.remarks if remark.startswith("Warning: ")]


NARROW = np.array([0.1, 0.2, 0.1, 0.2], np.float32)
DATES = ["2020-01-01", "2020-02-01", "2020-01-01", "2020-02-01"]
DAYS = [datetime.date.fromisoformat(day) for day in DATES]
SOME_DAYS = ["2020-01-01", "2020-01-09", "2019-05-01", "2020-01-07"]
HALF = [[1, 0], [0, 1], [1, 0], [0, 1]]
BIG = [2**53, 2**53 + 1, 2**53, 2**53 + 1]
HUGE = [2**70, 2**70 + 1, 2**70, 2**70 + 1]


@pytest.mark.parametrize(
    ("column", "stated", "names", "expected"),
    [
        # Numbers are compared as the column holds them, and integers exactly.
        (BIG, [str(2**53), "5", "6"], [2**53, 5, 6], [[1, 0, 0], [0, 0, 0]] * 2),
        (BIG, BIG[:2], BIG[:2], HALF),
        (np.array(BIG, np.uint64), BIG[:2], BIG[:2], HALF),
        (HUGE, HUGE[:2], HUGE[:2], HALF),
        (
            [2**63 + 1, 2**63, -1, 1],
            [2**63 + 1, -1],
            [2**63 + 1, -1],
            [[1, 0], [0, 0], [0, 1], [0, 0]],
        ),
        (NARROW, [0.1, 0.2, 0.4], [0.1, 0.2, 0.4], [[1, 0, 0], [0, 1, 0]] * 2),
        (NARROW.astype(np.float16), ["0.1", "0.2"], [0.1, 0.2], HALF),
        ([Decimal("0.1"), Decimal("0.2")] * 2, [0.1, 0.2], [0.1, 0.2], HALF),
        ([1.0, 2.0, 1.0, 2.0], ["1", "2"], [1, 2], HALF),
        (["1.0", " 2"] * 2, [1, 2.0], [1, 2], HALF),
        (["1", "02"] * 2, ["1", "02"], ["1", "02"], HALF),
        # A list is a list, also of two numbers.
        ([1, 2, 9, 1], [1, 2], [1, 2], [[1, 0], [0, 1], [0, 0], [1, 0]]),
        ([1, 2, 9, 1], np.array([1, 2]), [1, 2], [[1, 0], [0, 1], [0, 0], [1, 0]]),
        ([1, 2, 2, 1], pandas.Index([2, 1]), [2, 1], [[0, 1], [1, 0], [1, 0], [0, 1]]),
        # Booleans.
        ([True, False] * 2, [True, False], [True, False], HALF),
        ([True, False] * 2, ["true", "FALSE"], [True, False], HALF),
        ([True, False] * 2, [1, 0], [1, 0], HALF),
        (["TRUE", "FALSE"] * 2, [True, False], [True, False], HALF),
        ([1, 0, 1, 0], ["True", "False"], [True, False], HALF),
        # Blanks.
        ([" x", "z ", "x", "z"], ["x ", "z"], ["x", "z"], HALF),
        ([b" x", b"z", b"x", b"z"], ["x", "z"], ["x", "z"], HALF),
        # A word such as NA that is listed is a category.
        (["NA", "x", "NA", "x"], ["NA", "x"], ["NA", "x"], HALF),
        # Dates, however the column holds them.
        *(
            (days, listed, DATES[:2], HALF)
            for days in (
                DATES,
                DAYS,
                [f"{day} 00:00" for day in DATES],
                np.array(DATES, "M8[ns]"),
                np.array(DATES, "M8[D]"),
                pandas.to_datetime(DATES),
                pandas.Series(pandas.to_datetime(DATES)).dt.tz_localize("Asia/Tokyo"),
            )
            for listed in (DATES[:2], DAYS[:2], [pandas.Timestamp(day) for day in DAYS[:2]])
        ),
        (["2020-01", "2020-02"] * 2, ["2020-01", "2020-02"], ["2020-01-01", "2020-02-01"], HALF),
        # Declared order.
        (
            pandas.Categorical(["lo", "hi"] * 2, ["lo", "hi"], ordered=True),
            None,
            ["lo", "hi"],
            HALF,
        ),
        (pandas.Categorical(["lo", "hi"] * 2, ["lo", "hi"]), None, ["hi", "lo"], np.flip(HALF, 1)),
    ],
)
def test_categories(column, stated, names, expected):
    data = prepared(column, stated)
    assert data.feature_names[:-1] == tuple(f"a={name}" for name in names)
    np.testing.assert_allclose(signs(data), expected)


@pytest.mark.parametrize(
    ("column", "stated", "expected"),
    [
        (["1", "2.5", " 4 ", "-1e0"], (0, 4), [-0.5, 0.25, 1, -1]),
        ([0.0, True, 2, Decimal(4)], (0, 4), [-1, -0.5, 0, 1]),
        (NARROW, (0.1, 0.2), [-1, 1, -1, 1]),
        (["NA", "1", "3", ""], (1, 3), [1, -1, 1, 1]),
        *(
            (days, ends, [-1, 1, -1, 0.5])
            for days in (
                SOME_DAYS,
                pandas.to_datetime(SOME_DAYS),
                np.array(SOME_DAYS, "M8[s]"),
                [*map(datetime.datetime.fromisoformat, SOME_DAYS)],
            )
            for ends in (
                ("2020-01-01", "2020-01-09"),
                (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 9)),
                (np.datetime64("2020-01-01"), pandas.Timestamp("2020-01-09")),
            )
        ),
    ],
)
def test_ranges(column, stated, expected):
    data = prepared(column, stated, missing={"a": 3} if "" in list(column) else "refuse")
    np.testing.assert_allclose(signs(data)[:, 0], expected, rtol=1e-6)
    narrow = isinstance(column, np.ndarray) and column.dtype == np.float32
    assert not (narrow and "clipped)" in data.summary)


NO_ORDER = pandas.Categorical(["a", "b"] * 2, categories=["b", "a"])
ORDER = pandas.Categorical(["low", "high"] * 2, categories=["low", "high", "top"], ordered=True)


@pytest.mark.parametrize(
    ("y", "stated", "expected"),
    [
        (ORDER, None, [-1, 1]),
        (ORDER, ["high", "low"], [1, -1]),
        (NO_ORDER, None, [-1, 1]),
        (pandas.cut([11, 2] * 2, [1, 10, 20]), None, [1, -1]),
        ([2**60, 2**60 + 1] * 2, [2**60 + 1, 2**60], [1, -1]),
        ([2**60, 2**60 + 1] * 2, None, [-1, 1]),
        ([True, False] * 2, ["True", "False"], [-1, 1]),
        ([True, False] * 2, None, [1, -1]),
        (["TRUE", "FALSE"] * 2, [False, True], [1, -1]),
        ([" yes", "no "] * 2, ["yes", "no"], [-1, 1]),
        (["yes", "no"] * 2, ("yes", "no"), [-1, 1]),  # a tuple of words is no range
        ([0, 1] * 2, (0, 1), [-1, 1]),
        (DATES, [DATES[1], DATES[0]], [1, -1]),
        (np.array([0.1, 0.7] * 2, np.float32), [0.7, 0.1], [1, -1]),
    ],
)
def test_labels(y, stated, expected):
    bounds = {"age": (18, 90)} | ({} if stated is None else {"y": stated})
    data = from_frame(pandas.DataFrame({"age": AGE, "y": y}), "y", bounds=bounds)
    assert data.task == "logistic"
    assert data.y.tolist() == expected * 2


GAPS = [
    [1, None, 2, 3],
    [1, np.nan, 2, 3],
    ["x", None, "x", "z"],
    ["x", float("nan"), "x", "z"],
    ["x", pandas.NA, "x", "z"],
    ["x", "NA", "x", "z"],
    ["x", " ", "x", "z"],
    ["x", "nan", "x", "z"],
    [1, np.ma.masked, 2, 3],
    np.ma.masked_equal([20, -99, 40, 50], -99),
    np.array(["2020-01-01", "NaT", "2020-01-02", "2020-01-03"], "M8[D]"),
    pandas.array([1, None, 2, 3], "Int64"),
    pandas.array([True, None, False, True], "boolean"),
    pandas.array(["x", None, "x", "z"], "string"),
    pandas.Categorical(["x", None, "x", "z"]),
    pandas.Series(pandas.to_datetime(["2020-01-01", None, "2020-01-02", "2020-01-03"])),
]


@pytest.mark.parametrize("column", GAPS, ids=lambda column: repr(column)[:40])
@pytest.mark.parametrize("stated", [None, ["x", "z"]])
def test_missing_cells_in_any_dress(column, stated):
    with pytest.raises(ValueError, match=r"without missing values \(got \['a'\]\).* 1 of 4 in 'a'"):
        prepared(column, stated)


def test_one_message_has_all_problems_of_all_columns():
    frame = {name: [f"{SECRET}{name}{i}" for i in range(60)] for name in "abc"}
    frame |= {"b": [None, *frame["b"][1:]], "n": range(60), "m": [f"${SECRET},1"] * 60}
    frame |= {"y": YES * 15, "day": [f"1.1.{SECRET}"] * 60}
    bounds = {"m": (0, 1), "day": ("2020-01-01", "2021-01-01"), "gone": (0, 1)}
    with pytest.raises(ValueError, match="table and its options have 8 problems") as caught:
        from_frame(frame, "y", bounds=bounds)
    for part in (
        "bounds must be of columns of table: a, b, c, n, m, day, y (got ['gone'])",
        "1 of 60 in 'b'.",
        "column 'a' of table",
        "column 'b' of table",
        "column 'c' of table must be numbers (1000, not 1,000), or text of at most 50 values",
        "given for the columns of numbers n of table",
        "column 'm' of table must be numbers, as its bounds are (got 'text'). 60 of 60 cells",
        "60 of 60 cells are no ISO date",
    ):
        assert part in str(caught.value)


def test_a_message_names_ten_columns():
    frame = {f"c{i}": AGE for i in range(300)} | {"y": YES}
    with pytest.raises(ValueError, match="c9 and 290 more of table") as caught:
        from_frame(frame, "y")
    assert len(str(caught.value)) < 800
    with pytest.raises(ValueError, match="c9 and 290 more"):
        from_frame(frame | {f"c{i}": [None, *AGE[1:]] for i in range(300)}, "y")


REFUSED = [  # column, its bounds, target, options, words of the message
    (["20", "?", "40", SECRET], (18, 90), YES, "1 of 4 cells are no plain number"),
    (["$1,200", "12%", "(1,200)", "<0.006"], (18, 90), YES, "4 of 4 cells are no plain number"),
    (["1 200", SECRET, "0x1", "1_000"], (18, 90), YES, "3 of 4 cells are no plain number"),
    (
        ["1.2.2020", "2020-02-30", DATES[0], SECRET],
        tuple(DATES[:2]),
        YES,
        "3 of 4 cells are no ISO",
    ),
    ([int(SECRET)] * 4, tuple(DATES[:2]), YES, "two numbers, for a column of numbers"),
    (np.array(DATES, "M8[D]"), (0, 1), YES, "two dates, for a column of dates"),
    (np.array(DATES, "M8[D]"), None, YES, "must be given for the columns of numbers a of"),
    (np.array(DATES, "M8[D]"), (DATES[1], DATES[0]), YES, "with LOW < HIGH"),
    (np.array(DATES, "M8[D]"), (pandas.NaT, DATES[0]), YES, "different categories, of dates"),
    (["1e999", "1", "2", "3"], (0, 9), YES, "1 of 4 cells are no plain number"),
    ([10**400, 1, 2, 3], (0, 9), YES, "1 of 4 cells are no plain number"),
    ([10**50, 1, 2, 3], (0, 9), YES, "beyond 1e"),
    (["x", "z"] * 2, ["x", None], YES, "different categories, of text"),
    (np.array([1, 2, 3, 4], "m8[D]"), None, YES, "Give durations as numbers"),
    ([1j, 2j, 3j, 4j], None, YES, "must be numbers, booleans, dates or text"),
    ([3, 7, 11, int(SECRET)], [0, 100], YES, "categories of most rows, not of 0 of 4.*a=LOW:HIGH"),
    ([0.5, 0.7, 0.9, float(SECRET)], [0, 1, 2], YES, "categories of most rows, not of 0 of 4"),
    (AGE, (18, 90), [SECRET, "b", "c", "d"], "exactly two labels .got '4 different values'"),
    (AGE, (18, 90), [1.5, 2.5, 3.5, float(SECRET)], "exactly two labels .got '4 different values'"),
    (AGE, (18, 90), ["No", SECRET] * 2, "4 of 4 rows have another.*nearly like 'no' .2 rows"),
]


@pytest.mark.parametrize(("column", "stated", "y", "message"), REFUSED)
def test_a_message_has_counts_and_no_value(column, stated, y, message):
    bounds = {"y": ["no", "yes"]} | ({} if stated is None else {"a": stated})
    with pytest.raises(ValueError, match=message) as caught:
        from_frame({"a": column, "y": y}, "y", bounds=bounds, task="logistic")
    assert SECRET not in str(caught.value)


CITY = [*["Bern"] * 20, *["Basel"] * 77, *["basel", "Basle", "Chur"]]
LOW = [45.3, 38.95, 120.4, 61.0]


@pytest.mark.parametrize(
    ("column", "stated", "expected"),
    [
        (CITY, ["Bern", "Basel"], []),
        (["bern"] * 2 + CITY, ["Bern", "Basel"], ["'Bern' (2 rows) and 'Basel' (2 rows)"]),
        (CITY, ["Bern", "BASEL"], ["80 of 100 values of 'a'", "nearly like 'BASEL' (79 rows)"]),
        (CITY, ["Bern"], ["80 of 100 values of 'a' are none of its 1 categories."]),
        ([*[18] * 95, *[17] * 5], (18, 90), []),
        ([*[18] * 94, *[17] * 5, 95], (18, 90), ["6 of 100 values", "5 below 18 and 1 above 90"]),
        (LOW, (0, 200_000), ["within 0.1 % of the width of its bounds [0, 200000]"]),
        (LOW, (0, 20_000), []),
        ([7, 7, 7, 7], (0, 200_000), []),
        ([f"x{i}" for i in range(32)], None, ["32 values became 32 columns", "looks like an id"]),
        ([f"x{i}" for i in range(16)] * 2, None, []),
        (DATES, None, ["It looks like dates: give bounds such as"]),
        (["1,000", "5 %", "<0.06", "(3)"], None, ["It looks like numbers but is text"]),
    ],
)
def test_a_warning_names_what_was_stated(column, stated, expected):
    found = warned(prepared(column, stated))
    assert len(found) == bool(expected)
    assert all(part in found[0] for part in expected)


def test_warnings_about_scales_name_columns_and_no_category(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(f"a,city,y\n0.01,{SECRET}x,1\n0.02,{SECRET}x,2\n0.03,{SECRET}x,3\n")
    uneven, *more = warned(load(path, "ridge", target="y"))
    assert "'city' are large next to 'a'" in uneven
    path.write_text(f"a,city,y\n0.2,{SECRET}x,1\n0.2,{SECRET}x,2\n0.2,{SECRET}x,3\n")
    (dominant,) = warned(load(path, "ridge", target="y"))
    assert "the column 'city' of own.csv makes up more than 95 %" in dominant
    assert SECRET not in "".join([uneven, dominant, *more])


@pytest.mark.parametrize(
    ("y", "task", "expected"),
    [
        ([0, 1, 2] * 2, None, True),
        ([1.0, 2.0, 3.0, 4.0, 5.0] * 2, None, True),
        ([0, 1, 2] * 2, "ridge", False),
        ([0.5, 1, 2] * 2, None, False),
        ([*range(11)] * 2, None, False),
        ([0, 1, 2], None, False),
    ],
)
def test_whole_numbers_may_be_classes(y, task, expected):
    frame = {"age": np.linspace(20, 60, len(y)), "y": y}
    bounds = {"age": (18, 90), "y": (0, 10)}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        data = from_frame(frame, "y", bounds=bounds, task=task)
    assert data.task == "ridge"
    assert ["are classes" in str(each.message) for each in found] == [True] * expected


def test_a_csv_file_and_the_shell_give_the_same(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("day,country,left\n2020-01-01, NA,False\n2020-12-31,ZA,True\n")
    texts = ["day=2020-01-01:2020-12-31", "country=ZA, NA,DE", "left=True,False"]
    bounds = parsed_bounds(texts)
    assert bounds == {
        "day": ("2020-01-01", "2020-12-31"),
        "country": ["ZA", "NA", "DE"],
        "left": ["True", "False"],
    }
    data = from_file(path, "left", bounds=bounds)
    assert data.y.tolist() == [1, -1]
    np.testing.assert_allclose(signs(data), [[-1, 0, 1, 0], [1, 1, 0, 0]], rtol=1e-6)


def test_a_repeated_option_keeps_all_its_values():
    """Argparse would drop `y=b,a`, and each label would change its sign."""
    words = [
        "--bounds",
        "y=b,a",
        "--seed",
        "1",
        "--bounds=x=0:1",
        "--bounds",
        "z=A,B",
        "--out",
        "o",
    ]
    assert joined(words) == ["--bounds", "y=b,a", "x=0:1", "z=A,B", "--seed", "1", "--out", "o"]
    assert joined(["choose", "mean", "--error", "3 %"]) == ["choose", "mean", "--error", "3 %"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), "refuse"),
        (("refuse",), "refuse"),
        (("drop",), "drop"),
        (("age=40", "city=none", "a=b=1"), {"age": "40", "city": "none", "a=b": "1"}),
    ],
)
def test_rules_for_missing_cells_in_the_shell(texts, expected):
    assert parsed_missing(texts) == expected
    with pytest.raises(ValueError, match=re.escape("of the form COLUMN=VALUE")):
        parsed_missing(("age=1", "age=2"))


@pytest.mark.parametrize("text", ["dob=01.01.1920:31.12.2005", "age=18:9O"])
def test_a_range_that_is_none_is_not_taken_as_a_category(text):
    with pytest.raises(ValueError, match=r"two numbers or dates.*Write dates as 2020-01-31"):
        parsed_bounds([text])
    assert parsed_bounds(["at=9:30,9:45"]) == {"at": ["9:30", "9:45"]}
