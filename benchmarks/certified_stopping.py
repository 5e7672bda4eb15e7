"""Claim: bounds give 100 times NumPy's speed, almost independent of the number of rows.

Logistic regression on KDD-99 as in `whitehouse2022` (lambda 0.05, 1000 levels, public threshold,
Brownian mechanism, 1000 trials), at 10,000 and at 100,000 rows. Both have the noise levels of the
10,000, and a target at the same distance above their optimum, so that they take as many steps. The
baseline is the loop of `numpy_whitehouse`, one trial at a time, with the loss over all rows, and in
brackets over the distinct ones. It runs fewer trials, scaled, with one thread for linear algebra
and with all; the faster counts. Mean stop steps are compared ("apart": in standard errors).

    NRJAX_DATA=... python -m benchmarks.certified_stopping [--trials 1000] [--rows 10000 100000]

"stops": steps and epsilons are kept. "all": the exact utility as well, which takes one evaluation
per trial. "blind": the same program with infinite bounds. "straddled": number of evaluations that
the bounds could not replace; "width": the largest width of their bounds. Medians of runs; compile
time is not counted.
"""

import argparse
import dataclasses
import os
import statistics
import time
from typing import Any

import jax
import numpy as np

import nrjax
from benchmarks import numpy_whitehouse
from benchmarks.rows import Row, check_same_distribution
from benchmarks.whitehouse2022 import process_with_threads, run_numpy
from nrjax import datasets
from nrjax.erm import LogisticProblem
from nrjax.simulation import montecarlo

_EXCESS = 0.0133
"""Distance of the paper's target, 0.41, from the optimum on 10,000 rows."""

