"""Claim: lanes whose trial has ended take the next one, which pays where stop steps vary much.

Laplace mechanism, four cases. Long-tailed: logistic regression on flights with the settings of
Whitehouse 2022 and its reduced test, where a trial may take ten times as many steps as most, judged
by bounds as the study does and by all rows; and a scalar. For comparison the public threshold,
where the slowest trial takes twice the mean. Raced against the refilled lanes, one device:

* as many lanes, in batches that wait for their slowest trial;
* a lane for every trial, where nothing is to be refilled;
* `jax.vmap` of `nrjax.run_until`, where every lane also does the work of the slowest (not where
  bounds judge: a `vmap` evaluates all the same).

    python -m benchmarks.refilling [--cases 'logistic*'] [--data flights]

The papers' data: `--data paper`. Compilation is apart; medians, in turns. Stop steps must be the
same. "cpu": of all cores, which says more than the clock where others work.
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
from nrjax.erm.output_utility import OutputUtility
from nrjax.keys import trial_key
from nrjax.papers import whitehouse2022
from nrjax.simulation import montecarlo

_STOPS = ("step", "epsilon")

_LONG = 3.0
"""Seconds from which a run is not repeated: it varies little."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What `simulate` is given, how many trials of it, and whether `vmap` is raced."""

    parts: dict
    trials: int
    vmap: bool = True


def logistic(options, test):
    """Arguments of `simulate` for the study's case of a test."""
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
    """The same loss, for which all rows are looked at."""
    fields = dataclasses.fields(OutputUtility)
    return OutputUtility(**{field.name: getattr(utility, field.name) for field in fields})


def scalar():
    """Arguments of `simulate` for the case of `million_trials`."""
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
    """The cases by name."""
    reduced, few = logistic(options, "reduced_above_threshold"), options.trials
    every_row = reduced | {"utility": without_bounds(reduced["utility"])}
    return {
        "logistic, reduced test, bounds": Case(reduced, few, vmap=False),
        "logistic, reduced test, all rows": Case(every_row, few // 2),  # for `vmap` to end soon
        "logistic, public, bounds": Case(logistic(options, "public"), few, vmap=False),
        "scalar": Case(scalar(), 32 * few),
    }


def ways_of(case):
    """By name: a function without arguments that runs all trials and returns their steps."""
    key, trials, one = jax.random.key(0), case.trials, jax.devices()[:1]
    trial = nrjax.Interaction(**case.parts)
    tile, lanes = nrjax.Batching().resolve(trial)
    every = -(-trials // tile) * tile

    def ours(lanes, chunk):
        batching = nrjax.Batching(tile=tile, lanes=lanes, devices=one)
        program = montecarlo.outcomes(trial, chunk, _STOPS, batching)
        return lambda: program.run_all(key, trials)["step"]

    found = {
        f"{lanes} lanes, refilled": ours(lanes, trials),
        f"batches of {lanes}": ours(lanes, lanes),
        f"{every} lanes": ours(every, trials),
    }
    if case.vmap:
        one_step = jax.vmap(
            lambda i: nrjax.run_until(trial_key(key, i), nrjax.Interaction(**case.parts)).step
        )
        vmapped, numbers = jax.jit(one_step), np.arange(trials, dtype=np.uint32)
        found["vmap of run_until"] = lambda: np.asarray(vmapped(numbers))
    return found


def timed(ways, repeats):
    """Median seconds and processor seconds of each way, in turns."""
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
    """Print one case; its rows."""
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
    refilled, *peers = ways
    for way in ways:
        print(
            f"  {way:<20} {wall[way]:7.3f} s, {wall[way] / wall[refilled]:5.2f} times ours; "
            f"cpu {cpu[way]:7.3f} s, {cpu[way] / cpu[refilled]:5.2f} times",
            flush=True,
        )
    fast = case.trials / wall[refilled]
    return [Row(name, fast, wall[peer] / wall[refilled], peer) for peer in peers]


def race(options):
    """Print all cases; their rows."""
    print(f"1 x {jax.devices()[0].device_kind}")
    return [
        row
        for name, case in cases(options).items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases)
        for row in race_one(name, case, options.repeats)
    ]


def parser():
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--trials", type=int, default=1024, help="scalar: 32 times as many")
    made.add_argument("--cases", nargs="+", default=["*"], help="names; * and ? match any")
    made.add_argument("--data", default="flights", help="as in `nrjax run whitehouse2022`")
    made.add_argument("--rows", type=int, default=10_000)
    made.add_argument("--repeats", type=int, default=3)
    return made


def rows(quick: bool) -> list[Row]:
    """The rows of the table."""
    tiny = ["--trials", "256", "--repeats", "1", "--cases", "*all rows"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print seconds and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
