"""A stopping rule on a fixed sequence of query values, without an engine."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import exact_float, float_dtype, holds
from nrjax._threefry import unrolled
from nrjax._validation import as_numeric, check, check_numbers, concrete_or_none, is_integer
from nrjax.keys import Role, check_key, key_for, role_key, step_key
from nrjax.stopping.gaussian import GaussianThreshold
from nrjax.stopping.thresholds import ThresholdRule
from nrjax.types import Status, StoppingRule


class FirstYes(NamedTuple):
    """Where a rule said yes, and what its answers cost."""

    step: Array
    """Number of the last query that was answered, from 0; -1 if none was. int32."""
    cost: Array
    status: Array
    """`Status.STOPPED` (a yes), `EXHAUSTED` (only noes), `NAN_UTILITY` (a query was NaN, which a
    private rule has no price for: infinite), `INVALID_COST` (a traced epsilon out of range), or the
    rule's own failure. int32."""

    @property
    def stopped(self) -> Array:
        """Whether the rule said yes, at `step`."""
        return self.status == Status.STOPPED


def first_yes(
    key: Array, rule: StoppingRule, utilities: ArrayLike, epsilons: ArrayLike | None = None
) -> FirstYes:
    """The first of a fixed sequence of query values that a rule accepts.

    The classic use of the sparse vector technique; `vmap` it over keys, rules and values. Draws
    what `nrjax.run_until` would draw with the same key.

        rule = nrjax.AboveThreshold(100.0, sensitivity=1.0, epsilon=0.5)
        found = first_yes(jax.random.key(0), rule, [3.0, 250.0, 80.0])
        found.step, found.stopped, found.cost  # most likely 1, True, 0.5

    Args:
        key: one key.
        rule: the rule, for one trial.
        utilities: values of the queries on the private data, shape (steps,), steps > 0. From
            numbers (lists, NumPy arrays) thresholds are subtracted on the host, so that large
            counts lose nothing in float32; traced integers beyond 2^24 count as NaN, as do floats
            not held to a thousandth of the sensitivity, where thresholds are traced.
        epsilons: for rules that follow the releases' epsilon: that at each step, same shape.

    Raises:
        ValueError: shapes or lengths do not fit; where concrete, a value is NaN or the epsilons are
            not what the rule can follow. Under a trace these two are the result's status.
    """
    utilities = np.asarray(utilities) if isinstance(utilities, (list, tuple)) else utilities
    epsilons = np.asarray(epsilons) if isinstance(epsilons, (list, tuple)) else epsilons
    right = "numbers, not NaN"
    number = check_numbers("utilities", utilities, lambda n: ~np.isnan(n), right)
    if epsilons is not None:
        as_numeric("epsilons", epsilons, "numbers, one a query")
    check(isinstance(rule, StoppingRule), "rule", rule, "a nrjax.StoppingRule")
    shape = jnp.shape(utilities)
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"utilities has shape {shape}: must be a vector, not empty")
    if epsilons is not None and jnp.shape(epsilons) != shape:
        raise ValueError(f"epsilons has shape {jnp.shape(epsilons)}: must be {shape}, one a query")
    longest = rule.max_steps
    if longest is not None and shape[0] > longest:
        raise ValueError(
            f"utilities has shape {shape}: must not be longer than the rule's {longest} thresholds"
        )
    dtype = jnp.promote_types(float_dtype(utilities), jnp.float32)
    if isinstance(rule, ThresholdRule):
        if number is not None and concrete_or_none(rule.threshold) is not None:
            rule, utilities = rule.centred(number)
        elif number is not None and number.dtype.kind == "f":
            rule, utilities = _resolved(rule, number, dtype)
        rule.check_resolved(dtype)
    utilities = exact_float(utilities, dtype)
    levels = jnp.full(shape, jnp.nan, dtype) if epsilons is None else jnp.asarray(epsilons, dtype)
    rule = jax.tree.map(lambda leaf: _cast(leaf, dtype), rule)
    result, failed = _first_yes(rule, unrolled(check_key(key)), utilities, levels)
    number = concrete_or_none(failed)
    if number is not None:  # also after a yes: whether it raises must not hang on the data
        right = "given for this rule, positive, finite and not falling, nor tiny"
        check(~number, "epsilons", epsilons, right)
    return result


