"""Claim: a sweep over sensitivity, tightness and target is one program, compiled once.

Logistic regression on flights, Brownian mechanism, 1000 trials for each of 2 sensitivities, 4
levels of tightness and 3 targets. The baselines, in the same run, are one `nrjax.simulate` after
the other, which share a compilation, and the same with JAX's compilations cleared before each, as
in a program that has its numbers as constants.

    python -m benchmarks.sweep [--trials 1000]

Seconds are medians of three; the first sweep, with compilation, is reported separately. All include
building the interactions on the host. Stop steps must equal those of `simulate`.
"""

import argparse
import itertools
import statistics
import time

import jax
import numpy as np

import nrjax
from benchmarks.rows import Row
from nrjax import datasets, erm

_SENSITIVITIES = (1.0, 2.0)
_TIGHT_AT = (0.1, 0.3, 0.6, 1.0)
_TARGETS = (1.02, 1.03, 1.05)


def parts(problem, sensitivity, tight_at, target):
    """Return the parts of an interaction, where `sensitivity` is a multiple of the problem's."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(
        tight_at, sensitivity * problem.l2_sensitivity, 1e-6
    )
    # The least epsilon that a boundary reaches does not depend on the sensitivity.
    floor = nrjax.LinearBoundary.tight_at_epsilon(tight_at, 1.0, 1e-6).a
    lowest = max(0.16, 1.05 * float(np.asarray(floor)))
    return {
        "value": problem.value,
        "process": nrjax.Brownian(problem.shape),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, lowest, 20, 1000),
        "utility": problem.utility,
        "rule": nrjax.PublicThreshold(-target * problem.optimum_loss),
    }


def timed(work):
    """Return the result of a function, and its seconds."""
    before = time.perf_counter()
    return work(), time.perf_counter() - before


def race(options):
    """Print the seconds of both ways, and return their rows."""
    data = datasets.load("flights", "logistic", rows=options.rows)
    problem = erm.LogisticProblem.fit(data.x, data.y, 0.05)
    points = list(itertools.product(_SENSITIVITIES, _TIGHT_AT, _TARGETS))
    key = jax.random.key(0)

    def together():
        built = (nrjax.Interaction(**parts(problem, *point)) for point in points)
        return nrjax.sweep(key, built, trials=options.trials)

    def apart(clear=False):
        steps = []
        for point in points:
            if clear:
                jax.clear_caches()
            steps.append(
                nrjax.simulate(
                    key, nrjax.Interaction(**parts(problem, *point)), trials=options.trials
                ).step
            )
        return np.stack(steps)

    swept, first = timed(together)
    ours = statistics.median(timed(together)[1] for _ in range(3))
    steps, _ = timed(apart)
    baseline = statistics.median(timed(apart)[1] for _ in range(3))
    if not np.array_equal(steps, swept.step):
        raise RuntimeError("the sweep's stop steps are not those of simulate")
    print(f"{len(points)} points, {options.trials} trials of each, {len(jax.devices())} devices")
    print(
        f"sweep {ours:.2f} s (first, with compilation, {first:.2f} s); one by one {baseline:.2f} s"
    )
    total = len(points) * options.trials
    report_rows = [
        Row(f"{len(points)} points", total / ours, baseline / ours, "simulate, one by one")
    ]
    if options.compiling:
        _, seconds = timed(lambda: apart(clear=True))
        print(
            f"one by one, compiled each time, {seconds:.1f} s: {seconds / first:.1f} times as long"
        )
        claim = f"{len(points)} points, with compilation"
        report_rows.append(
            Row(claim, total / first, seconds / first, "the same, compiled each time")
        )
    return report_rows


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=1000)
    arguments.add_argument("--rows", type=int, default=10_000)
    arguments.add_argument(
        "--compiling", type=int, default=1, help="0 leaves out the slow baseline"
    )
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "20", "--rows", "300", "--compiling", "0"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
