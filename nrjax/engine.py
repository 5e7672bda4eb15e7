"""One trial: start, assess, judge, advance, and the loops made of them.

The split lets `nrjax.simulation` assess the releases of many trials together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._cross_checks import ROUNDING
from nrjax._format import representation
from nrjax._modes import check_not_varying, neutral_config
from nrjax._numerics import exact_float, two_sum
from nrjax._threefry import unrolled
from nrjax._tracing import cached_trace
from nrjax._validation import check, concrete_or_none
from nrjax.interaction import Interaction
from nrjax.keys import Role, check_key, key_for, role_key, step_key
from nrjax.types import Outcome, Status, Utility, overrides


class TrialState(NamedTuple):
    """A trial whose last release was at `time`; `next_time` is where it goes on.

    The release may be large, and follows from the process: `release_of`. `hypothesis` and `utility`
    are of the last one that was judged.
    """

    noise: Array
    """Stream of the noise."""
    query: Array
    """Stream of the rule's queries."""
    step: Array
    time: Array
    next_time: Array
    process: Any
    schedule: Any
    rule: Any
    hypothesis: Any
    utility: Array
    epsilon: Array
    """What the releases that were judged cost, at most; 0 before."""
    status: Array


class Path(NamedTuple):
    """A whole path, with a leading axis of steps; what `run_until` would have seen."""

    time: Array
    release: Array
    hypothesis: Any
    utility: Array
    mechanism_epsilon: Array
    test_epsilon: Array
    epsilon: Array
    privacy_loss: Array
    status: Array
    """`Status` of the trial had it been judged at this step for the first time."""

    __repr__ = representation


def _epsilon(trial: Interaction, process: Any, time: Array) -> Array:
    """Ex-post epsilon of all releases up to that of `process`, at `time`; NaN without a guarantee.

    That of the last one alone, unless the process says what they cost together.
    """
    if trial.guarantee is None:
        return jnp.full_like(time, jnp.nan)
    paid = trial.process.equivalent_time(process, time)
    return jnp.asarray(trial.guarantee.epsilon(paid), time.dtype)


def _time_status(time: Array, now: Array) -> Array:
    """Whether a process at `now` can be taken to `time`."""
    valid = (time > 0) & (time <= now)
    status = jnp.where(valid, Status.RUNNING, Status.INVALID_TIME)
    return jnp.where(jnp.isposinf(time), Status.NO_TIME, status).astype(jnp.int32)


def release_of(trial: Interaction, process: Any) -> Array:
    """What the analyst sees of a process: the private value plus noise, rounded once."""
    noise = trial.process.value(process)
    value, rest = trial.value
    if rest is None:
        return value + noise
    total, lost = two_sum(value, noise)
    return total + (lost + rest)


@cached_trace
def start(trial: Interaction, key: Array) -> TrialState:
    """The first release, not judged yet; `key` is the trial's own."""
    noise = key_for(trial.process, role_key(key, Role.NOISE))
    query = key_for(trial.rule, role_key(key, Role.QUERY))
    threshold = key_for(trial.rule, role_key(key, Role.THRESHOLD))

    def blank(leaf: Any) -> Array:
        number = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.inexact) else 0
        return jnp.full(leaf.shape, number, leaf.dtype)

    dtype = trial.dtype
    schedule, time = trial.schedule.init()
    schedule = jax.tree.map(jnp.asarray, schedule)  # a state may hold Python's numbers
    time = jnp.asarray(time, dtype)
    status = _time_status(time, jnp.asarray(jnp.inf, dtype))
    safe = jnp.where(status == Status.RUNNING, time, jnp.ones_like(time))
    process = jax.tree.map(jnp.asarray, trial.process.init(step_key(noise, 0), safe))
    rule = trial.rule.init(threshold, _epsilon(trial, process, safe))
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
        hypothesis=jax.tree.map(blank, hypothesis),
        utility=nan,
        epsilon=jnp.zeros((), dtype),
        status=status.astype(jnp.int32),
    )


@cached_trace
def assess(trial: Interaction, step: Array, process: Any) -> tuple[Any, Array]:
    """Hypothesis made from the release of a step, and its utility."""
    utility = trial.utility.at(step)
    hypothesis = utility.hypothesis(release_of(trial, process))
    return hypothesis, exact_float(utility.evaluate(hypothesis), trial.dtype)


