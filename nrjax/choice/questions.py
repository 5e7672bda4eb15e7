"""The functions of `nrjax.questions`, which make questions for `nrjax.choose`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import norm_of, scaled_rows, unit_of
from nrjax._base.sensitivities import Noise, Sensitivity, split_relation
from nrjax._base.validation import (
    OTHER_UNIT,
    as_data,
    as_floats,
    as_groups,
    check,
    check_normal,
    check_number,
)
from nrjax.choice.question import Custom, Question
from nrjax.engine.checks_between_parts import holds_releases
from nrjax.engine.interaction import Interaction
from nrjax.engine.mechanism import Mechanism, brownian, discrete_laplace, laplace
from nrjax.erm import LogisticProblem, ObjectivePerturbation, RidgeProblem, trivial_losses
from nrjax.erm.objective import most_rows
from nrjax.processes import DiscreteLaplace
from nrjax.statistics.closed_forms import times_at_distance, times_by_curvature, times_within
from nrjax.study.case import Case

DELTA = 1e-6
"""Default probability with which the loss may exceed the stated epsilon of Brownian noise."""
_ULP = float(np.finfo(float).eps)
_MOST_ROWS = 2**31
"""Largest number of rows if the number is private, for the rounding of a sum."""
_SPHERICAL: Noise = "spherical laplace"


_LARGE_COUNTS = (
    "Discrete noise and private tests are left out, since {dtype} rounds counts as large as these: "
    "use float64 (JAX_ENABLE_X64=1)."
)


def largest_error(release: Array, truth: Array) -> Array:
    """Return minus the largest absolute error of a coordinate."""
    return -jnp.max(jnp.abs(release - truth))


def distance(release: Array, truth: Array) -> Array:
    """Return minus the l2 norm of the error."""
    away = release - truth
    unit, inverse = unit_of(jnp.max(jnp.abs(away)))  # squares stay within the dtype
    return -jnp.linalg.norm(away * unit) * inverse


def largest_relative_error(release: Array, truth: Array, within: Array) -> Array:
    """Return minus the largest `|release - truth| / max(truth, within)`, or -1 if it is lower."""
    return -jnp.minimum(jnp.max(jnp.abs(release - truth) / jnp.maximum(truth, within)), 1.0)


def mean(
    x: ArrayLike,
    bounds: tuple[float, float],
    *,
    delta: float = DELTA,
    relation: str = "replace",
) -> Question:
    """Return the question for the mean of numbers, whose error is the absolute error.

    >>> question = nrjax.questions.mean([1.0, 4.0, 2.0], bounds=(0.0, 5.0))
    >>> round(question.error("3 %"), 3)
    0.07

    Args:
        x: numbers, shape (rows,). They are clipped to the bounds.
        bounds: smallest and largest possible number. They must not come from the data.
        delta: probability with which the loss of Brownian noise may exceed its epsilon.
        relation: relation of the neighbours, "replace" or such as "replace, 3 rows". The number of
            rows is public: for "add-remove" use `sum` and `count`.

    Raises:
        ValueError: `x` is empty or not finite, the bounds do not rise, or the relation does not
            suit the question.
    """
    x, width, most = _clipped(x, bounds)
    name, value = f"mean of {x.size:,} values", math.fsum(x) / x.size
    changed = width / x.size * _replaced_rows(relation)
    return _numbers(name, value, changed, most, delta, relation)


def sum(
    x: ArrayLike,
    bounds: tuple[float, float],
    *,
    delta: float = DELTA,
    relation: str = "replace",
) -> Question:
    """Return the question for the sum of numbers. Arguments and errors are as for `mean`.

    Under the relation "add-remove" no private test is offered, since the rounding of the sum would
    disclose the number of rows.
    """
    x, width, most = _clipped(x, bounds)
    base, rows = split_relation(relation)
    value = math.fsum(x)
    if base == "replace":
        name = f"sum of {x.size:,} values"
        return _numbers(name, value, width * rows, most * x.size, delta, relation)
    check(x.size <= _MOST_ROWS, "rows of x", x.size, f"at most {_MOST_ROWS:,}")
    question = _numbers("sum", value, most * rows, most * _MOST_ROWS, delta, relation)
    return dataclasses.replace(question, sensitivity=None)


def count(x: ArrayLike, *, delta: float = DELTA, relation: str = "replace") -> Question:
    """Return the question for the number of true entries, whose error is the absolute error.

    Args:
        x: booleans, or numbers 0 and 1, shape (rows,).
        delta: as for `mean`.
        relation: "replace", "add-remove", or such as "add-remove, 3 rows".

    Raises:
        ValueError: `x` is empty or has other entries.
    """
    expected = "a vector of booleans, or of 0 and 1"
    x = as_data("x", x, lambda n: n.ndim == 1 and n.size > 0 and ((n == 0) | (n == 1)), expected)
    is_public = split_relation(relation)[0] == "replace"
    name = f"count of {x.size:,} rows" if is_public else "count"
    return _counts(name, np.asarray(np.count_nonzero(x)), delta, relation, single=True)


def histogram(
    values: ArrayLike, bins: ArrayLike, *, delta: float = DELTA, relation: str = "replace"
) -> Question:
    """Return the question for a histogram, whose error is the largest error of a bin.

    Args:
        values: numbers, shape (rows,). Numbers outside all bins count nowhere.
        bins: rising edges of the bins, shape (bins + 1,). They must not come from the data.
        delta: as for `mean`.
        relation: as for `count`.

    Raises:
        ValueError: the edges do not rise, or the values are not a vector of numbers, or missing.
    """
    expected = "a vector of numbers, at least one"
    values = as_data("values", values, lambda n: n.ndim == 1 and n.size > 0, expected)
    expected = "rising edges, at least two"
    edges = as_floats("bins", bins, lambda n: n.ndim == 1 < n.size and n[1:] > n[:-1], expected)
    counts = np.histogram(values, edges)[0]
    return _counts(f"histogram of {counts.size:,} bins", counts, delta, relation)


def counts(
    groups: Sequence[Hashable] | ArrayLike,
    within: float,
    *,
    delta: float = DELTA,
    relation: str = "replace",
) -> Question:
    """Return the question for counts by group, whose error is the largest relative error.

    The error of a group is relative to its count, or to `within` if the count is smaller. It is a
    fraction, such as 0.03 or "3 %". The set of groups is taken as public. If it is private, use
    `nrjax.counts.unknown_keys`.

    >>> nrjax.questions.counts(["a", "b", "a"], within=100)
    Question('counts of 2 groups')

    Args:
        groups: group of each row, shape (rows,): numbers, text, or tuples of them.
        within: count below which errors are relative to `within`, at least 1.
        delta: as for `mean`.
        relation: as for `count`.

    Raises:
        ValueError: there is no row, a group is missing, or `within` is below 1.
    """
    places = as_groups("groups", groups)[1]
    within = check_number(
        "within", within, lambda n: (n >= 1) & (n < np.inf), "at least 1, and finite"
    )
    check_normal("within", within, np.asarray(within))
    sizes = np.bincount(places)
    question = _counts(f"counts of {sizes.size:,} groups", sizes, delta, relation)
    # Of errors up to 1.
    sensitivity = 2 * split_relation(relation)[1] / within + 4 * _machine_epsilon()
    return dataclasses.replace(
        question,
        score=largest_relative_error,
        data=(sizes.astype(float), float(within)),
        sensitivity=None if question.sensitivity is None else sensitivity,
        whole=1.0,
        fixed_time=times_within(np.maximum(sizes, within)),
    )


def vector_mean(
    rows: ArrayLike, row_norm: float, *, delta: float = DELTA, relation: str = "replace"
) -> Question:
    """Return the question for the mean of vectors, whose error is the l2 norm of the error.

    Args:
        rows: vectors, shape (rows, dimension). Longer ones are scaled down to `row_norm`.
        row_norm: largest l2 norm of a row. It must not come from the data.
        delta: as for `mean`.
        relation: as for `mean`.

    Raises:
        ValueError: `rows` is not a table of finite numbers, or `row_norm` is not positive.
    """
    expected = "finite numbers of shape (rows, dimension)"
    table = as_data("rows", rows, lambda n: n.ndim == 2 and n.size and np.isfinite(n), expected)
    check_number("row_norm", row_norm)
    size, dimension = table.shape
    changed = 2 * _replaced_rows(relation) / size
    width = float(row_norm) * (changed * (1 + (dimension + 8) * _ULP) + 64 * _ULP)
    _check_held("row_norm", row_norm, width, float(row_norm) * size)
    scaled, power = scaled_rows(table)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        is_long = lengths > np.ldexp(float(row_norm), -power)
        clipped = np.where(is_long, scaled * (row_norm / np.where(is_long, lengths, 1)), table).T
    value = np.ascontiguousarray(clipped).mean(axis=1)  # summed in pairs, which rounds little
    return Question(
        name=f"mean of {size:,} vectors of {dimension:,} numbers",
        mechanisms=_mechanisms(value, width * math.sqrt(dimension), width, delta, relation),
        score=distance,
        data=(value,),
        sensitivity=width + _machine_epsilon() * float(row_norm),
        whole=norm_of(value),
        fixed_time=times_at_distance(dimension),
    )


def logistic_regression(
    x: ArrayLike,
    y: ArrayLike,
    *,
    regularisation: float = 0.05,
    delta: float = DELTA,
    relation: str = "replace",
) -> Question:
    """Return the question for a logistic regression, whose error is the excess loss.

    An error of 3 % is 3 % of the loss of the optimum.

    Args:
        x: features, shape (rows, dimension), rows of l2 norm at most 1 (`nrjax.datasets`).
        y: labels -1 and 1, shape (rows,).
        regularisation: lambda > 0.
        delta: as for `mean`.
        relation: as for `mean`. `Dataset.relation` of `nrjax.datasets` states it for people.

    Raises:
        ValueError: as for `nrjax.erm.LogisticProblem.fit`.
    """
    problem = LogisticProblem.fit(x, y, regularisation)
    question = _problem("logistic", problem, x, delta, relation)
    bound = times_by_curvature(0.25 + regularisation, np.shape(x)[1])  # for rows of norm 1
    releases = {"objective": partial(ObjectivePerturbation, problem, relation=relation)}
    if problem.rows > most_rows():
        releases = {}
    return dataclasses.replace(question, bound_time=bound, releases=releases)


def linear_regression(
    x: ArrayLike,
    y: ArrayLike,
    *,
    regularisation: float = 0.05,
    delta: float = DELTA,
    relation: str = "replace",
) -> Question:
    """Return the question for a ridge regression, whose error is the excess loss.

    Arguments and errors are as for `logistic_regression`, but `y` are numbers from -1 to 1.
    """
    return _problem("linear", RidgeProblem.fit(x, y, regularisation), x, delta, relation)


def custom(factory: Callable[[float], Mapping[str, Interaction | Case]]) -> Custom:
    """Return a question whose candidates a function makes (`nrjax.Choice` has an example).

    Args:
        factory: `factory(error)` returns a dict of interactions by name, the simplest first. Their
            utility is minus the error: a trial meets the target if it stops with a utility of at
            least `-error`. For another goal it returns a `nrjax.Case(trial=interaction, goal=...)`.

    Raises:
        ValueError: `factory` is not a function.
    """
    check(callable(factory), "factory", factory, "a function of the error")
    return Custom(factory=factory)


def _machine_epsilon() -> float:
    """Return the machine epsilon of a run, to which the data of a score are rounded."""
    return float(np.finfo(float_dtype()).eps)


def _clipped(x: ArrayLike, bounds: Any) -> tuple[np.ndarray, float, float]:
    """Return numbers clipped to the bounds, the width of the bounds, and the largest number."""
    expected = "a vector of finite numbers, at least one"
    numbers = as_data("x", x, lambda n: n.ndim == 1 and n.size > 0 and np.isfinite(n), expected)
    expected = "(low, high) with low < high, for example (0.0, 100.0)"
    low, high = as_floats(
        "bounds", bounds, lambda n: n.shape == (2,) and -np.inf < n[0] < n[1] < np.inf, expected
    ).tolist()
    largest = max(abs(low), abs(high))
    _check_held("bounds", bounds, (high - low) / numbers.size, largest * numbers.size)
    return np.clip(numbers, low, high), high - low, largest


def _check_held(name: str, given: Any, change: float, total: float) -> None:
    """Check that a run can hold the change of one row, and sums of all rows."""
    what = "such that the change of a row, and sums of all rows, are"
    check_normal(name, given, np.asarray([change, total]), what, OTHER_UNIT)


def _replaced_rows(relation: str) -> int:
    """Return the number of rows that are replaced, if the relation has a public number of rows."""
    base, rows = split_relation(relation)
    hint = "Use nrjax.questions.sum and count, since the number of rows is private."
    check(base == "replace", "relation", relation, "'replace' for a mean or a regression", hint)
    return rows


def _mechanisms(
    value: Any, l1: float, l2: float, delta: float, relation: str
) -> dict[str, Mechanism]:
    """Return the mechanisms for a value by the name of their noise."""
    mechanisms = {"laplace": laplace(value, Sensitivity(l1, "l1", relation))}
    if l1 > _equal_l1(np.size(value)) * l2:
        mechanisms[_SPHERICAL] = laplace(value, Sensitivity(l2, "l2", relation))
    mechanisms["brownian"] = brownian(value, Sensitivity(l2, "l2", relation), delta)
    return mechanisms


def _equal_l1(dimension: int) -> float:
    """Return the l1-sensitivity for an l2-sensitivity of 1 at which both Laplace noises are equal.

    Their variances are `2 l1^2` and `(d + 1) l2^2`. In one dimension they are the same noise.
    """
    return math.sqrt((dimension + 1) / 2)


def _numbers(
    name: str, value: float, width: float, most: float, delta: float, relation: str
) -> Question:
    """Return the question for a real number of this sensitivity before rounding, at most `most`."""
    sensitivity = width * (1 + 2 * _ULP) + 2 * _ULP * most
    return Question(
        name=name,
        mechanisms=_mechanisms(value, sensitivity, sensitivity, delta, relation),
        score=largest_error,
        data=(value,),
        sensitivity=sensitivity + _machine_epsilon() * most,
        whole=abs(value),
        fixed_time=times_within(np.ones(1)),
    )


def _counts(
    name: str, sizes: np.ndarray, delta: float, relation: str, single: bool = False
) -> Question:
    """Return the question for counts, each of which changes by at most 1 for each row."""
    value = sizes.astype(float)
    base, rows = split_relation(relation)
    changes = rows if single or base == "add-remove" else 2 * rows  # in l1
    l2 = rows * math.sqrt(changes / rows)
    exact = holds_releases(DiscreteLaplace(value.shape), value, float_dtype())
    if exact:
        discrete = discrete_laplace(value, Sensitivity(changes, "l1", relation))
        mechanisms = {"discrete laplace": discrete}
        mechanisms |= _mechanisms(value, changes, l2, delta, relation)
    else:
        mechanisms = _mechanisms(sizes.astype(np.int64), changes, l2, delta, relation)
    return Question(
        name=name,
        mechanisms=mechanisms,
        score=largest_error,
        data=(value,),
        sensitivity=float(rows) if exact else None,  # a large count would be rounded
        whole=float(value.max()),
        fixed_time=times_within(np.ones(value.size)),
        remarks=() if exact else (_LARGE_COUNTS.format(dtype=float_dtype()),),
    )


def _problem(
    kind: str, problem: LogisticProblem | RidgeProblem, x: ArrayLike, delta: float, relation: str
) -> Question:
    """Return the question for a private regression on the features x."""
    _replaced_rows(relation)
    losses = trivial_losses(problem, np.asarray(x))
    mechanisms = {"laplace": problem.laplace(relation=relation)}
    l1, l2 = (problem.released(noise, relation=relation) for noise in ("laplace", _SPHERICAL))
    if l1.sensitivity > _equal_l1(l2.value.size) * l2.sensitivity:
        mechanisms[_SPHERICAL] = l2.mechanism()
    mechanisms["brownian"] = problem.brownian(delta, relation=relation)
    return Question(
        name=f"{kind} regression on {problem.rows:,} rows of {problem.dimension:,} features",
        mechanisms=mechanisms,
        best=-problem.optimum_loss,
        whole=problem.optimum_loss,
        trivial={
            "the zero model": losses.zero - problem.optimum_loss,
            "the best constant model": losses.constant - problem.optimum_loss,
        },
    )
