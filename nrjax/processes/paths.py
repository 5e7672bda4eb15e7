"""The noise of a process at a sequence of times, without a mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from nrjax._base.captured import jit_with_captured
from nrjax._base.dtypes import float_dtype, widened
from nrjax._base.keys import Role, check_key, key_for, role_key, step_key
from nrjax._base.modes import neutral_config
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import as_numeric, as_table, check, concrete_or_none
from nrjax.types import BlockwiseProcess, NoiseProcess, Status

BLOCK = 64
"""Number of coordinates, over one or several steps, that are drawn with one key."""

Carry = TypeVar("Carry")
Visit = Callable[[Carry, Any], tuple[Carry, Any]]


@neutral_config()
def noise_path(key: Array, process: NoiseProcess, times: ArrayLike) -> Array:
    """Return the noise of one trial at each of `times`, from the largest to the smallest.

    For many trials, `vmap` over keys from `nrjax.trial_key`. If the paths need not be kept, use
    `nrjax.processes.scan_noise` instead. The noise at a time depends only on the key, the process,
    that time and the times before it in `times`.

        >>> noise = nrjax.noise_path(jax.random.key(0), nrjax.Brownian((3,)), [4.0, 2.0, 1.0])
        >>> noise.shape
        (3, 3)

    Args:
        key: key of the trial. The first noise equals the first noise of `nrjax.run_until` with the
            same key. So does later noise, unless the process is a `nrjax.types.BlockwiseProcess`
            (such as `Brownian`). Such a process draws several steps with one key here, so that its
            later noise may be different, with the same distribution.
        process: the noise process.
        times: shape (steps,), in the process's unit: positive, finite and not rising.

    Returns:
        Shape (steps, *process.shape), in the dtype of `times` (Python numbers take the default
        precision). The noise is NaN from the first step at which the process leaves the range in
        which its distribution is exact, or traced times are not positive, finite and not rising.

    Raises:
        ValueError: `times` are not positive and finite, or rise, or `key` is not a key.
    """
    check(isinstance(process, NoiseProcess), "process", process, "a nrjax.NoiseProcess")
    return _noise_path(check_key(key), process, _check_times(times))


@jit_with_captured
def _noise_path(key: Array, process: NoiseProcess, times: Array) -> Array:
    """Return the noise at checked times. JAX compiles it once per process and number of times."""
    before = jnp.concatenate([jnp.full(1, jnp.inf, times.dtype), times[:-1]])
    least, most = process.smallest_time(times.dtype), process.largest_time(times.dtype)
    exact = (times >= least) & (times <= most)
    invalid = ~(jnp.isfinite(times) & (times > 0) & (times <= before) & exact)
    valid = jnp.cumsum(invalid) == 0

    def visit(carry: None, state: Any) -> tuple[None, Array]:
        exact = process.status(state) == Status.RUNNING
        return carry, jnp.where(exact, process.value(state), jnp.nan)

    noise = scan_noise(key, process, times, visit, None)[1]
    return jnp.where(valid.reshape(-1, *(1 for _ in process.shape)), noise, jnp.nan)


@neutral_config()
def scan_noise(
    key: Array, process: NoiseProcess, times: ArrayLike, visit: Visit[Carry], carry: Carry
) -> tuple[Carry, Any]:
    """Scan a function over the states of a process at `times`, for one trial.

    The function `visit` is used as in `jax.lax.scan`, and sees the same noise as in `noise_path`.
    For example, a running maximum:

        def visit(largest, state):
            return jnp.maximum(largest, process.value(state)), None

        scan_noise(key, process, times, visit, -jnp.inf)[0]

    Args:
        key: key of the trial.
        process: the noise process.
        times: as for `noise_path`. Traced times are not checked.
        visit: maps the carry and a state of the process to the new carry and an output.
        carry: initial carry. Each new carry must have its structure, shapes and dtypes.

    Returns:
        The last carry, and the outputs with a leading axis of steps.

    Raises:
        ValueError: `times` are not positive and finite, or rise, or `key` is not a key.
    """
    check(isinstance(process, NoiseProcess), "process", process, "a nrjax.NoiseProcess")
    times, process = _check_times(times), widened(process)
    noise_key = key_for(process, role_key(unrolled_key(check_key(key)), Role.NOISE))
    state = process.init(step_key(noise_key, 0), times[0])
    carry, first = visit(jax.tree.map(jnp.asarray, carry), state)

    def step(loop: Any, inputs: Any) -> tuple[Any, Any]:
        """Rewind to the next time. `inputs` has a draw, or the number of the step's key."""
        state, carry = loop
        random, time = inputs
        if isinstance(process, BlockwiseProcess):
            state = process.move(random, state, time)
        else:
            state = process.rewind(step_key(noise_key, random), state, time)
        carry, output = visit(carry, state)
        return (state, carry), output

    if isinstance(process, BlockwiseProcess):
        (_, carry), outputs = _scan_blocks(noise_key, process, times[1:], step, (state, carry))
    else:
        numbers = jnp.arange(1, len(times))
        (_, carry), output = jax.lax.scan(step, (state, carry), (numbers, times[1:]))
        outputs = [output]
    outputs = [jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], first), *outputs]
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), *outputs)


def _scan_blocks(noise_key, process, times, step, loop):
    """Scan the steps after the first in blocks that share a key.

    Block b = 1, 2, ... uses key b for the steps `(b - 1) size + 1` to `b size`. Key 0 is for the
    first step.
    """
    size = max(1, BLOCK // max(1, math.prod(process.shape)))
    complete = len(times) // size

    def block(loop, inputs):
        number, times = inputs
        # A whole block is always drawn: the number of bits drawn may change all of them.
        draws = process.draw(step_key(noise_key, number), times.dtype, (size,))
        # Not unrolled: XLA would fuse the copies, and compute each step many times.
        draws = jax.tree.map(lambda leaf: leaf[: len(times)], draws)
        return jax.lax.scan(step, loop, (draws, times))

    outputs = []
    if complete:
        blocks = (jnp.arange(1, complete + 1), times[: complete * size].reshape(complete, size))
        loop, output = jax.lax.scan(block, loop, blocks)
        outputs.append(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), output))
    if len(times) > complete * size:
        loop, output = block(loop, (complete + 1, times[complete * size :]))
        outputs.append(output)
    return loop, outputs


def _check_times(times: Any) -> Array:
    """Return `times` as an array of floats, checked if they are concrete."""
    expected = "positive, finite and not rising, of shape (steps,), with at least one"
    listed = isinstance(times, (list, tuple))
    traced = listed and any(isinstance(time, Tracer) for time in times)
    times = jnp.asarray(times) if traced else as_table(times)
    as_numeric("times", times, expected)
    concrete, dtype = concrete_or_none(times), float_dtype(times)
    with np.errstate(over="ignore"):
        cast = jnp.asarray(times, dtype) if concrete is None else concrete.astype(dtype)
    check(cast.ndim == 1 and cast.size > 0, "times", times, expected)
    if concrete is not None:
        # Checked after the cast, which may overflow; XLA flushes subnormal numbers to 0.
        normal = np.isfinite(cast) & (cast >= jnp.finfo(dtype).tiny)
        check(np.all(cast[1:] <= cast[:-1]) & normal, "times", times, expected)
    return jnp.asarray(cast)
