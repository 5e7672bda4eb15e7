"""Claim: lanes whose trial has ended take the next one, which pays where stop steps vary much.

Logistic regression on flights, Laplace mechanism, public threshold, 1000 levels: a few trials take
ten times as many steps as most. Against the same lanes that all begin at once and wait for the
slowest, and against `jax.vmap` of `nrjax.run_until`, which also evaluates the loss of every lane at
every step. Same trials, one device.

    python -m benchmarks.refilling [--trials 4096]

Compilation is apart; medians of three, in turns. Stop steps must be the same.
"""

import argparse
import statistics
import time

import jax
import numpy as np

import nrjax
from benchmarks.rows import Row
from nrjax import datasets, erm, montecarlo
from nrjax.keys import trial_key

_STOPS = ("step", "epsilon")


def parts(rows):
    """Arguments of `simulate`."""
    data = datasets.load("flights", "logistic", rows=rows)
    problem = erm.LogisticProblem.fit(data.x, data.y, 0.05)
    guarantee = nrjax.PureGuarantee(problem.l1_sensitivity)
    return {
        "value": problem.value,
        "process": nrjax.Laplace(problem.shape),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.16, 20, 1000),
        "utility": problem.utility,
        "rule": nrjax.PublicThreshold(-1.03 * problem.optimum_loss),
    }


def race(options):
    """Print seconds of each way; the rows."""
    given, key, trials = parts(options.rows), jax.random.key(0), options.trials
    one = jax.devices()[:1]

    def program(lanes):
        batching = nrjax.Batching(tile=64, lanes=lanes, devices=one)
        trial = nrjax.build_interaction(**given)
        made = montecarlo.outcomes(trial, trials, _STOPS, batching)
        return lambda: made.run(key, trials)["step"]

    vmapped = jax.jit(jax.vmap(lambda i: nrjax.run_until(trial_key(key, i), **given).step))
    numbers = np.arange(trials, dtype=np.uint32)
    every = -(-trials // 64) * 64
    ways = {
        f"refilled, {options.lanes} lanes": program(options.lanes),
        f"not refilled, {every} lanes": program(every),
        "vmap of run_until": lambda: np.asarray(vmapped(numbers)),
    }
    steps = {name: work() for name, work in ways.items()}
    first, *others = steps.values()
    if any(not np.array_equal(first, other) for other in others):
        raise RuntimeError("the ways do not stop at the same steps")
    seconds = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, work in ways.items():
            before = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - before)
    medians = {name: statistics.median(some) for name, some in seconds.items()}
    ours, *peers = medians
    share = np.quantile(first, [0.5, 0.99, 1])
    print(f"{trials} trials, steps: mean {first.mean():.0f}, quantiles 50, 99, 100 %: {share}")
    for name, median in medians.items():
        print(f"{name:<24} {median:7.3f} s, {median / medians[ours]:5.1f} times ours")
    fast = trials / medians[ours]
    return [Row("long-tailed Laplace", fast, medians[peer] / medians[ours], peer) for peer in peers]


def parser():
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--trials", type=int, default=4096)
    made.add_argument("--lanes", type=int, default=256)
    made.add_argument("--rows", type=int, default=10_000)
    made.add_argument("--repeats", type=int, default=3)
    return made


def rows(quick: bool) -> list[Row]:
    """The rows of the table."""
    tiny = ["--trials", "128", "--lanes", "64", "--rows", "300", "--repeats", "1"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
