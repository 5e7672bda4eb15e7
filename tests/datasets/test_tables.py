"""Your own table: a data frame, CSV or NPZ."""

import re
import warnings

import numpy as np
import pytest

from nrjax.datasets import PrivacyLeakWarning, _columns, from_file, from_frame, load

pandas = pytest.importorskip("pandas")

TWO, MORE = (f"that the target {has} two values" for has in ("has", "does not have"))

# `test_columns.py` checks warnings about values outside of stated bounds.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.* lie outside its bounds", "ignore:.* are none of its"
)


def csv(tmp_path, text, name="own.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


FROM_DATA = pytest.mark.filterwarnings("ignore::nrjax.datasets.PrivacyLeakWarning")
LABELS = {"task": "logistic"}
COLOURS = "size,colour,ok,price\n3,red,True,10.5\n4,blue,False,-21\n0,red,False,2\n1,green,True,7\n"


def test_columns_as_they_are(tmp_path):
    data = load(csv(tmp_path, COLOURS), "ridge", target="price")
    raw = np.array(  # size, then blue, green, red, then ok
        [[3, 0, 0, 1, 1], [4, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 1, 0, 1]], float
    )
    assert (data.name, data.task) == ("own.csv", "ridge")
    assert data.feature_names == ("size", "colour=blue", "colour=green", "colour=red", "ok")
    np.testing.assert_allclose(data.x, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(data.y, np.array([10.5, -21, 2, 7]) / 21, rtol=1e-15)
    assert data.summary.endswith("the largest absolute value of price, the categories of colour.")
    first = load(csv(tmp_path, COLOURS), "ridge", target="price", rows=1)
    assert first.x.shape == (1, 5)  # the columns do not depend on the rows
    assert first.y.tolist() == [1.0]  # but the scale is that of the rows used


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["0", "1", "1"], [-1, 1, 1]),
        (["-1", "1", "-1"], [-1, 1, -1]),
        (["no", "yes", "no"], [-1, 1, -1]),
        (["True", "False", "True"], [1, -1, 1]),
        (["2.5", "7.5", "2.5"], [-1, 1, -1]),
    ],
)
def test_two_values_become_labels(tmp_path, values, expected):
    text = "a,y\n" + "".join(f"{i + 1},{v}\n" for i, v in enumerate(values))
    data = load(csv(tmp_path, text), "logistic", target="y")
    assert data.y.tolist() == expected
    assert data.y.dtype == np.float64
    with pytest.raises(
        ValueError, match=r"at least three finite numbers .*use task 'logistic' \(--task logistic"
    ):
        load(csv(tmp_path, text), "ridge", target="y")


