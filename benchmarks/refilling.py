"""Claim: work for running trials only pays where stop steps vary much.

The Laplace mechanism in four cases. Two have a long tail, in which a trial may take ten times as
many steps as most: logistic regression on flights with the settings of Whitehouse 2022 and its
reduced test, by bounds as in the study, and by all rows. For comparison there are the public
threshold, whose slowest trial takes twice the mean, and a scalar. With bounds, lanes are refilled
when their trials have stopped. Without bounds, running trials are gathered into tiles. On one
device both are compared with:

* as many trials, in batches that wait for their slowest trial;
* with bounds, a lane per trial, without refilling;
* `jax.vmap` of `nrjax.run_until`, in which every lane also does the work of the slowest (without
  bounds, since a `vmap` evaluates the utility anyway).

    python -m benchmarks.refilling [--cases 'logistic*'] [--data flights]

The papers' data: `--data paper`. Compile time is not counted. Medians of alternating runs. Stop
steps must be equal. "cpu" is the time of all cores, which other work on the machine disturbs less.
"""

import argparse
import dataclasses
import fnmatch
import statistics
import time

import jax
import numpy as np

import nrjax
from benchmarks.million_trials import Closeness
from benchmarks.rows import Row
from nrjax._base.keys import trial_key
from nrjax.erm.output_utility import OutputUtility
from nrjax.papers import whitehouse2022
from nrjax.simulation import blocks, montecarlo

_STOPS = ("step", "epsilon")

_LONG = 3.0
"""Seconds from which a run is not repeated, since it varies little."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The arguments of an interaction, a number of trials, and whether `vmap` is compared."""

    parts: dict
    trials: int
    vmap: bool = True


def logistic(options, test):
    """Return the parts of the study's interaction with a test."""
    settings = whitehouse2022.Settings(
        data=(options.data,),
        rows=options.rows,
        task=("logistic",),
        mechanism=("laplace",),
        test=(test,),
    )
    (case,) = whitehouse2022.cases(settings).values()
    names = ("value", "process", "guarantee", "schedule", "utility", "rule")
    return {name: getattr(case.trial, name) for name in names}


def without_bounds(utility):
    """Return the same loss without bounds, which reads all rows."""
    fields = dataclasses.fields(OutputUtility)
    return OutputUtility(**{field.name: getattr(utility, field.name) for field in fields})


def scalar():
    """Return the parts of the interaction of `million_trials`."""
    guarantee = nrjax.PureGuarantee(1.0)
    return {
        "value": 3.0,
        "process": nrjax.Laplace(()),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.6, 20.0, 100),
        "utility": Closeness(),
        "rule": nrjax.PublicThreshold(-0.5),
    }


def cases(options):
    """Return the cases by name."""
    reduced, few = logistic(options, "reduced_above_threshold"), options.trials
    every_row = reduced | {"utility": without_bounds(reduced["utility"])}
    return {
        "logistic, reduced test, bounds": Case(reduced, few, vmap=False),
        "logistic, reduced test, all rows": Case(
            every_row, few // 2
        ),  # fewer, so that `vmap` ends soon
        "logistic, public, bounds": Case(logistic(options, "public"), few, vmap=False),
        "scalar": Case(scalar(), 32 * few),
    }


def ways_of(case):
    """Return functions that run all trials and return their steps, by name."""
    key, trials, one = jax.random.key(0), case.trials, jax.devices()[:1]
    trial = nrjax.Interaction(**case.parts)
    tile, lanes = nrjax.Batching().resolve(trial)
    every = -(-trials // tile) * tile

    def ours(lanes, chunk):
        batching = nrjax.Batching(tile=tile, lanes=lanes, devices=one)
        program = montecarlo.outcomes(trial, chunk, _STOPS, batching)
        return lambda: program.run_all(key, trials)["step"]

    if montecarlo.outcomes(trial, 1, _STOPS).work is blocks.run:
        ways = {f"tiles of {tile}": ours(tile, trials), f"batches of {tile}": ours(tile, tile)}
    else:
        ways = {
            f"{lanes} lanes, refilled": ours(lanes, trials),
            f"batches of {lanes}": ours(lanes, lanes),
            f"{every} lanes": ours(every, trials),
        }
    if case.vmap:
        one_step = jax.vmap(
            lambda i: nrjax.run_until(trial_key(key, i), nrjax.Interaction(**case.parts)).step
        )
        vmapped, numbers = jax.jit(one_step), np.arange(trials, dtype=np.uint32)
        ways["vmap of run_until"] = lambda: np.asarray(vmapped(numbers))
    return ways


def timed(ways, repeats):
    """Return the median seconds and processor seconds of each way, by alternating runs."""
    wall, cpu = ({name: [] for name in ways} for _ in range(2))
    for _ in range(repeats):
        for name, work in ways.items():
            if wall[name] and wall[name][0] >= _LONG:
                continue
            before = time.perf_counter(), time.process_time()
            work()
            wall[name].append(time.perf_counter() - before[0])
            cpu[name].append(time.process_time() - before[1])
    return [{name: statistics.median(some[name]) for name in ways} for some in (wall, cpu)]


def race_one(name, case, repeats):
    """Print one case and return its rows."""
    ways = ways_of(case)
    steps, *others = (work() for work in ways.values())  # this compiles too
    if any(not np.array_equal(steps, other) for other in others):
        raise RuntimeError(f"{name}: the ways do not stop at the same steps")
    wall, cpu = timed(ways, repeats)
    shares = np.quantile(steps, [0.5, 0.9, 0.99, 1]).astype(int).tolist()
    mean = steps.mean()
    print(
        f"{name}: {case.trials} trials, steps: mean {mean:.1f}, "
        f"quantiles 50, 90, 99, 100 %: {shares}, slowest {steps.max() / mean:.1f} times the mean"
    )
    refilled, *baselines = ways
    for way in ways:
        print(
            f"  {way:<20} {wall[way]:7.3f} s, {wall[way] / wall[refilled]:5.2f} times ours; "
            f"cpu {cpu[way]:7.3f} s, {cpu[way] / cpu[refilled]:5.2f} times",
            flush=True,
        )
    fast = case.trials / wall[refilled]
    return [Row(name, fast, wall[baseline] / wall[refilled], baseline) for baseline in baselines]


def race(options):
    """Print all cases and return their rows."""
    print(f"1 x {jax.devices()[0].device_kind}")
    return [
        row
        for name, case in cases(options).items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases)
        for row in race_one(name, case, options.repeats)
    ]


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument(
        "--trials",
        type=int,
        default=1024,
        help="trials per case; the scalar case has 32 times as many",
    )
    arguments.add_argument("--cases", nargs="+", default=["*"], help="patterns of case names")
    arguments.add_argument("--data", default="flights", help="as in `nrjax run whitehouse2022`")
    arguments.add_argument("--rows", type=int, default=10_000)
    arguments.add_argument("--repeats", type=int, default=3)
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "256", "--repeats", "1", "--cases", "*all rows"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
