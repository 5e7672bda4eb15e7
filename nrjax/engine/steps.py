"""The steps of one trial, and `run_until`, which runs the steps in a loop.

The steps are separate functions so that `nrjax.simulation` can assess the releases of many trials
together.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.captured import jit_with_captured
from nrjax._base.keys import Role, check_key, is_custom, is_key, key_for, role_key, step_key
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import check_uncast, exact_float
from nrjax._base.outcome import Outcome, Status
from nrjax._base.threefry import is_nrjax_key, shared_key, unrolled_key
from nrjax._base.tracing import cached_trace
from nrjax._base.validation import check
from nrjax.engine.checks_between_parts import COST_TOLERANCE
from nrjax.engine.checks_of_parts import unwrapped
from nrjax.engine.interaction import Interaction
from nrjax.processes._kernel import Coordinates
from nrjax.types import BlockwiseProcess, NoiseProcess, Utility, epsilon_at, overrides


class TrialState(NamedTuple):
    """The state of a trial between two steps.

    The release may be large and is not stored: `release_of` computes it from `process`.

    Attributes:
        noise: key of the noise process.
        query: key for the steps of the rule.
        step: number of the last release, from 0; -1 if the trial failed at its start.
        time: time of the last release.
        next_time: time of the next release.
        process, schedule, rule: states of the process, the schedule and the rule.
        hypothesis, utility: hypothesis and utility of the last release that was judged.
        epsilon: largest cost of the releases judged so far; 0 before the first.
        status: `Status` of the trial, int32.
    """

    noise: Array
    query: Array
    step: Array
    time: Array
    next_time: Array
    process: Any
    schedule: Any
    rule: Any
    hypothesis: Any
    utility: Array
    epsilon: Array
    status: Array


def release_epsilon(trial: Interaction, process: Any, time: Array) -> Array:
    """Return the ex-post epsilon of all releases up to `time`, NaN without a guarantee."""
    if trial.guarantee is None:
        return jnp.full_like(time, jnp.nan)
    equivalent = trial.process.equivalent_time(process, time)
    return epsilon_at(trial.guarantee, equivalent, time.dtype)


def time_status(trial: Interaction, time: Array, current: Array) -> Array:
    """Return `Status.RUNNING` if a trial may move from `current` to `time`, else a failure."""
    valid = (time > 0) & (time <= current)
    for part in unwrapped(trial.schedule):
        # Stated times were checked when the interaction was made.
        if is_custom(part) and part.times is None and part.last_time is not None:
            rounding = COST_TOLERANCE * float(jnp.finfo(time.dtype).eps)
            valid &= time >= jnp.asarray(part.last_time, time.dtype) * (1 - rounding)
    status = jnp.where(valid, Status.RUNNING, Status.INVALID_TIME)
    return jnp.where(jnp.isposinf(time), Status.NO_TIME, status).astype(jnp.int32)


def release_of(trial: Interaction, process: Any) -> Array:
    """Return the release that the analyst sees: the private value plus noise."""
    return trial.value.plus(trial.process.value(process))


def unassessed(leaf: Any) -> Array:
    """Return what an array of a hypothesis or utility holds before it is assessed: NaN, or 0."""
    number = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.inexact) else 0
    return jnp.full(leaf.shape, number, leaf.dtype)


@cached_trace
def start(trial: Interaction, key: Array) -> TrialState:
    """Return the state of a new trial, whose first release is made but not judged yet."""
    check_uncast("interaction", trial, trial._made_in)
    noise = key_for(trial.process, role_key(key, Role.NOISE))
    query = key_for(trial.rule, role_key(key, Role.QUERY))
    threshold = key_for(trial.rule, role_key(key, Role.THRESHOLD))

    dtype = trial.dtype
    schedule, time = trial.schedule.init()
    schedule = jax.tree.map(jnp.asarray, schedule)  # a custom state may hold Python numbers
    time = jnp.asarray(time, dtype)
    status = time_status(trial, time, jnp.asarray(jnp.inf, dtype))
    safe = jnp.where(status == Status.RUNNING, time, jnp.ones_like(time))
    process = jax.tree.map(jnp.asarray, trial.process.init(step_key(noise, 0), safe))
    rule = trial.rule.init(threshold, release_epsilon(trial, process, safe))
    status = jnp.where(status == Status.RUNNING, trial.process.status(process), status)
    running = status == Status.RUNNING
    nan = jnp.asarray(jnp.nan, dtype)
    hypothesis, _ = jax.eval_shape(lambda: assess(trial, jnp.int32(0), process))
    return TrialState(
        noise=noise,
        query=query,
        step=jnp.where(running, 0, -1).astype(jnp.int32),
        time=jnp.where(running, time, nan),
        next_time=safe,
        process=process,
        schedule=schedule,
        rule=jax.tree.map(jnp.asarray, rule),
        hypothesis=jax.tree.map(unassessed, hypothesis),
        utility=nan,
        epsilon=jnp.zeros((), dtype),
        status=status.astype(jnp.int32),
    )


@cached_trace
def assess(trial: Interaction, step: Array, process: Any) -> tuple[Any, Array]:
    """Return the hypothesis made from the release of a step, and the hypothesis's utility."""
    return assess_release(trial, trial.utility.at(step), release_of(trial, process))


