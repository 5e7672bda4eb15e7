"""Claim: the methods of Ligett 2017 run ten times as many trials per second as in NumPy.

The whole study (40 targets, 2 tasks, 3 methods, 40 trials) takes less than fifteen minutes on two
cores, from the command to the figures. Each case is compared with a NumPy loop, one trial at a time
(`numpy_ligett`), with the same data, levels, tests and distributions.

NumPy computes the logistic risk over all rows, and over the distinct ones, as nrjax does. It judges
one hypothesis at a time until the test accepts, as the authors' program does; all levels at once by
one matrix product; or, faster than both, blocks until the test accepts. Ridge takes one
eigendecomposition per step, and the risk from the statistics instead of the rows. "apart" is the
difference of the mean steps or excess risks, in standard errors.

    NRJAX_DATA=... python -m benchmarks.ligett2017 [--trials 1000] [--cases 'ridge-*']
    NRJAX_DATA=... python -m benchmarks.ligett2017 --whole

Compile time is not counted, and is paid once for all targets of a method. NumPy runs fewer trials,
in a separate process with one thread for linear algebra and in one with as many as there are cores;
the ratio is to the faster. Without the paper's data: `--data flights`. benchmarks/notes has a
typical output.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from benchmarks import numpy_ligett, papers
from benchmarks.rows import Row, check_same_distribution, standard_errors
from benchmarks.whitehouse2022 import process_with_threads, timed
from nrjax import datasets
from nrjax._base.keys import study_key
from nrjax._base.outcome import Status
from nrjax.papers.ligett2017 import Settings, study

_METHODS = ("noise_reduction", "doubling", "theory")
_BLOCK = 128
"""Number of logistic hypotheses per block: the fastest of 8, 32, 128 and 1000."""


def run_numpy(run, count):
    """Return the seconds of `count` trials, and the trials, shape (count, fields of `Trial`)."""
    rng = np.random.default_rng(0)
    run(rng)  # the first call loads libraries
    before = time.perf_counter()
    trials = [run(rng) for _ in range(count)]
    return time.perf_counter() - before, np.array(trials)


@functools.cache
def all_rows(data, rows):
    """Return every row of a logistic data set times its label."""
    data_set = datasets.load(data, "logistic", rows=rows or "all", normalise="max_l1")
    return (data_set.x * data_set.y[:, None]).astype(np.float32)


def judges(case, settings):
    """Return the judges of NumPy's releases, by name."""
    utility = case.trial.utility
    optimum, radius = np.asarray(utility.optimum, float), float(utility.radius)
    regularisation = float(utility.regularisation)
    if case.labels["task"] == "ridge":
        judge = numpy_ligett.Ridge(
            np.asarray(utility.hessian, float),
            optimum,
            0.0,
            float(utility.rows),
            regularisation,
            radius,
            utility.layout,
        )
        return {"statistics": judge}
    every = all_rows(settings.data[0], settings.rows)
    weights = np.full(len(every), 1 / len(every), np.float32)
    rows, shares = (np.asarray(part, np.float32) for part in (utility.rows, utility.weights))
    return {
        "all rows": numpy_ligett.Logistic(every, weights, regularisation, radius, optimum),
        "distinct rows": numpy_ligett.Logistic(rows, shares, regularisation, radius, optimum),
    }


def numpy_runs(case, settings):
    """Return the same case for NumPy: functions of a generator that run a trial, by name."""
    facts, trial = case.labels, case.trial
    times = np.asarray(trial.schedule.times)[: int(trial.steps)]
    levels = np.asarray(trial.guarantee.epsilon(times), float)
    common = {"value": np.asarray(trial.value.number, float), "sensitivity": facts["sensitivity"]}
    if facts["method"] == "theory":
        common["epsilon"] = levels[0]
    else:
        common["levels"] = levels
        common["threshold"] = float(trial.rule.threshold)
        common["test_sensitivity"] = float(trial.rule.sensitivity)
        common["test_epsilon"] = float(trial.rule.epsilon)
    method = getattr(numpy_ligett, facts["method"])
    blocks = {"": {}}
    if (facts["task"], facts["method"]) == ("logistic", "noise_reduction"):
        blocks = {
            ", one by one": {"block": 1},
            ", all at once": {"block": levels.size},
            f", {_BLOCK} at a time": {"block": _BLOCK},
        }
    return {
        name + how: functools.partial(method, judge=judge, **common, **options)
        for name, judge in judges(case, settings).items()
        for how, options in blocks.items()
    }


