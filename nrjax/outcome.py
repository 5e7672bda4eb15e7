"""The outcome of a trial, and its status."""

import enum
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from nrjax._format import representation


class Status(enum.IntEnum):
    """The way in which a trial ended. Only `STOPPED` trials met their stopping rule.

    Attributes:
        RUNNING: the trial has not ended. A finished `Outcome` never has it.
        STOPPED: the stopping rule accepted the last release.
        EXHAUSTED: the schedule, or `max_steps`, ended before the rule accepted a release.
        NAN_UTILITY: the utility of the last release was NaN.
        NO_TIME: the next time is infinite, for example because no finite time costs as little as
            the schedule requires.
        OVERFLOW: the noise process overflowed (its buffer of jumps, or the range of its counts), so
            its distribution is no longer exact.
        INVALID_TIME: the schedule chose a time that is not in (0, current time], or one outside the
            range of the noise process.
        INVALID_COST: the guarantee or the rule stated a cost that is negative, NaN, or smaller than
            the cost of an earlier release.
        INVALID_BOUNDS: the lower bound of a utility was above its upper bound.
    """

    RUNNING = 0
    STOPPED = 1
    EXHAUSTED = 2
    NAN_UTILITY = 3
    NO_TIME = 4
    OVERFLOW = 5
    INVALID_TIME = 6
    INVALID_COST = 7
    INVALID_BOUNDS = 8


class Outcome(NamedTuple):
    """The outcome of a trial, or of many: `nrjax.simulate` adds a leading axis of trials.

    Attributes:
        step: number of the last step, counted from 0; -1 if nothing was released. int32.
        time: time (noise level) of the last release; NaN if there was none.
        release: the last release: the private value plus noise.
        hypothesis: hypothesis that the utility made from the last release.
        utility: utility of `hypothesis`.
        mechanism_epsilon: ex-post epsilon of all releases together. NaN without a guarantee,
            infinite after a failure of the noise or of the guarantee (`OVERFLOW`, `INVALID_COST`).
        test_epsilon: epsilon that the tests of the stopping rule add.
        epsilon: total epsilon paid, `mechanism_epsilon + test_epsilon`, whether or not the rule
            accepted a release.
        privacy_loss: realised privacy loss of the releases for the interaction's `shift`; NaN
            without a `shift`.
        status: `Status` with which the trial ended. int32.
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
    def stopping_epsilon(self) -> Array:
        """The total epsilon if the trial stopped (NaN without a guarantee), else infinity."""
        epsilon = jnp.asarray(self.epsilon)
        return jnp.where(self.stopped, epsilon, jnp.asarray(jnp.inf, epsilon.dtype))

    __repr__ = representation
