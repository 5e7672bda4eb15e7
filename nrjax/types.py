"""The interfaces between the parts of a trial, and its result; no mathematics here.

Everything is written for ONE trial; `nrjax.montecarlo` does the batching. Parameters are frozen
dataclasses registered as pytrees, so one can `vmap` over a sensitivity without retracing; loop
states are `NamedTuple`s.
"""

import enum
import inspect
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from jax import Array
from jax.typing import ArrayLike

from nrjax._shown import representation

State = TypeVar("State")


class Status(enum.IntEnum):
    """How a trial ended. Only `STOPPED` means that the stopping rule said yes."""

    RUNNING = 0
    """Not ended yet; never in a finished `Outcome`."""
    STOPPED = 1
    """The stopping rule said yes."""
    EXHAUSTED = 2
    """The schedule, or `max_steps`, ended without a yes."""
    NAN_UTILITY = 3
    """The utility of a release was NaN."""
    NO_TIME = 4
    """The next epsilon is one that no time reaches (its time is not finite)."""
    OVERFLOW = 5
    """The process left the range in which its law is exact (jump buffer, counts)."""
    INVALID_TIME = 6
    """The next time was not in (0, present time], or outside what the process was built for."""
    INVALID_COST = 7
    """A guarantee or a rule stated a cost that is negative or NaN, or that fell from one release to
    the next."""
    INVALID_BOUNDS = 8
    """The lower bound of a utility was above its upper one."""


class NoiseProcess(Protocol[State]):
    """A Markov noise process watched from large times (much noise) to small ones."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the noise, and of the private value it is added to."""
        ...

    noise: ClassVar[str]
    """Law of the noise at one time: "gaussian", "laplace", "skellam" or a name of your own."""

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of a coordinate's noise at `time`."""
        ...

    def init(self, key: Array, time: ArrayLike) -> State:
        """Noise at the first and largest time (scalar, > 0)."""
        ...

    def rewind(self, key: Array, state: State, time: ArrayLike) -> State:
        """Noise at a smaller time, given the present one; 0 < time <= the state's time."""
        ...

    def value(self, state: State) -> Array:
        """The noise itself, of shape `shape`."""
        ...

    def privacy_loss(self, state: State, shift: ArrayLike) -> Array:
        """Realised privacy loss, a scalar, against `shift = f(x) - f(x')` of shape `shape`."""
        ...

    def status(self, state: State) -> Array:
        """`Status.RUNNING` (int32 scalar) while the state has the stated law, else the failure."""
        ...

    # A process whose releases do not form a noise-reduction chain (`nrjax.IndependentLaplace`), so
    # that all of them are paid for, not just the last, also has
    #   composed_time(state): time of the one release that would cost as much as all so far,
    #     rounded down; the guarantee is asked for its epsilon there instead of at the last time.
    # `realised_loss = False` says that `privacy_loss` is not to be had: NaN; a shift is refused.
    #
    # A process may also give its `rewind` in two parts, for `nrjax.noise_path` to draw many steps
    # with one key; `rewind(key, state, time)` is `move(draw(key, state.time.dtype), state, time)`:
    #   draw(key, dtype, steps=()): the randomness of that many moves, of shape (*steps, ...);
    #   move(drawn, state, time): what `rewind` makes of that of one.


class Guarantee(Protocol):
    """What stopping at a time costs, and the time that a cost buys."""

    noise: ClassVar[str]
    """The noise that it is a guarantee for: the process's `noise`."""

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at `time`; falls as time grows; rounded up."""
        ...

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time that costs at most `epsilon`, rounded to more noise.

        Raises:
            ValueError: no time costs as little as `epsilon`, when concrete. Under a trace the
                result is infinite instead, which the engine reports as `Status.NO_TIME`.
        """
        ...

    @property
    def delta(self) -> Array | float:
        """Probability with which the stated epsilon may be exceeded; 0 for pure guarantees."""
        ...


class Schedule(Protocol[State]):
    """Chooses the next time from the releases seen so far."""

    @property
    def max_steps(self) -> int:
        """Largest number of times it hands out (static)."""
        ...

    @property
    def last_time(self) -> ArrayLike:
        """Smallest time it hands out."""
        ...

    def init(self) -> tuple[State, Array]:
        """State and first time."""
        ...

    def next(self, state: State, release: Array) -> tuple[State, Array, Array]:
        """State, next time, and whether there was none left (bool)."""
        ...


class Utility(Protocol):
    """Turns a release into a hypothesis and says how good that is."""

    def hypothesis(self, release: Array) -> Array:
        """The hypothesis made from a release: a projection, a solve, or the release itself."""
        ...

    def evaluate(self, hypothesis: Array) -> Array:
        """Utility of a hypothesis, a scalar; larger is better."""
        ...

    # A utility may also have
    #   bounds(hypothesis): lower and upper bound of `evaluate`, much cheaper than that, NaN where
    #     that may be. They hold for what `evaluate` computes: its rounding is included, in any
    #     batch, and that of a hypothesis which another program may make with other last bits
    #     (so `evaluate` twice is none). Where a rule says the same of both, `simulate` spares
    #     itself `evaluate`, but for the release that a trial ends on;
    #   sensitivity: how far one row of the private data can move `evaluate`; private rules are
    #     checked against it;
    #   at(step): the utility of one step, for those that differ from step to step
    #     (`nrjax.UtilitySequence`);
    #   ceiling(release): upper bound of the utility of what a release gives, rounding included,
    #     NaN where that may be; where a rule says no even to that, `simulate` spares itself
    #     `hypothesis` and `evaluate`. Not asked for where there are `bounds`.


