"""A schedule that goes no further than a filter lets it: asked before every rewind."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive
from nrjax.composition.requests import BrownianReduction, ExPost, LaplaceReduction
from nrjax.pytrees import register_dataclass
from nrjax.types import Guarantee, Outcome, Schedule, StoppingRule, charge

_KINDS = (BrownianReduction, LaplaceReduction, ExPost)


class FilteredState(NamedTuple):
    """The schedule's own state, and how many times were handed out (int32)."""

    schedule: Any
    given: Array


@register_dataclass
@dataclasses.dataclass(frozen=True)
class FilteredSchedule:
    """Hands out a schedule's times as long as a privacy filter admits stopping there.

    For one round of noise reduction under a budget that other rounds share. Each time, the first
    included, is handed out only if `filter.admits(state, kind(sensitivity, time))`: a filter's
    guarantee rests on what is paid for staying within the budget surely, so a round that overshoots
    and stops afterwards is not covered (Rogers 2023, Theorem 6, condition (4) asks for the largest
    cost at the start, which is sufficient but not needed). The trial of a round whose first time is
    not admitted ends as `Status.NO_TIME`, with nothing released; a later one ends as
    `Status.EXHAUSTED`, paid for at its last release.

    A private stopping rule is paid for from the same budget: with `rule`, each time must fit
    together with what the rule's answer there would cost, be it a yes or a no.

        wrapped = FilteredSchedule(grid, filter, state, BrownianReduction, sensitivity)
        outcome = nrjax.run_until(key, value, process, None, wrapped, utility, rule)
        state, accepted = filter.spend(state, wrapped.spent(outcome))

    Attributes:
        schedule: the schedule that is wrapped; its choices may look only at releases.
        filter: a privacy filter, such as `nrjax.UnifiedFilter`.
        state: where it stands before this round; of the dtype of the trial's value.
        kind: as what the filter pays for the round: `BrownianReduction`, `LaplaceReduction`, or
            `ExPost` for the guarantee's epsilon at each time and its delta (static). One for the
            whole round: of two that hold, the smaller at the stop does not.
        sensitivity: of the value, as that request takes it; > 0, in units of the noise. Not needed
            for `ExPost`, where it is the guarantee's.
        rule: the private stopping rule whose answers the filter pays for, or None.
        guarantee: what the releases cost; for `ExPost`, and for a rule whose price follows it.

    Raises:
        ValueError: `kind` is none of these, the sensitivity is not positive and finite, a guarantee
            is needed, or, in a trial, the value's dtype is not the state's.
        TypeError: the filter has no proof for such a request.
    """

    schedule: Schedule
    filter: Any
    state: Any
    kind: type = dataclasses.field(metadata={"static": True})
    sensitivity: Any = None
    rule: StoppingRule | None = None
    guarantee: Guarantee | None = None
    dtypes: tuple[Any, ...] | None = dataclasses.field(default=None, metadata={"static": True})
    """Dtypes of the state as it was given; for the check of the value's."""

    def __post_init__(self):
        names = ", ".join(kind.__name__ for kind in _KINDS)
        check(self.kind in _KINDS, "kind", self.kind, f"one of {names}")
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)
        if self.dtypes is None:  # made by hand, not by `tree.map`, which may hand in None
            if self.kind is not ExPost:
                right = f"given, as {self.kind.__name__} takes it"
                check(self.sensitivity is not None, "sensitivity", self.sensitivity, right)
            priced = self.rule if getattr(self.rule, "uses_epsilon", False) else None
            if self.kind is ExPost or priced is not None:
                who = "ExPost" if priced is None else type(priced).__name__
                right = f"given, since {who} is priced by its epsilon"
                check(self.guarantee is not None, "guarantee", self.guarantee, right)
            object.__setattr__(self, "dtypes", self._dtypes())

    def _dtypes(self) -> tuple[Any, ...]:
        leaves = jax.tree.leaves(self.state)
        return tuple(str(leaf.dtype) for leaf in leaves if hasattr(leaf, "dtype"))

    @property
    def max_steps(self) -> int:
        """Largest number of times it hands out."""
        return self.schedule.max_steps

    @property
    def last_time(self) -> Any:
        """The wrapped schedule's last time; the filter may end it before."""
        return getattr(self.schedule, "last_time", None)

    def request(self, time: ArrayLike, answers: Array | int = 1) -> Any:
        """What must fit for the release at `time`, of which the rule judges the `answers`-th."""
        time = jnp.asarray(time)
        if self.rule is None:
            return self._releases(time)
        if self.guarantee is None:
            epsilon = jnp.full_like(time, jnp.nan)  # not looked at
        else:
            epsilon = jnp.asarray(self.guarantee.epsilon(time), time.dtype)
        costs = (charge(self.rule, epsilon, stopped, answers) for stopped in (True, False))
        return self._releases(time), ExPost(jnp.maximum(*costs))

    def _releases(self, time: Array) -> Any:
        """What releases up to `time` cost."""
        if self.kind is ExPost and self.guarantee is not None:
            return ExPost(self.guarantee.epsilon(time), self.guarantee.delta)
        return self.kind(self.sensitivity, time)

    def spent(self, outcome: Outcome) -> Any:
        """What a trial of this round has cost: the request to `spend`.

        Where nothing was released, a cost of next to nothing.
        """
        released = outcome.step >= 0
        largest = float(jnp.finfo(outcome.time.dtype).max)
        releases = self._releases(jnp.where(released, outcome.time, largest))
        if self.kind is ExPost:  # a boundary's epsilon need not fall to 0, nor does its delta
            releases = jax.tree.map(lambda field: jnp.where(released, field, 0), releases)
        if self.rule is None:
            return releases
        return releases, ExPost(jnp.where(released, outcome.test_epsilon, 0))

    def _admits(self, time: Array, given: Array) -> tuple[Array, Array]:
        """Whether a time may be handed out, and whether it is one; others are the engine's."""
        # The engine brings a trial's leaves to the value's dtype; in another one a sum or a budget
        # may be rounded to the wrong side.
        ok = self._dtypes() == self.dtypes
        check(ok, "dtype of the filter's state", self.dtypes, "that of the trial's value")
        valid = (time > 0) & (time < jnp.inf)
        safe = jnp.where(valid, time, 1)
        return self.filter.admits(self.state, self.request(safe, given)), valid

    def init(self) -> tuple[FilteredState, Array]:
        """State, and the first time; infinite if it is not admitted."""
        state, time = self.schedule.init()
        time, given = jnp.asarray(time), jnp.int32(1)
        admitted, valid = self._admits(time, given)
        return FilteredState(state, given), jnp.where(admitted | ~valid, time, jnp.inf)

    def next(self, state: FilteredState, release: Array) -> tuple[FilteredState, Array, Array]:
        """The schedule's next time; done also if it is not admitted."""
        inner, time, done = self.schedule.next(state.schedule, release)
        time, given = jnp.asarray(time), state.given + 1
        admitted, valid = self._admits(time, given)
        return FilteredState(inner, given), time, done | (valid & ~admitted)
