"""Compare one Pallas kernel, which takes all steps of scalar trials, with the loop of XLA.

    python -m benchmarks.one_kernel [--trials 33554432]

XLA makes some three kernels per step, which read and write the states of all trials. Here one
kernel keeps the states of 256 trials in registers until the last of them has ended. It evaluates
the engine's own functions: XLA computes what trials share, once per step, and the kernel the rest.
It serves trials with one normal number per step and a rule that draws none, in float32.

The baseline is XLA's loop over the same trials, by turns in one run, with outcomes that stay on the
device and with outcomes that are summarised. The random words are the same. Values may differ in
their last bits, since the two compilers round sums of products differently; the last line counts
such trials. On a CPU that does not contract them all bits are equal (`tests/test_one_kernel.py`).

The kernel needs JAX 0.11.2 and a GPU of compute capability 9 (Pallas, Mosaic GPU). Elsewhere it is
interpreted, and its time says nothing.
"""

import argparse
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

import nrjax
from benchmarks import billion_trials
from benchmarks.billion_trials import KEY
from nrjax._base import normals, threefry
from nrjax.processes import Brownian
from nrjax.simulation import blocks, montecarlo
from nrjax.simulation.lanes import trials_of_device
from nrjax.simulation.program import Program
from nrjax.simulation.traced import OWN, SHARED, Traced
from nrjax.study.passes import passes_of

_LANES = 256
"""Number of trials per kernel instance: two per thread of a warpgroup."""


def _step_without_keys(traced: Traced) -> Any:
    """Return the step of each trial as a function that a kernel can evaluate.

    It takes constants, then what the step needs of all trials, the drawn number and own leaves.
    """
    program, kinds = traced.step_of_each, traced.state.kinds
    jaxpr = program.jaxpr
    leaves = [kind for kind in kinds if kind != SHARED]
    *given, drawn = jaxpr.invars
    place = len(given) - len(leaves)
    own = [var for var, kind in zip(given[place:], leaves, strict=True) if kind == OWN]
    inputs = [*jaxpr.constvars, *given[: place - 1], drawn, *own]
    unknown = {*jaxpr.invars}.difference(inputs)
    if any(not isinstance(var, Literal) and var in unknown for e in jaxpr.eqns for var in e.invars):
        raise ValueError("the rule must draw no numbers: the kernel draws for the noise only.")
    names = jaxpr.debug_info.with_unknown_names()
    parts = jaxpr.replace(constvars=[], invars=inputs, debug_info=names)
    return jaxpr_as_fun(ClosedJaxpr(parts, []))


