"""Releases of one private value at noise levels in any order, for several readers."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.captured import jit_with_captured
from nrjax._base.dtypes import float_dtype, widened
from nrjax._base.keys import abstract_key, check_key
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import check_uncast
from nrjax._base.outcome import Status
from nrjax._base.pytrees import Pytree, static
from nrjax._base.validation import check, check_integer, check_shape, concrete_or_none
from nrjax._base.value import check_array, split_value
from nrjax.engine.checks_between_parts import check_integral
from nrjax.guarantees._rounding import check_time
from nrjax.guarantees.recipe import hint_for
from nrjax.types import Guarantee, NoiseProcess, overrides


class Releases(Pytree):
    """A set of releases of one private value, which costs what its smallest time costs.

    Use it to give several readers releases of different accuracy, at times (noise levels) in any
    order. To remove noise step by step until a release is good enough, use an `Interaction`. The
    noise at a new time is drawn given the noise at the nearest smaller and larger times, by the
    process's `bridge`, `advance` (if no time is larger) or `rewind` (if no time is smaller). All
    releases therefore lie on one path, and a release above the smallest time is free (Andersson et
    al. 2025; `docs/proofs/processes.md`). A time that was used before gives the same release again.

        >>> guarantee, process = nrjax.PureGuarantee(1.0), nrjax.Laplace((3,))
        >>> releases = nrjax.Releases.of(jnp.zeros(3), process, guarantee)
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> releases, public = releases.at(keys[0], 10.0)
        >>> releases, internal = releases.at(keys[1], 0.5)
        >>> releases, partner = releases.at(keys[2], 2.0)  # costs no more
        >>> round(float(releases.epsilon()), 3)  # of all three together
        2.0

    It is a pytree that works under `jit` and `vmap`. Nothing is changed in place.

    Attributes:
        value: the private value.
        process: the noise: `Brownian`, `Laplace`, `DiscreteLaplace`, or a custom process with a
            bridge.
        guarantee: the privacy guarantee, or None.
        times: times used so far, shape (capacity,), filled up with infinities.
        states: states of the noise at `times`, with a leading axis of length `capacity`.
        count: number of times used so far.
        capacity: largest number of times (static).
    """

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | None
    times: Array
    states: Any
    count: Array
    capacity: int = static(default=32)
    # The dtype of value and times, by which `at` finds later casts.
    _made_in: str = static(default="", repr=False)

    @classmethod
    @neutral_config()
    def of(
        cls,
        value: ArrayLike,
        process: NoiseProcess,
        guarantee: Guarantee | None = None,
        capacity: int = 32,
    ) -> Self:
        """Return an empty set of releases.

        Raises:
            ValueError: `value` is not of the process's shape or not finite, the guarantee is for
                other noise, the process has no bridge, or `capacity` is below 1.
        """
        check_integer("capacity", capacity, 1)
        check(isinstance(process, NoiseProcess), "process", process, "a nrjax.NoiseProcess")
        bridged = overrides(process, NoiseProcess, "bridge")
        check(bridged, "process", process, "one that implements bridge and advance")
        ok = guarantee is None or isinstance(guarantee, Guarantee)
        check(ok, "guarantee", guarantee, "a nrjax.Guarantee, or None", hint_for(guarantee))
        suits = guarantee is None or guarantee.noise in (None, process.noise)
        check(suits, "guarantee", guarantee, f"for {process.noise} noise")
        check_shape("shape of the process", process.shape)
        value = check_array("value", value, tuple(process.shape))
        dtype = float_dtype(value)
        check_integral(process, value, None, dtype)
        sensitivity = None if guarantee is None else guarantee.sensitivity
        split = split_value(value, dtype, sensitivity, process.integral)
        state = jax.eval_shape(process.init, abstract_key(), jnp.ones((), dtype))
        states = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), state)
        times = jnp.full(capacity, jnp.inf, dtype)
        parts = split, widened(process), widened(guarantee), times, states
        return cls(*parts, jnp.int32(0), capacity, np.dtype(dtype).name)

    @neutral_config()
    def at(self, key: Array, time: ArrayLike) -> tuple[Self, Array]:
        """Return the set with a release at `time` added, and that release (value plus noise).

        Args:
            key: key of this release. Every call needs a different key.
            time: scalar, positive and finite.

        Returns:
            The new set, and the release, of the value's shape. The release is NaN if a traced time
            is out of range, the capacity is exceeded, or the noise process overflowed. The recorded
            cost then still covers all releases that were shown.

        Raises:
            ValueError: `key` is not a key, `time` is not positive and finite, or the capacity is
                exceeded.
        """
        key = check_key(key)
        check_uncast("releases", (self.value, self.times), self._made_in)
        check_time(time)
        check(np.ndim(time) == 0, "time", time, "a scalar")
        number, count = concrete_or_none(time), concrete_or_none(self.count)
        times = concrete_or_none(self.times)
        looks = None if self.guarantee is None else self.guarantee.fixed_times
        dtype = self.times.dtype
        if number is not None:
            with np.errstate(over="ignore", under="ignore"):
                number = number.astype(dtype)
            fits = np.isfinite(number) & (number >= jnp.finfo(dtype).tiny)
            check(fits, "time", time, f"positive, finite and a normal number of {dtype}")
            most, least = self.process.largest_time(dtype), self.process.smallest_time(dtype)
            check(number <= most, "time", time, f"at most {most}, where the noise is exact")
            check(number >= least, "time", time, f"at least {least}, where the noise is exact")
            if (listed := concrete_or_none(looks)) is not None:
                expected = f"among the {listed.size} looks of the guarantee"
                check(np.any(listed.astype(dtype) == number), "time", time, expected)
            if self.guarantee is not None:  # a release is not shown before its cost is known
                cost = concrete_or_none(self.guarantee.epsilon(jnp.asarray(number)))
                expected = "a time at which the guarantee states an epsilon"
                check(cost is None or np.all(np.isfinite(cost)), "time", time, expected)
        if number is not None and times is not None and count is not None:
            used = np.any(times[: int(count)] == number)
            expected = f"one of the {self.capacity} times used so far: the capacity is exceeded"
            hint = "Create the releases with a larger capacity."
            check(used or count < self.capacity, "time", time, expected, hint)
        return _at(self, key, jnp.asarray(time, self.times.dtype))

    def epsilon(self) -> Array:
        """Return the ex-post epsilon of all releases together, 0 before the first one.

        Raises:
            ValueError: there is no guarantee.
        """
        hint = "Pass one to Releases.of."
        check(self.guarantee is not None, "guarantee", None, "given to compute an epsilon", hint)
        assert self.guarantee is not None
        least = jnp.min(self.times)
        started = jnp.isfinite(least)
        looks = self.guarantee.fixed_times  # the guarantee holds at these times only
        valid = jnp.ones((), least.dtype) if looks is None else jnp.asarray(looks)[0]
        cost = self.guarantee.epsilon(jnp.where(started, least, valid.astype(least.dtype)))
        return jnp.where(started, cost, 0)


@jit_with_captured
def _at(releases: Releases, key: Array, time: Array) -> tuple[Releases, Array]:
    process, times, states = releases.process, releases.times, releases.states
    tiny = float(jnp.finfo(times.dtype).tiny)
    valid = (time >= tiny) & (time < jnp.inf)
    if releases.guarantee is not None and releases.guarantee.fixed_times is not None:
        valid &= jnp.any(jnp.asarray(releases.guarantee.fixed_times).astype(time.dtype) == time)
    if releases.guarantee is not None:
        valid &= jnp.isfinite(releases.guarantee.epsilon(time))
    used = times < jnp.inf
    below = jnp.where(used & (times <= time), times, 0)
    above = jnp.where(used & (times > time), times, jnp.inf)
    under, over = jnp.argmax(below), jnp.argmin(above)
    lower, upper = (jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in (under, over))
    has_lower, has_upper = below[under] > 0, above[over] < jnp.inf
    repeated = valid & has_lower & (times[under] == time)
    # If you use one key for two times, the noise at the two times still differs.
    key = jax.random.fold_in(key, releases.count)
    added = valid & ~repeated & (releases.count < releases.capacity)
    # A `switch`, because a kernel that is not used must not see times in the wrong order.
    case = jnp.where(repeated, 0, jnp.where(has_lower, 2, 0) + jnp.where(has_upper, 1, 0) + 1)
    state = jax.lax.switch(
        case,
        (
            lambda: lower,
            lambda: process.init(key, time),
            lambda: process.rewind(key, upper, time),
            lambda: process.advance(key, lower, time),
            lambda: process.bridge(key, lower, upper, time),
        ),
    )
    place = jnp.minimum(releases.count, releases.capacity - 1)
    times = times.at[place].set(jnp.where(added, time, times[place]))
    states = jax.tree.map(
        lambda leaves, leaf: leaves.at[place].set(jnp.where(added, leaf, leaves[place])),
        states,
        state,
    )
    release = releases.value.plus(process.value(state))
    exact = (added | repeated) & (process.status(state) == Status.RUNNING)
    count = releases.count + added.astype(jnp.int32)
    following = dataclasses.replace(releases, times=times, states=states, count=count)
    return following, jnp.where(exact, release, jnp.nan)
