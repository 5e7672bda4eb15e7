"""Releases of one value in any order: to readers of different trust."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._cross_checks import check_integral
from nrjax._numerics import float_dtype, two_sum
from nrjax._validation import as_numeric, check, check_integer, check_shape, concrete_or_none
from nrjax.guarantees._rounding import check_time
from nrjax.interaction import Value, two_parts
from nrjax.keys import abstract_key, check_key
from nrjax.pytrees import Pytree, static
from nrjax.types import Guarantee, NoiseProcess, Status, overrides


class Releases(Pytree):
    """Releases of one private value at times asked for in any order, at the cost of the smallest.

    Noise at a new time is drawn given that of its neighbours: between two times by the bridge,
    above the largest forwards, below the smallest by the reverse kernel. So all releases are those
    of one path, and everything released so far costs what the release at the smallest time does; a
    release above it costs nothing (Andersson et al. 2025; `docs/frontier.md`). A time that was
    asked for before gives the same release again.

        releases = nrjax.Releases.of(value, nrjax.Laplace((3,)), nrjax.PureGuarantee(1.0))
        releases, public = releases.at(key1, 10.0)
        releases, internal = releases.at(key2, 0.5)
        releases, partner = releases.at(key3, 2.0)  # costs no more
        releases.epsilon()  # of all three together: 2

    A pytree, which works under `jit` and `vmap`; nothing is changed in place.

    Attributes:
        value: the private value.
        process: the noise: `Brownian`, `Laplace`, `DiscreteLaplace`, or one that knows its bridge.
        guarantee: what stopping at a time costs, or None.
        capacity: the most times that can be asked for (static).
    """

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | None
    times: Array
    """Times asked for so far, infinite where there is none yet; shape (capacity,)."""
    states: Any
    count: Array
    capacity: int = static(default=32)

    @classmethod
    def of(
        cls,
        value: ArrayLike,
        process: NoiseProcess,
        guarantee: Guarantee | None = None,
        capacity: int = 32,
    ) -> Self:
        """No releases yet.

        Raises:
            ValueError: `value` is not of the process's shape or not finite, the guarantee is for
                other noise, the process has no bridge, or `capacity` is below 1.
        """
        check_integer("capacity", capacity, 1)
        check(isinstance(process, NoiseProcess), "process", process, "a nrjax.NoiseProcess")
        bridged = overrides(process, NoiseProcess, "bridge")
        check(bridged, "process", process, "one that knows its bridge")
        right = f"for {process.noise} noise"
        suits = guarantee is None or guarantee.noise in (None, process.noise)
        check(suits, "guarantee", guarantee, right)
        value = np.asarray(value) if isinstance(value, (list, tuple)) else value
        number = as_numeric("value", value, "numbers, in an array of the process's shape")
        check_shape("shape of the process", process.shape)
        shape = tuple(process.shape)
        check(jnp.shape(value) == shape, "shape of value", jnp.shape(value), f"{shape}")
        if number is not None:
            check(np.isfinite(number), "value", value, "finite")
        dtype = float_dtype(value)
        check_integral(process, value, None, dtype)
        sensitivity = None if guarantee is None else guarantee.sensitivity
        held = Value(*two_parts(value, dtype, sensitivity, process.integral))
        state = jax.eval_shape(process.init, abstract_key(), jnp.ones((), dtype))
        states = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), state)
        times = jnp.full(capacity, jnp.inf, dtype)
        return cls(held, process, guarantee, times, states, jnp.int32(0), capacity)

    def at(self, key: Array, time: ArrayLike) -> tuple[Self, Array]:
        """The releases with one more, and that one: the value plus noise of `time`.

        Args:
            key: for this release alone; one for each call.
            time: scalar, positive and finite.

        Returns:
            The releases so far, and the release, of the value's shape: NaN where a traced time is
            out of range, there is no room, or the process left the range in which its law is exact;
            what is then recorded costs no less than what was shown.

        Raises:
            ValueError: `key` is not a key, or `time` is not positive and finite; or there is no
                room for another time.
        """
        key = check_key(key)
        check_time(time)
        known, count, dtype = concrete_or_none(time), concrete_or_none(self.count), self.times.dtype
        check(np.ndim(time) == 0, "time", time, "a scalar")
        times, looks = concrete_or_none(self.times), getattr(self.guarantee, "fixed_times", None)
        if known is not None:
            with np.errstate(over="ignore", under="ignore"):
                known = known.astype(dtype)
            fits = np.isfinite(known) & (known >= jnp.finfo(dtype).tiny)
            check(fits, "time", time, f"positive, finite and a normal number of {dtype}")
            most = self.process.largest_time(dtype)
            check(known <= most, "time", time, f"at most {most}, where the noise is exact")
            if (listed := concrete_or_none(looks)) is not None:
                right = f"among the {listed.size} looks of the guarantee"
                check(np.any(listed.astype(dtype) == known), "time", time, right)
        if known is not None and times is not None and count is not None:
            old = np.any(times[: int(count)] == known)
            right = f"one of the {self.capacity} asked for so far: capacity is used up"
            check(old or count < self.capacity, "time", time, right)
        return _at(self, key, jnp.asarray(time, self.times.dtype))

    def epsilon(self) -> Array:
        """Ex-post epsilon of all releases so far together, a scalar; 0 before the first one.

        Raises:
            ValueError: there is no guarantee.
        """
        check(self.guarantee is not None, "guarantee", None, "given to `of`, to state an epsilon")
        assert self.guarantee is not None
        least = jnp.min(self.times)
        started = jnp.isfinite(least)
        looks = self.guarantee.fixed_times  # of others nothing can be asked
        some = jnp.ones((), least.dtype) if looks is None else jnp.asarray(looks)[0]
        cost = self.guarantee.epsilon(jnp.where(started, least, some.astype(least.dtype)))
        return jnp.where(started, cost, 0)


@jax.jit
def _at(releases: Releases, key: Array, time: Array) -> tuple[Releases, Array]:
    process, times, states = releases.process, releases.times, releases.states
    tiny = float(jnp.finfo(times.dtype).tiny)
    usable = (time >= tiny) & (time < jnp.inf)
    if releases.guarantee is not None and releases.guarantee.fixed_times is not None:
        usable &= jnp.any(jnp.asarray(releases.guarantee.fixed_times).astype(time.dtype) == time)
    there = times < jnp.inf  # empty places are infinite
    below = jnp.where(there & (times <= time), times, 0)
    above = jnp.where(there & (times > time), times, jnp.inf)
    under, over = jnp.argmax(below), jnp.argmin(above)
    lower, upper = (jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in (under, over))
    has_lower, has_upper = below[under] > 0, above[over] < jnp.inf
    found = usable & has_lower & (times[under] == time)
    # Should one key serve for two times, their noise is not the same.
    key = jax.random.fold_in(key, releases.count)
    room = usable & ~found & (releases.count < releases.capacity)
    # Where a kernel is not used it must not see times in a wrong order.
    place = jnp.where(found, 0, jnp.where(has_lower, 2, 0) + jnp.where(has_upper, 1, 0) + 1)
    state = jax.lax.switch(
        place,
        (
            lambda: lower,
            lambda: process.init(key, time),
            lambda: process.rewind(key, upper, time),
            lambda: process.advance(key, lower, time),
            lambda: process.bridge(key, lower, upper, time),
        ),
    )
    at = jnp.minimum(releases.count, releases.capacity - 1)
    times = times.at[at].set(jnp.where(room, time, times[at]))
    states = jax.tree.map(
        lambda all_, one: all_.at[at].set(jnp.where(room, one, all_[at])), states, state
    )
    noise = process.value(state)
    number, rest = releases.value
    total, lost = two_sum(number, noise)
    shown = number + noise if rest is None else total + (lost + rest)
    fine = (room | found) & (process.status(state) == Status.RUNNING)
    count = releases.count + room.astype(jnp.int32)
    following = dataclasses.replace(releases, times=times, states=states, count=count)
    return following, jnp.where(fine, shown, jnp.nan)