_STOPS = ("step", "epsilon")
_ALL = ("step", "time", "utility", "mechanism_epsilon", "test_epsilon", "epsilon", "status")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One number of rows of the data, with a problem and noise levels."""

    data: Any
    problem: LogisticProblem
    guarantee: nrjax.LinearBoundary
    times: np.ndarray

    @property
    def target(self):
        """The loss at which a trial stops."""
        return self.problem.optimum_loss + _EXCESS

    def trial(self, utility):
        """Return the interaction with a utility."""
        return nrjax.Interaction(
            value=self.problem.value,
            process=nrjax.Brownian(self.problem.shape),
            guarantee=self.guarantee,
            schedule=nrjax.Grid(self.times),
            utility=utility,
            rule=nrjax.PublicThreshold(-self.target),
        )


def settings(data, counts):
    """Yield a setting for each number of rows, with the noise levels of the first."""
    times = None
    for count in counts:
        data_set = datasets.load(data, "logistic", rows=count)
        problem = LogisticProblem.fit(data_set.x, data_set.y, 0.05)
        guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, problem.l2_sensitivity, 1e-6)
        if times is None:
            times = np.asarray(nrjax.Grid.geometric(guarantee, 0.16, 20, 1000).times)
        yield Setting(data_set, problem, guarantee, times)


def timed(trial, fields, trials, repeats):
    """Return the seconds of compilation, the median seconds of a run, and its results."""
    program, key = montecarlo.outcomes(trial, trials, fields), jax.random.key(0)
    before = time.perf_counter()
    program.compile(key)
    compiling, seconds, results = time.perf_counter() - before, [], {}
    for _ in range(repeats):
        before = time.perf_counter()
        results = program.run(key, trials)
        seconds.append(time.perf_counter() - before)
    return compiling, statistics.median(seconds), results


def straddles(setting, steps):
    """Return the number of releases whose bounds straddle the target, and the largest width."""
    utility = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), setting.problem.utility)
    dull = dataclasses.replace(setting.problem.utility, rows=utility.rows[:1])
    dull = dataclasses.replace(dull, labels=utility.labels[:1], weights=utility.weights[:1])
    length = int(steps.max()) + 1
    trial = dataclasses.replace(setting.trial(dull), max_steps=length)
    program = montecarlo.paths(trial, len(steps), ("hypothesis",))
    hypotheses = program.run(jax.random.key(0), len(steps))["hypothesis"]
    low, high = jax.jit(jax.vmap(jax.vmap(utility.bounds)))(hypotheses)
    both = (np.asarray(low) >= -setting.target) != (np.asarray(high) >= -setting.target)
    both &= np.arange(length) <= steps[:, None]
    widths = np.asarray(high - low)[both]
    return widths.size, float(widths.max(initial=0))


def numpy_trials(setting):
    """Yield the same trials for NumPy, over all rows and over the distinct ones."""
    problem, data = setting.problem, setting.data
    every = (data.x * data.y[:, None], np.full(len(data.y), 1 / len(data.y)))
    for kind, (table, weights) in (
        ("all rows", every),
        ("distinct", (problem.utility.rows, problem.utility.weights)),
    ):
        loss = numpy_whitehouse.Logistic(
            np.asarray(table, np.float32),
            np.asarray(weights, np.float32),
            problem.regularisation,
            problem.utility.radius,
        )
        value = np.asarray(problem.value, np.float32)
        epsilons = np.asarray(setting.guarantee.epsilon(setting.times), float)
        yield (
            kind,
            numpy_whitehouse.Trials(
                "brownian",
                "public",
                value,
                setting.times.tolist(),
                epsilons.tolist(),
                loss,
                setting.target,
            ),
        )


def race_one(setting, options, baselines):
    """Print one setting. Return its row, and names of cases that differ in distribution."""
    problem, trials = setting.problem, options.trials
    utility = problem.utility
    unknowing = dataclasses.replace(utility.expansion, error=np.inf)
    blind = dataclasses.replace(utility, expansion=unknowing)
    runs = {
        name: timed(setting.trial(one), fields, trials, options.repeats)
        for name, one, fields in (
            ("stops", utility, _STOPS),
            ("all", utility, _ALL),
            ("blind", blind, _ALL),
        )
    }
    steps = runs["stops"][2]["step"]
    for results in (runs["all"][2], runs["blind"][2]):  # bit for bit
        np.testing.assert_array_equal(results["step"], steps)
    for name in _ALL:
        np.testing.assert_array_equal(runs["all"][2][name], runs["blind"][2][name])
    count, width = straddles(setting, steps)
    print(
        f"{problem.rows} rows, {len(utility.rows)} of them distinct: mean step {steps.mean():.1f}, "
        f"straddled {count} of {np.sum(steps + 1)}, width at most {width:.2g}"
    )
    compiling = runs["stops"][0], runs["all"][0]
    print("  " + ", ".join(f"{name} {run[1]:.3f} s" for name, run in runs.items()), end="")
    print(f"; compilation {compiling[0]:.1f} and {compiling[1]:.1f} s", flush=True)
    fast, ratios, different = runs["stops"][1], {}, []
    baseline_trials = max(2, options.numpy * options.base // problem.rows)
    for kind, plain in numpy_trials(setting):
        raced = [
            baseline.submit(run_numpy, plain, baseline_trials).result()
            for baseline in baselines.values()
        ]
        slow = min(seconds for seconds, _ in raced) * trials / baseline_trials
        theirs = raced[0][1]
        error = np.sqrt(np.var(theirs) / baseline_trials + np.var(steps) / steps.size)
        apart = (np.mean(theirs) - steps.mean()) / error
        if not abs(apart) < 5:
            different.append(f"{problem.rows} rows, {kind}")
        ratios[kind] = slow / fast
        print(
            f"  NumPy, {kind}: {slow:.2f} s, ratio {slow / fast:.0f} "
            f"(all kept: {slow / runs['all'][1]:.0f}), apart {apart:.1f}",
            flush=True,
        )
    row = Row(
        f"logistic-brownian-public, certified stops, {problem.rows} rows",
        trials / fast,
        ratios["all rows"],
        "NumPy loop, all rows",
        note=f"{ratios['distinct']:.0f} with distinct rows; {count} evaluations",
    )
    return row, different


def command_line():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--data", default="kdd99", help="name of a data set of `nrjax.datasets`")
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of nrjax, of which the median is reported"
    )
    help_numpy = "NumPy's trials at the first number of rows; fewer where there are more"
    parser.add_argument("--numpy", type=int, default=200, help=help_numpy)
    cores = os.cpu_count() or 1
    parser.add_argument("--devices", type=int, default=cores, help="virtual CPU devices")
    return parser


def race(options):
    """Print all settings. Return their rows, and names of cases that differ in distribution."""
    jax.config.update("jax_num_cpu_devices", options.devices)
    options.base = options.rows[0]
    baselines = {n: process_with_threads(n) for n in sorted({1, os.cpu_count() or 1})}
    print(f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}")
    rows, different = [], []
    for setting in settings(options.data, options.rows):
        row, wrong = race_one(setting, options, baselines)
        rows.append(row)
        different += wrong
    for baseline in baselines.values():
        baseline.shutdown()
    return rows, different


def rows(quick):
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "8", "--rows", "1000", "--data", "flights", "--repeats", "1"]
    tiny += ["--numpy", "2"]
    report_rows, different = race(command_line().parse_args(tiny if quick else []))
    check_same_distribution(different)
    return report_rows


def main():
    """Print seconds, ratios and straddles for each number of rows."""
    _, different = race(command_line().parse_args())
    check_same_distribution(different)


if __name__ == "__main__":
    main()
