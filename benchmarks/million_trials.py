"""Claim: a million trials of a scalar mechanism need less than 2 GiB.

    python -m benchmarks.million_trials [--trials 1000000]

Peak memory is that of the whole process, Python and JAX included. benchmarks/notes has a
typical output.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from benchmarks import numpy_whitehouse
from benchmarks.rows import Row, peak_gib


class Closeness(nrjax.Utility):
    """A utility, minus the distance of a release from 3."""

    def hypothesis(self, release):
        """Return the release."""
        return release

    def evaluate(self, hypothesis):
        """Return minus the distance."""
        return -jnp.abs(hypothesis - 3.0)


def run_numpy(mechanism, guarantee, grid, trials):
    """Return the seconds of trials in NumPy, one at a time."""
    times = np.asarray(grid.times, float)
    loop = numpy_whitehouse.Trials(
        mechanism,
        "public",
        np.full(1, 3.0, np.float32),
        times.tolist(),
        np.asarray(guarantee.epsilon(times), float).tolist(),
        lambda release: abs(float(release[0]) - 3.0),
        0.5,
    )
    rng, before = np.random.default_rng(0), time.perf_counter()
    for _ in range(trials):
        loop.stop_step(rng)
    return time.perf_counter() - before


def race(options):
    """Print seconds and peak memory of both mechanisms, and return their rows."""
    linear = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    print(
        f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}; "
        f"peak before: {peak_gib():.2f} GiB"
    )
    report_rows = []
    for name, process, guarantee in (
        ("brownian", nrjax.Brownian(()), linear),
        ("laplace", nrjax.Laplace(()), nrjax.PureGuarantee(1.0)),
    ):
        grid = nrjax.Grid.geometric(guarantee, 0.6, 20.0, 100)
        for run in ("first", "second"):
            before = time.perf_counter()
            outcome = nrjax.simulate(
                jax.random.key(0),
                nrjax.Interaction(
                    value=3.0,
                    process=process,
                    guarantee=guarantee,
                    schedule=grid,
                    utility=Closeness(),
                    rule=nrjax.PublicThreshold(-0.5),
                ),
                trials=options.trials,
            )
            seconds = time.perf_counter() - before
            steps = float(np.sum(outcome.step + 1.0))
            print(
                f"{name:<9} {run:<6} {seconds:6.2f} s, {steps / seconds / 1e6:6.1f}e6 steps/s,"
                f" peak {peak_gib():.2f} GiB, median epsilon {np.median(outcome.epsilon):.3f}"
            )
        fast, ratio = options.trials / seconds, None
        if options.numpy:
            ratio = fast * run_numpy(name, guarantee, grid, options.numpy) / options.numpy
            print(f"{name:<9} {ratio:.1f} times as fast as NumPy, one trial at a time")
        report_rows.append(Row(f"{name}, {options.trials:,} trials", fast, ratio, "NumPy"))
    return report_rows


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=1_000_000)
    arguments.add_argument("--numpy", type=int, default=1000, help="trials of NumPy; 0 for none")
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "2000", "--numpy", "10"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and peak memory for the Brownian and the Laplace mechanism."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
