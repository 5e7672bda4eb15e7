"""Claim: stepping is nearly as fast as drawing.

Brownian noise has 80 % of the speed of drawing normals, Laplace noise 40 % of that of uniforms.
Discrete Laplace noise, which takes three words per step, is 60 % as fast as Laplace noise.

Scalar noise, 1000 steps, 1e5 trials, float32, reduced to each trial's running maximum. The
baselines run through the same loop under the same keys of blocks of 64 steps: `random.normal` with
one number per step, and `random.uniform` with three (which a hand-written step takes for the
decision to jump, the side and the size), drawn as (3, 64), which is five times as fast as (64, 3)
on a CPU. NumPy takes 10,000 trials at a time, a step at a time, by the same reverse kernels.

    python -m benchmarks.stepping [--trials 100000] [--steps 1000] [--roofline]

Compile time is not counted. Medians of alternating runs. On an accelerator, or with `--roofline`,
the fraction of the roofline is printed: the peaks are measured in the same run, and XLA counts the
cost of the draws of a block and of a move.
"""

import argparse
import functools
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import nrjax
from benchmarks import numpy_whitehouse, roofline
from benchmarks.rows import Row
from nrjax._base.keys import step_key
from nrjax._base.threefry import unrolled_key
from nrjax.processes import scan_noise
from nrjax.processes.paths import BLOCK
from nrjax.types import BlockwiseProcess


class Draws(BlockwiseProcess):
    """The baseline: a process whose noise is its draws."""

    sample: Callable[..., Any] = nrjax.static()

    def init(self, key, time):
        """Return the first draw."""
        return self.draw(key, jnp.asarray(time).dtype)

    def draw(self, key, dtype, steps=()):
        """Return one number per step."""
        return self.sample(key, steps, dtype)

    def move(self, drawn, state, time):
        """Return the draw."""
        del state, time
        return drawn

    def value(self, state):
        """Return the draw."""
        return state


def three_uniforms(key, steps, dtype):
    """Return the sum of three uniforms per step."""
    return jnp.sum(jax.random.uniform(key, (3, *steps), dtype), axis=0)


BASELINES = {
    "brownian": (nrjax.Brownian(()), "random.normal", Draws(jax.random.normal)),
    "laplace": (nrjax.Laplace(()), "three random.uniform", Draws(three_uniforms)),
    "discrete laplace": (nrjax.DiscreteLaplace(()), "laplace", nrjax.Laplace(())),
}


def maxima(process, times, trials, tile):
    """Return a compiled function of a key that returns the largest noise of every trial."""

    def running(largest, state):
        return jnp.maximum(largest, process.value(state)), None

    def one(key, trial):
        return scan_noise(nrjax.trial_key(key, trial), process, times, running, -jnp.inf)[0]

    devices = jax.local_devices()
    share = -(-trials // len(devices))
    every, split = PartitionSpec(), PartitionSpec("trials")
    mesh = Mesh(np.array(devices), ("trials",))

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(every, split), out_specs=split, check_vma=False
    )
    def local(key, firsts):
        numbers = firsts[0] + jnp.arange(share, dtype=jnp.uint32)
        return jax.lax.map(functools.partial(one, key), numbers, batch_size=tile)

    @jax.jit
    def run(key):
        return local(key, share * jnp.arange(len(devices), dtype=jnp.uint32))

    return run


def race(runs, repeats):
    """Return the median seconds of compiled functions, in alternating runs."""
    key = jax.random.key(0)
    for run in runs:
        jax.block_until_ready(run(key))
    spent = [[] for _ in runs]
    for _ in range(repeats):
        for times, run in zip(spent, runs, strict=True):
            before = time.perf_counter()
            jax.block_until_ready(run(key))
            times.append(time.perf_counter() - before)
    return [statistics.median(times) for times in spent]


def run_numpy(mechanism, times, trials):
    """Return the seconds of NumPy, and the largest noise of every trial."""
    rng, before = np.random.default_rng(0), time.perf_counter()
    noise = numpy_whitehouse.first_noise(rng, mechanism, times[0], trials, np.dtype(np.float32))
    largest = noise
    for now, then in itertools.pairwise(times):
        noise = numpy_whitehouse.rewind(rng, mechanism, noise, now, then)
        largest = np.maximum(largest, noise)
    return time.perf_counter() - before, largest


