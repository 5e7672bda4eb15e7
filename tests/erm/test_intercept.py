"""The intercept of your own table: norms, sensitivities, penalty, and coefficients."""

import itertools
import math

import numpy as np
import pytest

from nrjax.datasets import Dataset, from_frame, load
from nrjax.erm import LogisticProblem, RidgeProblem, default_regularisation, trivial_losses
from nrjax.erm.statistics import layout, pack, sensitivity

COLUMNS = 8
CORNERS = np.array([*itertools.product((0.0, 10.0), repeat=COLUMNS)])
"""All rows of eight columns at their bounds, which have the largest norms and differences."""


def corners():
    columns = {f"c{number}": column for number, column in enumerate(CORNERS.T)}
    bounds = {name: (0, 10) for name in columns} | {"y": (-1, 1)}
    y = np.linspace(-1, 1, len(CORNERS))
    return from_frame(columns | {"y": y}, "y", bounds=bounds).x


def moved(x, constants, noise):
    """Return the largest change of X'X and X'y, over all replaced rows with targets 1 and -1."""
    norm, form = {"brownian": 2, "laplace": 1}[noise], layout(noise, constants)
    packed = {sign: np.array([pack(np.outer(r, r), sign * r, form) for r in x]) for sign in (1, -1)}
    first, others = packed[1][:1], np.concatenate([packed[1], packed[-1]])
    return np.linalg.norm(others - first, norm, axis=1).max()


@pytest.mark.parametrize("noise", ["brownian", "laplace"])
@pytest.mark.parametrize("constants", ["tight", "paper"])
def test_no_replaced_row_moves_the_statistics_further_than_stated(noise, constants):
    """All corners are alike up to signs, so that the first one stands for each.

    The planted fault leaves the intercept out of the number that divides all rows.
    """
    x = corners()
    assert np.linalg.norm(x, axis=1).max() == pytest.approx(1, abs=2e-6)
    stated = float(sensitivity(noise, constants, x.shape[1]))
    assert moved(x, constants, noise) <= stated
    if (noise, constants) == ("brownian", "tight"):
        assert moved(x, constants, noise) > (1 - 1e-5) * stated  # attained
        faulty = x * math.hypot(math.sqrt(COLUMNS), 2) / math.sqrt(COLUMNS)
        assert moved(faulty, constants, noise) > 1.2 * stated


def optimum(x, y, penalty):
    """Return the logistic optimum, by Newton's method in NumPy."""
    signed, theta = x * y[:, None], np.zeros(x.shape[1])
    for _ in range(60):
        p = 1 / (1 + np.exp(signed @ theta))
        hessian = (signed * (p * (1 - p))[:, None]).T @ signed / len(y)
        gradient = penalty * theta - signed.T @ p / len(y)
        theta = theta - np.linalg.solve(hessian + penalty * np.eye(len(theta)), gradient)
    return theta


@pytest.mark.filterwarnings("ignore:.* are none of its")
def test_no_replaced_row_moves_the_logistic_optimum_further_than_stated():
    """The planted fault is a quarter of the stated sensitivity."""
    kinds = [(age, city, y) for age in (0, 5, 10) for city in "AB?" for y in ("no", "yes")]
    bounds = {"age": (0, 10), "city": ["A", "B"], "y": ["no", "yes"]}
    ages, cities, labels = zip(*kinds, strict=True)
    data = from_frame({"age": ages, "city": cities, "y": labels}, "y", bounds=bounds)
    kept, penalty, largest = np.arange(4) * 4, 0.1, 0.0
    for places in itertools.product(range(len(kinds)), repeat=2):
        pair = [
            optimum(data.x[rows], data.y[rows], penalty)
            for rows in (np.append(kept, place) for place in places)
        ]
        largest = max(largest, float(np.linalg.norm(pair[0] - pair[1])))
    stated = 2 / (5 * penalty)
    assert stated / 4 < largest <= stated


def rare(rate, rows=2000):
    """Return a table whose target is 1 in a fraction of the rows, independent of the column."""
    labels = np.where(np.arange(rows) < rate * rows, "yes", "no")
    ages = np.linspace(18, 90, rows)[np.random.default_rng(0).permutation(rows)]
    bounds = {"age": (18, 90), "y": ["no", "yes"]}
    return from_frame({"age": ages, "y": labels}, "y", bounds=bounds, task="logistic")


@pytest.mark.parametrize("rate", [0.03, 0.9])
def test_the_penalty_of_the_intercept_keeps_a_rate(rate):
    """The planted fault is a penalty of 0.05, which pulls 3 % to 16 %."""
    data = rare(rate)

    def mean(penalty):
        scores = data.x @ optimum(data.x, data.y, penalty)
        return float(np.mean(1 / (1 + np.exp(-scores))))

    assert mean(default_regularisation("logistic", 2000)) == pytest.approx(rate, abs=0.025)
    assert abs(mean(0.05) - rate) > 0.08