def assess_release(trial: Interaction, utility: Utility, release: Array) -> tuple[Any, Array]:
    """Return the hypothesis made from a release, and the hypothesis's utility."""
    hypothesis = utility.hypothesis(release)
    return hypothesis, exact_float(utility.evaluate(hypothesis), trial.dtype)


def shares_hashes(trial: Interaction, noise: Array) -> bool:
    """Return whether each rewind draws one number. Two can then share a hash of two words."""
    process, dtype = trial.process, trial.dtype
    if not (is_nrjax_key(noise) and isinstance(process, BlockwiseProcess)):
        return False
    drawn = jax.tree.leaves(jax.eval_shape(lambda key: process.draw(key, dtype), noise))
    return len(drawn) == 1 and drawn[0].size == 1 and not is_key(drawn[0])


def draw_pair(trial: Interaction, noise: Array, step: Array) -> Array:
    """Return the numbers of the rewinds to `step`, which is odd, and to the next step."""
    key = shared_key(step_key(noise, step))
    return cast(BlockwiseProcess, trial.process).draw(key, trial.dtype, (2,))


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), new, old)


def next_time(trial: Interaction, state: TrialState) -> tuple[Any, Array, Array]:
    """Return the schedule's next state and time, and whether there is no further release."""
    schedule, time, done = trial.schedule.next(state.schedule, release_of(trial, state.process))
    done |= state.step + 1 >= jnp.minimum(trial.steps, trial.schedule.max_steps)
    return schedule, jnp.asarray(time, state.time.dtype), done


@cached_trace
def judge(trial: Interaction, state: TrialState, hypothesis: Any, utility: Array) -> TrialState:
    """Apply the stopping rule to the last release, and get the next time from the schedule."""
    query = step_key(state.query, state.step)
    epsilon = release_epsilon(trial, state.process, state.time)
    rule, stop = trial.rule.step(query, state.rule, epsilon, utility)
    schedule, time, done = next_time(trial, state)
    status = jnp.where(done, Status.EXHAUSTED, time_status(trial, time, state.time))
    status = jnp.where(stop, Status.STOPPED, status)
    failure = jnp.asarray(trial.rule.status(rule), jnp.int32)
    status = jnp.where(failure == Status.RUNNING, status, failure)
    status = jnp.where(jnp.isnan(utility), Status.NAN_UTILITY, status)
    if trial.guarantee is not None:
        least = state.epsilon * (1 - COST_TOLERANCE * float(jnp.finfo(epsilon.dtype).eps))
        status = jnp.where(epsilon >= least, status, Status.INVALID_COST)
        epsilon = jnp.maximum(epsilon, state.epsilon)
    judged = state._replace(next_time=time, schedule=schedule, rule=rule, epsilon=epsilon)
    judged = judged._replace(
        hypothesis=hypothesis, utility=utility, status=status.astype(jnp.int32)
    )
    return _where(state.status == Status.RUNNING, judged, state)


def _status_at(process: NoiseProcess, time: Array) -> Array | None:
    """Return the status of a process at a time, or None if it depends on more than the time.

    A custom process may move in a rewind to its own time, and so counts as the latter.
    """
    known = isinstance(process, Coordinates) and not is_custom(process)
    if not known or overrides(process, Coordinates, "status"):
        return None
    return cast(Coordinates, process).status_at(time)


@cached_trace
def advance(trial: Interaction, state: TrialState, drawn: Array | None = None) -> TrialState:
    """Rewind the noise of a running trial to `next_time`, which makes the next release.

    The number of the rewind can be `drawn` before, by `draw_pair`.
    """
    step = state.step + 1
    running = state.status == Status.RUNNING
    time = jnp.where(running, state.next_time, state.time)
    status = _status_at(trial.process, time)
    # A rewind to the same time changes nothing. It is cheaper than a selection of all noise.
    reached = time if status is None else jnp.where(status == Status.RUNNING, time, state.time)
    if drawn is None:
        process = trial.process.rewind(step_key(state.noise, step), state.process, reached)
    else:
        process = cast(BlockwiseProcess, trial.process).move(drawn, state.process, reached)
    advanced, before = state._replace(step=step, time=time, process=process), state
    if status is None:
        status = jnp.asarray(trial.process.status(process), jnp.int32)
    else:  # the noise is that of before, unless it may be released
        before = state._replace(process=process)
    # Noise without its stated distribution is never released: the trial ends at the step before.
    advanced = _where(status == Status.RUNNING, advanced, before)._replace(status=status)
    return _where(running, advanced, state)