def least_seconds(process, peaks, trials, steps, tile):
    """Return the least seconds by the roofline, for the draws of every block and every move."""
    key = unrolled_key(jax.random.key(0))
    keys = jax.vmap(lambda trial: nrjax.trial_key(key, trial))(jnp.arange(tile))

    def draw(keys):
        blocks = jax.vmap(lambda key: step_key(key, 1))(keys)
        return jax.vmap(lambda key: process.draw(key, jnp.float32, (BLOCK,)))(blocks).T

    def move(drawn, states, largest):
        states = jax.vmap(process.move, (0, 0, None))(drawn, states, 0.5)
        return states, jnp.maximum(largest, jax.vmap(process.value)(states))

    states = jax.vmap(lambda key: process.init(key, 1.0))(keys)
    drawn, largest = jax.jit(draw)(keys)[0], jax.vmap(process.value)(states)
    one_block = roofline.cost(draw, keys)
    one_move = roofline.cost(move, drawn, states, largest)
    moves = steps - 1
    whole = one_block * -(-moves // BLOCK) + one_move * moves
    return peaks.seconds(whole * (trials / tile))


def measure(options):
    """Return the rows of all processes."""
    jax.config.update("jax_num_cpu_devices", options.devices)
    times = np.geomspace(100.0, 1.0, options.steps)
    devices, accelerator = len(jax.devices()), jax.devices()[0].platform != "cpu"
    tile = min(options.tile or (2**17 if accelerator else 5000), -(-options.trials // devices))
    peaks = roofline.measure_peaks(*options.peaks) if accelerator or options.roofline else None
    report_rows = []
    for name, (process, baseline_name, baseline) in BASELINES.items():
        runs = [maxima(part, times, options.trials, tile) for part in (process, baseline)]
        ours, theirs = race(runs, options.repeats)
        claim = f"{name}, {options.steps} steps"
        fast = options.trials / ours
        reached = None
        if peaks is not None:
            # Virtual devices share one machine, whose peaks were measured.
            share = options.trials / devices if accelerator else options.trials
            reached = least_seconds(process, peaks, share, options.steps, tile) / ours
        note = f"{1e9 / (fast * options.steps):.2f} ns a step"
        report_rows.append(Row(claim, fast, theirs / ours, baseline_name, reached, note))
        if not isinstance(baseline, Draws):  # NumPy has the noise of the papers only
            continue
        slow, largest = run_numpy(name, times.tolist(), options.numpy)
        mine = np.asarray(runs[0](jax.random.key(0)), float)
        error = np.sqrt(np.var(mine) / mine.size + np.var(largest) / largest.size)
        if not abs(np.mean(mine) - np.mean(largest)) < 5 * error:
            raise RuntimeError(f"different distributions: {name}")
        report_rows.append(Row(claim, fast, slow * fast / options.numpy, "NumPy", reached, note))
    return report_rows


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=100_000)
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument(
        "--tile", type=int, help="trials at a time on a device (5000, or 2^17 on an accelerator)"
    )
    arguments.add_argument(
        "--devices", type=int, default=os.cpu_count() or 1, help="virtual CPU devices"
    )
    arguments.add_argument(
        "--repeats", type=int, default=7, help="number of runs, of which the median is reported"
    )
    arguments.add_argument("--numpy", type=int, default=10_000, help="trials of NumPy")
    arguments.add_argument(
        "--roofline", action="store_true", help="measure the roofline on a CPU too"
    )
    arguments.add_argument(
        "--peaks",
        type=int,
        nargs=2,
        default=[8192, 2**28],
        help="sizes of matrix and vector for the peaks",
    )
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "200", "--steps", "70", "--repeats", "1", "--numpy", "200"]
    return measure(parser().parse_args(tiny if quick else []))


def main():
    """Print ratios, trials per second and nanoseconds per step."""
    options = parser().parse_args()
    report_rows = measure(options)
    print(f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}")
    print(f"{'':<28} {'trials/s':>9} {'ratio':>6}")
    for row in report_rows:
        reached = "" if row.roofline is None else f", {row.roofline:.1%} of the roofline"
        print(
            f"{row.claim:<28} {row.trials_per_second:9.0f} {row.ratio:6.2f} to {row.baseline},"
            f" {row.note}{reached}"
        )


if __name__ == "__main__":
    main()
