"""A schedule that goes no further than a filter lets it: asked before every rewind."""

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, largest_divisor
from nrjax.composition._state import choose, happened, near
from nrjax.composition.requests import BrownianReduction, ExPost, LaplaceReduction, Pure
from nrjax.pytrees import static
from nrjax.sensitivities import check_norm
from nrjax.types import Guarantee, Outcome, Schedule, Status, StoppingRule

_KINDS = (BrownianReduction, LaplaceReduction, ExPost)


class FilteredState(NamedTuple):
    """The schedule's own state, and how many times were handed out (int32)."""

    schedule: Any
    given: Array


class FilteredSchedule(Schedule):
    """Hands out a schedule's times as long as a privacy filter admits stopping there.

    For one round of noise reduction under a budget that other rounds share. Each time, the first
    included, is handed out only if `filter.admits(state, kind(sensitivity, time))`: a filter's
    guarantee rests on what is paid for staying within the budget surely, so a round that overshoots
    and stops afterwards is not covered (Rogers 2023, Theorem 6, condition (4) asks for the largest
    cost at the start, which is sufficient but not needed). The trial of a round whose first time is
    not admitted ends as `Status.NO_TIME`, with nothing released; a later one ends as
    `Status.EXHAUSTED`, paid for at its last release.

    A private stopping rule is paid for from the same budget: with `rule`, each time must fit
    together with what the rule's answer there would cost, be it a yes or a no. The engine refuses a
    process of other noise than the costs are for, or whose releases are no noise-reduction chain.

        wrapped = FilteredSchedule(grid, filter, state, BrownianReduction, sensitivity)
        trial = nrjax.Interaction(
            value=value, process=process, schedule=wrapped, utility=utility, rule=rule)
        outcome = nrjax.run_until(key, trial)
        state, accepted = wrapped.close(state, outcome)

    It is good for one run. Two runs cannot see each other, so that each may go as far as the filter
    lets one; `close` refuses the second, after which nothing is left. (Trials of `simulate` are
    worlds of their own: close each from the same state, under `vmap`.) Between wrapping and closing
    the state must not have moved; rounds that were opened before it may stay open.

    Attributes:
        schedule: the schedule that is wrapped; its choices may look only at releases.
        filter: a privacy filter, such as `nrjax.UnifiedFilter`.
        state: where it stands before this round; of the dtype of the trial's value. Rounds that it
            has open keep what they hold.
        kind: as what the filter pays for the round: `BrownianReduction`, `LaplaceReduction`, or
            `ExPost` for the guarantee's epsilon at each time and its delta (static). One for the
            whole round: the smaller of two valid costs at the stop is not a valid one.
        sensitivity: of the value, as that request takes it; not needed for `ExPost`.
        rule: the private stopping rule whose answers the filter pays for, or None. As `ExPost`
            where the filter takes that, else, if the price is fixed beforehand, as `Pure`: then in
            full even if there were only noes.
        guarantee: what the releases cost; for `ExPost`, and for a rule whose price follows it.

    Raises:
        ValueError: a field is missing or out of range.
    """

    schedule: Schedule
    filter: Any
    state: Any
    kind: type = static()
    sensitivity: Any = None
    rule: StoppingRule | None = None
    guarantee: Guarantee | None = None
    for_chains: ClassVar[bool] = True

    def __post_init__(self):
        names = ", ".join(kind.__name__ for kind in _KINDS)
        check(self.kind in _KINDS, "kind", self.kind, f"one of {names}")
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)
        if self.kind is not ExPost:
            check_norm(self.sensitivity, self.kind.noise)
            right = f"given, as {self.kind.__name__} takes it"
            check(self.sensitivity is not None, "sensitivity", self.sensitivity, right)
        priced = self.rule if self.rule is not None and self.rule.uses_epsilon else None
        if self.kind is ExPost or priced is not None:
            who = "ExPost" if priced is None else type(priced).__name__
            right = f"given, since {who} is priced by its epsilon"
            check(self.guarantee is not None, "guarantee", self.guarantee, right)

    @property
    def max_steps(self) -> int:
        """Largest number of times it hands out."""
        return self.schedule.max_steps

    @property
    def noise(self) -> str | None:
        """The noise that its costs hold for, by the name that processes have for theirs."""
        if self.kind is ExPost:
            return None if self.guarantee is None else self.guarantee.noise
        return self.kind.noise  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def last_time(self) -> Any:
        """The wrapped schedule's last time; the filter may end it before."""
        return self.schedule.last_time

    def request(self, time: ArrayLike, answers: Array | int = 1) -> Any:
        """What must fit for the release at `time`, of which the rule judges the `answers`-th."""
        time = jnp.asarray(time)
        if self.rule is None:
            return self._releases(time)
        pure = self._pays_as_pure()
        if self.guarantee is None or pure:
            epsilon = jnp.full_like(time, jnp.nan)  # not looked at
        else:
            epsilon = jnp.asarray(self.guarantee.epsilon(time), time.dtype)
        costs = (self.rule.cost(epsilon, stopped, answers) for stopped in (True, False))
        return self._releases(time), (Pure if pure else ExPost)(jnp.maximum(*costs))

    def _pays_as_pure(self) -> bool:
        """Whether the filter has no proof for ex-post answers, and these have one fixed price."""
        if self.rule is None or self.filter.takes(ExPost) or not self.filter.takes(Pure):
            return False
        return self.rule.fixed_price

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
        largest = largest_divisor(outcome.time.dtype)
        releases = self._releases(jnp.where(released, outcome.time, largest))
        if self.kind is ExPost:  # a boundary's epsilon need not fall to 0, nor does its delta
            releases = jax.tree.map(lambda field: jnp.where(released, field, 0), releases)
        if self.rule is None:
            return releases
        if self._pays_as_pure():
            test = self.request(outcome.time)[1]
            return releases, Pure(jnp.where(released, test.epsilon, 0))
        return releases, ExPost(jnp.where(released, outcome.test_epsilon, 0))

    def close(self, state: Any, outcome: Outcome) -> tuple[Any, Array]:
        """Pay for the one run that was made with this schedule.

        Args:
            state: of the filter, as it was when the schedule was made.
            outcome: of that run; for many, `vmap` over them.

        Returns:
            The state, and whether that was admitted (bool). If not, the state has moved since (a
            run of this schedule was paid for before, say), and what two runs released may come to
            more than the budget; or answers of a private rule were paid for that the schedule was
            not told of, or dearer ones; or the trial was charged infinitely. Then nothing is left,
            as after the filter's `spend`.
        """
        released = outcome.step >= 0
        # A test that the schedule was not told of; infinite where the rule's promise does not hold.
        test = outcome.test_epsilon
        known = (test == 0) if self.rule is None else (test < jnp.inf)
        if self._pays_as_pure():
            known &= near(test, self.request(outcome.time)[1].epsilon)
        known &= ~(outcome.mechanism_epsilon == jnp.inf) & (outcome.status != Status.OVERFLOW)
        outcome = outcome._replace(test_epsilon=jnp.where(known, test, 0))
        paid, ok = self.filter.spend(state, self.spent(outcome))
        same = jax.tree.map(lambda now, then: jnp.all(now == then), state, self.state)
        ok &= known & functools.reduce(jnp.logical_and, jax.tree.leaves(same))
        return choose(released, happened(paid, paid.spent, ok), state), ok | ~released

    def _admits(self, time: Array, given: Array) -> tuple[Array, Array]:
        """Whether a time may be handed out, and whether it is one; others are the engine's."""
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
