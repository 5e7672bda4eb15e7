"""Counts of words, names or cities that are not known beforehand, by noise reduction.

Only keys that someone holds get noise, so time and memory follow their number, not the number of
possible keys. A key that one user holds would reveal that user. It is therefore shown only if its
noisy count exceeds a curve that the noise of a single key crosses with a small probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype, widened
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.pytrees import static
from nrjax._base.sensitivities import Sensitivity
from nrjax._base.validation import (
    as_floats,
    check,
    check_choice,
    check_integer,
    check_made_in,
    check_number,
    check_numbers,
    check_positive,
    concrete_or_none,
    widest_made,
)
from nrjax.counts.groups import check_counts
from nrjax.engine.mechanism import Mechanism
from nrjax.guarantees import GridBoundary, HockeyStickBoundary, PureGuarantee
from nrjax.guarantees._crossing import lowest_curve
from nrjax.guarantees._rounding import check_time, round_up
from nrjax.processes import Brownian, Laplace
from nrjax.schedules import Grid
from nrjax.types import Guarantee, NoiseProcess, Utility
from nrjax.utilities import UtilitySequence

Kind = Literal["brownian", "laplace"]

_KINDS: dict[str, Any] = {"brownian": Brownian, "laplace": Laplace}
_MARGIN = 64
"""Number of machine epsilons by which the curve is raised, for the rounding of noise paths.

