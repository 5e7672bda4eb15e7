"""A schedule that goes no further than a filter lets it: asked before every rewind."""

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import largest_divisor
from nrjax._validation import check, check_positive
from nrjax.composition._ledger import near
from nrjax.composition._state import choose
from nrjax.composition.requests import REDUCTIONS, ExPost, Pure, names
from nrjax.pytrees import static
from nrjax.sensitivities import check_norm
from nrjax.types import Guarantee, Outcome, Schedule, Status, StoppingRule

_KINDS = *REDUCTIONS, ExPost


class FilteredState(NamedTuple):
    """The schedule's own state, and how many times were handed out (int32)."""

    schedule: Any
    given: Array


class FilteredSchedule(Schedule):
    """Hands out a schedule's times as long as a privacy filter admits stopping there.

    For one round of noise reduction under a budget that other rounds share: each time, the first
    included, is handed out only if `filter.admits(state, kind(sensitivity, time))`, together with
    the dearer of the two answers that a private `rule` may give there. Else the trial ends there,
    as `Status.EXHAUSTED`, or with nothing released as `Status.NO_TIME`. The engine refuses a
    process of other noise than the costs are for, or whose releases are no noise-reduction chain.

        wrapped = FilteredSchedule(grid, filter, state, BrownianReduction, sensitivity)
        trial = nrjax.Interaction(
            value=value, process=process, schedule=wrapped, utility=utility, rule=rule)
        outcome = nrjax.run_until(key, trial)
        state, accepted = wrapped.close(state, outcome)

    It is good for one run, during which the state must not have moved; `close`
    refuses a second one, after which nothing is left. Rounds that were opened before it may stay
    open. (Trials of `simulate` are worlds of their own: close each from the same state, under
    `vmap`.) See `docs/composition.md`.
    """

    schedule: Schedule
    """The schedule that is wrapped; its choices may look only at releases."""
    filter: Any
    """A privacy filter, such as `nrjax.UnifiedFilter`."""
    state: Any
    """Where it stands before this round; of the dtype of the trial's value."""
    kind: type = static()
    """As what the filter pays for the whole round: a kind of noise reduction, such as
    `BrownianReduction`, or `ExPost` for the guarantee's epsilon at each time and its delta."""
    sensitivity: Any = None
    """Of the value, as that request takes it; not needed for `ExPost`."""
    rule: StoppingRule | None = None
    """The private stopping rule whose answers the filter pays for. As `ExPost` where the filter
    takes that, else, if the price is fixed beforehand, as `Pure`: then in full even for noes. Under
    a `RenyiFilter` its cap is the dearest answer's price, at the schedule's last time; `ExPost` of
    the releases has the epsilon of that time for a cap."""
    guarantee: Guarantee | None = None
    """What the releases cost; for `ExPost`, and for a rule whose price follows it."""
    requires_noise_reduction: ClassVar[bool] = True

    def __post_init__(self):
        check(self.kind in _KINDS, "kind", self.kind, f"one of {names(_KINDS)}")
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)
        if self.kind is not ExPost:
            check_norm(self.sensitivity, self.kind.noise)
            right = f"given, as {self.kind.__name__} takes it"
            check(self.sensitivity is not None, "sensitivity", self.sensitivity, right)
        priced = self.rule is not None and self.rule.uses_epsilon
        if priced or self.kind is ExPost:
            who = type(self.rule) if priced else ExPost
            right = f"given, since {who.__name__} is priced by its epsilon"
            check(self.guarantee is not None, "guarantee", self.guarantee, right)

    @property
    def max_steps(self) -> int:
        """Largest number of times it hands out."""
        return self.schedule.max_steps

    @property
    def noise(self) -> str | None:
        """The noise that its costs hold for, by the name that processes have for theirs."""
        return getattr(self.guarantee if self.kind is ExPost else self.kind, "noise", None)

    @property
    def last_time(self) -> Any:
        """The wrapped schedule's; the filter may end it before."""
        return self.schedule.last_time

    def request(self, time: ArrayLike, answers: Array | int = 1) -> Any:
        """What must fit for the release at `time`, of which the rule judges the `answers`-th."""
        time = jnp.asarray(time)
        if self.rule is None:
            return self._releases(time)
        pure = self._pays_as_pure()
        epsilon = jnp.full_like(time, jnp.nan)  # not looked at
        if self.guarantee is not None and not pure:
            epsilon = jnp.asarray(self.guarantee.epsilon(time), time.dtype)
        price = self._dearer(epsilon, answers)
        return self._releases(time), Pure(price) if pure else ExPost(price, cap=self._test_cap())

    def _dearer(self, epsilon: Array, answers: Array | int) -> Array:
        """What the dearer of the rule's two answers comes to."""
        cost = self.rule.cost  # pyright: ignore[reportOptionalMemberAccess]
        return jnp.maximum(*(cost(epsilon, stopped, answers) for stopped in (True, False)))

    def _fixed(self, outcome: Outcome) -> Array:
        """The price of a rule that is paid for as pure."""
        return self._dearer(jnp.full_like(outcome.time, jnp.nan), 1)

    def _highest(self) -> Array | None:
        """The most that the guarantee's epsilon comes to, at the last time; None: not known."""
        if self.last_time is None or self.guarantee is None:
            return None
        return jnp.nan_to_num(self.guarantee.epsilon(self.last_time), nan=0.0)

    def _test_cap(self) -> Array | None:
        """The most that the answers can come to, where the filter asks for it and it is known."""
        if self.rule is None or not self.filter.takes_caps:
            return None
        epsilon = self._highest() if self.rule.uses_epsilon else jnp.asarray(jnp.nan)
        return None if epsilon is None else self._dearer(epsilon, self.max_steps)

    def _pays_as_pure(self) -> bool:
        """Whether the filter has no proof for ex-post answers, and these have one fixed price."""
        fixed, takes = self.rule is not None and self.rule.fixed_price, self.filter.takes
        return fixed and takes(Pure) and not takes(ExPost)

    def _releases(self, time: Array) -> Any:
        """What releases up to `time` cost."""
        if self.kind is ExPost and self.guarantee is not None:
            cap = self._highest() if self.filter.takes_caps else None
            return ExPost(self.guarantee.epsilon(time), self.guarantee.delta, cap)
        return self.kind(self.sensitivity, time)

    def spent(self, outcome: Outcome) -> Any:
        """What a trial has cost: the request to `spend`, next to nothing if none was released."""
        released = outcome.step >= 0
        largest, looks = largest_divisor(outcome.time.dtype), getattr(self.guarantee, "looks", None)
        if self.kind is ExPost and looks is not None:
            largest = jnp.asarray(looks, outcome.time.dtype)[0]
        releases = self._releases(jnp.where(released, outcome.time, largest))
        if self.kind is ExPost:  # a boundary's epsilon need not fall to 0, nor does its delta
            releases = jax.tree.map(lambda field: jnp.where(released, field, 0), releases)
        if self.rule is None:
            return releases
        if self._pays_as_pure():
            return releases, Pure(jnp.where(released, self._fixed(outcome), 0))
        price = jnp.where(released, outcome.test_epsilon, 0)
        return releases, ExPost(price, cap=self._test_cap())

    def close(self, state: Any, outcome: Outcome) -> tuple[Any, Array]:
        """Pay for the one run that was made with this schedule, from the state as it was then.

        Returns the state, and whether that was admitted (bool). If not (the state has moved since,
        say by another run of this schedule; or there were answers of a private rule that the
        schedule was not told of, or dearer ones; or the trial was charged infinitely), nothing is
        left, as after the filter's `spend`.
        """
        released = outcome.step >= 0
        # A test that the schedule was not told of; infinite where the rule's promise does not hold.
        test = outcome.test_epsilon
        known = (test == 0) if self.rule is None else (test < jnp.inf)
        if self._pays_as_pure():
            known &= near(test, self._fixed(outcome))
        known &= ~(outcome.mechanism_epsilon == jnp.inf) & (outcome.status != Status.OVERFLOW)
        outcome = outcome._replace(test_epsilon=jnp.where(known, test, 0))
        paid, ok = self.filter.spend(state, self.spent(outcome))
        same = jax.tree.map(lambda now, then: jnp.all(now == then), state, self.state)
        ok &= known & functools.reduce(jnp.logical_and, jax.tree.leaves(same))
        return choose(released, paid.happened(paid.spent, ok), state), ok | ~released

    def _refuses(self, time: Array, given: Array) -> Array:
        """Whether a time may not be handed out; those that are none are the engine's."""
        valid = (time > 0) & (time < jnp.inf)
        safe = jnp.where(valid, time, 1)
        return valid & ~self.filter.admits(self.state, self.request(safe, given))

    def init(self) -> tuple[FilteredState, Array]:
        """State, and the first time; infinite if it is not admitted."""
        state, time = self.schedule.init()
        time, given = jnp.asarray(time), jnp.int32(1)
        time = jnp.where(self._refuses(time, given), jnp.inf, time)
        return FilteredState(state, given), time

    def next(self, state: FilteredState, release: Array) -> tuple[FilteredState, Array, Array]:
        """The schedule's next time; done also if it is not admitted."""
        inner, time, done = self.schedule.next(state.schedule, release)
        time, given = jnp.asarray(time), state.given + 1
        return FilteredState(inner, given), time, done | self._refuses(time, given)
