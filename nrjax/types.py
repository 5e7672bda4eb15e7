"""The interfaces of the parts of a trial: process, guarantee, schedule, utility and rule.

Write a part for ONE trial. Every subclass is a frozen dataclass and a pytree, and loop states are
`NamedTuple`s. Methods of custom parts receive ordinary JAX keys.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, cast

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.keys import is_custom
from nrjax._base.notions import Notion
from nrjax._base.outcome import Outcome as Outcome
from nrjax._base.outcome import Status as Status
from nrjax._base.pytrees import Pytree

_UNSTATED = cast(Any, None)
"""The default of what a part may state. Without the cast, type checkers take it for None only."""


class NoiseProcess(Pytree, abc.ABC):
    """A Markov process of noise that runs from large times (much noise) to small ones.

    The time is the noise level: the variance of Brownian noise, the scale of Laplace noise.

        >>> class Gaussian(nrjax.NoiseProcess):
        ...     shape: tuple = nrjax.static(default=())
        ...     noise = "gaussian"
        ...     def init(self, key, time):
        ...         return time, jnp.sqrt(time) * jax.random.normal(key, self.shape)
        ...     def rewind(self, key, state, time):
        ...         kept, noise = time / state[0], jax.random.normal(key, self.shape)
        ...         return time, kept * state[1] + jnp.sqrt(kept * (state[0] - time)) * noise
        ...     def value(self, state):
        ...         return state[1]
        >>> nrjax.noise_path(jax.random.key(0), Gaussian((3,)), [4.0, 2.0, 1.0]).shape
        (3, 3)

    Attributes:
        shape: shape of the noise and of the private value; usually a static field.
        integral: whether the noise is integer-valued, so that the private value must be.
        noise: distribution of the noise at one time: "gaussian", "laplace", "discrete laplace",
            "skellam", or a name of your own. Guarantees refuse noise of another name; None is
            accepted by every guarantee. It is not checked whether the noise has this distribution,
            with independent coordinates of variance (Gaussian) or scale (Laplace) `time`.
        private_value: the only private value that the process is made for, of the process's shape;
            None if it suits every value. An interaction refuses another value.
    """

    shape = ()
    integral: ClassVar[bool] = False
    noise: ClassVar[str | None] = None
    private_value = _UNSTATED

    @abc.abstractmethod
    def init(self, key: Array, time: ArrayLike) -> Any:
        """Draw the noise at the first and largest time (scalar, > 0), and return the state."""

    @abc.abstractmethod
    def rewind(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Draw the state at a time in (0, the state's time], conditionally on `state`."""

    @abc.abstractmethod
    def value(self, state: Any) -> Array:
        """Return the noise of a state, an array of the process's `shape`."""

    def largest_time(self, dtype: Any) -> float:
        """Return the largest time at which draws in `dtype` have the stated distribution."""
        del dtype
        return float("inf")

    def smallest_time(self, dtype: Any) -> float:
        """Return the smallest time at which draws in `dtype` have the stated distribution."""
        del dtype
        return 0.0

    def bridge(self, key: Array, lower: Any, upper: Any, time: ArrayLike) -> Any:
        """Return the state at a time strictly between two states' times, drawn given both.

        `nrjax.Releases` needs this method and `advance`.
        """
        raise ValueError(f"process must implement bridge and advance for Releases (got {self!r}).")

    def advance(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Draw the state at a time above the state's time, conditionally on `state`."""
        raise ValueError(f"process must implement bridge and advance for Releases (got {self!r}).")

    def deviation(self, time: ArrayLike) -> Any:
        """Return the standard deviation of one coordinate of the noise, NaN if it is unknown."""
        return jnp.full(jnp.shape(time), jnp.nan)

    def privacy_loss(self, state: Any, shift: ArrayLike) -> Array:
        """Return the realised privacy loss, a scalar, for `shift = f(x) - f(x')`.

        A process that does not override this method refuses a `shift`.
        """
        return jnp.full((), jnp.nan, jnp.result_type(shift, float))

    def equivalent_time(self, state: Any, time: Array) -> Array:
        """Return the time of the single release that costs as much as all releases so far.

        In a noise-reduction chain the last release costs as much as all, so the default is the
        current `time`. A process that draws fresh noise, such as `nrjax.IndependentLaplace`,
        overrides this method and rounds down.
        """
        return time

    def status(self, state: Any) -> Array:
        """Return `Status.RUNNING` while the noise's distribution is exact, else another status."""
        return jnp.int32(Status.RUNNING)


class BlockwiseProcess(NoiseProcess):
    """A noise process that can draw the randomness of many rewinds at once.

    `nrjax.noise_path` does so. A rewind is here split into `draw` and `move`.
    """

    @abc.abstractmethod
    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Any:
        """Return the randomness of `steps` rewinds: a pytree of arrays of shape (*steps, ...)."""

    @abc.abstractmethod
    def move(self, drawn: Any, state: Any, time: ArrayLike, /) -> Any:
        """Return the state at a smaller `time`, from the randomness of one rewind."""

    def rewind(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Draw the state at a time in (0, the state's time], conditionally on `state`."""
        return self.move(self.draw(key, state.time.dtype), state, time)


class Guarantee(Pytree, abc.ABC):
    """A privacy guarantee, which converts the time of a stop to an ex-post epsilon, and back.

        >>> class Doubled(nrjax.Guarantee):  # for values whose sensitivity is 2
        ...     noise = "laplace"
        ...     def epsilon(self, time):
        ...         return nrjax.PureGuarantee(2.0).epsilon(time)
        ...     def time(self, epsilon):
        ...         return nrjax.PureGuarantee(2.0).time(epsilon)
        >>> round(float(Doubled().epsilon(4.0)), 4)
        0.5

    Attributes:
        noise: `NoiseProcess.noise` of the processes that the guarantee is for; None for any.
        sensitivity: sensitivity of the private value, in the norm that goes with the noise; None if
            it is not stated.
        delta: probability with which the stated epsilon may be exceeded; 0 for pure guarantees.
        fixed_times: the only times at which the guarantee holds, falling, shape (looks,); None if
            it holds at any time. At another time a trial fails with `Status.INVALID_COST`.
        planned_times: times that the guarantee was made for, falling, shape (n,), if it is cheapest
            there but holds at other times too; else None. They are default levels of `until`.
        relation: relation of the neighbours, such as "replace", by default the one that
            `sensitivity` states (static); None if it is not stated.
        notion: meaning of `delta`, a `nrjax.guarantees.Notion` or its name. "probabilistic": the
            probability above. "hockey-stick": every set S of transcripts has
            `P(S) <= int_S exp(epsilon) dP' + delta`, which implies less about realised losses but
            survives post-processing. "pure": both notions, with delta 0.
    """

    noise: ClassVar[str | None] = None
    sensitivity = None
    delta = 0.0
    fixed_times = None
    planned_times = None
    relation = None
    notion: ClassVar[str] = Notion.PROBABILISTIC

    @abc.abstractmethod
    def epsilon(self, time: ArrayLike) -> Array:
        """Return the ex-post epsilon of a stop at `time`, rounded up.

        The method works elementwise, and the epsilon must not rise with `time`.

        Raises:
            ValueError: a concrete `time` is not positive. Under a trace the result is NaN.
        """

    def time(self, epsilon: ArrayLike) -> Array:
        """Return the smallest time that costs at most `epsilon`, rounded up and elementwise.

        Raises:
            ValueError: the class does not override this method, or no time of the dtype costs as
                little as a concrete `epsilon`. For a traced `epsilon` that time is infinite, and
                ends a trial with `Status.NO_TIME`.
        """
        raise ValueError(
            f"guarantee must implement time(epsilon) for a grid of epsilons (got {self!r})."
        )

    def on(self, schedule: Schedule) -> Guarantee:
        """Return a cheaper guarantee for runs of `schedule` only, or this one if there is none.

        A guarantee that holds at `schedule.times` only must list them as its `fixed_times`.
        """
        return self


class Schedule(Pytree, abc.ABC):
    """A schedule of times, which chooses the time of each release given the earlier releases.

        >>> class Halving(nrjax.Schedule):
        ...     first: float
        ...     max_steps: int = nrjax.static(default=10)
        ...     def init(self):
        ...         return (jnp.int32(1), jnp.asarray(self.first)), jnp.asarray(self.first)
        ...     def next(self, state, release):
        ...         number, time = state[0] + 1, state[1] / 2
        ...         return (number, time), time, number > self.max_steps
        >>> state, first = Halving(8.0).init()
        >>> float(Halving(8.0).next(state, release=None)[1])
        4.0

    Attributes:
        noise: `NoiseProcess.noise` of the processes that the schedule is valid for; None for any.
        sensitivity: sensitivity of the private value if the schedule pays for releases; else None.
        requires_noise_reduction: whether the schedule is valid for noise-reduction processes only,
            for example because a filter pays for the last release only.
        times: all times, shape (levels,), if they are fixed in advance: those that `init` and
            `next` return, in this order, whatever the releases are. None if times depend on
            releases. If you set `times`, boundaries are tightened to them. `nrjax.Interaction`
            runs the schedule once, and raises an error if it returns another time.
        last_time: smallest time of the schedule, scalar; None if it is that of `times`, or not
            known beforehand. A trial whose time is smaller ends with `Status.INVALID_TIME`.
        max_steps: largest number of times (static). Subclasses set it.
        schedule: the schedule that this one wraps, whose times it returns until it ends; None if it
            wraps none.
        rule: the private rule whose answers the schedule pays for; None if there is none. It must
            be the rule of the interaction.
        guarantee: the guarantee by which the schedule pays; None if it needs none.
        relation: relation of the neighbours, such as "replace", by default the one that
            `sensitivity` states (static); None if it is not stated.
    """

    noise = None
    sensitivity = None
    requires_noise_reduction: ClassVar[bool] = False
    times = _UNSTATED
    last_time = None
    max_steps = 0
    schedule = _UNSTATED
    rule = _UNSTATED
    guarantee = _UNSTATED
    relation = None

    @abc.abstractmethod
    def init(self) -> tuple[Any, Array]:
        """Return the state and the first time."""

    @abc.abstractmethod
    def next(self, state: Any, release: Array) -> tuple[Any, Array, Array]:
        """Return the new state, the next time, and whether the schedule has ended (bool)."""


class Utility(Pytree, abc.ABC):
    """A utility, which makes a hypothesis from a release and scores the hypothesis.

        >>> class Closeness(nrjax.Utility):
        ...     target: float
        ...     def evaluate(self, hypothesis):
        ...         return -jnp.abs(hypothesis - self.target)
        >>> float(Closeness(120.0).evaluate(118.0))
        -2.0

    Attributes:
        sensitivity: largest change of `evaluate` when one row of the private data changes, scalar;
            None if it is not known. Private rules allow for two roundings of the result, but not
            for those of a longer computation, such as a sum of fractions. A private rule must
            assume at least this sensitivity. If a class declares it as a field, a private rule
            needs a number.
        max_steps: number of steps that the utility covers; None for any number.
        noise: `NoiseProcess.noise` of the releases that the utility can read, a tuple for several
            kinds; None for any.
        best: score of the exact answer, scalar, which must be public; None if it is not known.
            A private test places its threshold between the target and `best`.
        relation: relation of the neighbours for which `sensitivity` holds, such as "replace"; None
            if it is not stated.
        utilities: for a sequence, the utility whose leaves have a leading axis of steps; else None.
        made_in: name of the float dtype whose rounding `sensitivity` allows for; None for any.
    """

    sensitivity = None
    max_steps = None
    noise = None
    best = cast(Any, 0.0)
    relation = None
    utilities = _UNSTATED
    made_in = cast("str | None", None)

    def hypothesis(self, release: Array) -> Any:
        """Return the hypothesis made from a release, by default the release itself."""
        return release

    @abc.abstractmethod
    def evaluate(self, hypothesis: Any) -> Array:
        """Return the utility of a hypothesis, a scalar. Larger is better."""

    def at(self, step: Array) -> Utility:
        """Return the utility at a step, by default the same utility at every step."""
        return self

    def bounds(self, hypothesis: Any, *, rounding: bool = True) -> tuple[Any, Any]:
        """Return a lower and an upper bound of `evaluate(hypothesis)`, cheaper than `evaluate`.

        If the stopping rule answers both bounds alike, `simulate` skips `evaluate`, except for the
        release on which a trial ends. Return NaN or infinite bounds if nothing is known.

        Args:
            hypothesis: result of the method `hypothesis`.
            rounding: if True, the bounds must hold for the rounded result of `evaluate`, in a batch
                of any size, also if the hypothesis differs in its last bits. Returning `evaluate`
                twice is therefore not valid. If False, the bounds must hold for the exact utility,
                a real number; `nrjax.Curve` with a `resolution` uses such bounds.
        """
        return -jnp.inf, jnp.inf

    def bounds_from_release(self, release: Array) -> tuple[Any, Any]:
        """Return a lower and an upper bound of the utility of a release.

        Override this method if the bounds can be computed without `hypothesis`. They must allow for
        rounding, as those of `bounds` do. A bound is infinite if nothing is known.
        """
        return self.bounds(self.hypothesis(release))


class StoppingRule(Pytree, abc.ABC):
    """A test of each release that decides when the trial stops.

    The answer of `step` must be monotone in `utility`. If the state of a rule depends on `utility`,
    bounds never replace the utility.

        >>> class Twice(nrjax.StoppingRule):  # public: the second good release
        ...     threshold: float
        ...     def init(self, key, epsilon):
        ...         return jnp.int32(0)
        ...     def step(self, key, state, epsilon, utility):
        ...         state = state + (utility >= self.threshold)
        ...         return state, state == 2
        ...     def cost(self, epsilon, stopped=True, answers=1):
        ...         return jnp.zeros_like(epsilon)
        >>> int(nrjax.stopping.first_yes(jax.random.key(0), Twice(2.0), [3.0, 1.0, 5.0]).step)
        2

    Attributes:
        uses_epsilon: whether the rule depends on the epsilon of the releases, so that it needs a
            guarantee.
        fixed_price: whether `cost` depends neither on the epsilon of the releases nor on the number
            of answers.
        sensitivity: sensitivity of the utility that `cost` assumes, scalar; None if it is
            irrelevant.
        max_steps: largest number of releases that the rule can judge; None for any number.
        threshold: smallest utility that is good enough: a scalar, or one number per step; None if
            the rule has none. It is by default the goal of a study's case.
        monotone: whether `cost` assumes that all utilities move in the same direction from any data
            set to any neighbour. An interaction accepts this for the relation "add-remove" only.
        relation: relation of the neighbours, such as "replace", by default the one that
            `sensitivity` states (static); None if it is not stated.
    """

    uses_epsilon: ClassVar[bool] = False
    fixed_price: ClassVar[bool] = False
    sensitivity = None
    max_steps = None
    threshold = _UNSTATED
    monotone = False
    relation = None

    @abc.abstractmethod
    def init(self, key: Array, epsilon: Array) -> Any:
        """Return the state before the rule judges the first release, which costs `epsilon`."""

    @abc.abstractmethod
    def step(self, key: Array, state: Any, epsilon: Array, utility: Array) -> tuple[Any, Array]:
        """Return the new state, and whether to stop the trial (bool)."""

    @abc.abstractmethod
    def cost(self, epsilon: Any, stopped: Any = True, answers: Any = 1) -> Array:
        """Return the epsilon that the rule's tests add to the epsilon of the releases.

        Args:
            epsilon: ex-post epsilon of the releases.
            stopped: whether the last answer was positive; if not, all answers were negative.
            answers: number of releases that were judged (int32), including one at which the rule
                failed; 0 if the trial failed at its start.
        """

    def largest_cost(self, epsilon: Any, answers: Any = 1) -> Array:
        """Return the largest cost after `answers` answers, whether the last one is yes or no.

        A filter reserves this cost before the rule answers. The arguments are those of `cost`.
        Override the method if `cost` depends on something else too, and can exceed both costs.
        """
        return jnp.maximum(*(self.cost(epsilon, stopped, answers) for stopped in (True, False)))

    def status(self, state: Any) -> Array:
        """Return `Status.RUNNING` while the rule's distribution is exact, else another status."""
        return jnp.int32(Status.RUNNING)

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Raise a `ValueError` if `dtype` is too coarse for the rule's thresholds and noise.

        Args:
            dtype: floating dtype of the run.
            levels: least number of float spacings that the sensitivity must span.
        """


def last_time_of(schedule: Schedule) -> Any:
    """Return the smallest time of a schedule, scalar, or None if it is not known beforehand."""
    return schedule.last_time if schedule.times is None else schedule.times[-1]


def epsilon_at(guarantee: Guarantee, time: Any, dtype: Any) -> Array:
    """Return the epsilon of a stop at `time`, NaN where a custom guarantee does not hold."""
    epsilon = jnp.asarray(guarantee.epsilon(time), dtype)
    if guarantee.fixed_times is None or not is_custom(guarantee):
        return epsilon  # guarantees of this package give NaN at other times than these
    listed = jnp.asarray(guarantee.fixed_times).astype(dtype)
    holds = jnp.any(listed == jnp.asarray(time, dtype)[..., None], axis=-1)
    return jnp.where(holds, epsilon, jnp.nan)


def overrides(part: Any, base: type, method: str) -> bool:
    """Return whether the class of a part replaces a method of its base class."""
    return getattr(type(part), method) is not getattr(base, method)
