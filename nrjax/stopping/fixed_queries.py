"""Stopping rules on a fixed sequence of query values, without noise reduction."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import Role, check_key, key_for, role_key, step_key
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import exact_float, holds
from nrjax._base.outcome import Status, result_representation
from nrjax._base.pytrees import record
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import as_numeric, check, check_numbers, concrete_or_none, is_integer
from nrjax.stopping.gaussian import GaussianThreshold
from nrjax.stopping.thresholds import ThresholdRule
from nrjax.types import StoppingRule


@record
class FirstYes(NamedTuple):
    """The first positive answer of a stopping rule, with the cost of all answers.

    Attributes:
        step: number of the last answered query, from 0; -1 if none was answered. int32.
        cost: cost of all answers.
        status: `Status.STOPPED` (a positive answer), `EXHAUSTED` (only negative ones),
            `NAN_UTILITY` (a query was NaN, which costs infinitely under a private rule),
            `INVALID_COST` (a traced epsilon was out of range), or a failure of the rule. int32.
    """

    step: Array
    cost: Array
    status: Array

    @property
    def stopped(self) -> Array:
        """Whether the rule gave a positive answer, at `step`."""
        return self.status == Status.STOPPED

    __repr__ = result_representation


@neutral_config()
def first_yes(
    key: Array, rule: StoppingRule, utilities: ArrayLike, epsilons: ArrayLike | None = None
) -> FirstYes:
    """Return the first of a fixed sequence of query values that a rule accepts.

    This is the sparse vector technique without noise reduction. You can `vmap` over keys, rules and
    values. The noise is the same as that of the rule in `nrjax.run_until` with the same key.

        >>> rule = nrjax.AboveThreshold(100.0, sensitivity=1.0, epsilon=0.5)
        >>> answer = nrjax.stopping.first_yes(jax.random.key(0), rule, [3.0, 250.0, 80.0])
        >>> int(answer.step), bool(answer.stopped), float(answer.cost)
        (1, True, 0.5)

    Args:
        key: key of one trial.
        rule: the stopping rule, for one trial.
        utilities: values of the queries on the private data, shape (steps,), steps > 0. If values
            and thresholds are concrete, their differences are computed on the host, so that large
            counts lose no digits in float32. Traced integers beyond 2^24 count as NaN. If only the
            thresholds are traced, floats that the dtype does not represent to within a thousandth
            of the sensitivity count as NaN too.
        epsilons: cost of the releases at each step, shape (steps,), for rules that use it.

    Raises:
        ValueError: shapes or lengths do not fit, a concrete value is NaN, or the rule cannot use
            the concrete epsilons. Under a trace the last two cases set `status` instead.
    """
    utilities = np.asarray(utilities) if isinstance(utilities, (list, tuple)) else utilities
    epsilons = np.asarray(epsilons) if isinstance(epsilons, (list, tuple)) else epsilons
    number = check_numbers("utilities", utilities, lambda n: ~np.isnan(n), "numbers, not NaN")
    check(isinstance(rule, StoppingRule), "rule", rule, "a nrjax.StoppingRule")
    shape = jnp.shape(utilities)
    check(len(shape) == 1 and shape[0], "shape of utilities", shape, "(steps,), not empty")
    if epsilons is not None:
        as_numeric("epsilons", epsilons, "numbers, one per query")
        check(jnp.shape(epsilons) == shape, "shape of epsilons", jnp.shape(epsilons), f"{shape}")
    if rule.max_steps is not None:
        expected = f"at most {rule.max_steps} for this rule"
        check(shape[0] <= rule.max_steps, "number of utilities", shape[0], expected)
    dtype = float_dtype(utilities)
    if isinstance(rule, ThresholdRule):
        if number is not None and concrete_or_none(rule.threshold) is not None:
            rule, utilities = rule.centred(number)
        elif number is not None and number.dtype.kind == "f":
            rule, utilities = _cast_utilities(rule, number, dtype)
        rule.check_resolved(dtype)
    utilities = exact_float(utilities, dtype)
    levels = jnp.full(shape, jnp.nan, dtype) if epsilons is None else jnp.asarray(epsilons, dtype)
    rule = jax.tree.map(lambda leaf: _cast(leaf, dtype), rule)
    result, failed = _first_yes(rule, unrolled_key(check_key(key)), utilities, levels)
    failed = concrete_or_none(failed)
    if failed is not None:  # even after a positive answer: an error must not depend on the data
        check(
            ~failed, "epsilons", epsilons, "given for this rule, positive, finite and not falling"
        )
    return result


def _cast_utilities(
    rule: ThresholdRule, utilities: np.ndarray, dtype: Any
) -> tuple[ThresholdRule, Array]:
    """Cast utilities to a dtype, and raise the sensitivity of the rule to pay for the cast.

    The rule has traced thresholds. A utility becomes NaN if the cast may move it by more than
    Delta/1024. The sensitivity grows by this amount even if no utility is rounded, since the
    utilities of a neighbouring data set may be.
    """
    sensitivity = rule.sensitivity
    if sensitivity is None or jnp.promote_types(utilities.dtype, dtype) == dtype:
        return rule, jnp.asarray(utilities, dtype)
    exact = utilities.astype(dtype).astype(utilities.dtype) == utilities
    spacing = np.spacing(np.abs(utilities).astype(dtype))
    allowed = isinstance(rule, GaussianThreshold)  # its costs allow for casts by Delta/2^14
    levels = 2**14 if allowed else 2**10
    held = exact | (levels * spacing <= jnp.asarray(sensitivity, dtype))
    if not allowed:
        rule = dataclasses.replace(rule, sensitivity=jnp.asarray(sensitivity, dtype) * (1 + 2**-10))
    return rule, jnp.where(held, utilities.astype(dtype), jnp.nan)


def _cast(leaf: Any, dtype: Any) -> Any:
    """Cast a number to a dtype, so that Python numbers do not cause retracing."""
    is_float = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
    if integer := is_integer(leaf):
        expected = f"integers that {np.dtype(dtype)} holds exactly, or floats"
        check(holds(dtype, int(leaf)), "fields of the rule", leaf, expected)
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":  # JAX would wrap large integers
        held = jax.dtypes.canonicalize_dtype(leaf.dtype)
        exact = np.array_equal(leaf.astype(held), leaf)
        check(exact, "fields of the rule", leaf, f"within {held}, or floats")
    return jnp.asarray(leaf, dtype) if is_float or integer else leaf


@jax.jit
def _first_yes(rule: Any, key: Array, utilities: Array, epsilons: Array) -> tuple[FirstYes, Array]:
    """Return the result, and whether the rule could not use one of the epsilons."""
    queries = key_for(rule, role_key(key, Role.QUERY))
    steps = utilities.shape[0]

    def ask(state: Any, inputs: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        step, utility, epsilon = inputs
        state, stop = rule.step(step_key(queries, step), state, epsilon, utility)
        failure = jnp.int32(rule.status(state))
        expected = "(), for one trial with a scalar sensitivity and epsilon"
        name = f"shape of an answer of {type(rule).__name__}"
        check(jnp.shape(stop) == (), name, jnp.shape(stop), expected, "Use `vmap` for several.")
        status = jnp.where(stop & (failure == Status.RUNNING), Status.STOPPED, failure)
        return state, (jnp.where(jnp.isnan(utility), Status.NAN_UTILITY, status), failure)

    start = rule.init(key_for(rule, role_key(key, Role.THRESHOLD)), epsilons[0])
    _, (statuses, failures) = jax.lax.scan(ask, start, (jnp.arange(steps), utilities, epsilons))
    ended = statuses != Status.RUNNING
    any_ended = jnp.any(ended)
    last = jnp.where(any_ended, jnp.argmax(ended), steps - 1)
    status = jnp.where(any_ended, statuses[last], Status.EXHAUSTED)
    stopped = status == Status.STOPPED
    # A query at which the rule failed has no answer, but is charged as one.
    answered = stopped | (status == Status.EXHAUSTED) | (status == Status.NAN_UTILITY)
    answers, last = last + 1, jnp.where(answered, last, last - 1)
    cost = rule.cost(epsilons[jnp.maximum(last, 0)], stopped, answers)
    # Without an answer the epsilon may be NaN or negative, and the cost is 0.
    cost = jnp.where((last < 0) & ~(cost > 0), jnp.zeros_like(cost), cost)
    cost = jnp.where((status == Status.NAN_UTILITY) & (cost != 0), jnp.inf, cost)
    invalid = (cost < 0) | jnp.isnan(cost)  # traced numbers were out of range
    cost = jnp.where(invalid, jnp.inf, cost)
    status = jnp.where(invalid, Status.INVALID_COST, status)
    result = FirstYes(last.astype(jnp.int32), cost, status.astype(jnp.int32))
    return result, jnp.any(failures == Status.INVALID_TIME)