class StoppingRule(Protocol[State]):
    """Says after each release whether it is good enough.

    `step` is monotone in `utility`. A rule whose new state depends on `utility` is never told
    bounds of it.

    A rule may also have `status(state)`: `Status.RUNNING` (int32 scalar) while it has the stated
    law, else the failure; `max_steps`: the most releases it can judge, or None; and `sensitivity`:
    that of the utility, for which its `cost` holds.
    """

    def init(self, key: Array, epsilon: Array) -> State:
        """State before the first release; `epsilon` is the guarantee's at the first time."""
        ...

    def step(self, key: Array, state: State, epsilon: Array, utility: Array) -> tuple[State, Array]:
        """State, and whether to stop (bool)."""
        ...

    def cost(self, epsilon: Array, stopped: Array | bool = True) -> Array:
        """What testing adds to the ex-post epsilon when the releases cost `epsilon`.

        `stopped` says whether the last answer was yes; without one there were only noes. A rule
        that charges the same for both may leave the argument out. A rule whose answers are each
        paid for takes a third, `answers` (int32): the number of releases it has judged. That is
        `step + 1` however the trial ended, since a process that fails to advance leaves the
        release before, and 0 where it failed at its start; a query at which the rule itself failed
        is counted too.
        """
        ...


def charge(
    rule: StoppingRule, epsilon: Array, stopped: Array | bool, answers: Array | int
) -> Array:
    """A rule's `cost`, told as much of the rest as it takes."""
    known = {"stopped": stopped, "answers": answers}
    asked = inspect.signature(rule.cost).parameters
    # A wrapper's **kwargs passes on what the rule inside is charged by.
    any_name = any(one.kind == inspect.Parameter.VAR_KEYWORD for one in asked.values())
    told = {name: value for name, value in known.items() if any_name or name in asked}
    return rule.cost(epsilon, **told)


class PrivacyFilter(Protocol[State]):
    """Keeps what many mechanisms cost, together, within one budget.

    A request says what kind of mechanism it is and how much: `nrjax.composition.requests`. A tuple
    of requests is their sum. A kind for which a filter has no proof is a `TypeError`; a field out
    of range is a `ValueError` where it is concrete, and never accepted where it is traced. Filters
    are subclasses of `nrjax.composition._ledger.Ledger`, which does all but the prices.
    """

    def init(self, rounds: int = 0) -> State:
        """Nothing spent, and places for `rounds` rounds that are open at the same time."""
        ...

    def takes(self, kind: type) -> bool:
        """Whether something is proved for this kind of request."""
        ...

    def remaining(self, state: State, round: Any | None = None) -> Array:
        """What is left beside open rounds, or for one of them, in the filter's currency."""
        ...

    def cost(self, request: Any) -> Array:
        """What a request would take of it, rounded up."""
        ...

    def admits(self, state: State, request: Any) -> Array:
        """Whether a mechanism may still be started, or rewound, that may cost that much (bool).

        To be asked before every rewind, the first release included.
        """
        ...

    def take(self, state: State, request: Any) -> tuple[State, Array]:
        """Ask and pay in one, before a mechanism is run: state, and whether to run it (bool).

        If not, the state is as it was.
        """
        ...

    def spend(self, state: State, spent: Any, admitted: Any | None = None) -> tuple[State, Array]:
        """Pay for what has happened: state, and whether it was within what was admitted (bool).

        If not, nothing is left. `admitted` is the request that was asked for.
        """
        ...

    def open(self, state: State, request: Any) -> tuple[State, Any, Array]:
        """Ask for the first release of a round beside others: state, handle, and whether (bool).

        Of a state from `init(rounds=...)`.
        """
        ...

    def rewind(self, state: State, round: Any, request: Any) -> tuple[State, Array]:
        """Ask for a rewind of an open round: state, and whether it is admitted (bool)."""
        ...

    def close(self, state: State, round: Any, request: Any) -> tuple[State, Array]:
        """Pay for a round that is over: state, and whether it was within what it held (bool).

        If not, nothing is left.
        """
        ...

    def smallest_time(
        self, state: State, kind: type, sensitivity: ArrayLike = 1.0, round: Any | None = None
    ) -> Array:
        """Smallest time to which a round of `kind` may be rewound now, rounded to more noise.

        Infinite where nothing is left.
        """
        ...


class Odometer(Protocol[State]):
    """Adds up what mechanisms cost, for a bound that holds at all times at once."""

    def init(self) -> State:
        """Nothing spent."""
        ...

    def spend(self, state: State, spent: Any) -> State:
        """State after a mechanism that cost that much."""
        ...

    def bound(self, state: State) -> Array:
        """Epsilon so far, rounded up; infinite after a traced request that was out of range."""
        ...


class Outcome(NamedTuple):
    """Where a trial ended. From `simulate` every field has a leading axis of trials."""

    step: Array
    """Number of the last step, from 0; -1 if nothing was released. int32."""
    time: Array
    """Time (noise level) of the last release; NaN if there was none."""
    release: Array
    """The last release: value plus noise."""
    hypothesis: Any
    """The hypothesis made from it."""
    utility: Array
    """Utility of that hypothesis."""
    mechanism_epsilon: Array
    """Ex-post epsilon of the releases; NaN without a guarantee or a release, else infinite after
    an overflow."""
    test_epsilon: Array
    """What the stopping rule added to it."""
    epsilon: Array
    """Total ex-post epsilon of what was shown, whether or not the rule said yes."""
    privacy_loss: Array
    """Realised loss of the releases against `shift`; NaN without one."""
    status: Array
    """A `Status`. int32."""

    def __repr__(self) -> str:
        return representation(self)
