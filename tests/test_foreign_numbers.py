"""Numbers, columns and tables of other libraries: taken where exact, else refused in a sentence."""

from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import datasets, erm, questions
from nrjax.choice.questions import _counts

pandas = pytest.importorskip("pandas")

ANSWER = questions.mean([1.5, 2.0, 0.25], (0, 2)).whole
SAME = {  # dresses of the same three numbers
    "decimals": [Decimal("1.5"), Decimal(2), Decimal("0.25")],
    "fractions": [Fraction(3, 2), Fraction(2), Fraction(1, 4)],
    "a mask that hides nothing": np.ma.array([1.5, 2.0, 0.25], mask=False),
    "bfloat16": jnp.array([1.5, 2.0, 0.25], jnp.bfloat16),
    "NumPy's bfloat16": np.asarray(jnp.array([1.5, 2.0, 0.25], jnp.bfloat16)),
    "float16": np.array([1.5, 2.0, 0.25], np.float16),
    "a field of records": np.rec.fromarrays([[1.5, 2.0, 0.25], [1, 2, 3]], names="x,y").x,
    "a series": pandas.Series([1.5, 2.0, 0.25], dtype="Float64"),
    "decimals in a series": pandas.Series([Decimal("1.5"), Decimal(2), Decimal("0.25")]),
}


@pytest.mark.parametrize("dress", SAME)
def test_numbers_in_any_dress_are_the_same_numbers(dress):
    x, plain = SAME[dress], np.array([1.5, 2.0, 0.25])
    assert questions.mean(x, (Fraction(0), Decimal(2))).whole == ANSWER
    assert questions.sum(x, (0, 2)).whole == 3.75
    assert questions.histogram(x, [0, 1, 2]).data[0].tolist() == [1, 2]
    features = np.array([entry / 2 for entry in list(x)], object)[:, None]
    problems = [erm.RidgeProblem.fit(x, plain / 2, 0.05) for x in (features, plain[:, None] / 2)]
    assert problems[0].optimum_loss == problems[1].optimum_loss
    bounds = {"x": (0, 2), "y": (0, 1)}
    tables = [{"x": column, "y": [0.0, 0.5, 1.0]} for column in (x, plain)]
    first, second = (datasets.from_frame(table, "y", bounds=bounds) for table in tables)
    np.testing.assert_array_equal(first.x, second.x)
    assert first.summary == second.summary


def test_booleans_in_any_dress():
    for x in ([True, False, True], [1, 0, 1], [Decimal(1), 0, Fraction(1)], np.array([1.0, 0, 1])):
        assert questions.count(x).whole == 2
    assert questions.count(pandas.Series([True, False, True], dtype="boolean")).whole == 2
    assert questions.count(jnp.array([1, 0, 1], jnp.bfloat16)).whole == 2


class Arrow:
    """A table of Apache Arrow, whose `columns` are not the names."""

    def __init__(self, **columns):
        self._held, self.column_names = columns, list(columns)
        self.columns = [np.asarray(column) for column in columns.values()]

    def __getitem__(self, name):
        return self._held[name]


