"""The outcome of a trial, and its status."""

from __future__ import annotations

import collections
import enum
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.format import format_value, representation
from nrjax._base.pytrees import record
from nrjax._base.quantiles import order_statistics
from nrjax._base.validation import check, concrete_or_none


class Status(enum.IntEnum):
    """The way in which a trial ended. Only `STOPPED` trials met their stopping rule.

    Outcomes hold it as an integer.

        >>> print(nrjax.Status(4))
        NO_TIME
        >>> nrjax.Status.EXHAUSTED.sentence
        'The schedule, or `max_steps`, ended before the rule accepted a release.'
    """

    sentence: str
    hint: str

    def __new__(cls, value: int, sentence: str, hint: str = "") -> Self:
        """Return the member for a number, with its meaning and a hint in words."""
        self = int.__new__(cls, value)
        self._value_, self.sentence, self.hint = value, sentence, hint
        return self

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Return the member for an array of one integer, which is not hashable."""
        number = concrete_or_none(value)
        if number is None or number.ndim or number.dtype.kind not in "iu":
            return None
        return next((status for status in cls if status == number), None)

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    @property
    def failed(self) -> bool:
        """Whether the trial ended by a failure: it neither stopped nor used up its schedule."""
        return self > Status.EXHAUSTED

    RUNNING = 0, "The trial has not ended. A finished `Outcome` never has this status."
    STOPPED = 1, "The stopping rule accepted the last release."
    EXHAUSTED = (
        2,
        "The schedule, or `max_steps`, ended before the rule accepted a release.",
        "Allow larger epsilons, or lower the target. If the score is an error, negate it: "
        "larger must be better.",
    )
    NAN_UTILITY = (
        3,
        "The utility of the last release was NaN.",
        "Noisy releases leave the domain of a score, such as that of a logarithm: limit them, for "
        "example by jnp.maximum.",
    )
    NO_TIME = (
        4,
        "The next time is infinite: no finite time costs as little as required.",
        "Start the levels at a larger epsilon, or leave the filter more budget.",
    )
    OVERFLOW = (
        5,
        "The noise left its buffer or range, so its distribution is no longer exact.",
        "Keep the times in the range that the docstring of the process states, or set "
        "JAX_ENABLE_X64=1.",
    )
    INVALID_TIME = (
        6,
        "The next time rose or is out of range, or a private test has no valid noise.",
        "Let the schedule return positive times that never rise, and check the epsilon of the "
        "private test.",
    )
    INVALID_COST = (
        7,
        "A stated cost is negative, NaN, or below the cost of an earlier release.",
        "Let the guarantee and the rule state costs of at least 0 that never fall.",
    )
    INVALID_BOUNDS = (
        8,
        "The lower bound of a utility was above its upper bound.",
        "Let `bounds` of the utility return (lower, upper), and allow for rounding.",
    )


Status.__doc__ = "\n".join(
    [f"{inspect.cleandoc(str(Status.__doc__))}\n\nAttributes:"]
    + ["    sentence: meaning of the status in words."]
    + ["    hint: advice for trials that end with the status, or ''."]
    + [f"    {status}: {int(status)}. {status.sentence}" for status in Status]
)


def describe_status(status: Any) -> str:
    """Return the name of a status, or the number of trials with each status."""
    numbers = concrete_or_none(status)
    if numbers is None or not {*Status}.issuperset(numbers.ravel().tolist()):
        return format_value(status)
    if numbers.ndim == 0:
        return str(Status(numbers.item()))
    counts = sorted(collections.Counter(numbers.ravel().tolist()).items())
    return ", ".join(f"{count} {Status(number)}" for number, count in counts)


def describe_failures(counts: Mapping[Status, int], owner: str = "") -> str:
    """Return how many of the trials failed and why, or "" if none failed.

    Args:
        counts: number of trials by status.
        owner: words after "trials", such as " of laplace".
    """
    failed = {status: count for status, count in counts.items() if status.failed and count}
    if not failed:
        return ""
    number, trials = sum(failed.values()), sum(counts.values())
    reasons = []
    for status, count in sorted(failed.items()):
        several = f"{count:,} " if len(failed) > 1 else ""
        sentence = status.sentence[0].lower() + status.sentence[1:].rstrip(".")
        reasons.append(f"{several}{status} ({sentence})")
    return f"{number:,} of {trials:,} trials{owner} failed: {', '.join(reasons)}"


def failure_hints(counts: Mapping[Status, int]) -> str:
    """Return the hint for each failure that occurs, after the name of its status."""
    return " ".join(f"{one}: {one.hint}" for one, count in counts.items() if one.failed and count)


def result_representation(self: Any) -> str:
    """Return the `__repr__` of a result with a `status`."""
    return representation(self, status=describe_status(self.status))


@record
class Outcome(NamedTuple):
    """The outcome of a trial, or of many: `nrjax.simulate` adds a leading axis of trials.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> outcome = nrjax.run_until(jax.random.key(0), interaction)
        >>> nrjax.Status(outcome.status).sentence
        'The stopping rule accepted the last release.'

    Attributes:
        step: number of the last step, counted from 0; -1 if nothing was released. int32.
        time: time (noise level) of the last release; NaN if there was none.
        release: the last release: the private value plus noise.
        hypothesis: hypothesis that the utility made from the last release. Typed keys in it are
            `jax.random.key_data` of them in results of `nrjax.simulate` and `nrjax.sweep`.
        utility: utility of `hypothesis`.
        mechanism_epsilon: ex-post epsilon of all releases together. NaN without a guarantee,
            infinite after a failure of the noise or of the guarantee (`OVERFLOW`, `INVALID_COST`).
        test_epsilon: epsilon that the tests of the stopping rule add.
        epsilon: total epsilon paid, `mechanism_epsilon + test_epsilon`, whether or not the rule
            accepted a release.
        privacy_loss: realised privacy loss of the releases for the interaction's `shift`; NaN
            without a `shift`.
        status: `Status` with which the trial ended, int32. `nrjax.Status(status).sentence` puts the
            status of one trial in words.
    """

    step: Array
    time: Array
    release: Array
    hypothesis: Any
    utility: Array
    mechanism_epsilon: Array
    test_epsilon: Array
    epsilon: Array
    privacy_loss: Array
    status: Array

    @property
    def stopped(self) -> Array:
        """Whether the stopping rule accepted the last release."""
        return self.status == Status.STOPPED

    @property
    def failed(self) -> Array:
        """Whether the trial ended by a failure: it neither stopped nor used up its schedule."""
        return self.status > Status.EXHAUSTED

    @property
    def stopping_epsilon(self) -> Array:
        """The total epsilon if the trial stopped (NaN without a guarantee), else infinity."""
        if isinstance(self.epsilon, np.ndarray):  # nothing is compiled
            return np.where(self.stopped, self.epsilon, self.epsilon.dtype.type(np.inf))  # pyright: ignore[reportReturnType]
        epsilon = jnp.asarray(self.epsilon)
        return jnp.where(self.stopped, epsilon, jnp.asarray(jnp.inf, epsilon.dtype))

    def quantile(self, q: Any) -> Any:
        """Return a quantile of `stopping_epsilon` over the trials, such as the median for 0.5.

        It is the smallest epsilon that at least the fraction `q` of the trials do not exceed. A
        trial that did not stop, or failed, counts as infinite. The quantile is an order statistic.
        `np.quantile` interpolates, which gives NaN between two infinite epsilons.

            >>> def score(release):
            ...     return -jnp.abs(release - 120.0)
            >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
            >>> outcome = nrjax.simulate(jax.random.key(0), interaction, trials=1000)
            >>> low, median, high = outcome.quantile([0.05, 0.5, 0.95])
            >>> bool(low < median < high)
            True

        Args:
            q: a fraction in [0, 1], or an array of fractions.

        Returns:
            A float for one fraction of one axis of trials. Else a NumPy array: its first axes are
            those of `q`, and the others are those before the last axis of the outcome, such as the
            points of `nrjax.sweep`.

        Raises:
            ValueError: `q` is outside of [0, 1], there is no trial or no guarantee, or the outcome
                is traced by JAX.
        """
        values = concrete_or_none(self.stopping_epsilon)
        hint = "Call quantile outside of jit and vmap."
        check(values is not None, "outcome", self.status, "of known numbers", hint)
        assert values is not None
        check(values.size > 0, "outcome", values.shape, "of at least one trial")
        hint = "Give the interaction a guarantee, which states epsilon."
        check(not np.isnan(values).any(), "epsilon", np.nan, "numbers, without NaN", hint)
        return order_statistics(np.atleast_1d(values), q)

    __repr__ = result_representation
