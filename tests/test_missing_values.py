"""Missing values in every dress, at every door for data: refused, never taken for a value."""

from collections import deque
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import counts, datasets, erm, questions
from tests.problems import small_data

pandas = pytest.importorskip("pandas")

NAN, MASKED = float("nan"), np.ma.masked


class Null:
    """A null of Apache Arrow: a scalar that equals itself."""

    is_valid = False


class Odd:
    """A value as pandas' NA: neither equal to itself nor different."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError

    __eq__, __hash__ = __ne__, object.__hash__


SINGLE = (NAN, np.float32("nan"), None, pandas.NA, pandas.NaT, Null(), Odd())
EXACT = Decimal("nan"), Decimal("snan")


def objects(entries):
    array = np.empty(len(entries), object)
    array[:] = entries
    return array


def dresses(present):
    """Return vectors of three entries, two of which are missing, by name."""
    singles = [*SINGLE, *(EXACT if isinstance(present, float) else ())]
    made = {f"list of {missing!r:.20}": [present, missing, missing] for missing in singles}
    made |= {
        f"objects {missing!r:.20}": objects([present, missing, missing]) for missing in singles
    }
    return made | {
        "tuple": (present, NAN, NAN),
        "deque": deque([present, NAN, NAN]),
        "mask": np.ma.array([present] * 3, mask=[0, 1, 1]),
        "masks in a list": [present, MASKED, MASKED],
        "masks among objects": objects([present, MASKED, None]),
        "series": pandas.Series([present, None, None]),
        "categories": pandas.Series([present, None, None], dtype="category"),
    }


NUMBERS = dresses(1.0) | {
    "mask of integers": np.ma.array([1, 0, 0], mask=[0, 1, 1]),
    "mask of booleans": np.ma.array([True, False, False], mask=[0, 1, 1]),
    "Int64": pandas.Series([1, None, None], dtype="Int64"),
    "boolean": pandas.Series([True, None, None], dtype="boolean"),
    "bfloat16": jnp.array([1, NAN, NAN], jnp.bfloat16),
    "numpy's bfloat16": np.asarray(jnp.array([1, NAN, NAN], jnp.bfloat16)),
    "float16": np.array([1, NAN, NAN], np.float16),
}
TEXT = dresses("a") | {
    "strings": np.array(["a", NAN, NAN], np.dtypes.StringDType(na_object=NAN)),
    "pandas' strings": pandas.Series(["a", None, None], dtype="string"),
    "dates": np.array(["2020-01-01", "NaT", "NaT"], "datetime64[D]"),
    "dates in a list": [np.datetime64("2020-01-01"), np.datetime64("NaT"), pandas.NaT],
    "parts of tuples": [("a", 1), ("a", NAN), ("b", None)],
    "tuples of two lengths": [("a",), ("a", NAN), (None,)],
}


def frame(column, **others):
    return {"a": column, "b": [0.0, 1.0, 2.0], "y": ["no", "yes", "no"], **others}


def tabled(column, bounds):
    return datasets.from_frame(frame(column), "y", bounds={"b": (0, 2), **bounds})


X = small_data()[0][:3]
NUMERIC_DOORS = {
    "mean": (lambda x: questions.mean(x, (0, 1)), "x"),
    "sum": (lambda x: questions.sum(x, (0, 1)), "x"),
    "count": (questions.count, "x"),
    "histogram": (lambda x: questions.histogram(x, [0, 1, 2]), "values"),
    "vector_mean": (lambda x: questions.vector_mean([x], 1.0), "rows"),
    "counts": (lambda x: questions.counts(x, 100), "groups"),
    "logistic features": (lambda x: questions.logistic_regression([x], [1.0]), "features"),
    "linear labels": (lambda y: questions.linear_regression(X, y), "labels"),
    "output labels": (
        lambda y: erm.OutputProblem.fit(
            jnp.dot, X, y, 0.05, max_norm=1.0, label_range=(0.0, 1.0), lipschitz=1.0
        ),
        "labels",
    ),
    "keys": (lambda x: datasets.count_keys([1, 2, 3], x, 1), "keys"),
    "people": (lambda x: datasets.count_keys(x, [1, 2, 3], 1), "people"),
}
TEXT_DOORS = {
    "counts": (lambda x: questions.counts(x, 100), "groups"),
    "keys": (lambda x: datasets.count_keys([1, 2, 3], x, 1), "keys"),
    "people": (lambda x: datasets.count_keys(x, [1, 2, 3], 1), "people"),
}


DOORS = {
    **{
        f"numbers, {door}": (*found, NUMBERS, "2 missing of 3")
        for door, found in NUMERIC_DOORS.items()
    },
    **{f"text, {door}": (*found, TEXT, r"\d missing of \d") for door, found in TEXT_DOORS.items()},
}


@pytest.mark.parametrize("door", DOORS)
def test_missing_entries_are_counted_and_refused(door):
    ask, name, dressed, counted = DOORS[door]
    pattern = rf"^{name} must be without missing values \(got '{counted}'\)\. Drop"
    for data in dressed.values():
        with pytest.raises(ValueError, match=pattern):
            ask(data)


def test_missing_cells_of_a_table_are_refused():
    for data in NUMBERS.values():
        with pytest.raises(ValueError, match=r"missing values \(got \['a'\]\)"):
            tabled(data, {"a": (0, 2)})
    for dress, data in TEXT.items():
        if "tuples" not in dress:
            for bounds in ({}, {"a": ["a", "nan", "None"]}):
                with pytest.raises(ValueError, match=r"missing values \(got \['a'\]\)"):
                    tabled(data, bounds)
            table = {"y": data, "b": [0.0, 1.0, 2.0]}
            with pytest.raises(ValueError, match=r"values \(got \['y'\]\)"):
                datasets.from_frame(table, "y")


VALUES = {
    "laplace": lambda x: nrjax.laplace(x, 1.0),
    "brownian": lambda x: nrjax.brownian(x, 1.0, 1e-6),
    "discrete laplace": lambda x: nrjax.discrete_laplace(x, 1),
    "shift": lambda x: nrjax.laplace(np.ones(3), 1.0).until(
        questions.distance, at_least=-1.0, data=(np.ones(3),), shift=x
    ),
    "mean error": counts.MeanAbsoluteError,
    "share": lambda x: counts.ShareOutside.relative(x, 0.1),
    "keys": lambda x: counts.unknown_keys(x, keys_per_user=1, delta=1e-6),
    "sample": nrjax.Sample,
    "grid": nrjax.Grid,
    "rows": lambda x: datasets.unit_l2_rows(np.atleast_2d(x)),
    "largest": datasets.divided_by_largest_value,
}


@pytest.mark.parametrize("door", VALUES)
def test_missing_values_of_other_arguments_are_refused(door):
    """Masked arrays are NumPy arrays, whose mask NumPy drops."""
    for data in (NUMBERS["mask"], NUMBERS["mask of integers"], np.array([1.0, NAN, NAN])):
        with pytest.raises(ValueError, match=r"must be|groups"):
            VALUES[door](data)


def test_masked_data_of_a_score_are_missing_to_the_score():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1])

    class Distance(nrjax.Utility):
        truth: np.ndarray

        def evaluate(self, hypothesis):
            return -jnp.max(jnp.abs(hypothesis - self.truth))

    mechanism = nrjax.laplace(np.ones(3), 1.0)
    for utility, options in ((Distance(masked), {}), (questions.distance, {"data": (masked,)})):
        trial = mechanism.until(utility, at_least=-1.0, **options)
        assert any(np.isnan(leaf).any() for leaf in jax.tree.leaves(trial.utility))


def test_a_word_that_the_bounds_list_is_a_category(tmp_path):
    """Namibia's code is NA."""
    path = tmp_path / "own.csv"
    path.write_text("age,country,left\n20,NA,no\n30,ZA,yes\n40,NA,no\n50,DE,yes\n")
    bounds = {"age": (18, 90), "country": ["NA", "ZA", "DE"]}
    data = datasets.from_file(path, "left", bounds=bounds)
    assert data.feature_names[1:4] == ("country=NA", "country=ZA", "country=DE")
    assert (data.x[:, 1] > 0).tolist() == [True, False, True, False]
    with pytest.raises(ValueError, match=r"missing values \(got \['country'\]\)"):
        datasets.from_file(path, "left", bounds={"age": (18, 90), "country": ["ZA", "DE"]})
    path.write_text("age,country,left\n20,NA,no\n30,,yes\n40,NA,no\n50,DE,yes\n")
    with pytest.raises(ValueError, match=r"missing values \(got \['country'\]\)"):
        datasets.from_file(path, "left", bounds=bounds)
