"""Claim: a sweep over sensitivity, tightness and target is one program, compiled once.

Logistic regression on flights, Brownian mechanism, 1000 trials of each of 2 sensitivities x 4
levels of tightness x 3 targets. The peers, in the same run: one `nrjax.simulate` after the other,
which share a compilation too, and the same with JAX's compilations cleared before each, which is
what a program that bakes its numbers in would cost.

    python -m benchmarks.sweep [--trials 1000]

Seconds are medians of three; the first sweep, with compilation, is apart. Building the
interactions, on the host, counts in all of them. Stop steps must be those of `simulate`.
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
    """Arguments of `simulate`; the sensitivity is in units of the problem's."""
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
    """Its result, and seconds."""
    before = time.perf_counter()
    return work(), time.perf_counter() - before


def race(options):
    """Print seconds of both ways; their rows."""
    data = datasets.load("flights", "logistic", rows=options.rows)
    problem = erm.LogisticProblem.fit(data.x, data.y, 0.05)
    points = list(itertools.product(_SENSITIVITIES, _TIGHT_AT, _TARGETS))
    key = jax.random.key(0)

    def together():
        built = (nrjax.Interaction(**parts(problem, *point)) for point in points)
        return nrjax.sweep(key, built, trials=options.trials)

    def apart(clear=False):
        found = []
        for point in points:
            if clear:
                jax.clear_caches()
            found.append(
                nrjax.simulate(
                    key, nrjax.Interaction(**parts(problem, *point)), trials=options.trials
                ).step
            )
        return np.stack(found)

    swept, first = timed(together)
    ours = statistics.median(timed(together)[1] for _ in range(3))
    steps, _ = timed(apart)
    peer = statistics.median(timed(apart)[1] for _ in range(3))
    if not np.array_equal(steps, swept.step):
        raise RuntimeError("the sweep's stop steps are not those of simulate")
    print(f"{len(points)} points, {options.trials} trials of each, {len(jax.devices())} devices")
    print(f"sweep {ours:.2f} s (first, with compilation, {first:.2f} s); one by one {peer:.2f} s")
    total = len(points) * options.trials
    found = [Row(f"{len(points)} points", total / ours, peer / ours, "simulate, one by one")]
    if options.compiling:
        _, seconds = timed(lambda: apart(clear=True))
        print(
            f"one by one, compiled each time, {seconds:.1f} s: {seconds / first:.1f} times as long"
        )
        claim = f"{len(points)} points, with compilation"
        found.append(Row(claim, total / first, seconds / first, "the same, compiled each time"))
    return found


def parser():
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--trials", type=int, default=1000)
    made.add_argument("--rows", type=int, default=10_000)
    made.add_argument("--compiling", type=int, default=1, help="0: leave out what takes long")
    return made


def rows(quick: bool) -> list[Row]:
    """The rows of the table."""
    tiny = ["--trials", "20", "--rows", "300", "--compiling", "0"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
