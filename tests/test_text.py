"""Names and categories survive their way through text, or are refused."""

import numpy as np
import pytest

from nrjax import datasets
from nrjax.cli import main
from nrjax.papers._settings import parsed_bounds

pandas = pytest.importorskip("pandas")

ROWS = {"age": [20, 30, 40, 50], "left": [False, True, False, True]}
AGE = {"age": (18, 90)}


def test_names_that_are_equal_as_text_are_refused():
    frame = pandas.DataFrame([[1, 2, "no"], [3, 4, "yes"]], columns=[1, "1", "left"])
    with pytest.raises(ValueError, match=r"without repeated names \(got \['1'\]"):
        datasets.from_frame(frame, "left", bounds={"1": (0, 9)})
    frame = pandas.DataFrame([[1, "no"], [3, "yes"]], columns=[1, "left"])
    assert datasets.from_frame(frame, "left", bounds={1: (0, 9)}).feature_names[0] == "1"
    with pytest.raises(ValueError, match=r"^bounds must be of columns that differ as text"):
        datasets.from_frame(frame, "left", bounds={1: (0, 9), "1": (0, 5)})


@pytest.mark.parametrize("column", [[1, "1", "b"], [True, "True", "b"]])
def test_categories_that_are_equal_as_text_are_refused(column):
    with pytest.raises(ValueError, match=r"^column 'a' of table must be of values that differ"):
        datasets.from_frame({"a": column, "left": [0, 1, 1]}, "left")


def test_null_characters_make_a_difference():
    """NumPy drops them at the end of text."""
    data = datasets.from_frame({"a": ["a\0", "a", "a"], "left": [0, 1, 1]}, "left")
    assert data.feature_names[:2] == ("a=a", "a=a\0")


def test_labels_of_booleans_have_an_order():
    """In a shell you can only write them as text."""
    for stated, labels in {
        ("False", "True"): [-1, 1, -1, 1],
        ("True", "False"): [1, -1, 1, -1],
        ("TRUE", "FALSE"): [1, -1, 1, -1],
        (True, False): [1, -1, 1, -1],
    }.items():
        for kind in (tuple, list, np.array):
            data = datasets.from_frame(ROWS, "left", bounds=AGE | {"left": kind(stated)})
            assert data.y.tolist() == labels
    assert (
        "left (True is -1, False is 1)"
        in datasets.from_frame(ROWS, "left", bounds=AGE | {"left": ["True", "False"]}).summary
    )
    with pytest.raises(ValueError, match="bounds of 'left' must be"):
        datasets.from_frame(ROWS, "left", bounds=AGE | {"left": ["no", "yes"]})


@pytest.mark.filterwarnings("ignore:.* are none of its")
def test_categories_of_booleans():
    table = ROWS | {"vip": [True, True, False, True]}
    for stated in (["True", "False"], [True, False], ("true",)):
        data = datasets.from_frame(table, "left", bounds=AGE | {"vip": stated})
        assert data.feature_names[1] == "vip=True"
        assert (data.x[:, 1] > 0).tolist() == table["vip"]


@pytest.mark.parametrize(
    ("texts", "columns", "bounds"),
    [
        (["a=0:1"], (), {"a": (0, 1)}),
        (["a=b=0:1"], (), {"a=b": (0, 1)}),
        (["a=b=0:1", "a=1:2"], (), {"a=b": (0, 1), "a": (1, 2)}),
        (["a=x,y=z"], (), {"a": ["x", "y=z"]}),
        (["a=b=x,y"], ("a=b",), {"a=b": ["x", "y"]}),
        (["a=b=x,y"], ("a", "a=b"), {"a=b": ["x", "y"]}),
        (["a=1:2:3"], (), {"a": ["1:2:3"]}),
        (["==0:1"], (), {"=": (0, 1)}),
    ],
)
def test_bounds_in_a_shell(texts, columns, bounds):
    assert parsed_bounds(texts, columns) == bounds


def test_the_bounds_that_a_message_asks_for_are_taken(tmp_path, capsys):
    """A column may be called a=b."""
    path = tmp_path / "own.csv"
    path.write_text("a=b,left\n0.1,no\n0.9,yes\n0.4,no\n0.6,yes\n")
    with pytest.raises(ValueError, match=r"--bounds a=b=LOW:HIGH\. With"):
        datasets.from_file(path, "left")
    data = datasets.from_file(path, "left", bounds=parsed_bounds(["a=b=0:1"]))
    assert data.feature_names == ("a=b", "intercept")
    asked = ["--column", "a=b", "--bounds", "a=b=0:1", "--error", "oops"]
    assert main(["choose", "mean", "--data", str(path), *asked]) == 2
    assert "error must be a positive number" in capsys.readouterr().err