MISSING = r"missing values \(got \['b', 'y'\]\).* 1 of 3 in 'b', 1 of 3 in 'y'\.$"
NUMBERS = r"must be at least three finite numbers \(1000, not 1,000\) within 1e\+38"
BEYOND = r"missing or infinite values, or beyond 1e\+38, must be none \(got \['b'\]"
COLUMN = r"target must be a column of .*a, y .*in the shell --target COLUMN"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,y\n1,,1\n2,3,\n4,5,6\n", {}, MISSING),
        ("a,b,y\n1,inf,1\n2,3,2\n4,5,6\n", {}, BEYOND),
        ("a,b,y\n1,1,1\n2,-1e308,2\n4,5,6\n", {}, BEYOND),
        ("a,y\n1,1\n2,inf\n4,3\n", {}, NUMBERS),
        ("a,y\n1,1\n2,1e308\n4,3\n", {}, NUMBERS),
        ('a,y\n1,"1,000"\n2,7\n3,9\n', {}, NUMBERS + r" \(got '3 different values of text'\)"),
        ("a,y\n1,5\n2,5\n", {}, NUMBERS),
        ("a,b,a,a,y\n1,2,3,4,5\n", {}, r"without repeated names \(got \['a'\]"),
        ("a,y\n1,1\n", {"target": None}, COLUMN),
        ("a,y\n1,1\n", {"target": "z"}, COLUMN),
        ("y\n1\n2\n3\n", {}, r"rows and features of .* 1 of each \(got \(3, 0\)"),
        ("a,y\n", {}, r"rows and features of .* 1 of each \(got \(0, 1\)"),
        ("", {}, "could not be read as CSV"),
        ("a,y\n1,2\n1,2,3,4\n", {}, "could not be read as CSV"),
        ("a,,y\n1,0,1\n5,1,2\n2,2,3\n", {}, "must be named"),
        (COLOURS, {"target": "price"} | LABELS, "must be exactly two labels .*use task 'ridge'"),
        ("a,y\n1,no\n2,no\n", LABELS, r"must be exactly two labels \(got '1 different"),
        ("a,y\n1,0\n2,0\n3,1\n", {"rows": 2} | LABELS, "enough to reach both labels .*got 2"),
    ],
)
def test_bad_csv(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        load(csv(tmp_path, text), **{"task": "ridge", "target": "y"} | options)


def test_text_of_many_values_is_refused(tmp_path):
    def table(n):
        return "id,a,y\n" + "".join(f"row{i},{i},{i}\n" for i in range(n))

    most = _columns.MAX_CATEGORIES
    assert load(csv(tmp_path, table(most)), "ridge", target="y").x.shape == (most, most + 1)
    with pytest.raises(ValueError, match=f"column 'id' of .*got 'text of {most + 1} values'"):
        load(csv(tmp_path, table(most + 1)), "ridge", target="y")


PRICES = 'price,size,y\n"1,000",0.1,1\n950,0.2,2\n"2,500",0.1,3\n'
COLUMNS = "income,age,y\n50000,30,1\n-70000,40,2\n90000,50,3\n"
SIZES = "size,y\n3+,1\nsmall,2\nlarge,3\n"
UNEVEN = "columns of own.csv differ in scale by more than ten: 'income' are large next to"


@pytest.mark.parametrize(
    ("text", "normalise", "remarks"),
    [
        (PRICES, "l2_rows", ["'price' of own.csv may be no text: its 3 values .* looks like num"]),
        (COLUMNS, "l2_rows", [f"{UNEVEN} 'age', which"]),
        (COLUMNS, "max_l1", [f"{UNEVEN} 'age', which"]),
        (
            "a,b,y\n9,1,1\n9,1,2\n9,1,3\n",
            "l2_rows",
            ["column 'a' of own.csv makes up more than 95 % of"],
        ),
        ("a,b,y\n9,1,1\n9,1,2\n9,1,3\n", "max_l1", []),  # 90 %
        (SIZES, "l2_rows", []),
        (COLOURS.replace("price", "y"), "l2_rows", []),
        ("a,y\n7,1\n8,2\n9,3\n", "l2_rows", []),  # alone
        ("a,b,y\n4,1,1\n4,1,2\n4,1,3\n", "l2_rows", []),  # 94 %
    ],
)
def test_suspicious_columns_get_a_warning(tmp_path, text, normalise, remarks):
    data = load(csv(tmp_path, text), "ridge", target="y", normalise=normalise)
    assert len(data.remarks) == 2 + len(remarks)
    assert data.summary.count("\n") == 1
    for found, part in zip(data.remarks[2:], remarks, strict=True):
        assert found.startswith("Warning: ")
        assert re.search(re.escape(part).replace(r"\.\*", ".*"), found)


def test_npz(tmp_path):
    path = tmp_path / "own.npz"
    x = np.arange(12).reshape(4, 3)
    np.savez(path, x=x, y=np.array([1, 2, -4, 0.5]), late=np.array(["a", "b", "b", "a"]))
    data = load(path, "ridge", rows=3)
    raw = x[:3] / np.linalg.norm(x[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(data.x, raw, rtol=1e-6)
    assert data.y.tolist() == [0.25, 0.5, -1]
    assert data.feature_names == ("x0", "x1", "x2")
    assert load(str(path), "logistic", target="late").y.tolist() == [-1, 1, 1, -1]
    with pytest.raises(ValueError, match=r"target must be an array of .*'late', 'x', 'y'"):
        load(path, "ridge", target="z")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2)), "y": np.ones(2)}, r"must be 'x' \(the features\) and a target"),
        ({"x": np.ones((2, 2))}, r"target must be an array of .*\['x'\]"),
        (
            {"x": np.ones((3, 2)), "y": np.ones((3, 1))},
            r"must be numbers of shapes \(n, d\) and \(n,\)",
        ),
        ({"x": np.ones(3), "y": np.ones(3)}, r"must be numbers of shapes \(n, d\) and \(n,\)"),
        (
            {"x": np.full((3, 2), np.nan), "y": np.arange(3)},
            r"without missing values \(got \['x0', 'x1'\]",
        ),
        ({"x": np.ones((3, 2)), "y": np.array([{}, {}, {}])}, "with plain arrays"),
    ],
)
def test_bad_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "own.npz", "ridge")