@cached_trace
def decide_from_bounds(trial: Interaction, state: TrialState) -> tuple[Array, Array]:
    """Whether bounds settle what the rule says of the present release, and a stand-in for it.

    What a rule, monotone, says of both bounds it would say of the utility in between. The stand-in
    is the bound further from the threshold: a copy of the rule that rounds otherwise gives it the
    same answer. NaNs settle nothing; bounds the wrong way round end the trial by a stand-in NaN.
    """
    utility = trial.utility.at(state.step)
    release = release_of(trial, state.process)
    if overrides(utility, Utility, "bounds"):
        pair = utility.bounds(utility.hypothesis(release))
    else:
        pair = (-jnp.inf, utility.ceiling(release))
    pair = jnp.stack([jnp.asarray(bound, trial.dtype) for bound in pair])
    query = step_key(state.query, state.step)
    epsilon = _epsilon(trial, state.process, state.time)
    # The noise of the rule is drawn once: only the utility is mapped.
    low, high = jax.vmap(lambda bound: trial.rule.step(query, state.rule, epsilon, bound)[1])(pair)
    inverted = pair[0] > pair[1]
    settled = ((low == high) & ~jnp.any(jnp.isnan(pair))) | inverted
    return settled, jnp.where(inverted, jnp.nan, jnp.where(high, pair[1], pair[0]))


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), new, old)


@cached_trace
def judge(trial: Interaction, state: TrialState, hypothesis: Any, utility: Array) -> TrialState:
    """Ask the rule; without a yes, ask the schedule for the next time."""
    query = step_key(state.query, state.step)
    epsilon = _epsilon(trial, state.process, state.time)
    rule, stop = trial.rule.step(query, state.rule, epsilon, utility)
    schedule, time, done = trial.schedule.next(state.schedule, release_of(trial, state.process))
    time = jnp.asarray(time, state.time.dtype)
    done = done | (state.step + 1 >= trial.steps)
    status = jnp.where(done, Status.EXHAUSTED, _time_status(time, state.time))
    status = jnp.where(stop, Status.STOPPED, status)
    failure = jnp.asarray(trial.rule.status(rule), jnp.int32)
    status = jnp.where(failure == Status.RUNNING, status, failure)
    status = jnp.where(jnp.isnan(utility), Status.NAN_UTILITY, status)
    if trial.guarantee is not None:
        least = state.epsilon * (1 - ROUNDING * float(jnp.finfo(epsilon.dtype).eps))
        status = jnp.where(epsilon >= least, status, Status.INVALID_COST)
        epsilon = jnp.maximum(epsilon, state.epsilon)
    judged = state._replace(next_time=time, schedule=schedule, rule=rule, epsilon=epsilon)
    judged = judged._replace(
        hypothesis=hypothesis, utility=utility, status=status.astype(jnp.int32)
    )
    return _where(state.status == Status.RUNNING, judged, state)


@cached_trace
def advance(trial: Interaction, state: TrialState) -> TrialState:
    """Rewind a running trial to `next_time` and make the next release."""
    step = state.step + 1
    key = step_key(state.noise, step)
    running = state.status == Status.RUNNING
    time = jnp.where(running, state.next_time, state.time)
    process = trial.process.rewind(key, state.process, time)
    status = jnp.asarray(trial.process.status(process), jnp.int32)
    advanced = state._replace(step=step, time=time, process=process)
    # A release without the stated law is never shown; the trial ends at the one before.
    advanced = _where(status == Status.RUNNING, advanced, state)._replace(status=status)
    return _where(running, advanced, state)


@cached_trace
def finish(trial: Interaction, state: TrialState) -> Outcome:
    """The outcome of a trial that ended, or that ends here."""
    released = state.step >= 0
    mechanism = jnp.where(released, _epsilon(trial, state.process, state.time), jnp.nan)
    if trial.guarantee is not None:  # noise that lacks its law has no bound
        mechanism = jnp.maximum(mechanism, state.epsilon)
        broken = (state.status == Status.OVERFLOW) | (state.status == Status.INVALID_COST)
        mechanism = jnp.where(broken, jnp.inf, mechanism)
    # The release at `step` has been judged however the trial ended: a failure to advance leaves the
    # step before, and one at the start leaves -1.
    stopped, answers = state.status == Status.STOPPED, state.step + 1
    cost = jnp.asarray(trial.rule.cost(mechanism, stopped, answers), mechanism.dtype)
    # A NaN has no sensitivity: that the trial ended on it is not covered by what the rule states.
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
    """Judge the present release; if it is not good enough, make the next one."""
    return advance(trial, judge(trial, state, *assess(trial, state.step, state.process)))


