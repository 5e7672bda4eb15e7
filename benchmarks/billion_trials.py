"""Claim: with summaries memory is independent of the trials, and summarising is cheap.

    python -m benchmarks.billion_trials [--trials 100000 1000000 10000000] [--chunk 65536]

The mechanism is a scalar Brownian one, the cheapest, so that summarising weighs the most. Peak
memory is that of the whole process, Python and JAX included; sizes come in rising order. Trials per
second are those of a run without compilation. `kept` is the same program without summaries, whose
outcomes are discarded launch by launch.
"""

import argparse
import time
from typing import Any

import jax
import numpy as np

import nrjax
from benchmarks.million_trials import Closeness
from benchmarks.rows import Row, peak_gib
from nrjax.simulation import montecarlo
from nrjax.simulation.moments import mean_and_variance
from nrjax.study import case
from nrjax.study.passes import passes_of

FIELDS = tuple(name for name in case.FIELDS if name != "time")
LEVELS, LOW, HIGH = 100, 0.6, 20.0
KEY: Any = np.zeros(2, np.uint32)
"""Raw key of seed 0. A typed key would start JAX's devices on import."""


def peak_mib():
    """Return the largest resident memory of this process so far, in MiB."""
    return 1024 * peak_gib()


def interaction():
    """Return an interaction that stops when a number under Brownian noise is near."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    grid = nrjax.Grid.geometric(guarantee, LOW, HIGH, LEVELS)
    rule = nrjax.PublicThreshold(-0.5)
    return nrjax.Interaction(
        value=3.0,
        process=nrjax.Brownian(()),
        guarantee=guarantee,
        schedule=grid,
        utility=Closeness(),
        rule=rule,
    )


def planned(trials, chunk=None):
    """Return what counts the trials of a study that keeps summaries."""
    return passes_of(nrjax.Case(trial=interaction()), trials, chunk, "summary")["outcome"].program()


def folded(program, trials):
    """Return the seconds, and the counts and moments of all trials."""
    before = time.perf_counter()
    merged = program.run_all(KEY, trials)
    return time.perf_counter() - before, merged


def kept(program, trials):
    """Seconds."""
    before = time.perf_counter()
    for at in range(0, trials, program.launch_size):
        program.run(KEY, min(program.launch_size, trials - at), at)
    return time.perf_counter() - before


def race(options):
    """Print peak memory and trials per second by the number of trials, and return the rows."""
    found, plain = [], montecarlo.outcomes(interaction(), 65_536, FIELDS)
    summary = planned(max(options.trials), options.chunk)
    print(
        f"{len(jax.devices())} x {jax.devices()[0].device_kind}; peak before {peak_mib():.0f} MiB"
    )
    for program in (summary, plain):
        program.compile(KEY)
    print(f"compiled: {peak_mib():.0f} MiB; rows of {sum(x.nbytes for x in _row(summary))} bytes")
    for trials in sorted(options.trials):
        seconds, merged = folded(summary, trials)
        # Not of the largest size: once is enough to see the memory.
        other = kept(plain, min(trials, 10**6)) * (trials / min(trials, 10**6))
        print(
            f"{trials:>13,} trials: peak {peak_mib():5.0f} MiB, {trials / seconds:.3g} trials/s "
            f"folded, {trials / other:.3g} kept, ratio {other / seconds:.2f}; "
            f"mean epsilon {mean_and_variance(merged['stopping_epsilon_moments'])[0]:.6f}"
        )
        note = f"peak so far {peak_mib():.0f} MiB"
        claim = f"{trials:,} trials, folded"
        found.append(Row(claim, trials / seconds, other / seconds, "kept", note=note))
    return found


def _row(program):
    """Return the arrays that a chunk leaves."""
    return program.run(KEY, 1).values()


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    arguments.add_argument(
        "--chunk", type=int, help="trials that are summarised together (default: by the device)"
    )
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "2000", "--chunk", "1024"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print peak memory and trials per second, by the number of trials."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