A rewind rounds noise by at most 4 machine epsilons, and scales older errors down.
"""


def check_held(counts: Any) -> None:
    """Check that counts are whole numbers of at least 1, as keys without a holder stay hidden."""
    check_counts(counts)
    number = concrete_or_none(counts)
    hint = "Leave out keys that nobody holds: a public list of keys needs no threshold."
    check(number is None or np.all(number >= 1), "counts", counts, "at least 1", hint)


def common_changes(keys_per_user: int, relation: str) -> int:
    """Return the largest number of counts that change by 1 if a user changes.

    Args:
        keys_per_user: largest number of keys that a user holds.
        relation: "add-remove" (one user is added or removed) or "replace".
    """
    keys_per_user = check_integer("keys_per_user", keys_per_user, 1)
    check_choice("relation", relation, ("add-remove", "replace"))
    return keys_per_user if relation == "add-remove" else 2 * keys_per_user


def laplace_quantile(chance: float) -> float:
    """Return what standard Laplace noise exceeds with at most this chance, in the default dtype.

    Draws are made of words of bits, so their tails are multiples of a grain, rounded to nearest. No
    draw exceeds the quantile of half a grain. The result also holds in float64.
    """
    for bits in (jnp.finfo(jnp.result_type(float)).bits, 64):
        half = 0.5 ** (bits + 1)
        if chance > half:
            return -math.log(2 * max(chance - half, half))
    return -math.log(2 * chance)


class KeyState(NamedTuple):
    """The noise of all held keys, and whether each key has been shown."""

    noise: Any
    shown: Array


class KeyNoise(NoiseProcess):
    """Noise on the counts of held keys, which hides a key until its noisy count is large.

    A key is shown from the first time t on at which `count + noise > 1 + u(t)`, where `u(t)` is
    `quantile sqrt(t)` (Brownian noise of variance t) or `quantile t` (Laplace noise of scale t).
    The release of a hidden key is 0, whatever its count. `unknown_keys` makes it with the right
    quantile and guarantee.

    Attributes:
        counts: the counts, which are the private value, each at least 1, shape (keys,).
        quantile: height of the curve u, in units of the noise.
        kind: "brownian" or "laplace" (static).
        made_in: float dtype for which the counts and the quantile were made (static). Noise of a
            narrower dtype is refused.
    """

    counts: Any
    quantile: ArrayLike
    kind: Kind = static(default="brownian")
    made_in: str | None = static(default=None, repr=False)

    @property
    def private_value(self) -> Any:
        """The counts, since interactions refuse another private value."""
        return self.counts

    def __post_init__(self):
        check_held(self.counts)
        check_positive("quantile", self.quantile)
        check_choice("kind", self.kind, _KINDS)
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the counts, (keys,)."""
        return jnp.shape(self.counts)

    @property
    def noise(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The distribution of the noise, with a mark that keys are hidden by it."""
        return f"thresholded {self._plain.noise}"

    @property
    def _plain(self) -> Any:
        """The noise process of all keys, hidden or not."""
        return _KINDS[self.kind](self.shape)

    def init(self, key: Array, time: ArrayLike) -> KeyState:
        """Return the first noise, at the largest time."""
        return self._seen(self._plain.init(key, time), jnp.zeros(self.shape, bool))

    def rewind(self, key: Array, state: KeyState, time: ArrayLike) -> KeyState:
        """Return the noise at a smaller time, with more keys shown."""
        return self._seen(self._plain.rewind(key, state.noise, time), state.shown)

    def _seen(self, noise: Any, shown: Array) -> KeyState:
        dtype = noise.value.dtype
        check_made_in("KeyNoise", self.made_in, dtype)
        unit = jnp.sqrt(noise.time) if self.kind == "brownian" else noise.time
        curve = round_up(jnp.asarray(self.quantile, dtype) * unit, _MARGIN)
        counts = jnp.asarray(self.counts, dtype)
        # For a count of 1 the right side is the curve, without rounding.
        return KeyState(noise, shown | ((counts >= 1) & (noise.value > curve - (counts - 1))))

    def value(self, state: KeyState) -> Array:
        """Return the noise of the keys shown, and minus the count of the others."""
        return jnp.where(state.shown, state.noise.value, -jnp.asarray(self.counts))

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise of a key that is shown."""
        return self._plain.deviation(time)


class UnknownKeysGuarantee(Guarantee):
    """The hockey-stick guarantee of counts whose keys are not known beforehand.

    With m keys per user, `P(S) <= int_S exp(epsilon(T)) dP' + delta` for every set S of transcripts
    and the time T of the stop, where `epsilon(t) = common.epsilon(t) - m log(1 - crossing)` and
    `delta = common.delta + m crossing` (statement 39 of `docs/proofs`). It holds for rules that see
    only what is shown. A realised loss may exceed epsilon more often, since hidden keys have losses
    too.

    Attributes:
        common: guarantee of the noise on the keys that both neighbours hold.
        crossing: probability with which the noise of one key crosses the curve at one of `times`.
        times: the only times at which the guarantee holds, falling, shape (levels,).
        keys_per_user: largest number of keys m that a user holds (static).
    """

    common: Guarantee
    crossing: ArrayLike
    times: Any
    keys_per_user: int = static(default=1)
    notion: ClassVar[str] = Notion.HOCKEY_STICK

    def __post_init__(self):
        ok = isinstance(self.common, Guarantee) and self.common.noise in ("gaussian", "laplace")
        check(ok, "common", self.common, "a guarantee for Gaussian or Laplace noise")
        expected = "above 0 and at most 1/2"
        check_numbers("crossing", self.crossing, lambda n: (n > 0) & (n <= 0.5), expected)
        check_positive("times", self.times)
        check_integer("keys_per_user", self.keys_per_user, 1)
        # The bits of a narrow number do not hold the allowance for its rounding.
        object.__setattr__(self, "crossing", widened(self.crossing))

    @property
    def noise(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The distribution of noise that hides keys, as `KeyNoise.noise`."""
        return f"thresholded {self.common.noise}"

    @property
    def delta(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The delta of all that is shown, rounded up."""
        total = self.common.delta + self.keys_per_user * self.crossing
        return total * (1 + 4 * float(jnp.finfo(jnp.result_type(total, float)).eps))

    @property
    def sensitivity(self) -> Any:
        """The sensitivity of the counts of keys that both neighbours hold."""
        return self.common.sensitivity

    @property
    def fixed_times(self) -> Any:
        """The only times at which the guarantee holds."""
        return self.times

    def _hidden(self, dtype: Any) -> Array:
        """Return an upper bound of `-m log(1 - crossing)`."""
        crossing = jnp.asarray(self.crossing, dtype)
        return self.keys_per_user * (crossing + crossing**2)

    @neutral_config()
    def epsilon(self, time: ArrayLike) -> Array:
        """Return the ex-post epsilon of stopping at one of `times`, rounded up, elementwise.

        At another time the result is NaN.

        Raises:
            ValueError: a concrete time is not positive.
        """
        check_time(time)
        dtype = float_dtype(time)
        times, time = jnp.asarray(self.times, dtype), jnp.asarray(time, dtype)
        listed = jnp.any(times == time[..., None], axis=-1)
        cost = self.common.epsilon(jnp.where(listed, time, times[0]))
        return jnp.where(listed, round_up(cost + self._hidden(cost.dtype), 6), jnp.nan)

    @neutral_config()
    def time(self, epsilon: ArrayLike) -> Array:
        """Return the smallest of `times` that costs at most `epsilon`, elementwise.

        If every time costs more, the result is infinite.
        """
        check_positive("epsilon", epsilon)
        dtype = float_dtype(epsilon)
        times = jnp.asarray(self.times, dtype)
        affordable = self.epsilon(times) <= jnp.asarray(epsilon, dtype)[..., None]
        return jnp.min(jnp.where(affordable, times, jnp.inf), axis=-1)


class KeysShown(Utility):
    """A utility: the number of keys that are shown with a noisy count of at least `least`.

    It is a function of what is shown, so a public test of it reveals nothing more.

        >>> utility = nrjax.counts.KeysShown(least=10.0)
        >>> float(utility.evaluate(jnp.asarray([0.0, 31.5, 8.0])))
        1.0

    Attributes:
        least: smallest noisy count to include.
    """

    least: ArrayLike = -math.inf

    @classmethod
    def within(cls, error: float, mechanism: Mechanism) -> UtilitySequence[KeysShown]:
        """Return the number of keys whose noise is small compared with their noisy count.

        Args:
            error: largest standard deviation of the noise, relative to the noisy count.
            mechanism: mechanism of `unknown_keys`, whose levels the trial uses.
        """
        check_positive("error", error)
        guarantee: Any = mechanism.guarantee
        times = jnp.asarray(guarantee.fixed_times)
        return UtilitySequence(cls(mechanism.process.deviation(times) / error))

    def evaluate(self, hypothesis: Array) -> Array:
        """Return the number of keys shown whose noisy count is at least `least`."""
        counted = (hypothesis != 0) & (hypothesis >= self.least)
        return jnp.sum(counted, dtype=hypothesis.dtype)


@neutral_config()
def unknown_keys(
    counts: ArrayLike,
    *,
    keys_per_user: int,
    delta: float,
    noise: Kind = "laplace",
    levels: tuple[float, float, int] = (0.01, 10.0, 100),
    relation: Literal["add-remove", "replace"] = "add-remove",
) -> Mechanism:
    """Return the mechanism that finds keys and counts their holders, at rising epsilons.

    Use it for words, names or cities when the list of keys is itself private. With a public list,
    use `nrjax.laplace` or `nrjax.brownian`. Laplace noise needs less epsilon for up to about 10
    keys per user, and Brownian noise for more (Korolova et al. 2009 and Rogers 2023 for one
    release; statement 39 of `docs/proofs`).

        >>> counts = [900, 400, 60, 1, 1, 1]  # numbers of users who hold each key
        >>> mechanism = nrjax.counts.unknown_keys(counts, keys_per_user=1, delta=1e-6)
        >>> interaction = mechanism.until(nrjax.counts.KeysShown(), at_least=3)
        >>> outcome = nrjax.run_until(jax.random.key(0), interaction)
        >>> list(nrjax.counts.shown("ABCDEF", outcome.release))
        ['A', 'B', 'C']

    Args:
        counts: number of users who hold each key, at least 1, shape (keys,). Every key that someone
            holds must be in it, and no other: `nrjax.datasets.count_keys` makes it. A user counts
            once per key: a threshold for several contributions to one key is not offered.
        keys_per_user: largest number of keys m that a user holds.
        delta: delta of all that is shown, at most 1/2, or 1/5 with Brownian noise. With Laplace
            noise all of it is for keys that only one neighbour holds, with Brownian noise half.
        noise: "laplace" or "brownian".
        levels: epsilons `(low, high, count)`. Laplace noise has equal ratios. With Brownian noise
            there are at most 200 levels, which cost up to a third less than equal ratios.
        relation: "add-remove" if neighbours differ in the presence of a user, or "replace".

    Raises:
        ValueError: an argument is out of range.
    """
    counts = as_floats("counts", counts, lambda n: n.ndim == 1, "a vector of whole numbers")
    check_held(counts)
    changes, keys_per_user = common_changes(keys_per_user, relation), int(keys_per_user)
    check_choice("noise", noise, _KINDS)
    most = 0.2 if noise == "brownian" else 0.5
    expected = f"above 0 and at most {most} with {noise} noise"
    delta = check_number("delta", delta, lambda n: (n > 0) & (n <= most), expected)
    low, high, number = levels
    number = check_integer("count of the levels", number, 1)
    part = delta * (1 - 32 * float(np.finfo(np.float32).eps))
    check(part / (number * keys_per_user) > 0, "delta", delta, "large enough to be divided")
    if noise == "brownian":
        part /= 2
        width: Any = Sensitivity(math.sqrt(changes), "l2", relation)
        ends = {"low": low, "high": high, "levels": number}
        times = GridBoundary.minimax_levels(sensitivity=width, delta=part, **ends).times
        # The notion is hockey-stick in any case, so the cheapest guarantee of that notion is used.
        common: Any = None
        try:
            common = HockeyStickBoundary.design(times, np.ones(number), width, part)
        except ValueError as error:  # about the times of the levels
            expected = f"epsilons that are neither too small nor too large for delta = {delta:g}"
            check(False, "levels", levels, expected, f"Raise low, or lower delta: {error}")
        # The least multiple of sqrt(t) that noise crosses at one of the times with this chance.
        roots = np.sqrt(times[::-1])
        quantile = float(np.max(lowest_curve(times[::-1], roots, part / keys_per_user) / roots))
    else:
        common = PureGuarantee(Sensitivity(changes, "l1", relation))
        times = np.asarray(Grid.geometric(common, low, high, number).times, float)
        quantile = laplace_quantile(part / (number * keys_per_user))  # a union bound over the times
    process = KeyNoise(counts, quantile, noise)
    guarantee = UnknownKeysGuarantee(common, part / keys_per_user, times, keys_per_user)
    return Mechanism(counts.astype(np.int64), process, guarantee, KeysShown())


def shown(items: Sequence[Any], release: ArrayLike) -> dict[Any, float]:
    """Return the noisy count of each key that is shown, the largest first.

    Publish this mapping, and not the release: the length of the release is the number of keys.

    Args:
        items: name of each key, in the order of the counts.
        release: release of an interaction of `unknown_keys`, shape (keys,).
    """
    numbers = np.asarray(release)
    check(numbers.shape == (len(items),), "release", release, f"of shape ({len(items)},)")
    order = np.argsort(-numbers, kind="stable")
    return {items[place]: float(numbers[place]) for place in order if numbers[place] != 0}
