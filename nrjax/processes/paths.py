"""Noise along a grid of times, without a mechanism around it: the raw stepping of a process."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._threefry import unrolled
from nrjax._validation import check, concrete_or_none
from nrjax.keys import Role, check_key, key_for, role_key, step_key
from nrjax.types import BlockwiseProcess, NoiseProcess, Status

BLOCK = 64
"""Numbers drawn with one key; of processes with fewer coordinates, many steps."""

Carry = TypeVar("Carry")
Visit = Callable[[Carry, Any], tuple[Carry, Any]]


def noise_path(key: Array, process: NoiseProcess, times: ArrayLike) -> Array:
    """The noise of one trial at each of `times`, from the largest to the smallest.

    For many trials, `vmap` over keys from `nrjax.trial_key`. Where the paths need not be kept,
    `nrjax.processes.scan_noise` folds them instead. The noise at a time depends on the key, the
    process and the times up to it alone.

    Args:
        key: the trial's own key. At the first time the noise is that of `nrjax.run_until` under
            the same key; after it, `Brownian` and `Laplace` draw 64 numbers with one key, where
            `run_until` takes a key a step: other noise of the same law. The noise of other
            processes is that of `run_until` all along.
        process: the noise.
        times: shape (steps,), in the process's unit: positive, finite and not rising.

    Returns:
        Shape (steps, *process.shape), in the dtype of `times` (Python numbers take the default
        precision). NaN from the step on at which the process leaves the range in which its law is
        exact, or at which traced times are not positive, finite and not rising.

    Raises:
        ValueError: `times` are not as above, or `key` is not a key.
    """
    times = _check_times(times)
    before = jnp.concatenate([jnp.full(1, jnp.inf, times.dtype), times[:-1]])
    fine = jnp.isfinite(times) & (times > 0) & (times <= before)
    valid = jnp.cumsum(~fine) == 0

    def visit(carry: None, state: Any) -> tuple[None, Array]:
        sound = process.status(state) == Status.RUNNING
        return carry, jnp.where(sound, process.value(state), jnp.nan)

    noise = scan_noise(key, process, times, visit, None)[1]
    return jnp.where(valid.reshape(-1, *(1 for _ in process.shape)), noise, jnp.nan)


def scan_noise(
    key: Array, process: NoiseProcess, times: ArrayLike, visit: Visit[Carry], carry: Carry
) -> tuple[Carry, Any]:
    """`jax.lax.scan` over the states of a process at each of `times`, for one trial.

    The states are those behind `noise_path`. A running maximum, without keeping the path, is
    `scan_noise(key, process, times, lambda most, state: (jnp.maximum(most,
    process.value(state)), None), -jnp.inf)[0]`.

    Args:
        key: the trial's own key.
        process: the noise.
        times: as for `noise_path`; traced times are not looked at.
        visit: takes the carry and a state of the process, and gives the new carry and what to keep.
        carry: the first carry; structure, shapes and dtypes stay.

    Returns:
        The last carry, and what was kept, with a leading axis of steps.

    Raises:
        ValueError: `times` are not as above, or `key` is not a key.
    """
    times = _check_times(times)
    carry = jax.tree.map(jnp.asarray, carry)
    noise_key = key_for(process, role_key(unrolled(check_key(key)), Role.NOISE))
    return _scanned(noise_key, process, times, visit, carry)


def _scanned(noise_key, process, times, visit, carry):
    state = process.init(step_key(noise_key, 0), times[0])
    carry, first = visit(carry, state)

    def step(loop: Any, inputs: Any) -> tuple[Any, Any]:
        """One move, by what a block has drawn for it, or by the number of its key."""
        state, carry = loop
        random, time = inputs
        if isinstance(process, BlockwiseProcess):
            state = process.move(random, state, time)
        else:
            state = process.rewind(step_key(noise_key, random), state, time)
        carry, kept = visit(carry, state)
        return (state, carry), kept

    if isinstance(process, BlockwiseProcess):
        (_, carry), rest = _by_blocks(noise_key, process, times[1:], step, (state, carry))
    else:
        numbers = jnp.arange(1, len(times))
        (_, carry), many = jax.lax.scan(step, (state, carry), (numbers, times[1:]))
        rest = [many]
    kept = [jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], first), *rest]
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)


def _by_blocks(noise_key, process, times, step, loop):
    """The steps after the first, a block of them with one key.

    Block b = 1, 2, ... holds the steps `(b - 1) size + 1` to `b size`; key 0 is the first step's.
    """
    size = max(1, BLOCK // max(1, math.prod(process.shape)))
    whole = len(times) // size

    def block(loop, inputs):
        number, times = inputs
        # Whole blocks always: how many bits are asked for may change all of them.
        draws = process.draw(step_key(noise_key, number), times.dtype, (size,))
        # Not unrolled: XLA would fuse the copies, and take each step many times.
        draws = jax.tree.map(lambda leaf: leaf[: len(times)], draws)
        return jax.lax.scan(step, loop, (draws, times))

    kept = []
    if whole:
        blocks = (jnp.arange(1, whole + 1), times[: whole * size].reshape(whole, size))
        loop, many = jax.lax.scan(block, loop, blocks)
        kept.append(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), many))
    if len(times) > whole * size:
        loop, few = block(loop, (whole + 1, times[whole * size :]))
        kept.append(few)
    return loop, kept


def _check_times(times: Any) -> Array:
    """`times` as an array of a floating dtype, looked at where they are concrete."""
    right = "positive, finite and not rising, of shape (steps,), with at least one"
    if isinstance(times, (list, tuple)):
        traced = any(isinstance(time, Tracer) for time in times)
        times = jnp.asarray(times) if traced else np.asarray(times)
    known, dtype = concrete_or_none(times), float_dtype(times)
    with np.errstate(over="ignore"):
        cast = jnp.asarray(times, dtype) if known is None else known.astype(dtype)
    check(cast.ndim == 1 and cast.size > 0, "times", times, right)
    if known is not None:
        # After the cast: a time too small or too large for the dtype is found too. XLA takes
        # subnormal ones for 0.
        normal = np.isfinite(cast) & (cast >= jnp.finfo(dtype).tiny)
        check(np.all(cast[1:] <= cast[:-1]) & normal, "times", times, right)
    return jnp.asarray(cast)
