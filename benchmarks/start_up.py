"""Claims: nrjax is imported in 1.5 s, a first example takes 5 to 10 s, a study compiles in 10 s.

    python -m benchmarks.start_up [--study NAME ...] [--data-dir FOLDER]

Every number is of a fresh process. Python's bytecode, JAX's compilation cache and the cache of
prepared data are in separate folders: empty before a first run, kept for the second. Wall time
includes the interpreter's start and end. Processor time (of all cores) shows whether other work
disturbed the run. With `--data-dir`, studies on the papers' data run as well. benchmarks/notes
has a typical output.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row

IMPORTS = {
    "jax": "import jax",
    "nrjax": "import nrjax; nrjax.simulate",  # the first name imports all
    "nrjax.cli": "import nrjax.cli",
}

_SIMULATE = "nrjax.simulate(jax.random.key(0), trial, trials=10_000).quantile(0.5)"

EXAMPLES = {
    "a number": f"""
import jax, jax.numpy as jnp, nrjax
trial = nrjax.brownian(10.0, sensitivity=1.0, delta=1e-6)
trial = trial.until(lambda release: -jnp.abs(release - 10.0), at_least=-0.5)
{_SIMULATE}
""",
    "a regression": f"""
import jax, nrjax
data = nrjax.datasets.load("flights", "logistic")
problem = nrjax.erm.LogisticProblem.fit(data.x, data.y, regularisation=0.05)
trial = problem.brownian(delta=1e-6).until(at_least=-1.03 * problem.optimum_loss)
{_SIMULATE}
""",
    "six counts": f"""
import jax, jax.numpy as jnp, nrjax
counts = jnp.array([930, 420, 2100, 75, 1400, 310])
trial = nrjax.discrete_laplace(counts, sensitivity=2)
trial = trial.until(lambda release: -jnp.max(jnp.abs(release - counts) / counts), at_least=-0.05)
{_SIMULATE}
""",
}
"""First examples by name: whole processes, of which nothing but compilations is cached."""

STUDIES = {
    "whitehouse2022": "whitehouse2022 --task logistic --test public",
    "rogers2023": "rogers2023 --data zipf --samples 8000 128000 --method brownian doubling "
    "--filter unified --trials 1000",
    "skellam_counts": "skellam_counts --data flights --mechanism skellam brownian laplace "
    "discrete_laplace --trials 1000",
}
"""Studies by name, with the arguments of README's commands."""

PAPER = {
    "whitehouse2022, kdd99": "whitehouse2022 --task logistic --test public --data kdd99",
    "ligett2017": "ligett2017 --task logistic ridge --method noise_reduction doubling theory "
    "--constants paper --alpha 0.05 0.1 --trials 100 --data paper",
}
"""Studies that need the papers' data."""


class Spent(NamedTuple):
    """The time of a process: wall seconds, and processor seconds of all cores."""

    wall: float
    processor: float


def run(command: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Run a command to its end.

    Raises:
        RuntimeError: the command failed; the message has the end of its output.
    """
    used, before = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    wall, now = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr[-2000:]}")
    return Spent(wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)


def surroundings(folder: Path, data_dir: Path | None) -> dict[str, str]:
    """Return the environment of a process whose caches are in `folder`."""
    ours = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "NRJAX_CACHE": str(folder / "cache")}
    if data_dir is not None:
        ours["NRJAX_DATA"] = str(data_dir.absolute())
    left_out = ("PYTHONDONTWRITEBYTECODE", "JAX_COMPILATION_CACHE_DIR")
    return {name: text for name, text in os.environ.items() if name not in left_out} | ours


def imports(environment: Mapping[str, str], times: int = 3) -> dict[str, Spent]:
    """Return the fastest import of each module, after one that writes its bytecode."""
    times_by_module = {}
    for module, program in IMPORTS.items():
        command = [sys.executable, "-c", program]
        run(command, environment)
        times_by_module[module] = min(run(command, environment) for _ in range(times))
    return times_by_module


def examples(folder: Path, environment: Mapping[str, str]) -> dict[str, tuple[Spent, Spent]]:
    """Return the time of each example without a cache of compilations, and with it."""
    times_by_example = {}
    for label, program in EXAMPLES.items():
        cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / label)}
        cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        command = [sys.executable, "-c", program]
        first, second = (run(command, {**environment, **cache}) for _ in range(2))
        times_by_example[label] = first, second
    return times_by_example


class Study(NamedTuple):
    """The first and the second run of a study.

    Attributes:
        first: time of the first run.
        compilation: seconds of compiling each case in the first run. Several are compiled at a
            time, and a shared compilation counts once.
        second: time of the second run.
    """

    first: Spent
    compilation: list[float]
    second: Spent


def study(arguments: str, folder: Path, environment: Mapping[str, str]) -> Study:
    """Run a study twice. The second run has all caches."""
    out = folder / "out"
    command = [sys.executable, "-m", "nrjax", "run", *arguments.split(), "--overwrite"]
    command += ["--out", str(out)]
    first = run(command, environment)
    summary = json.loads((out / "summary.json").read_text())
    compilation = [case["seconds"]["compile"] for case in summary["cases"]]
    return Study(first, compilation, run(command, environment))


def measure(names: Sequence[str], data_dir: Path | None, times: int = 3) -> list[Row]:
    """Print and return the times of imports and of studies, all if none is named."""
    commands = STUDIES | (PAPER if data_dir is not None else {})
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = surroundings(folder, data_dir)
        print(f"{'import':24} {'wall, s':>9} {'processor, s':>13}", flush=True)
        for module, spent in imports(environment, times).items():
            print(f"{module:24} {spent.wall:9.2f} {spent.processor:13.2f}", flush=True)
            rows.append(Row(f"import {module}", note=f"{spent.wall:.2f} s"))
        print(f"\n{'example':24} {'wall, s':>9} {'processor, s':>13} {'second, s':>10}", flush=True)
        for label, (first, second) in examples(folder, environment).items():
            print(
                f"{label:24} {first.wall:9.2f} {first.processor:13.2f} {second.wall:10.2f}",
                flush=True,
            )
            note = f"{first.processor:.1f} s of processor time; second run {second.wall:.2f} s"
            rows.append(Row(f"{label}: first example", note=note))
        columns = ("first, s", "compiling", "longest", "second, s", "processor")
        print(f"\n{'study':24} " + " ".join(f"{text:>10}" for text in columns), flush=True)
        for label in names or commands:
            runs = study(commands[label], folder, environment)
            total, longest = sum(runs.compilation), max(runs.compilation)
            numbers = (runs.first.wall, total, longest, *runs.second)
            print(f"{label:24} " + " ".join(f"{x:10.2f}" for x in numbers), flush=True)
            note = f"compiling {total:.2f} s; second run {runs.second.wall:.2f} s"
            rows.append(Row(f"{label}: start", note=note))
    return rows


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks, with the data of NRJAX_DATA."""
    folder = os.environ.get("NRJAX_DATA")
    if quick:
        return measure(["rogers2023"], None, times=1)
    return measure([], Path(folder) if folder else None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Seconds to a first result.")
    parser.add_argument("--study", nargs="*", default=[], choices=[*STUDIES, *PAPER])
    parser.add_argument("--data-dir", type=Path, help="folder of the papers' data")
    options = parser.parse_args()
    if options.data_dir is None and set(options.study) & set(PAPER):
        parser.error("these studies need the papers' data: use --data-dir")
    measure(options.study, options.data_dir)


if __name__ == "__main__":
    main()
