"""Your own table in CSV or NPZ."""

import numpy as np
import pytest

from nrjax.datasets import load, user


def csv(tmp_path, text, name="own.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


LABELS = {"task": "logistic"}
COLOURS = "size,colour,ok,price\n3,red,True,10.5\n4,blue,False,-21\n0,red,False,2\n1,green,True,7\n"


def test_numbers_booleans_and_text(tmp_path):
    data = load(csv(tmp_path, COLOURS), "ridge", target="price")
    raw = np.array(  # size, then blue, green, red, then ok
        [[3, 0, 0, 1, 1], [4, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 1, 0, 1]], float
    )
    assert (data.name, data.task) == ("own.csv", "ridge")
    assert data.feature_names == ("size", "colour=blue", "colour=green", "colour=red", "ok")
    np.testing.assert_allclose(data.x, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(data.y, np.array([10.5, -21, 2, 7]) / 21, rtol=1e-15)
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


MISSING = r"missing values \(got \['b', 'y'\]\)\. Rename"
NUMBERS = r"must be at least three finite numbers \(1000, not 1,000\) within 1e\+38"
BEYOND = r"missing or infinite values, or beyond 1e\+38, must be none \(got \['b'\]"
COLUMN = r"target must be a column of .*\['a', 'y'\]"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,y\n1,,1\n2,3,\n4,5,6\n", {}, MISSING),
        ("a,b,y\n1,inf,1\n2,3,2\n4,5,6\n", {}, BEYOND),
        ("a,b,y\n1,1,1\n2,-1e308,2\n4,5,6\n", {}, BEYOND),
        ("a,y\n1,1\n2,inf\n4,3\n", {}, NUMBERS),
        ("a,y\n1,1\n2,1e308\n4,3\n", {}, NUMBERS),
        ('a,y\n1,"1,000"\n2,7\n3,9\n', {}, NUMBERS + r" \(got \['1,000', "),
        ("a,y\n1,5\n2,5\n", {}, NUMBERS),
        ("a,b,a,a,y\n1,2,3,4,5\n", {}, r"without repeated names \(got \['a'\]"),
        ("a,y\n1,1\n", {"target": None}, COLUMN),
        ("a,y\n1,1\n", {"target": "z"}, COLUMN),
        ("y\n1\n2\n3\n", {}, r"rows and features of .* 1 of each \(got \(3, 0\)"),
        ("a,y\n", {}, r"rows and features of .* 1 of each \(got \(0, 0\)"),
        ("", {}, "could not be read as CSV"),
        ("a,y\n1,2\n1,2,3,4\n", {}, "could not be read as CSV"),
        (",a,y\n0,1,1\n1,5,2\n2,2,3\n", {}, "must be named"),
        (COLOURS, {"target": "price"} | LABELS, "must be exactly two labels .*use task 'ridge'"),
        ("a,y\n1,no\n2,no\n", LABELS, r"must be exactly two labels \(got \['no'\]"),
        ("a,y\n1,0\n2,0\n3,1\n", {"rows": 2} | LABELS, "enough to reach both labels .*got 2"),
    ],
)
def test_bad_csv(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        load(csv(tmp_path, text), **{"task": "ridge", "target": "y"} | options)


def test_text_of_many_values_is_refused(tmp_path):
    def table(n):
        return "id,a,y\n" + "".join(f"row{i},{i},{i}\n" for i in range(n))

    most = user.MAX_CATEGORIES
    assert load(csv(tmp_path, table(most)), "ridge", target="y").x.shape == (most, most + 1)
    with pytest.raises(ValueError, match=f"column 'id' of .*got 'text of {most + 1} values'"):
        load(csv(tmp_path, table(most + 1)), "ridge", target="y")


PRICES = 'price,size,y\n"1,000",0.1,1\n950,0.2,2\n"2,500",0.1,3\n'
COLUMNS = "income,age,y\n50000,30,1\n-70000,40,2\n90000,50,3\n"
SIZES = "size,y\n3+,1\nsmall,2\nlarge,3\n"


@pytest.mark.parametrize(
    ("text", "normalise", "remarks"),
    [
        (PRICES, "l2_rows", ["column 'price' of own.csv looks like numbers but is text, as '1,0"]),
        (COLUMNS, "l2_rows", ["column 'income' of own.csv makes up 99.9 % of the rows' squared"]),
        (COLUMNS, "max_l1", ["column 'income' of own.csv makes up 99.9 % of the rows' l1 norm"]),
        (SIZES, "l2_rows", []),
        (COLOURS.replace("price", "y"), "l2_rows", []),
        ("a,y\n7,1\n8,2\n9,3\n", "l2_rows", []),  # alone
        ("a,b,y\n4,1,1\n4,1,2\n4,1,3\n", "l2_rows", []),  # 94 %
    ],
)
def test_suspicious_columns_get_a_remark(tmp_path, text, normalise, remarks):
    data = load(csv(tmp_path, text), "ridge", target="y", normalise=normalise)
    assert len(data.remarks) == len(remarks)
    for found, part in zip(data.remarks, remarks, strict=True):
        assert found.startswith("Warning: the ")
        assert part in found


def test_npz(tmp_path):
    path = tmp_path / "own.npz"
    x = np.arange(12).reshape(4, 3)
    np.savez(path, x=x, y=np.array([1, 2, -4, 0.5]), late=np.array(["a", "b", "b", "a"]))
    data = load(path, "ridge", rows=3)
    raw = x[:3] / np.linalg.norm(x[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(data.x, raw, rtol=1e-15)
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
        ({"x": np.full((3, 2), np.nan), "y": np.arange(3)}, r"must be none \(got \['x0', 'x1'\]"),
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
            load(tmp_path / name, "ridge", target="y")