@pytest.mark.numerical
@pytest.mark.parametrize("task", ["logistic", "ridge"])
def test_trivial_losses(task):
    """They are those of the problem that has the intercept only, found by the package's solvers."""
    rng = np.random.default_rng(0)
    frame = {"a": rng.uniform(0, 9, 90), "b": rng.choice(["u", "v"], 90)}
    y = frame["a"] + rng.normal(size=90)
    frame["y"] = y if task == "ridge" else np.where(y > 6, "yes", "no")
    bounds = {"a": (0, 9), "b": ["u", "v"], "y": (-5, 15) if task == "ridge" else ["no", "yes"]}
    data = from_frame(frame, "y", bounds=bounds, task=task)
    kind = RidgeProblem if task == "ridge" else LogisticProblem
    problem = kind.fit(data.x, data.y, 0.01)
    losses = trivial_losses(problem, data.x)
    zero = math.log(2) if task == "logistic" else np.mean(data.y**2) / 2
    alone = kind.fit(data.x[:, -1:], data.y, 0.01)
    assert losses.zero == pytest.approx(zero, rel=1e-12)
    assert losses.constant == pytest.approx(alone.optimum_loss, rel=1e-12)
    assert problem.optimum_loss < losses.constant < losses.zero
    without = kind.fit(data.x[:, :-1], data.y, 0.01)
    none = trivial_losses(without, data.x[:, :-1])
    assert tuple(none) == pytest.approx((losses.zero, losses.zero), rel=1e-12)
    assert "zero model" in losses.met(losses.zero)
    assert "constant model" in losses.met((losses.constant + losses.zero) / 2)
    assert losses.met((losses.constant + problem.optimum_loss) / 2) == ""


@pytest.mark.filterwarnings("ignore:.* are none of its")
def test_coefficients_are_on_the_scale_of_the_columns():
    """A model on the user's columns predicts what the model on the features does."""
    rng = np.random.default_rng(0)
    ages, vip = rng.uniform(18, 90, 30), rng.uniform(size=30) < 0.5
    frame = {"age": ages, "vip": vip, "city": rng.choice(["A", "B", "C"], 30)}
    frame["pay"] = rng.uniform(10, 20, 30)
    bounds = {"age": (18, 90), "city": ["A", "B"], "pay": (0, 50)}
    data, theta = from_frame(frame, "pay", bounds=bounds), rng.normal(size=5)
    found = data.coefficients(theta)
    assert tuple(found) == data.feature_names == ("age", "vip", "city=A", "city=B", "intercept")
    predicted = found["intercept"] + found["age"] * ages + found["vip"] * vip
    predicted += sum(found[f"city={city}"] * (frame["city"] == city) for city in "AB")
    np.testing.assert_allclose(predicted, 25 + 25 * (data.x @ theta), rtol=1e-12)
    labelled = from_frame(frame | {"late": vip}, "late", bounds=bounds, task="logistic")
    theta = rng.normal(size=labelled.x.shape[1])
    slopes = labelled.coefficients(theta)
    odds = slopes["intercept"] + sum(slopes[name] * frame[name] for name in ("age", "vip", "pay"))
    odds += sum(slopes[f"city={city}"] * (frame["city"] == city) for city in "AB")
    np.testing.assert_allclose(odds, labelled.x @ theta, rtol=1e-12)


def test_models_without_coefficients(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(9, 2)), y=np.arange(9.0))
    bounds = {"x0": (-9, 9), "x1": (-9, 9), "y": (0, 9)}
    scaled = load(path, "ridge", bounds=bounds, normalise="l2_rows")
    for data in (scaled, load(path, "ridge")):
        with pytest.raises(ValueError, match=r"rows must be linear .*by from_frame or from_file"):
            data.coefficients(np.ones(2))
    columns = {"intercept": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    twice = from_frame(columns, "y", bounds={"intercept": (0, 5), "y": (0, 5)})
    with pytest.raises(ValueError, match="feature_names must be without repetition"):
        twice.coefficients(np.ones(2))
    renamed = Dataset("own", "ridge", twice.x, twice.y, ("a", "b"), units=twice.units)
    with pytest.raises(ValueError, match=r"theta must be of shape \(2,\) \(got \(3,\)\)"):
        renamed.coefficients(np.ones(3))


@pytest.mark.parametrize("task", ["logistic", "ridge"])
def test_the_penalty_depends_on_the_number_of_rows_only(task):
    sizes = [1, 100, 1000, 10_000, 1_000_000]
    found = [default_regularisation(task, rows) for rows in sizes]
    assert found == sorted(found, reverse=True)
    expected = {"logistic": [0.005, 0.005, 0.00474, 0.0015, 0.00015]}
    expected["ridge"] = [0.03, 0.03, 0.02, 0.002, 0.0002]
    np.testing.assert_allclose(found, expected[task], rtol=1e-3)
    with pytest.raises(ValueError, match="rows must be an integer, at least 1"):
        default_regularisation(task, 0)


@pytest.mark.numerical
@pytest.mark.parametrize("task", ["logistic", "ridge"])
def test_optima_are_those_of_scikit_learn(task):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn")
    rng, rows = np.random.default_rng(0), 400
    frame = {"a": rng.uniform(0, 9, rows), "b": rng.choice(["u", "v"], rows)}
    y = frame["a"] + (frame["b"] == "u") + rng.normal(size=rows)
    frame["y"] = y if task == "ridge" else np.where(y > 8, "yes", "no")
    bounds = {"a": (0, 9), "b": ["u", "v"], "y": (-5, 15) if task == "ridge" else ["no", "yes"]}
    data, penalty = from_frame(frame, "y", bounds=bounds, task=task), 0.003
    if task == "ridge":
        problem = RidgeProblem.fit(data.x, data.y, penalty)
        model = linear_model.Ridge(alpha=rows * penalty, fit_intercept=False)
    else:
        problem = LogisticProblem.fit(data.x, data.y, penalty)
        options = {"C": 1 / (rows * penalty), "fit_intercept": False, "tol": 1e-12}
        model = linear_model.LogisticRegression(solver="newton-cholesky", **options)
    theta = np.ravel(model.fit(data.x, data.y).coef_)
    np.testing.assert_allclose(problem.optimum, theta, rtol=1e-9, atol=1e-10)
