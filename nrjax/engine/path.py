"""Whole paths: every step of a trial, also after its stopping rule has accepted a release."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.captured import jit_with_captured
from nrjax._base.modes import neutral_config
from nrjax._base.outcome import Status, result_representation
from nrjax._base.pytrees import record
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import concrete_or_none
from nrjax.engine.interaction import Interaction
from nrjax.engine.steps import (
    TrialState,
    advance,
    assess,
    check_arguments,
    finish,
    judge,
    next_time,
    start,
    time_status,
)


@record
class Path(NamedTuple):
    """A whole path of a trial. Every field has a leading axis of steps.

    `nrjax.scan_path` returns it.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> path = nrjax.scan_path(jax.random.key(0), interaction)
        >>> bool(jnp.all(jnp.diff(path.epsilon) >= 0))  # epsilon grows step by step
        True

    Attributes:
        time: time (noise level) of the step's release.
        release: the private value plus noise.
        hypothesis: hypothesis that the utility made from the release.
        utility: utility of the hypothesis.
        mechanism_epsilon: ex-post epsilon of the releases up to this step.
        test_epsilon: epsilon that the tests of the stopping rule add.
        epsilon: total epsilon of a stop at this step.
        privacy_loss: realised privacy loss for the interaction's `shift`; NaN without a `shift`.
        status: `Status` after this step, as if the rule had accepted no earlier release.
    """

    time: Array
    release: Array
    hypothesis: Any
    utility: Array
    mechanism_epsilon: Array
    test_epsilon: Array
    epsilon: Array
    privacy_loss: Array
    status: Array

    __repr__ = result_representation


def path_step(
    trial: Interaction, carry: tuple[TrialState, Array], hypothesis: Any, utility: Array
) -> tuple[tuple[TrialState, Array], Path]:
    """Take one step of a path, and return the new carry and the step's row of the path.

    The path continues after an accepted release. The carry is the trial's state, and whether the
    schedule ended on an accepted release.
    """
    state, ended = carry
    judged = judge(trial, state, hypothesis, utility)
    stopped = judged.status == Status.STOPPED
    status = jnp.where(ended, Status.STOPPED, judged.status).astype(jnp.int32)
    outcome = finish(trial, judged._replace(status=status))
    # The status as if the release were not accepted, which shows whether the schedule continues.
    unstopped = time_status(trial, judged.next_time, judged.time)
    unstopped = jnp.where(next_time(trial, state)[2], Status.EXHAUSTED, unstopped).astype(jnp.int32)
    following = judged._replace(status=jnp.where(stopped, unstopped, judged.status))
    ended |= stopped & (unstopped != Status.RUNNING)
    row = Path(**{name: getattr(outcome, name) for name in Path._fields})
    return (advance(trial, following), ended), row


def run_path(
    trial: Interaction,
    key: Array,
    length: int,
    assess_step: Callable[[Array, Any], tuple[Any, Array]] | None = None,
) -> Path:
    """Run `length` steps of a trial, with `assess_step` in place of `assess` if given."""
    assess_step = assess_step or partial(assess, trial)

    def body(carry: tuple[TrialState, Array], _: Any) -> tuple[tuple[TrialState, Array], Path]:
        return path_step(trial, carry, *assess_step(carry[0].step, carry[0].process))

    _, rows = jax.lax.scan(body, (start(trial, key), jnp.bool_(False)), None, length=length)
    return rows


@partial(jit_with_captured, static_argnums=(2,))
def _scan_path(trial: Interaction, key: Array, length: int) -> Path:
    return run_path(trial, unrolled_key(key), length)


def scan_path(key: Array, interaction: Interaction) -> Path:
    """Run every step of one trial, also those after its stopping rule has accepted a release.

    Use it to draw curves along a path, and to check `run_until` step by step. After the schedule
    ends, or after a failure, the last row is repeated.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> nrjax.scan_path(jax.random.key(0), interaction).utility.shape
        (100,)

    Args:
        key: key of the trial, as for `run_until`.
        interaction: configuration of the trial.

    Returns:
        A `Path` with `interaction.steps` rows, or `interaction.schedule.max_steps` rows if the
        former number is traced.

    Raises:
        ValueError: `key` is not a key, or `interaction` is not an `Interaction`.
    """
    key = check_arguments(key, interaction)
    steps = concrete_or_none(interaction.steps)
    with neutral_config():
        length = interaction.schedule.max_steps if steps is None else int(steps)
        return _scan_path(interaction, key, length)