@cached_trace
def finish(trial: Interaction, state: TrialState) -> Outcome:
    """Return the outcome of a trial that ends at its current step."""
    released = state.step >= 0
    mechanism = jnp.where(released & (trial.guarantee is not None), state.epsilon, jnp.nan)
    if trial.guarantee is not None:  # noise without its stated distribution has no finite cost
        broken = (state.status == Status.OVERFLOW) | (state.status == Status.INVALID_COST)
        mechanism = jnp.where(broken, jnp.inf, mechanism)
    # The release at `step` was judged in every case: after a failure to advance, `step` is the
    # number of the release before, and after a failure at the start it is -1.
    stopped, answers = state.status == Status.STOPPED, state.step + 1
    cost = jnp.asarray(trial.rule.cost(mechanism, stopped, answers), mechanism.dtype)
    # A NaN utility has no sensitivity, so the stated cost of a private rule does not cover it.
    broken = (state.status == Status.NAN_UTILITY) | (state.status == Status.INVALID_BOUNDS)
    broken &= cost != 0
    test = jnp.where(broken, jnp.inf, cost)
    unknown = jnp.isnan(test) & (trial.guarantee is not None)
    wrong = released & ((test < 0) | unknown)
    test = jnp.where(wrong, jnp.inf, test)
    loss = jnp.full_like(state.time, jnp.nan)
    if trial.shift is not None:
        loss = jnp.where(released, trial.process.privacy_loss(state.process, trial.shift), loss)
    return Outcome(
        step=state.step,
        time=state.time,
        release=jnp.where(released, release_of(trial, state.process), jnp.nan),
        hypothesis=state.hypothesis,
        utility=state.utility,
        mechanism_epsilon=mechanism,
        test_epsilon=test,
        epsilon=mechanism + test,
        privacy_loss=loss.astype(state.time.dtype),
        status=jnp.where(wrong, Status.INVALID_COST, state.status).astype(jnp.int32),
    )


def step(trial: Interaction, state: TrialState) -> TrialState:
    """Judge the current release and, if the trial continues, make the next release."""
    return advance(trial, judge(trial, state, *assess(trial, state.step, state.process)))


@jit_with_captured
def _run_until(trial: Interaction, key: Array) -> Outcome:
    def running(state: TrialState) -> Array:
        return state.status == Status.RUNNING

    first = start(trial, unrolled_key(key))
    return finish(trial, jax.lax.while_loop(running, partial(step, trial), first))


def run_until(key: Array, interaction: Interaction) -> Outcome:
    """Run one trial until its stopping rule accepts a release or its schedule ends.

    For many trials use `nrjax.simulate`: a `vmap` of this function runs every trial as long as the
    slowest one. Use this function inside your own `jit` and `vmap`, where `simulate` cannot run.
    Inside `jax.shard_map` it needs `check_vma=False`. Under `jax_debug_nans`, return only the
    fields that you need from your own `jit`: some fields are NaN without a guarantee or a `shift`.
    Gradients are meaningless, because the stopping step jumps.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> outcome = nrjax.run_until(jax.random.key(0), interaction)
        >>> bool(outcome.stopped), bool(outcome.utility >= -2.0)
        (True, True)

    Args:
        key: key of the trial. Two calls with the same key share their random bits.
        interaction: configuration of the trial.

    Returns:
        The `Outcome`. Its `status` reports exhausted schedules and failures.

    Raises:
        ValueError: `key` is not a key, or `interaction` is not an `Interaction`.
    """
    key = check_arguments(key, interaction)
    with neutral_config():
        return _run_until(interaction, key)


def check_arguments(key: Array, interaction: Interaction) -> Array:
    """Check the arguments of `run_until` and `scan_path`, and return a typed key."""
    check(isinstance(interaction, Interaction), "interaction", interaction, "a nrjax.Interaction")
    check_single("interaction", interaction)
    return check_key(key)


def check_single(name: str, interaction: Interaction) -> None:
    """Check that an interaction is not a batch, which `jax.vmap` or stacked leaves make."""
    shape, expected = jnp.shape(interaction.value.number), tuple(interaction.process.shape)
    batch = shape[: max(len(shape) - len(expected), 0)]
    hint = "Use nrjax.run_until under vmap, or nrjax.sweep of a list."
    check(shape == expected, name, f"a batch of shape {batch}", "a single interaction", hint)
