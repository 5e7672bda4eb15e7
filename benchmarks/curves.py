"""Claim: bounds give the loss at each epsilon 5 times faster than all rows do.

The curve passes of `whitehouse2022` (figure 2: 50 levels, 1000 trials, both mechanisms) on 10,000
rows of the flights data, exactly and to the study's resolution. The difference must be within the
resolution that the study states. Medians of runs; compile time is not counted.

    python -m benchmarks.curves [--trials 1000] [--repeats 5] [--rows 10000]
"""

import argparse
import statistics
import time

import jax
import numpy as np

from benchmarks.rows import Row
from nrjax.papers import whitehouse2022
from nrjax.simulation import montecarlo


def timed(trial, trials, repeats):
    """Return the median seconds of a run, and the utilities, shape (trials, levels)."""
    program, key = montecarlo.paths(trial, trials, ("utility",)), jax.random.key(0)
    program.compile(key)
    seconds, utilities = [], np.empty(0)
    for _ in range(repeats):
        before = time.perf_counter()
        utilities = program.run(key, trials)["utility"]
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds), utilities


def race(options):
    """Print both mechanisms and return their rows. Raises a ValueError if the losses differ."""
    jax.config.update("jax_num_cpu_devices", options.devices)
    chosen = {"task": ("logistic",), "test": ("public",), "rows": options.rows}
    rows = []
    for name, case in whitehouse2022.cases(whitehouse2022.Settings(**chosen)).items():
        curve, within = case.curves["curve"], case.labels["curve_within"]
        slow, exact = timed(curve.interaction, options.trials, options.repeats)
        fast, utilities = timed(curve.resolved, options.trials, options.repeats)
        apart = float(np.abs(utilities - exact).max())
        print(
            f"{name}: exactly {slow:.2f} s, by bounds {fast:.2f} s, ratio {slow / fast:.1f}; "
            f"apart {apart:.1e}, stated {within:.1e}",
            flush=True,
        )
        if not apart <= within:
            raise ValueError(f"{name}: losses are {apart} apart, and {within} is stated")
        claim, note = f"{name}, curve of 50 levels", f"apart {apart:.1e}, stated {within:.1e}"
        rows.append(Row(claim, options.trials / fast, slow / fast, "all rows", note=note))
    return rows


def command_line():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument(
        "--repeats", type=int, default=5, help="number of runs, of which the median is reported"
    )
    parser.add_argument("--devices", type=int, default=2, help="virtual CPU devices")
    return parser


def rows(quick):
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "8", "--rows", "1000", "--repeats", "1"]
    return race(command_line().parse_args(tiny if quick else []))


if __name__ == "__main__":
    race(command_line().parse_args())