def test_missing_file(tmp_path):
    for name in ("none.csv", "none.npz"):
        with pytest.raises(FileNotFoundError, match=f"There is no file .*{name}"):
            from_file(tmp_path / name, "y")


AGES = {"age": [18.0, 54.0, 99.0, -5.0], "city": ["B", "A", "C", "B"], "vip": [True, False] * 2}
FRAME = AGES | {"left": ["no", "yes", "yes", "no"]}
BOUNDS = {"age": (18, 90), "city": ["A", "B"], "left": ["yes", "no"]}


def unit(rows):
    rows = np.array(rows, float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_stated_bounds_decide_everything():
    """A column is clipped, other categories get no indicator, and the first label is -1."""
    data = from_frame(FRAME, "left", bounds=BOUNDS, task="logistic")
    assert data.feature_names == ("age", "city=A", "city=B", "vip", "intercept")
    scaled = [[-1, 0, 1, 1, 1], [0, 1, 0, -1, 1], [1, 0, 0, 1, 1], [-1, 0, 1, -1, 1]]
    scaled = np.array(scaled) * [1, 1, 1, 1, np.sqrt(1.5)] / np.sqrt(4.5)  # of three columns
    np.testing.assert_allclose(data.x, scaled, rtol=1e-6)
    assert data.y.tolist() == [1, -1, -1, 1]
    done, privacy = data.summary.split("\n")
    assert done == (
        "table: logistic regression of left (yes is -1, no is 1) on age [18, 90] (2 clipped), "
        "city (2 categories; others: 1), vip [0, 1], intercept (5 numbers per row, of which "
        "one per category); 4 rows."
    )
    assert privacy.endswith(
        "The column intercept is sqrt(1.5). All rows are divided by sqrt(4.5), so that none is "
        "longer than 1. Taken from the data, which no epsilon covers: the kind of vip."
    )
    remarks = "\n".join(data.remarks)
    assert repr(data) == f"Dataset('table', 'logistic', 4 rows, 5 features)\n{remarks}"
    assert remarks.startswith(data.summary)


@pytest.mark.parametrize("rows", [1, 3])
@FROM_DATA
def test_no_other_row_changes_a_row(rows):
    """The planted fault is bounds that are taken from the data."""
    kept, other = np.full(8, 0.5), np.arange(8.0)
    frames = [
        {"a": np.append(kept[:rows], other * scale), "left": [True, False] * 4 + [True] * rows}
        for scale in (1, 1000)
    ]

    def differ(bounds):
        first, second = (from_frame(frame, "left", bounds=bounds).x[:rows] for frame in frames)
        return not np.array_equal(first, second)

    assert not differ({"a": (0, 1)})
    assert differ("data")


@pytest.mark.parametrize(
    ("frame", "options", "taken"),
    [
        (FRAME, {"bounds": {"age": (18, 90)}}, f"{TWO}, the labels of left, the categories of"),
        (
            FRAME,
            {"bounds": "data"} | LABELS,
            "the labels of left, the categories of city, the kind",
        ),
        (AGES, {"bounds": {"age": (18, 90)}}, "the categories of city."),  # booleans: vip
        (
            AGES,
            {"bounds": {"age": (0, 90)}, "target": "age"},
            f"{MORE}, the categories of city, the kind of vip.",
        ),
        (
            AGES,
            {"bounds": "data", "target": "age"},
            f"{MORE}, the categories of city, the kind of vip, the bounds",
        ),
        (FRAME | {"age": [True] * 4}, {}, f"{TWO}, the labels of left, the kind of age, the"),
    ],
)
@FROM_DATA
def test_the_summary_names_what_the_data_decided(frame, options, taken):
    target = "left" if "left" in frame else "vip"
    data = from_frame(frame, **{"target": target} | options)
    assert f"which no epsilon covers: {taken}" in data.summary


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"vip": (0, 1), "age": (-18, 90)}, [-0.333, 0.333, 1, -0.759]),
        ("data", [-0.558, 0.135, 1, -1]),
    ],
)
@FROM_DATA
def test_a_target_of_numbers_is_clipped_and_scaled(bounds, expected):
    data = from_frame(AGES, "age", bounds=bounds)
    assert data.task == "ridge"
    np.testing.assert_allclose(data.y, expected, atol=1e-3)


