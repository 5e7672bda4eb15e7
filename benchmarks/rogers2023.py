"""Claim: at 128,000 samples trials of Rogers 2023 are 50 times as fast as a NumPy loop.

The whole of figure 3 (5 sizes of the Zipf data, 2 methods, 1000 trials each) takes seconds on two
cores. Each case is compared with a NumPy loop, one trial and one count at a time, with 1000 normals
per count and fresh Gumbel noise per selection (`numpy_rogers`): same counts, budget, rule and
distributions. "apart" is the difference of the mean numbers of results or of the mean precisions,
in standard errors.

    python -m benchmarks.rogers2023 [--trials 1000] [--samples 8000 128000] [--method brownian]
    python -m benchmarks.rogers2023 --whole

Compile time is not counted, and is paid once for all sizes of a method. NumPy runs fewer trials
(`--numpy`), in one process with one thread, since it has no matrix products. Rates are trials per
second. benchmarks/notes has a typical output.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from benchmarks import numpy_rogers, papers
from benchmarks.rows import Row, check_same_distribution, standard_errors
from benchmarks.whitehouse2022 import process_with_threads, timed
from nrjax._base.keys import study_key
from nrjax.counts import CountRelease
from nrjax.papers.rogers2023 import Settings, study
from nrjax.papers.rogers2023.settings import SAMPLES

_METHODS = ("brownian", "doubling")


def run_numpy(facts, counts, trials):
    """Return the seconds of a case, and its trials, shape (trials, fields of `Trial`).

    Args:
        facts: labels of the case.
        counts: counts, shape (items,).
        trials: number of trials.
    """
    budget = numpy_rogers.unified(facts["epsilon"], facts["delta"], facts["selection"])
    arguments = facts["method"], facts["alpha"], facts["selection"], budget, facts["smallest"]
    rng = np.random.default_rng(0)
    before = time.perf_counter()
    results = [
        numpy_rogers.run_trial(rng, counts, *arguments, facts["levels"]) for _ in range(trials)
    ]
    return time.perf_counter() - before, np.array(results)


def apart(results, trials):
    """Return the larger difference, of mean numbers of results or of mean precisions."""
    returned, precise = trials[:, 0], trials[:, 1]
    theirs = np.where(returned > 0, precise / np.maximum(returned, 1), 1.0)
    return max(
        standard_errors(results["returned"].astype(float), returned),
        standard_errors(results["precision"], theirs),
    )


def race(options):
    """Print trials per second and ratios of every case.

    Returns:
        Their rows, and the names of cases that differ in distribution.
    """
    chosen = study(Settings(samples=tuple(options.samples), method=tuple(options.method)))
    compiled, key, different, report_rows = (
        papers.programs(chosen, options.trials),
        study_key(0),
        [],
        [],
    )
    baseline = process_with_threads(1)
    print(
        f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}; NumPy: "
        f"{options.numpy} trials\n{'trials per second':<30} {'nrjax':>8} {'compile s':>9} "
        f"{'results':>8} {'NumPy':>7} {'results':>8} {'apart':>5} {'ratio':>6}"
    )
    for name, case in chosen.cases.items():
        program = compiled[name]["outcome"]
        compiling, seconds, results = timed(program, key, options.trials, options.repeats)
        fast = options.trials / seconds
        ratio = None
        line = f"{name:<30} {fast:8.0f} {compiling:9.2f} {results['returned'].mean():8.2f}"
        if options.numpy:
            release = case.trial
            assert isinstance(release, CountRelease)
            work = case.labels, release.counts, options.numpy
            spent, trials = baseline.submit(run_numpy, *work).result()
            slow, away = options.numpy / spent, apart(results, trials)
            if not away < 5:
                different.append(name)
            ratio = fast / slow
            line += f" {slow:7.1f} {trials[:, 0].mean():8.2f} {away:5.1f} {ratio:6.1f}"
        report_rows.append(Row(name, fast, ratio, "NumPy"))
        print(line, flush=True)
    baseline.shutdown()
    return report_rows, different


def whole(options):
    """Return the seconds of two runs of the study as one command, the first with compilation."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "nrjax", "run", "rogers2023", "--trials", str(options.trials)]
        command += ["--samples", *map(str, options.samples), "--method", *options.method]
        command += ["--out", f"{folder}/results"]
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/programs"}  # nothing compiled before
        seconds = []
        for again in ([], ["--overwrite"]):
            before = time.perf_counter()
            subprocess.run([sys.executable, *command, *again], check=True, env=os.environ | cache)
            seconds.append(time.perf_counter() - before)
        return seconds


def command_line():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, help="trials per case")
    parser.add_argument("--samples", type=int, nargs="+", default=list(SAMPLES))
    parser.add_argument("--method", nargs="+", default=list(_METHODS), choices=_METHODS)
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of nrjax, of which the median is reported"
    )
    parser.add_argument("--numpy", type=int, default=50, help="trials of NumPy; 0 for none")
    cores = os.cpu_count() or 1
    parser.add_argument("--devices", type=int, default=cores, help="virtual CPU devices")
    parser.add_argument("--whole", action="store_true", help="time the whole study instead")
    return parser


def rows(quick):
    """Return the rows for the table of all benchmarks."""
    tiny = ["--trials", "4", "--samples", "8000", "--repeats", "1", "--numpy", "2"]
    options = command_line().parse_args(tiny if quick else [])
    jax.config.update("jax_num_cpu_devices", options.devices)
    report_rows, different = race(options)
    check_same_distribution(different)
    return report_rows


def main():
    """Print trials per second and ratios of every case, or the seconds of the whole study."""
    options = command_line().parse_args()
    if options.whole:
        first, again = whole(options)
        print(f"the whole study: {first:.1f} s, and {again:.1f} s once it has been compiled")
        return
    if options.devices > 1:
        jax.config.update("jax_num_cpu_devices", options.devices)
    _, different = race(options)
    check_same_distribution(different)


if __name__ == "__main__":
    main()
