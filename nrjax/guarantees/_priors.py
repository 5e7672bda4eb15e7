"""Priors of the time at which trials stop, for boundaries that are designed for one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.validation import (
    as_floats,
    as_table,
    check,
    check_choice,
    check_number,
    check_positive,
)

P = ParamSpec("P")
T = TypeVar("T")

Objective = Literal["log", "mean"]
"""The quantity whose prior mean a design minimises: log(epsilon), or epsilon."""


def log_uniform(times: ArrayLike, least: float, most: float, rest: float = 0.1) -> np.ndarray:
    """Return the weights of a prior of the stopping time that is uniform in log(time).

    A weight costs little, because epsilon grows with about the root of its logarithm. So keep some
    weight (`rest`) on all times, in case that the prior is wrong.

    >>> nrjax.guarantees.log_uniform([8.0, 4.0, 2.0, 1.0], least=2.0, most=4.0)
    array([0.025, 0.475, 0.475, 0.025])

    Args:
        times: times in equal ratios, shape (n,).
        least: smallest time that is likely.
        most: largest time that is likely.
        rest: total weight that is spread over all times.

    Raises:
        ValueError: no time lies between `least` and `most`, or `rest` is not between 0 and 1.
    """
    times = as_floats("times", times, lambda n: n.ndim == 1, "a vector of numbers")
    check_number("least", least, lambda n: n < np.inf, "finite")
    check_number("most", most, lambda n: n > 0, "positive")
    check_number("rest", rest, lambda n: (n >= 0) & (n < 1), "at least 0 and below 1")
    likely = (times >= least * (1 - 1e-6)) & (times <= most * (1 + 1e-6))
    check(likely.any(), "times", times, f"partly between {least!r} and {most!r}")
    return (1 - rest) * likely / likely.sum() + rest / times.size


def accept_prior_from(design: Callable[P, T]) -> Callable[P, T]:
    """Return a `design` that still accepts the keyword `prior_from`, which is deprecated."""

    @functools.wraps(design)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> T:
        if "prior_from" in options:
            hint = "A prior from private data must be released by a mechanism that is paid for."
            check_choice("prior_from", options.pop("prior_from"), ("public", "paid"), hint)
            text = "prior_from has no effect and will be removed. Leave it out."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        return design(*arguments, **options)

    return wrapped


def check_prior(times: Any, weights: Any, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of a prior and their weights with sum 1, in float64.

    Raises:
        ValueError: times or weights are traced, not positive or not vectors of one shape, or the
            objective is unknown.
    """
    check_choice("objective", objective, get_args(Objective))
    for name, values in (("times", times), ("weights", weights)):
        array = check_positive(name, as_table(values))
        ok = array is not None and array.ndim == 1
        check(ok, name, values, "a vector of concrete numbers")
    times, weights = (np.asarray(values, np.float64) for values in (times, weights))
    check(times.shape == weights.shape, "weights", weights, f"of shape {times.shape}")
    near = weights.max() / 1e200 <= weights.min()
    check(near and weights.max() < 1e300, "weights", weights, "below 1e300, within a factor 1e200")
    return times, weights / weights.sum()