REFUSED = (
    r"bounds must be given for the columns of numbers a b, age of table \(got None\)\. Give .*"
    r"bounds=\{'a b': \(LOW, HIGH\), \.\.\.\}, .*--bounds 'a b=LOW:HIGH' age=LOW:HIGH\..*no epsilon"
)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"a b": [1, 2, 3, 4]}, {"bounds": None}, REFUSED),
        ({}, {"bounds": {"city": ["A"]}}, "numbers age of table .*got {'city'"),
        ({}, {"bounds": {}, "target": "age"}, "given for the columns of numbers age of"),
        ({}, {"bounds": {"agee": (1, 2)}}, r"bounds must be of columns of table.*got \['agee'\]"),
        ({}, {"bounds": "all"}, "a mapping .*, or 'data' .*got 'all'"),
        *(
            ({}, {"bounds": BOUNDS | {"age": wrong}}, "of 'age' must be .LOW, HIGH. with LOW < H")
            for wrong in ((90, 18), (5, 5), (np.nan, 1), (0, 1e39), "18:90", 3, {1, 2})
        ),
        ({}, {"bounds": BOUNDS | {"age": ["a"]}}, "of 'age' must be different categories, of num"),
        ({}, {"bounds": BOUNDS | {"age": (1, 2, 2)}}, "of 'age' must be different categories"),
        ({}, {"bounds": BOUNDS | {"age": [18, 19, 90]}}, "categories of most rows.* age=LOW:HIGH"),
        ({}, {"bounds": BOUNDS | {"city": (0, 1)}}, "'city' of table must be numbers, as"),
        ({}, {"bounds": BOUNDS | {"city": []}}, "of 'city' must be different categories"),
        (
            {},
            {"bounds": BOUNDS | {"left": ["no", "ja"]}},
            r"the two labels of .* 2 of 4 rows .*first be",
        ),
        ({}, {"target": "age", "bounds": {"age": (1, 2, 3)}}, r"of 'age' must be \(LOW, HIGH\), f"),
        ({}, {"task": "probit"}, "task must be one of"),
        ({}, {"target": "gone"}, r"target must be a column .*column to predict \(target\)\.$"),
        ({}, {"target": "city"}, r"must be two labels, or numbers \(got '3 different"),
        ({"age": [1, None, 2, 3]}, {}, r"without missing values \(got \['age'\]"),
        ({"city": ["A", None, "B", "B"]}, {}, r"without missing values \(got \['city'\]"),
        ({"age": [1, 2, 3]}, {}, "of one dimension and of equal length .*'age': .3,"),
        ({"age": np.ones((4, 2))}, {}, "of one dimension and of equal length"),
    ],
)
def test_bad_frames_and_bounds(changes, options, message):
    frame = {"a b": changes["a b"]} | FRAME if "a b" in changes else FRAME | changes
    with pytest.raises(ValueError, match=message):
        from_frame(frame, **{"target": "left", "bounds": BOUNDS} | options)


