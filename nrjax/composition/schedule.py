"""A schedule that ends before a time that a privacy filter does not admit."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.fields import explain_fields
from nrjax._base.keys import is_custom
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import largest_divisor
from nrjax._base.pytrees import static
from nrjax._base.sensitivities import check_norm
from nrjax._base.validation import check, check_positive, float_if_large
from nrjax.composition._ledger import Ledger, leq_with_tolerance
from nrjax.composition._state import check_owner, select
from nrjax.composition.requests import REDUCTIONS, ExPost, Pure, names
from nrjax.guarantees.recipe import hint_for
from nrjax.types import Guarantee, Outcome, Schedule, Status, StoppingRule, epsilon_at, last_time_of

_KINDS = *REDUCTIONS, ExPost


@explain_fields
class FilteredState(NamedTuple):
    """The state of a `FilteredSchedule`.

    Attributes:
        schedule: state of the schedule that is wrapped.
        times: number of times so far, int32.
    """

    schedule: Any
    times: Array


class FilteredSchedule(Schedule):
    """A schedule that wraps another one, and ends before a time that a filter does not admit.

    Use it for a round of noise reduction under a budget that is shared with other rounds. The
    filter must admit the request `kind(sensitivity, time)` of every time, the first included, plus
    the more expensive of the two answers that a private `rule` can give. If it does not, the trial
    ends with `Status.EXHAUSTED`, or with `Status.NO_TIME` if nothing was released. An `Interaction`
    refuses a process for whose noise the costs do not hold, or which does not reduce noise.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> filter = nrjax.UnifiedFilter(epsilon=1.0, delta=1e-6)
        >>> kind, grid = nrjax.composition.BrownianReduction, nrjax.Grid([1e4, 1e3, 1e2, 10.0])
        >>> schedule = nrjax.composition.FilteredSchedule(grid, filter, filter.init(), kind, 1.0)
        >>> mechanism = nrjax.brownian(120.0, 1.0, delta=1e-6, tight_at_epsilon=0.3)
        >>> interaction = mechanism.until(score, at_least=-2.0, levels=schedule)
        >>> outcome = nrjax.run_until(jax.random.key(0), interaction)
        >>> state, ok = schedule.close(schedule.state, outcome)
        >>> bool(ok)
        True

    A filtered schedule is for one run, during which the state must not change. `close` refuses a
    second run, after which no budget is left. Rounds that were opened before the run may stay open.
    Trials of `simulate` do not share a state: close each from the same state, under `vmap`. See
    `docs/proofs/composition.md`.

    Attributes:
        schedule: the schedule that is wrapped. Its times may depend only on releases.
        filter: a privacy filter, such as `nrjax.UnifiedFilter`.
        state: the filter's state before this round, of the dtype of the trial's value.
        kind: the request that the filter charges for the round (static): a kind of noise reduction,
            such as `BrownianReduction`, or `ExPost` for the guarantee's epsilon and delta.
        sensitivity: sensitivity of the value, in the norm of the request; for `ExPost` always that
            of the guarantee.
        rule: the private stopping rule whose answers the filter charges. Answers are charged as
            `ExPost` if the filter takes that kind. Otherwise, if their cost is fixed beforehand,
            they are charged as `Pure`, in full even if all are negative. Under a `RenyiFilter` the
            answers' cap is the cost of the most expensive answer at the schedule's last time, and
            the releases' cap is the guarantee's epsilon at that time.
        guarantee: the guarantee of the releases, for `ExPost` and for a rule whose cost depends on
            it.
        relation: relation of the neighbours (static), by default that of the filter.
    """

    schedule: Schedule
    filter: Any
    state: Any
    kind: type = static()
    sensitivity: Any = None
    rule: StoppingRule | None = None
    guarantee: Guarantee | None = None
    relation: str | None = static(default=None, kw_only=True)
    requires_noise_reduction: ClassVar[bool] = True

    @neutral_config()
    def __post_init__(self):
        ok = isinstance(self.schedule, Schedule)
        check(ok, "schedule", self.schedule, "an instance of nrjax.Schedule")
        ok = any(self.kind is kind for kind in _KINDS)
        check(ok, "kind", self.kind, f"one of {names(_KINDS)}")
        expected = "a privacy filter, such as nrjax.UnifiedFilter"
        check(isinstance(self.filter, Ledger), "filter", self.filter, expected)
        check_owner(self.filter, self.state)
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)
            object.__setattr__(self, "sensitivity", float_if_large(self.sensitivity))
        if self.kind is not ExPost:
            check_norm(self.sensitivity, self.kind.noise)
            expected = f"given for {self.kind.__name__}"
            check(self.sensitivity is not None, "sensitivity", self.sensitivity, expected)
        by_rule = self.rule is not None and self.rule.uses_epsilon
        if by_rule or self.kind is ExPost:
            owner = type(self.rule) if by_rule else ExPost
            expected = f"given, since the cost of {owner.__name__} is its epsilon"
            check(self.guarantee is not None, "guarantee", self.guarantee, expected)
        hint = hint_for(self.guarantee)
        check(not hint, "guarantee", self.guarantee, "a nrjax.Guarantee", hint)
        if self.kind is ExPost:  # an interaction compares its own sensitivity with this one
            object.__setattr__(self, "sensitivity", self.guarantee.sensitivity)  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def max_steps(self) -> int:
        """The largest number of times of the wrapped schedule."""
        return self.schedule.max_steps

    @property
    def noise(self) -> str | None:
        """The `NoiseProcess.noise` for which the costs hold, or None for any noise."""
        payer: Any = self.guarantee if self.kind is ExPost else self.kind
        return payer.noise

    @property
    def last_time(self) -> Any:
        """The last time of the wrapped schedule, which may end earlier."""
        return last_time_of(self.schedule)

    def request(self, time: ArrayLike, answers: Array | int = 1) -> Any:
        """Return the request for a stop at `time`, after `answers` answers of the rule."""
        time = jnp.asarray(time)
        if self.rule is None:
            return self._releases(time)
        pure = self._charges_pure()
        epsilon = jnp.full_like(time, jnp.nan)  # unused
        if self.guarantee is not None and not pure:
            epsilon = epsilon_at(self.guarantee, time, time.dtype)
        cost = self.rule.largest_cost(epsilon, answers)
        return self._releases(time), Pure(cost) if pure else ExPost(cost, cap=self._test_cap())

    def _largest_epsilon(self) -> Array | None:
        """Return the guarantee's epsilon at the last time, or None if that is unknown."""
        if self.last_time is None or self.guarantee is None:
            return None
        return jnp.nan_to_num(self.guarantee.epsilon(self.last_time), nan=0.0)

    def _test_cap(self) -> Array | None:
        """Return the largest cost of the answers, None if unknown or if caps are ignored.

        The costs of the rules of this package rise with epsilon and with the number of answers. A
        filter refuses the answers of a custom rule whose cost at a smaller epsilon is above the
        cap.
        """
        if self.rule is None or not self.filter.takes_caps:
            return None
        epsilon = self._largest_epsilon() if self.rule.uses_epsilon else jnp.asarray(jnp.nan)
        if epsilon is None or not is_custom(self.rule):
            return None if epsilon is None else self.rule.largest_cost(epsilon, self.max_steps)
        counts = jnp.arange(1, self.max_steps + 1, dtype=jnp.int32)
        return jnp.max(jax.vmap(functools.partial(self.rule.largest_cost, epsilon))(counts))

    def _charges_pure(self) -> bool:
        """Return whether answers are charged as a `Pure` request.

        That is the case if their cost is fixed and the filter takes `Pure` but not `ExPost`.
        """
        fixed, takes = self.rule is not None and self.rule.fixed_price, self.filter.takes
        return fixed and takes(Pure) and not takes(ExPost)

    def _releases(self, time: Array) -> Any:
        """Return the request for the releases up to `time`."""
        if self.kind is ExPost and self.guarantee is not None:
            cap = self._largest_epsilon() if self.filter.takes_caps else None
            request = ExPost.of(self.guarantee, time)
            return dataclasses.replace(request, cap=cap, relation=self.relation)
        return self.kind(self.sensitivity, time, relation=self.relation)

    def spent(self, outcome: Outcome) -> Any:
        """Return the request with a trial's actual cost, close to 0 if nothing was released."""
        released = outcome.step >= 0
        largest = largest_divisor(outcome.time.dtype)
        looks = None if self.guarantee is None else self.guarantee.fixed_times
        if self.kind is ExPost and looks is not None:
            largest = jnp.asarray(looks, outcome.time.dtype)[0]
        releases = self._releases(jnp.where(released, outcome.time, largest))
        if self.kind is ExPost:  # a boundary's epsilon and delta need not fall to 0
            releases = jax.tree.map(lambda field: jnp.where(released, field, 0), releases)
        if self.rule is None:
            return releases
        if self._charges_pure():
            fixed = self.rule.largest_cost(jnp.full_like(outcome.time, jnp.nan))
            return releases, Pure(jnp.where(released, fixed, 0))
        cost = jnp.where(released, outcome.test_epsilon, 0)
        return releases, ExPost(cost, cap=self._test_cap())

    def close(self, state: Any, outcome: Outcome) -> tuple[Any, Array]:
        """Charge for the one run of this schedule, given the filter's state during the run.

        Returns:
            The new state, and whether the run was admitted (bool). If it was not, no budget is
            left. A run is not admitted if the state has changed since, for example by another
            run of this schedule, if a private rule's answers cost more than the schedule checked,
            or if the cost of the trial is infinite.
        """
        released = outcome.step >= 0
        # Without a rule in the schedule, tests must be free. A failed rule costs infinity.
        test = outcome.test_epsilon
        known = (test == 0) if self.rule is None else (test < jnp.inf)
        if self.rule is not None and self._charges_pure():
            fixed = self.rule.largest_cost(jnp.full_like(outcome.time, jnp.nan))
            known &= leq_with_tolerance(test, fixed)
        known &= ~(outcome.mechanism_epsilon == jnp.inf) & (outcome.status != Status.OVERFLOW)
        outcome = outcome._replace(test_epsilon=jnp.where(known, test, 0))
        charged, ok = self.filter.spend(state, self.spent(outcome))
        before = dataclasses.replace(self.state, saved=state.saved)  # saving changes no spending
        same = jax.tree.map(lambda now, then: jnp.all(now == then), state, before)
        ok &= known & functools.reduce(jnp.logical_and, jax.tree.leaves(same))
        return select(released, charged.spent_or_void(charged.spent, ok), state), ok | ~released

    def _refuses(self, time: Array, count: Array) -> Array:
        """Return whether the filter refuses a time that is positive and finite."""
        valid = (time > 0) & (time < jnp.inf)
        safe = jnp.where(valid, time, 1)
        return valid & ~self.filter.admits(self.state, self.request(safe, count))

    def init(self) -> tuple[FilteredState, Array]:
        """Return the state and the first time, which is infinite if the filter refuses it."""
        state, time = self.schedule.init()
        time, count = jnp.asarray(time), jnp.int32(1)
        time = jnp.where(self._refuses(time, count), jnp.inf, time)
        return FilteredState(state, count), time

    def next(self, state: FilteredState, release: Array) -> tuple[FilteredState, Array, Array]:
        """Return the new state, the next time, and whether the schedule has ended.

        It also ends if the filter refuses the next time.
        """
        inner, time, done = self.schedule.next(state.schedule, release)
        time, count = jnp.asarray(time), state.times + 1
        return FilteredState(inner, count), time, done | self._refuses(time, count)