def _resolved(
    rule: ThresholdRule, utilities: np.ndarray, dtype: Any
) -> tuple[ThresholdRule, Array]:
    """Utilities in the dtype, NaN where a cast may move them by more than Delta/1024.

    The rule gets that much more sensitivity, also where the cast moves none of these: of a
    neighbour's it may. Its thresholds are traced: numbers would be subtracted first.
    """
    sensitivity = rule.sensitivity
    if sensitivity is None or jnp.promote_types(utilities.dtype, dtype) == dtype:
        return rule, jnp.asarray(utilities, dtype)
    exact = utilities.astype(dtype).astype(utilities.dtype) == utilities
    spacing = np.spacing(np.abs(utilities).astype(dtype))
    tabulated = isinstance(rule, GaussianThreshold)  # whose costs allow for as much
    levels = 2**14 if tabulated else 2**10
    held = exact | (levels * spacing <= jnp.asarray(sensitivity, dtype))
    if not tabulated:
        rule = dataclasses.replace(rule, sensitivity=jnp.asarray(sensitivity, dtype) * (1 + 2**-10))
    return rule, jnp.where(held, utilities.astype(dtype), jnp.nan)


def _cast(leaf: Any, dtype: Any) -> Any:
    """Floating numbers in one dtype, so that neither it nor Python's own retraces."""
    is_float = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
    if whole := is_integer(leaf):
        right = f"integers that {np.dtype(dtype)} holds exactly, or floats"
        check(holds(dtype, int(leaf)), "fields of the rule", leaf, right)
    return jnp.asarray(leaf, dtype) if is_float or whole else leaf


@jax.jit
def _first_yes(rule: Any, key: Array, utilities: Array, epsilons: Array) -> tuple[FirstYes, Array]:
    """The result, and whether the rule could not follow the epsilons to their end."""
    queries = key_for(rule, role_key(key, Role.QUERY))
    steps = utilities.shape[0]

    def ask(state: Any, inputs: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        step, utility, epsilon = inputs
        state, stop = rule.step(step_key(queries, step), state, epsilon, utility)
        failure = jnp.int32(rule.status(state))
        if jnp.shape(stop):
            raise ValueError(
                f"{type(rule).__name__} answers with shape {jnp.shape(stop)}: must be for one "
                "trial, its sensitivity and epsilon scalars; `vmap` over several"
            )
        status = jnp.where(stop & (failure == Status.RUNNING), Status.STOPPED, failure)
        return state, (jnp.where(jnp.isnan(utility), Status.NAN_UTILITY, status), failure)

    start = rule.init(key_for(rule, role_key(key, Role.THRESHOLD)), epsilons[0])
    _, (statuses, failures) = jax.lax.scan(ask, start, (jnp.arange(steps), utilities, epsilons))
    ended = statuses != Status.RUNNING
    found = jnp.any(ended)
    last = jnp.where(found, jnp.argmax(ended), steps - 1)
    status = jnp.where(found, statuses[last], Status.EXHAUSTED)
    stopped = status == Status.STOPPED
    # A failure is no answer, the one before was the last; but it is charged as one.
    answered = stopped | (status == Status.EXHAUSTED) | (status == Status.NAN_UTILITY)
    answers, last = last + 1, jnp.where(answered, last, last - 1)
    cost = rule.cost(epsilons[jnp.maximum(last, 0)], stopped, answers)
    cost = jnp.where((last < 0) & ~(cost > 0), jnp.zeros_like(cost), cost)  # an epsilon of -1, NaN
    cost = jnp.where((status == Status.NAN_UTILITY) & (cost != 0), jnp.inf, cost)
    wrong = (cost < 0) | jnp.isnan(cost)  # of traced numbers out of range
    cost, status = jnp.where(wrong, jnp.inf, cost), jnp.where(wrong, Status.INVALID_COST, status)
    result = FirstYes(last.astype(jnp.int32), cost, status.astype(jnp.int32))
    return result, jnp.any(failures == Status.INVALID_TIME)
