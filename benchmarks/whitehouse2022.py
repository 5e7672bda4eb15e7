"""Claim: the twelve cases of Whitehouse 2022, 1000 trials each, take ten minutes.

This is on two cores. Each case is compared with a NumPy loop, one trial at a time
(`numpy_whitehouse`), with the same data, grid, target and distributions. The aim is a factor of
ten. The logistic loss is over all rows, and over the distinct ones, as nrjax has it. A ridge step
takes one eigendecomposition, and the loss from the sufficient statistics. "apart" is the difference
of the mean stop steps, in standard errors.

    NRJAX_DATA=... python -m benchmarks.whitehouse2022 [--trials 1000] [--cases 'ridge-*-public']

The programs are the study's own, launch by launch, with the passes of figure 2 ("curve", and for
ridge those with different constants). Compile time is not counted. The NumPy loop runs fewer trials
(200 of logistic, 20 of ridge), and its seconds are scaled to `--trials`. It runs in a separate
process with one thread for linear algebra and in one with as many as there are cores; the ratio is
to the faster. Without the paper's data: `--data flights`. benchmarks/notes has a typical
output.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import os
import statistics
import time

import jax
import numpy as np

from benchmarks import numpy_whitehouse, papers
from benchmarks.rows import Row, check_same_distribution
from nrjax import datasets
from nrjax._base.keys import study_key
from nrjax.papers.whitehouse2022 import Settings, study

_LONG = 30.0
"""Seconds from which a run is not repeated, since it varies little."""


def run_numpy(trials, count):
    """Return the seconds of `count` trials, and their stop steps."""
    rng = np.random.default_rng(0)
    trials.stop_step(rng)  # the first call loads libraries
    before = time.perf_counter()
    steps = [trials.stop_step(rng) for _ in range(count)]
    return time.perf_counter() - before, steps


def process_with_threads(threads):
    """Return a separate process whose NumPy has a number of threads for linear algebra."""
    names = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL")]
    kept = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(1, context)
    pool.submit(os.getpid).result()  # it starts here
    for name, value in kept.items():
        del os.environ[name]
        if value is not None:
            os.environ[name] = value
    return pool


@functools.cache
def all_rows(data, rows):
    """Return every row of a logistic data set times its label."""
    data_set = datasets.load(data, "logistic", rows=rows)
    return data_set.x * data_set.y[:, None]


def numpy_trials(case, settings):
    """Return the same case for NumPy, over all rows and over the distinct ones."""
    facts, trial = case.labels, case.trial
    utility, rule = trial.utility, trial.rule
    ridge = facts["task"] == "ridge"
    times = np.asarray(trial.schedule.times, float)
    common = {
        "mechanism": facts["mechanism"],
        "test": facts["test"],
        "value": np.asarray(trial.value.number, float if ridge else np.float32),
        "times": times.tolist(),
        "epsilons": np.asarray(trial.guarantee.epsilon(times), float).tolist(),
        "target": float(facts["target"]),
        "sensitivity": float(facts.get("utility_sensitivity", np.nan)),
        "test_epsilon": float(getattr(rule, "epsilon", np.nan)),
    }
    regularisation, radius = float(utility.regularisation), float(utility.radius)
    if ridge:
        losses = {
            "statistics": numpy_whitehouse.Ridge(
                np.asarray(utility.hessian, float),
                np.asarray(utility.optimum, float),
                float(utility.optimum_loss),
                float(utility.rows),
                regularisation,
                radius,
                utility.layout,
            )
        }
    else:
        every = all_rows(settings.data[0], settings.rows)
        weights = np.full(len(every), 1 / len(every))
        losses = {
            name: numpy_whitehouse.Logistic(
                np.asarray(rows, np.float32), np.asarray(share, np.float32), regularisation, radius
            )
            for name, rows, share in (
                ("all rows", every, weights),
                ("distinct", utility.rows, utility.weights),
            )
        }
    return {name: numpy_whitehouse.Trials(loss=loss, **common) for name, loss in losses.items()}


def timed(program, key, trials, repeats):
    """Return seconds of compilation, median seconds of all trials, and their results."""
    before = time.perf_counter()
    program.compile(key)
    compiling, seconds, parts = time.perf_counter() - before, [], []
    while len(seconds) < repeats and (not seconds or seconds[0] < _LONG):
        before = time.perf_counter()
        parts = [
            program.run(key, min(program.launch_size, trials - first), first)
            for first in range(0, trials, program.launch_size)
        ]  # NumPy arrays: nothing left to wait for
        seconds.append(time.perf_counter() - before)
    results = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return compiling, statistics.median(seconds), results


def command_line():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--cases", nargs="+", default=["*"], help="patterns of case names")
    parser.add_argument("--data", default="paper", help="as in `nrjax run whitehouse2022`")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of nrjax, of which the median is reported"
    )
    parser.add_argument("--numpy-logistic", type=int, default=200, help="trials; 0 for none")
    parser.add_argument("--numpy-ridge", type=int, default=20, help="trials; 0 for none")
    cores = os.cpu_count() or 1
    parser.add_argument("--devices", type=int, default=cores, help="virtual CPU devices")
    return parser


def race(options):
    """Print seconds and ratios of every case, and the total.

    Returns:
        Their rows, and the names of cases that differ in distribution.
    """
    jax.config.update("jax_num_cpu_devices", options.devices)
    cores = os.cpu_count() or 1
    settings, key = Settings(data=(options.data,)), study_key(0)
    chosen = papers.chosen(study(settings), options.cases)
    compiled = papers.programs(chosen, options.trials)
    counts = {"logistic": options.numpy_logistic, "ridge": options.numpy_ridge}
    baselines = {threads: process_with_threads(threads) for threads in sorted({1, cores})}
    print(
        f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}; NumPy: "
        + ", ".join(f"{count} trials of {task}" for task, count in counts.items())
        + f", scaled to {options.trials}\n"
        + f"{'case':<41} {'nrjax s':>7} {'compile s':>9} {'mean step':>9}"
        + "".join(f" {f'numpy s ({threads} thr.)':>16}" for threads in baselines)
        + f" {'ratio':>6} {'apart':>5}  loss over"
    )
    total, different, report_rows = 0.0, [], []
    for case, given in chosen.cases.items():
        facts = given.labels
        for name, program in compiled[case].items():
            compiling, fast, results = timed(program, key, options.trials, options.repeats)
            total += compiling + fast
            if name != "outcome":
                print(f"{f'{case} {name}':<41} {fast:7.2f} {compiling:9.2f}", flush=True)
                continue
            steps, count = results["step"], counts[facts["task"]]
            line = f"{case:<41} {fast:7.2f} {compiling:9.2f} {steps.mean():9.1f}"
            for kind, trials in numpy_trials(given, settings).items() if count else ():
                runs = [
                    baseline.submit(run_numpy, trials, count).result()
                    for baseline in baselines.values()
                ]
                slow = [seconds * options.trials / count for seconds, _ in runs]
                # The same distribution, so that neither side does less work.
                theirs = runs[0][1]
                error = np.sqrt(np.var(theirs) / count + np.var(steps) / steps.size)
                apart = (np.mean(theirs) - steps.mean()) / error
                if not abs(apart) < 5:
                    different.append(f"{case}, {kind}")
                line += "".join(f" {seconds:16.2f}" for seconds in slow)
                print(f"{line} {min(slow) / fast:6.1f} {apart:5.1f}  {kind}", flush=True)
                rate, ratio = options.trials / fast, min(slow) / fast
                report_rows.append(Row(case, rate, ratio, "NumPy", note=f"loss over {kind}"))
                line = " " * 68
            if not count:
                report_rows.append(Row(case, options.trials / fast))
                print(line, flush=True)
    for baseline in baselines.values():
        baseline.shutdown()
    print(f"{'total of nrjax, compilation included':<41} {total:7.2f}")
    return report_rows, different


def rows(quick):
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "4", "--cases", "logistic-brownian-public", "--data", "flights"]
    tiny += ["--repeats", "1", "--numpy-logistic", "2"]
    report_rows, different = race(command_line().parse_args(tiny if quick else []))
    check_same_distribution(different)
    return report_rows


def main():
    """Print seconds and ratios of every case, and the total."""
    _, different = race(command_line().parse_args())
    check_same_distribution(different)


if __name__ == "__main__":
    main()