def test_listed_numbers_become_indicators():
    frame = {"month": [1, 2, 12, 3], "left": [0, 1, 1, 0]}
    data = from_frame(frame, "left", bounds={"month": [1, 2, 12], "left": [1, 0]})
    assert data.feature_names == ("month=1", "month=2", "month=12", "intercept")
    np.testing.assert_allclose(data.x[:, :3] > 0, np.eye(4)[:, [0, 1, 2]])
    assert data.y.tolist() == [1, -1, -1, 1]


def test_frame_csv_and_npz_give_the_same_rows(tmp_path):
    """So do the types in which pandas can hold the columns."""
    frame = pandas.DataFrame(FRAME)
    frame.to_csv(tmp_path / "own.csv", index=False)
    whole = from_frame(FRAME, "left", bounds=BOUNDS)
    types = {"age": "Float64", "city": "category", "vip": "boolean", "left": "string"}
    others = [
        from_frame(frame, "left", bounds=BOUNDS),
        from_frame(frame.astype(types), "left", bounds=BOUNDS),
        from_frame(frame.astype(object), "left", bounds=BOUNDS),
        from_file(tmp_path / "own.csv", "left", bounds=BOUNDS),
        load(tmp_path / "own.csv", "logistic", target="left", bounds=BOUNDS),
    ]
    options = {"target": "left", "bounds": BOUNDS, "normalise": "l2_rows"}
    by_row = load(tmp_path / "own.csv", "logistic", **options)
    ones = whole.x / [1, 1, 1, 1, np.sqrt(1.5)]
    np.testing.assert_allclose(by_row.x, unit(ones), rtol=1e-6)
    for other in others:
        assert other.feature_names == whole.feature_names
        np.testing.assert_array_equal(other.x, whole.x)
        np.testing.assert_array_equal(other.y, whole.y)
    x = np.array([[18.0, 54, 99, -5], [1, 0, 1, 0]]).T
    np.savez(tmp_path / "own.npz", x=x, left=frame["left"].to_numpy().astype(str))
    stated = {"x0": (18, 90), "x1": (0, 1), "left": BOUNDS["left"]}
    matrix = from_file(tmp_path / "own.npz", "left", bounds=stated)
    numbers = from_frame(
        {"age": FRAME["age"], "vip": FRAME["vip"], "left": FRAME["left"]},
        "left",
        bounds={"age": (18, 90), "left": BOUNDS["left"]},
    )
    np.testing.assert_array_equal(matrix.x, numbers.x)


def test_an_array_of_uneven_columns_draws_a_warning(tmp_path):
    path, rng = tmp_path / "own.npz", np.random.default_rng(0)
    np.savez(path, x=rng.uniform(size=(9, 8)) * [1, 200, 3, 40, 50, 60, 70, 80], y=np.arange(9))
    warned = "'x1', 'x7', 'x6', 'x5', 'x4' and 1 others are large next to 'x0', .*Give bounds"
    with pytest.warns(UserWarning, match=warned) as record:
        data = from_file(path)
    assert record[0].filename == __file__
    assert data.feature_names[0] == "x0"
    assert "x6, x7; 9 rows.\nColumns are taken as they are. Each row" in data.summary
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        from_file(path, bounds="data")


@pytest.mark.parametrize("normalise", ["l2_rows", "max_l1"])
@pytest.mark.parametrize("bounds", ["data", None])
@FROM_DATA
def test_rows_stay_within_norm_1_in_float32(tmp_path, normalise, bounds):
    rng, path = np.random.default_rng(0), tmp_path / "own.npz"
    np.savez(path, x=rng.normal(size=(2000, 30)), y=rng.normal(size=2000))
    data = load(path, "ridge", bounds=bounds, normalise=normalise)
    assert (", 1 more; 2,000 rows" in data.summary) == (bounds is not None)
    x = data.x
    order = 1 if normalise == "max_l1" else 2
    for kind in (np.float64, np.float32):
        norms = np.linalg.norm(x.astype(kind), order, axis=1)
        assert norms.dtype == kind
        assert np.max(norms) <= 1
    if (bounds, normalise) != ("data", "max_l1"):
        assert np.max(norms) > 1 - 2e-6