TABLE = {"age": [20, 30, 40], "left": ["no", "yes", "no"]}
TABLES = {
    "Arrow": Arrow(**TABLE),
    "records": np.rec.fromarrays(list(TABLE.values()), names=list(TABLE)),
    "a frame": pandas.DataFrame(TABLE),
    "a frame of Python objects": pandas.DataFrame(TABLE, dtype=object),
    "bytes": TABLE | {"left": [b"no", b"yes", b"no"]},
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_other_libraries(kind):
    bounds = {"age": (18, 90)}
    expected = datasets.from_frame(TABLE, "left", bounds=bounds)
    made = datasets.from_frame(TABLES[kind], "left", bounds=bounds)
    np.testing.assert_array_equal(made.x, expected.x)
    np.testing.assert_array_equal(made.y, expected.y)
    assert made.summary == expected.summary


def test_a_table_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    bounds = {"age": (18, 90)}
    made = datasets.from_frame(arrow.table(TABLE), "left", bounds=bounds)
    assert made.summary == datasets.from_frame(TABLE, "left", bounds=bounds).summary
    with pytest.raises(ValueError, match="without missing values"):
        questions.mean(arrow.array([1.0, None]), (0, 1))
    with pytest.raises(ValueError, match="without missing values"):
        questions.counts([arrow.scalar("a"), arrow.scalar(None)], 100)


def test_what_is_no_table_is_refused_by_name():
    expected = "^frame must be a data frame, a dict of columns"
    for frame in (None, [1], np.ones((3, 2)), 3.0, "own.csv", iter(())):
        with pytest.raises(ValueError, match=expected):
            datasets.from_frame(frame, "y")
    for column in ([(1, 2), (1,)], [[1], [2]], np.array([{1}, {2}], object)):
        with pytest.raises(
            ValueError, match=r"^column 'a' of table must be of numbers, boo|dimension"
        ):
            datasets.from_frame({"a": column, "y": ["no", "yes"]}, "y")


def test_a_frame_may_have_columns_of_any_name():
    names = ("column_names", "columns", "dtype", "intercept")
    table = pandas.DataFrame({name: [0.0, 1.0] for name in names} | {"y": ["no", "yes"]})
    made = datasets.from_frame(table, "y", bounds=dict.fromkeys(names, (0, 1)))
    assert made.feature_names == (*names, "intercept")


def test_a_fraction_as_sensitivity_is_rounded_up():
    third = Fraction(1, 3)
    for exact in (third, Fraction(2, 3), Fraction(10**30 + 1, 10**30), Decimal("0.1"), Fraction(1)):
        stated = nrjax.Sensitivity(exact, "l1")
        assert Fraction(float(stated)) >= exact
        assert float(stated) <= np.nextafter(float(exact), np.inf)
    for mechanism in (
        nrjax.laplace(1.5, third),
        nrjax.brownian(1.5, third, 1e-6),
        nrjax.discrete_laplace(2, Fraction(5, 2)),
    ):
        assert isinstance(mechanism.guarantee.sensitivity, float)
    assert Fraction(nrjax.laplace(1.5, third).guarantee.sensitivity) >= third
    for wrong in (Fraction(0), Fraction(-1, 3), Decimal("nan"), Decimal("inf"), Fraction(10**400)):
        with pytest.raises(ValueError, match=r"^sensitivity must be positive and finite"):
            nrjax.laplace(1.5, wrong)


def test_an_exact_value_is_taken_if_a_float_equals_it():
    for value in (Fraction(3, 2), Decimal("1.5")):
        assert nrjax.laplace(value, 1.0).value == 1.5
        np.testing.assert_array_equal(nrjax.laplace([value, 2], 1.0).value, [1.5, 2.0])
    for value in (Fraction(1, 3), Decimal("0.1"), [Fraction(1, 3), 1]):
        with pytest.raises(ValueError, match=r"^value must be numbers"):
            nrjax.laplace(value, 1.0)


def test_an_exact_number_elsewhere_is_refused_by_name():
    for name, call in {
        "sensitivity": lambda: nrjax.PureGuarantee(Fraction(1, 3)),
        "delta": lambda: nrjax.brownian(1.0, 1.0, Fraction(1, 10**6)),
        "at_least": lambda: nrjax.laplace(1.0, 1.0).until(jnp.abs, at_least=Decimal(1)),
        "error": lambda: questions.count([True]).error(Fraction(1, 2)),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name} must be .*Give a float\."):
            call()


def test_counts_of_anything_with_a_name():
    """Different entries stay different: NumPy would turn tuples into columns and 1 into "1"."""
    for groups, sizes in (
        ([("a", 1), ("b", 2), ("a", 1)], [2, 1]),
        ([("a", 1), ("b",), ("a", 1)], [2, 1]),
        ([1, "1", 1], [2, 1]),
        (["a\0", "a", "a\0"], [1, 2]),
        ([2**63, 2**63 + 1, -1, 2**63], [1, 2, 1]),
        ([0.5, 1, 2**53 + 1, 2**53], [1, 1, 1, 1]),
        ([True, False, True], [1, 2]),
        ([Fraction(1, 3), Decimal(1), 1], [1, 2]),
        (np.array([("a", 1), ("b", 2), ("a", 1)], [("k", "U1"), ("n", int)]), [2, 1]),
        (pandas.MultiIndex.from_tuples([("a", 1), ("b", 2), ("a", 1)]), [2, 1]),
        (pandas.Series(["b", "a", "b"], dtype="category"), [1, 2]),
        (np.array(["2020-01-01", "2020-01-02", "2020-01-01"], "datetime64[D]"), [2, 1]),
        (jnp.array([1, 2, 1], jnp.bfloat16), [2, 1]),
        (range(3), [1, 1, 1]),
    ):
        assert questions.counts(groups, 100).data[0].tolist() == sizes, groups
    people = [("Ann", 1), ("Ann", 1), ("Bo", 2), "Bo"]
    held = datasets.count_keys(people, ["tea", "tea", 1, "1"], most=1)
    assert held.items == (1, "1", "tea")
    for wrong in ([[1], [2]], [{1}, {2}], np.ones((2, 2)), "text", 3, [], {1, 2}):
        with pytest.raises(
            ValueError, match=r"^groups must be a vector of numbers, text or tuples"
        ):
            questions.counts(wrong, 100)


@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_with_numpy_on_plain_data(seed):
    draws = np.random.default_rng(seed).integers(0, 40, 500)
    for data in (draws, draws.tolist(), draws.astype(str), draws.astype(str).tolist(), draws / 7):
        sizes = np.unique(np.asarray(data), return_counts=True)[1]
        assert questions.counts(data, 100).data[0].tolist() == sizes.tolist()


def counted(rows):
    """Return `questions.count` of so many true rows, without the rows."""
    return _counts("count", np.asarray(rows), 1e-6, "replace", single=True)


def test_large_counts_leave_out_only_what_does_not_fit():
    """A count of 20,000,000 rows has real-valued noise, which float32 resolves."""
    most = 2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1)
    small = questions.count(np.ones(1000, bool))
    assert [*small.mechanisms] == ["discrete laplace", "laplace", "brownian"]
    assert small.remarks == ()
    # No float64 holds a count beyond its own limit.
    for rows in (most - 1000, most + 3) if most < 2**53 else (most - 1000,):
        large = counted(rows)
        assert [*large.mechanisms] == ["laplace", "brownian"]
        assert large.sensitivity is None
        assert "discrete noise" in large.remarks[0].lower()
        unit = most / 2**24
        goal = {
            "at_least": -1000.0 * unit,
            "data": large.data,
            "levels": (1e-3 / unit, 1e-2 / unit, 3),
        }
        trial = large.mechanisms["laplace"].until(large.score, **goal)
        assert nrjax.simulate(jax.random.key(0), trial, trials=64).stopped.mean() > 0.9


def test_choose_repeats_what_is_left_out():
    question = counted(2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1) - 3)
    report = nrjax.Choice("count", 1.0, 0.9, None, (), (), (), "", None, remarks=question.remarks)
    assert "Discrete noise and private tests are left out" in str(report)
