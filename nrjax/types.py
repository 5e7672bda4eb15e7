"""The interfaces between the parts of a trial, written for ONE trial, and its result.

What derives from one is a frozen dataclass and a pytree; loop states are `NamedTuple`s. Methods of
custom parts get ordinary JAX keys.
"""

import abc
import enum
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._format import representation
from nrjax.pytrees import Pytree


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


class NoiseProcess(Pytree, abc.ABC):
    """A Markov noise process watched from large times (much noise) to small ones."""

    shape = ()
    """Shape of the noise, and of the private value it is added to; a static field, usually."""
    integral: ClassVar[bool] = False
    """Whether the noise is of integers, so that the value must be."""
    noise: ClassVar[str | None] = None
    """Law of the noise at one time: "gaussian", "laplace", "skellam" or a name of your own; None
    suits every guarantee."""

    @abc.abstractmethod
    def init(self, key: Array, time: ArrayLike) -> Any:
        """Noise at the first and largest time (scalar, > 0)."""

    @abc.abstractmethod
    def rewind(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Noise at a smaller time, given the present one; 0 < time <= the state's time."""

    @abc.abstractmethod
    def value(self, state: Any) -> Array:
        """The noise itself, of shape `shape`."""

    def largest_time(self, dtype: Any) -> float:
        """The largest time at which the stated law is that of the draws in a dtype."""
        del dtype
        return float("inf")

    def bridge(self, key: Array, lower: Any, upper: Any, time: ArrayLike) -> Any:
        """Noise at a time between those of two states, given both; strictly between."""
        raise ValueError(f"process = {self!r}: must know its bridge, for releases in any order")

    def advance(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Noise at a larger time, given the present one: forwards."""
        raise ValueError(f"process = {self!r}: must know its bridge, for releases in any order")

    def deviation(self, time: ArrayLike) -> Any:
        """Standard deviation of a coordinate's noise at `time`; NaN, by default, is unknown."""
        return jnp.full(jnp.shape(time), jnp.nan)

    def privacy_loss(self, state: Any, shift: ArrayLike) -> Array:
        """Realised privacy loss, a scalar, against `shift = f(x) - f(x')` of shape `shape`.

        A process that does not override it refuses a shift.
        """
        return jnp.full((), jnp.nan, jnp.result_type(shift, float))

    def equivalent_time(self, state: Any, time: Array) -> Array:
        """Time of the one release that would cost as much as all so far, rounded down.

        By default the present `time`, since the last release of a noise-reduction chain costs as
        much as all; other processes (`nrjax.IndependentLaplace`) override it.
        """
        return time

    def status(self, state: Any) -> Array:
        """`Status.RUNNING` (int32 scalar) while the state has the stated law, else the failure."""
        return jnp.int32(Status.RUNNING)


class BlockwiseProcess(NoiseProcess):
    """A process whose randomness is drawn apart, so that `nrjax.noise_path` draws for many."""

    @abc.abstractmethod
    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Any:
        """Return the randomness of that many moves: arrays of shape (*steps, ...), in a pytree."""

    @abc.abstractmethod
    def move(self, drawn: Any, state: Any, time: ArrayLike, /) -> Any:
        """What `rewind` makes of the randomness of one."""

    def rewind(self, key: Array, state: Any, time: ArrayLike) -> Any:
        """Noise at a smaller time, given the present one; 0 < time <= the state's time."""
        return self.move(self.draw(key, state.time.dtype), state, time)


class Guarantee(Pytree, abc.ABC):
    """What stopping at a time costs, and the time that a cost buys."""

    noise: ClassVar[str | None] = None
    """The noise that it is a guarantee for: the process's `noise`. None: for any."""
    sensitivity = None
    """Of the private value, in the norm that goes with the noise; None: not stated."""

    @abc.abstractmethod
    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at `time`; falls as time grows; rounded up; elementwise.

        Raises:
            ValueError: a concrete `time` is not positive. Under a trace the result is NaN.
        """

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time that costs at most `epsilon`, rounded to more noise; elementwise.

        Raises:
            ValueError: no time of the dtype costs as little as a concrete `epsilon` (of a traced
                one it is infinite: `Status.NO_TIME`); or it is not overridden.
        """
        raise ValueError(f"guarantee = {self!r}: must say which time costs an epsilon, for a grid")

    delta = 0.0
    """Probability with which the stated epsilon may be exceeded; 0 for pure guarantees."""

    fixed_times = None
    """The only times for which the guarantee holds, falling, shape (n,); None: any time."""

    notion: ClassVar[str] = "probabilistic"
    """What delta is: "probabilistic", as above; or "hockey-stick", where for every set of
    transcripts `P(S) <= int_S exp(epsilon) dP' + delta`, which says less of realised losses, but
    survives post-processing; "pure", with delta 0, is both. `nrjax.guarantees.NOTIONS`."""

    def on(self, schedule: "Schedule") -> "Guarantee":
        """The guarantee for runs of this schedule alone; itself, where that gains nothing."""
        return self


class Schedule(Pytree, abc.ABC):
    """Chooses the next time from the releases seen so far."""

    noise = None
    """The noise that it is made for; None: for any."""
    sensitivity = None
    """Of the private value, where it pays for releases; None: not stated."""
    requires_noise_reduction: ClassVar[bool] = False
    """Whether what it hands out is for noise-reduction chains alone, as what a filter pays for."""
    last_time = None
    """Smallest time it hands out, scalar; None: not known beforehand."""
    max_steps = 0
    """Largest number of times it hands out (static); to be overridden."""

    @abc.abstractmethod
    def init(self) -> tuple[Any, Array]:
        """State and first time."""

    @abc.abstractmethod
    def next(self, state: Any, release: Array) -> tuple[Any, Array, Array]:
        """State, next time, and whether there was none left (bool)."""


class Utility(Pytree, abc.ABC):
    """Turns a release into a hypothesis and says how good that is."""

    sensitivity = None
    """How far one row of the private data can move `evaluate`, scalar; None: not known. Private
    rules are checked against it, where a class states one, or None of a field."""
    max_steps = None
    """Number of steps that it is for; None: any."""

    def hypothesis(self, release: Array) -> Any:
        """The hypothesis made from a release: a projection, a solve, or the release itself."""
        return release

    @abc.abstractmethod
    def evaluate(self, hypothesis: Any) -> Array:
        """Utility of a hypothesis, a scalar; larger is better."""

    def at(self, step: Array) -> "Utility":
        """The utility of one step; by default the same one at each."""
        return self

    def bounds(self, hypothesis: Any) -> tuple[Any, Any]:
        """Lower and upper bound of `evaluate`, much cheaper than that; NaN where that may be.

        They include the rounding of `evaluate`, in any batch, and that of a hypothesis which
        another program may make with other last bits (so `evaluate` twice is none). Where a rule
        says the same of both, `simulate` evaluates only the release that a trial ends on.
        """
        return -jnp.inf, jnp.inf

    def enclosure(self, hypothesis: Any) -> tuple[Any, Any]:
        """The same of the utility as a real number, whatever `evaluate` rounds; else `bounds`.

        For curves that ask for no more than a resolution (`nrjax.Curve`).
        """
        return self.bounds(hypothesis)

    def ceiling(self, release: Array) -> Any:
        """Upper bound of the utility of what a release gives, rounding included; NaN where that is.

        Where a rule says no even to that, `simulate` spares itself `hypothesis` and `evaluate`.
        Not asked for where there are `bounds`.
        """
        return jnp.inf


class StoppingRule(Pytree, abc.ABC):
    """Says after each release whether it is good enough; `step` is monotone in `utility`.

    A rule whose new state depends on `utility` is never told bounds of it.
    """

    uses_epsilon: ClassVar[bool] = False
    """Whether it follows what the releases cost, and so needs a guarantee."""
    fixed_price: ClassVar[bool] = False
    """Whether `cost` is the same whatever the releases cost and however many answers there were."""
    sensitivity = None
    """That of the utility, for which `cost` holds, scalar; None where it does not matter."""
    max_steps = None
    """The most releases that it can judge; None: any number."""

    @abc.abstractmethod
    def init(self, key: Array, epsilon: Array) -> Any:
        """State before the first release; `epsilon` is the guarantee's at the first time."""

    @abc.abstractmethod
    def step(self, key: Array, state: Any, epsilon: Array, utility: Array) -> tuple[Any, Array]:
        """State, and whether to stop (bool)."""

    @abc.abstractmethod
    def cost(self, epsilon: Any, stopped: Any = True, answers: Any = 1) -> Array:
        """What testing adds to the ex-post epsilon when the releases cost `epsilon`.

        `stopped` says whether the last answer was yes; without one there were only noes. `answers`
        (int32) is the number of releases it has judged, 0 where the trial failed at its start; a
        query at which the rule itself failed is counted too.
        """

    def status(self, state: Any) -> Array:
        """`Status.RUNNING` (int32 scalar) while it has the stated law, else the failure."""
        return jnp.int32(Status.RUNNING)


def overrides(part: Any, base: type, method: str) -> bool:
    """Whether the class of a part has a method of its own in place of its base's."""
    return getattr(type(part), method) is not getattr(base, method)


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

    @property
    def stopped(self) -> Array:
        """Whether the stopping rule said yes; bool."""
        return self.status == Status.STOPPED

    @property
    def stopping_epsilon(self) -> Array:
        """`epsilon` if the trial stopped (NaN without a guarantee), else infinite."""
        epsilon = jnp.asarray(self.epsilon)
        return jnp.where(self.stopped, epsilon, jnp.asarray(jnp.inf, epsilon.dtype))

    __repr__ = representation