class _OneKernel(blocks.Blocks):
    """The loop of one device in which one kernel takes all steps of 256 trials."""

    def take_all(
        self, shared: list[Array], fixed: list[Any], own: list[Any], code: Array
    ) -> tuple[list[Array], Any]:
        """Take the steps of all new trials, as `Blocks.take_all` does."""
        trial = self.local.member(jnp.int32(0))
        process, dtype = trial.process, trial.dtype
        if not isinstance(process, Brownian) or math.prod(process.shape) != 1:
            raise ValueError("process must be Brownian noise of one number.")
        if dtype != jnp.float32:
            raise ValueError(f"dtype of value must be float32 (got {dtype}).")
        step, constants = _step_without_keys(self.traced), self.traced.step_of_each.consts
        steps, unroll = trial.schedule.max_steps, self.local.options.unroll
        steps += steps % 2
        _, (numbers, table) = jax.lax.scan(self.take_shared, shared, None, steps, unroll=unroll)
        numbers = [*(jnp.full(steps, number) for number in constants), *numbers]
        places = self.traced.state.join(shared, list(range(len(fixed))), own)
        arrays = [*numbers, *fixed[places.noise], *own]
        code = jnp.where(jnp.arange(code.size) < self.local.size, code, -1)
        records = self.traced.step_of_each.out_avals[len(own) :]
        form = [jax.ShapeDtypeStruct(code.shape, leaf.dtype) for leaf in records]
        lanes = math.gcd(code.size, _LANES)
        body = functools.partial(_take_tile, step, lanes, len(numbers), len(own))
        launch = _on_gpu if self.local.options.accelerated else _interpreted
        return list(launch(body, form, code.size // lanes)(*arrays, code)), table


def _take_tile(step: Any, lanes: int, numbers: int, own: int, tile: Array, *refs: Any) -> None:
    """Take all steps of the trials of a tile, and write their records.

    Args:
        step: function of `_step_without_keys`.
        lanes: number of trials.
        numbers: number of arrays of numbers that trials share.
        own: number of own leaves of a trial.
        tile: number of the tile.
        refs: the shared numbers by step; then the two words of the keys, the own leaves and the
            codes of all trials; then the leaves of their records, which are written.
    """
    ends = numbers, numbers + own + 3
    shared, trials, written = refs[: ends[0]], refs[ends[0] : ends[1]], refs[ends[1] :]
    at = pallas.ds(tile * lanes, lanes)
    first, second, *leaves, code = [ref[at] for ref in trials]
    rest = jax.vmap(step)

    def running(carry: Any) -> Array:
        return jnp.max((carry[-1][-1] == 0).astype(jnp.int32)) > 0

    def take_two(carry: Any) -> Any:
        number, leaves, record = carry
        # The two numbers of `steps.draw_pair` for the rewinds to steps number + 1 and number + 2.
        place = jnp.full(lanes, threefry._single((number + 2).astype(jnp.uint32)))
        words = threefry._hash((first, second), place, jnp.zeros(lanes, jnp.uint32))
        for later, drawn in enumerate(normals._polar(*words)):
            common = [jnp.full(lanes, ref[number + later]) for ref in shared]
            new = rest(*common, drawn, *leaves)
            leaves, record = new[:own], blocks._until_ended(record, new[own:])
        return number + 2, leaves, record

    record = [*(jnp.zeros(lanes, ref.dtype) for ref in written[:-1]), code]
    _, _, record = jax.lax.while_loop(running, take_two, (jnp.int32(0), leaves, record))
    for ref, leaf in zip(written, record, strict=True):
        ref[at] = leaf


def _interpreted(body: Callable[..., None], form: Any, tiles: int) -> Callable[..., Any]:
    def kernel(*refs: Any) -> None:
        body(pallas.program_id(0), *refs)

    return pallas.pallas_call(kernel, out_shape=form, grid=(tiles,), interpret=True)


def _on_gpu(body: Callable[..., None], form: Any, tiles: int) -> Callable[..., Any]:
    from jax.experimental.pallas import mosaic_gpu

    def kernel(*refs: Any) -> None:
        body(jax.lax.axis_index("tile"), *refs)

    return mosaic_gpu.kernel(kernel, out_type=form, grid=(tiles,), grid_names=("tile",))


def run(trials: Any, key: Array, first: Array, count: Array, options: Any) -> dict[str, Any]:
    """Run trials as `blocks.run` does, in one kernel."""
    return _OneKernel.of(trials_of_device(trials, key, first, count, options)).run()


def with_one_kernel(program: Program) -> Program:
    """Return a program of scalar trials, summarised or not, in which one kernel takes all steps."""
    return dataclasses.replace(program, work=run)


def missing() -> str:
    """Return why the kernel cannot be compiled for JAX's first device, or an empty text."""
    device = jax.devices()[0]
    if device.platform != "gpu":
        return f"a {device.platform} interprets it"
    major = str(getattr(device, "compute_capability", "")).partition(".")[0]
    if not major.isdigit() or int(major) < 9:
        return f"{device.device_kind} is no NVIDIA GPU of compute capability 9 or more"
    if jax.__version_info__ < (0, 11, 2):
        return f"JAX {jax.__version__} is older than 0.11.2"
    return ""


def differences(trial: Any, trials: int) -> dict[str, int]:
    """Return the number of trials in which a field of the outcome is not XLA's, by field."""
    plain = montecarlo.outcomes(trial, trials)
    ours, theirs = (program.run(KEY, trials) for program in (with_one_kernel(plain), plain))
    return {
        name: int(np.sum((ours[name] != values) & ~(np.isnan(ours[name]) & np.isnan(values))))
        for name, values in theirs.items()
    }


def compare(trials: int, repeats: int) -> None:
    """Print the seconds of both loops, and the number of outcomes that differ."""
    trial = dataclasses.replace(billion_trials.interaction(), value=np.float32(3.0))
    launch_size = min(nrjax.Batching().resolve_launch(trial), trials)
    summaries = passes_of(nrjax.Case(trial=trial), trials, None, "summary")["outcome"].program()

    def outcomes(program: Program) -> None:
        for _, launch in program.launches(KEY, trials, 0):
            jax.block_until_ready(launch.results)

    def summary(program: Program) -> None:
        program.run_all(KEY, trials)

    print(f"{trials:,} trials on {jax.devices()[0].device_kind}")
    for name, plain, run in (
        ("outcomes on the device", montecarlo.outcomes(trial, launch_size), outcomes),
        ("summarised", summaries, summary),
    ):
        programs = plain, with_one_kernel(plain)
        seconds: list[list[float]] = [[], []]
        for _ in range(1 + repeats):
            for program, times in zip(programs, seconds, strict=True):
                before = time.perf_counter()
                run(program)
                times.append(time.perf_counter() - before)
        xla, one = (statistics.median(times[1:]) for times in seconds)
        print(f"{name}: XLA {xla:.4g} s, one kernel {one:.4g} s, {xla / one:.2f} times as fast")
    counts = ", ".join(f"{name} {count}" for name, count in differences(trial, launch_size).items())
    print(f"of {launch_size} trials differ: {counts}")


def main(arguments: list[str] | None = None) -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, help="default: 2^25, and 2^16 on a CPU")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default 3)")
    options = parser.parse_args(arguments)
    reason = missing()
    if reason:
        print(f"Not the time of a compiled kernel: {reason}.")
    if jax.default_backend() == "gpu" and reason:
        return
    compare(options.trials or 2 ** (16 if reason else 25), options.repeats)


if __name__ == "__main__":
    main()
