"""Claim: at 128,000 samples Rogers 2023's sessions run 50 times as fast as a plain NumPy loop.

And the whole of figure 3 (5 sizes of the Zipf data, 2 methods, 1000 trials each) takes seconds on
two cores. Each case is raced against a NumPy loop, one session and one count at a time, with 1000
normals for each count and fresh Gumbel noise for each selection (`numpy_rogers`): same counts,
budget, rule and law. "apart" is how far the mean results or the mean precisions are, in standard
errors.

    python -m benchmarks.rogers2023 [--trials 1000] [--samples 8000 128000] [--method brownian]
    python -m benchmarks.rogers2023 --whole

Compilation is apart; it is paid once for all sizes of a method. NumPy runs fewer trials
(`--numpy`), in one process with one thread, since nothing in it is a matrix product; rates are
trials per second. A typical printout is in benchmarks/README.md.
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
from benchmarks.ligett2017 import standard_errors
from benchmarks.rows import Row, same_law
from benchmarks.whitehouse2022 import process_with_threads, timed
from nrjax.counts import CountRelease
from nrjax.keys import study_key
from nrjax.papers.rogers2023 import Settings, study
from nrjax.papers.rogers2023.settings import SAMPLES

_METHODS = ("brownian", "doubling")


def run_numpy(facts, counts, trials):
    """Seconds of `trials` sessions of a case, and the sessions, shape (trials, fields of `Trial`).

    Args:
        facts: the case's attributes.
        counts: shape (items,).
        trials: how many.
    """
    budget = numpy_rogers.unified(facts["epsilon"], facts["delta"], facts["selection"])
    arguments = facts["method"], facts["alpha"], facts["selection"], budget, facts["smallest"]
    rng = np.random.default_rng(0)
    before = time.perf_counter()
    found = [numpy_rogers.session(rng, counts, *arguments, facts["levels"]) for _ in range(trials)]
    return time.perf_counter() - before, np.array(found)


def apart(results, trials):
    """The larger of how far the mean results are apart and the mean precisions."""
    returned, precise = trials[:, 0], trials[:, 1]
    theirs = np.where(returned > 0, precise / np.maximum(returned, 1), 1.0)
    return max(
        standard_errors(results["returned"].astype(float), returned),
        standard_errors(results["precision"], theirs),
    )


def race(options):
    """Print trials per second and ratios for every case.

    Returns:
        Their rows, and the names of those with another law.
    """
    chosen = study(Settings(samples=tuple(options.samples), method=tuple(options.method)))
    compiled, key, other, found = papers.programs(chosen, options.trials), study_key(0), [], []
    peer = process_with_threads(1)
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
            spent, trials = peer.submit(run_numpy, *work).result()
            slow, away = options.numpy / spent, apart(results, trials)
            if not away < 5:
                other.append(name)
            ratio = fast / slow
            line += f" {slow:7.1f} {trials[:, 0].mean():8.2f} {away:5.1f} {ratio:6.1f}"
        found.append(Row(name, fast, ratio, "NumPy"))
        print(line, flush=True)
    peer.shutdown()
    return found, other


def whole(options):
    """Seconds of the study as one command, compilation and figures included."""
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
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, help="of each case")
    parser.add_argument("--samples", type=int, nargs="+", default=list(SAMPLES))
    parser.add_argument("--method", nargs="+", default=list(_METHODS), choices=_METHODS)
    parser.add_argument("--repeats", type=int, default=5, help="runs of nrjax; the median counts")
    parser.add_argument("--numpy", type=int, default=50, help="trials of NumPy; 0 for none")
    cores = os.cpu_count() or 1
    parser.add_argument("--devices", type=int, default=cores, help="virtual CPU devices")
    parser.add_argument("--whole", action="store_true", help="time the whole study instead")
    return parser


def rows(quick):
    """The rows of the table."""
    tiny = ["--trials", "4", "--samples", "8000", "--repeats", "1", "--numpy", "2"]
    options = command_line().parse_args(tiny if quick else [])
    jax.config.update("jax_num_cpu_devices", options.devices)
    found, other = race(options)
    same_law(other)
    return found


def main():
    """Print trials per second and ratios for every case, or the seconds of the whole study."""
    options = command_line().parse_args()
    if options.whole:
        first, again = whole(options)
        print(f"the whole study: {first:.1f} s, and {again:.1f} s once it has been compiled")
        return
    if options.devices > 1:
        jax.config.update("jax_num_cpu_devices", options.devices)
    _, other = race(options)
    if other:
        sys.exit(f"not the same law: {'; '.join(other)}")


if __name__ == "__main__":
    main()