@jax.jit
def _run_until(trial: Interaction, key: Array) -> Outcome:
    def running(state: TrialState) -> Array:
        return state.status == Status.RUNNING

    def whole(key: Array) -> Outcome:
        begun = start(trial, key)
        return finish(trial, jax.lax.while_loop(running, partial(step, trial), begun))

    return whole(unrolled(key))


def run_until(key: Array, interaction: Interaction) -> Outcome:
    """Run one trial until its stopping rule says yes or its schedule ends.

    Works under `jit` and `vmap`; for many trials use `nrjax.simulate`, because a `vmap` of this
    runs every trial as long as the slowest. It has no useful gradient: where a trial stops is a
    jump. Under `jax_debug_nans`, a `jit` of one's own should return only what it needs: an outcome
    has NaN where it has no guarantee or no shift. `jax.shard_map` needs `check_vma=False`.

    Args:
        key: the trial's own key; two calls with one key share their random bits.
        interaction: what is run.

    Returns:
        The outcome; exhaustion and failures are its `status`.

    Raises:
        ValueError: `key` is not a key, or `interaction` is none.
    """
    key = _ready(key, interaction)
    with neutral_config():
        return _run_until(interaction, key)


def _ready(key: Array, interaction: Interaction) -> Array:
    check(isinstance(interaction, Interaction), "interaction", interaction, "a nrjax.Interaction")
    key = check_key(key)
    check_not_varying(interaction, key)
    return key


def path_step(
    trial: Interaction, carry: tuple[TrialState, Array], hypothesis: Any, utility: Array
) -> tuple[tuple[TrialState, Array], Path]:
    """A step of a trial that goes on after the rule has said yes, and its row of the path.

    Beside the state the carry has whether the last row was a yes, and no other follows.
    """
    state, ended = carry
    judged = judge(trial, state, hypothesis, utility)
    stopped = judged.status == Status.STOPPED
    status = jnp.where(ended, Status.STOPPED, judged.status).astype(jnp.int32)
    seen = finish(trial, judged._replace(status=status))
    # Judged again as if the rule had said no, to learn whether the schedule goes on.
    more = _time_status(judged.next_time, judged.time)
    done = trial.schedule.next(state.schedule, release_of(trial, state.process))[2]
    more = jnp.where(done, Status.EXHAUSTED, more).astype(jnp.int32)
    going = judged._replace(status=jnp.where(stopped, more, judged.status))
    ended |= stopped & (more != Status.RUNNING)
    record = Path(**{name: getattr(seen, name) for name in Path._fields})
    return (advance(trial, going), ended), record


def path(
    trial: Interaction,
    key: Array,
    length: int,
    assessed: Callable[[Array, Any], tuple[Any, Array]] | None = None,
) -> Path:
    """`length` steps of a trial; `assessed(step, process)` in place of `assess`, if given."""
    assessed = assessed or partial(assess, trial)

    def body(carry: tuple[TrialState, Array], _: Any) -> tuple[tuple[TrialState, Array], Path]:
        return path_step(trial, carry, *assessed(carry[0].step, carry[0].process))

    _, records = jax.lax.scan(body, (start(trial, key), jnp.bool_(False)), None, length=length)
    return records


@partial(jax.jit, static_argnums=2)
def _scan_path(trial: Interaction, key: Array, length: int) -> Path:
    return path(trial, unrolled(key), length)


def scan_path(key: Array, interaction: Interaction) -> Path:
    """The whole path of a trial, stopped or not: the slow oracle of `run_until`.

    Arguments and errors as for `run_until`. A trial that ends (schedule exhausted, failure)
    repeats its last row.

    Returns:
        A path with a leading axis of `max_steps`; of the schedule's own where that is traced.
    """
    key = _ready(key, interaction)
    steps = concrete_or_none(interaction.steps)
    with neutral_config():
        length = interaction.schedule.max_steps if steps is None else int(steps)
        return _scan_path(interaction, key, length)