def apart(results, trials):
    """Return the larger difference, of mean steps or of excess risks of stopped trials."""
    step, epsilon, _, excess, _ = trials.T
    ours = -results["utility"][results["status"] == Status.STOPPED].astype(float)
    return max(
        standard_errors(results["step"].astype(float), step),
        standard_errors(ours, excess[np.isfinite(epsilon)]),
    )


def race(options, cores):
    """Print trials per second and ratios of every case.

    Returns:
        Their rows, and the names of cases that differ in distribution.
    """
    settings = Settings(
        method=_METHODS, alpha=tuple(options.alpha), data=(options.data,), rows=options.rows
    )
    chosen, key = papers.chosen(study(settings), options.cases), study_key(0)
    counts = {"logistic": options.numpy_logistic, "ridge": options.numpy_ridge}
    baselines = {threads: process_with_threads(threads) for threads in sorted({1, cores})}
    print(
        f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}; NumPy: "
        + ", ".join(f"{count} trials of {task}" for task, count in counts.items())
        + f"\n{'trials per second':<31} {'nrjax':>8} {'compile s':>9} {'step':>6}"
        + "".join(f" {f'numpy ({threads} thr.)':>14}" for threads in baselines)
        + f" {'ratio':>6} {'step':>6} {'apart':>5}  NumPy's risk over"
    )
    different, report_rows, compiled = [], [], papers.programs(chosen, options.trials)
    for name, case in chosen.cases.items():
        count = counts[case.labels["task"]]
        program = compiled[name]["outcome"]
        compiling, seconds, results = timed(program, key, options.trials, options.repeats)
        fast = options.trials / seconds
        line = f"{name:<31} {fast:8.1f} {compiling:9.2f} {results['step'].mean():6.1f}"
        for kind, run in numpy_runs(case, settings).items() if count else ():
            runs = [
                baseline.submit(run_numpy, run, count).result() for baseline in baselines.values()
            ]
            slow, trials = [count / spent for spent, _ in runs], runs[0][1]
            # The same distribution, so that neither side does less work.
            away = apart(results, trials)
            if not away < 5:
                different.append(f"{name}, {kind}")
            line += "".join(f" {rate:14.2f}" for rate in slow)
            line += f" {fast / max(slow):6.1f} {trials[:, 0].mean():6.1f} {away:5.1f}"
            report_rows.append(Row(name, fast, fast / max(slow), "NumPy", note=f"over {kind}"))
            print(f"{line}  {kind}", flush=True)
            line = " " * 57
        if not count:
            report_rows.append(Row(name, fast))
            print(line, flush=True)
    for baseline in baselines.values():
        baseline.shutdown()
    return report_rows, different


def whole(options):
    """Return the seconds of the study as one command, with compilation and figures."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "nrjax", "run", "ligett2017", "--task", "logistic", "ridge"]
        command += ["--method", *_METHODS, "--data", options.data]
        command += ["--trials", str(options.trials), "--out", f"{folder}/results"]
        command += [] if options.rows is None else ["--rows", str(options.rows)]
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/programs"}  # nothing compiled before
        before = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, env=os.environ | cache)
        return time.perf_counter() - before


def command_line():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, help="trials per case (1000, or 40 with --whole)")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--cases", nargs="+", default=["*"], help="patterns of case names")
    parser.add_argument("--data", default="paper", help="as in `nrjax run ligett2017`")
    parser.add_argument("--rows", type=int, help="rows of the data (default: all)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of nrjax, of which the median is reported"
    )
    parser.add_argument("--numpy-logistic", type=int, default=50, help="trials; 0 for none")
    parser.add_argument("--numpy-ridge", type=int, default=20, help="trials; 0 for none")
    cores = os.cpu_count() or 1
    parser.add_argument("--devices", type=int, default=cores, help="virtual CPU devices")
    parser.add_argument("--whole", action="store_true", help="time the whole study instead")
    return parser


def rows(quick):
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "4", "--cases", "logistic-theory*", "--alpha", "0.1", "--rows", "1000"]
    tiny += ["--data", "flights", "--numpy-logistic", "2", "--repeats", "1"]
    options = command_line().parse_args(tiny if quick else ["--trials", "1000"])
    jax.config.update("jax_num_cpu_devices", options.devices)
    report_rows, different = race(options, os.cpu_count() or 1)
    check_same_distribution(different)
    return report_rows


def main():
    """Print trials per second and ratios of every case, or the seconds of the whole study."""
    options = command_line().parse_args()
    if options.trials is None:
        options.trials = 40 if options.whole else 1000
    if options.whole:
        print(f"the whole study: {whole(options):.1f} s")
        return
    jax.config.update("jax_num_cpu_devices", options.devices)
    _, different = race(options, os.cpu_count() or 1)
    check_same_distribution(different)


if __name__ == "__main__":
    main()
