"""The classes of questions that `nrjax.choose` answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import Array

from nrjax._base.dtypes import float_dtype
from nrjax._base.format import representation
from nrjax._base.validation import (
    OTHER_UNIT,
    check,
    check_made_in,
    check_normal,
    check_number,
    widest_made,
)
from nrjax.engine.interaction import Interaction
from nrjax.engine.mechanism import Mechanism
from nrjax.study.case import Case

_SPACINGS = 256
"""Least error, in machine epsilons of the best score.

Rounding would decide whether a score meets a smaller error.
"""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A question about private data, which `nrjax.choose` answers.

    Make one by a function of `nrjax.questions`, such as `mean` or `count`.

    >>> nrjax.questions.count([True, False, True])
    Question('count of 3 rows')

    Attributes:
        name: the question in words, such as "mean of 1,000 values".
        mechanisms: mechanism for each kind of noise that fits: "laplace", "brownian" (with the
            minimax boundary) or "discrete laplace"; the simplest first.
        score: score of a release, a JAX function `score(release, *data)` that returns minus the
            error. None takes the utility of the mechanism.
        data: further arguments of `score`.
        sensitivity: largest change of the score, at a fixed release, if one row changes. None if
            the utility states it, or if it is unknown, so that no private test is offered.
        best: score of the exact answer.
        whole: number that an error of 100 % stands for, in the question's unit.
        fixed_time: function `fixed_time(noise, error, confidence)` that returns the largest time at
            which one release meets the error with this probability; None without a closed form.
        bound_time: function `bound_time(noise, error, confidence)` that returns a time at which one
            release meets the error with at least this probability, whatever the data, or None if
            there is no such bound. The time may be smaller than necessary.
        releases: functions of an epsilon that return a release at that epsilon, such as
            `nrjax.erm.ObjectivePerturbation`, by name. An oracle finds the epsilon.
        remarks: sentences on what is not offered. Reports repeat them.
        trivial: error of each answer that needs no release, such as "the zero model".
        made_in: float dtype whose rounding `sensitivity` allows for. `error` refuses a narrower
            one.
    """

    name: str
    mechanisms: Mapping[str, Mechanism]
    score: Callable[..., Array] | None = None
    data: tuple[Any, ...] = ()
    sensitivity: float | None = None
    best: float = 0.0
    whole: float = math.nan
    fixed_time: Callable[[str, float, float], float | None] | None = None
    bound_time: Callable[[str, float, float], float | None] | None = None
    releases: Mapping[str, Callable[[float], Any]] = dataclasses.field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    trivial: Mapping[str, float] = dataclasses.field(default_factory=dict)
    made_in: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    def __repr__(self) -> str:
        return f"Question({self.name!r})"

    def doubts(self, error: float) -> list[str]:
        """Return a sentence if an answer that needs no release has at most this error."""
        return [
            f"An error of {error:.4g} is met by {name}, whose error is {own:.4g}: choose a smaller "
            "error."
            for name, own in self.trivial.items()
            if own <= error
        ][:1]

    def noise_of(self, mechanism: Mechanism) -> str:
        """Return the kind of noise of one of the question's mechanisms, its key."""
        return next(noise for noise, each in self.mechanisms.items() if each is mechanism)

    def error(self, error: float | str) -> float:
        """Return an error in the question's unit: a positive number, or text such as "3 %".

        Raises:
            ValueError: the error is not positive or too small, or the question was made in a wider
                float dtype.
        """
        check_made_in(repr(self), self.made_in, float_dtype())
        if isinstance(error, str):
            try:
                percent = float(error.removesuffix("%"))
            except ValueError:
                percent = math.nan
            ok = error.endswith("%") and percent > 0
            check(ok, "error", error, "a positive number, or a percentage such as '3 %'")
            check(self.whole > 0, "error", error, "a number in the unit of an answer of 0")
            return self._resolved(percent / 100 * self.whole)
        check_number("error", error)
        return self._resolved(float(error))

    def _resolved(self, error: float) -> float:
        """Return an error, after checking that scores near the best are closer to each other."""
        dtype = float_dtype()
        least = _SPACINGS * float(np.finfo(dtype).eps) * abs(self.best)
        expected = f"at least {least:.2g}, since {dtype} rounds scores near {self.best:.4g}"
        check(error >= least, "error", error, expected, "Use float64 (JAX_ENABLE_X64=1).")
        held = np.asarray([error, error * error])
        check_normal("error", error, held, "such that it and its square are", OTHER_UNIT)
        return error


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Custom:
    """A question whose interactions your function makes, from `nrjax.questions.custom`.

    Attributes:
        factory: function of the error that returns interactions or cases by name.
        name: the question in words.
        remarks: sentences that reports repeat.
    """

    factory: Callable[[float], Mapping[str, Interaction | Case]]
    name: str = "custom question"
    remarks: tuple[str, ...] = ()

    __repr__ = representation

    def doubts(self, error: float) -> list[str]:
        """Return no sentence, since nothing is known of the score."""
        return []

    def error(self, error: float | str) -> float:
        """Return the error, a positive number."""
        check_number("error", error)
        return float(error)
