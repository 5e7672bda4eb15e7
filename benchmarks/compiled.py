"""Claim: small problems keep within a factor of compiled loops, which are written by hand.

The baseline is numba (`numba_loops`, `numba_data`): a trial after another, on all cores, in
float32, with the same noise, rules and distribution of steps. A loop keeps two numbers per trial,
nrjax an `Outcome`. Both run by turns. Times are medians of five turns per step, without
compilation, which is part of the first run. "apart" is the largest difference of the two sides in
standard errors: of their mean steps, or of the fraction of trials that stop at a quantile or
before.

* Numbers and vectors: 100 levels at the times of a linear boundary, also against a NumPy loop, one
  trial at a time.
* Logistic and ridge regression: `whitehouse2022` on flights, Brownian noise, public threshold.
* Counts under discrete Laplace noise: `skellam_counts`.
* Counts under one budget: `rogers2023`, Brownian noise. nrjax skips levels, so its time is per
  selected count.

    python -m benchmarks.compiled [--cases 'scalar*'] [--scale 0.1] [--repeats 5]

The command prints the table of benchmarks/notes/trials.md.
"""

import argparse
import datetime
import fnmatch
import functools
import os
import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numba
import numpy as np

import nrjax
from benchmarks import numba_data, numba_loops, numpy_rogers, numpy_whitehouse
from benchmarks.rows import Row, check_same_distribution, standard_errors
from nrjax.counts import CountRelease
from nrjax.papers import rogers2023, skellam_counts, whitehouse2022
from nrjax.simulation import montecarlo

_SENSITIVITY, _TOLERANCE = 0.25, 0.5
_PAUSE = 0.2
"""Seconds before each turn, in which the threads of the other side stop to wait for work."""


class Case(NamedTuple):
    """One case.

    Attributes:
        trials: number of trials.
        ours: function of a key and a number of trials that returns the step of each trial.
        loop: compiled loop: a function of a number of trials, a seed and `arguments`.
        arguments: numbers of the case.
        numpy: function of a NumPy generator that returns the step of a trial, if there is one.
        unit: name of a step.
    """

    trials: int
    ours: Callable[[Any, int], Any]
    loop: Callable[[int, int, Any], Any]
    arguments: tuple[Any, ...]
    numpy: Callable[[Any], int] | None = None
    unit: str = "step"


class Closeness(nrjax.Utility):
    """A utility, minus the largest error of a release (or minus the sum of squares)."""

    squares: bool = nrjax.static(default=False)

    def evaluate(self, hypothesis):
        """Return minus the error of a release, whose true value is 0."""
        return -(jnp.sum(hypothesis**2) if self.squares else jnp.max(jnp.abs(hypothesis)))


def _floats(*numbers: Any) -> tuple[Any, ...]:
    """Return numbers and arrays in float32."""
    return tuple(np.asarray(number, np.float32)[()] for number in numbers)


def _moves(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return factors and standard deviations of Brownian moves, the first from 0."""
    ratios, gaps = np.zeros_like(times), np.ones_like(times)
    ratios[1:] = times[1:] / times[:-1]
    gaps[1:] -= ratios[1:]
    return ratios, np.sqrt(times * gaps)


def _simulated(trial: Any, batching: nrjax.Batching | None = None) -> Callable[[Any, int], Any]:
    return lambda key, trials: nrjax.simulate(key, trial, trials=trials, batching=batching).step


def _small(
    trials: int,
    mechanism: str,
    test: str,
    shape: tuple[int, ...] = (),
    *,
    squares: bool = False,
    tolerance: float = _TOLERANCE,
) -> Case:
    """Return a case of a number or of a vector."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    grid = nrjax.Grid.geometric(guarantee, 0.6, 20.0, 100)
    times = np.asarray(grid.times, float)
    process: Any = nrjax.Brownian(shape)
    if mechanism == "laplace":
        process, guarantee = nrjax.Laplace(shape), nrjax.PureGuarantee(1.0)
        grid = nrjax.Grid.explicit(times)
    rule, epsilons = nrjax.PublicThreshold(-tolerance), np.ones_like(times)
    if test == "above_threshold":
        rule = nrjax.AboveThreshold(-tolerance, _SENSITIVITY, 1.0)
    elif test == "reduced_above_threshold":
        rule = nrjax.ReducedAboveThreshold(-tolerance, _SENSITIVITY)
        epsilons = np.asarray(guarantee.epsilon(times), float)
    trial = nrjax.Interaction(
        value=np.zeros(shape),
        process=process,
        guarantee=guarantee,
        schedule=grid,
        utility=Closeness(squares),
        rule=rule,
    )
    scales = 2 * _SENSITIVITY / epsilons
    if shape:
        loop = numba_loops.vector(not squares)
        arguments = (shape[0] + shape[0] % 2, *_floats(*_moves(times), tolerance))
    else:
        loop = numba_loops.scalar(mechanism == "brownian", test)
        arguments = _floats(times, *_moves(times), scales, tolerance)
    numpy = numpy_whitehouse.Trials(
        mechanism,
        test,
        np.zeros(shape or 1, np.float32),
        times.tolist(),
        epsilons.tolist(),
        lambda release: float(release @ release if squares else np.abs(release).max()),
        tolerance,
        _SENSITIVITY,
        1.0,
    )
    return Case(trials, _simulated(trial), loop, arguments, numpy.stop_step)


def _erm(trials: int, task: Any) -> Case:
    """Return a public case of `whitehouse2022` under Brownian noise."""
    chosen = whitehouse2022.Settings(task=(task,), mechanism=("brownian",), test=("public",))
    (case,) = whitehouse2022.cases(chosen).values()
    trial: Any = case.trial
    utility, target = trial.utility, case.labels["target"]
    moves = _moves(np.asarray(trial.schedule.times, float))
    optimum, ridge, lowest = utility.optimum, utility.regularisation, utility.optimum_loss
    common = _floats(trial.value.number, *moves)
    if task == "logistic":
        data = numba_data.blocks(np.asarray(utility.rows), np.asarray(utility.weights))
        loss = numba_data.loss_coefficients(float(utility.radius))
        rest = _floats(*data, loss, optimum, ridge, utility.radius, lowest, target)
    else:
        excess = target - lowest
        rest = _floats(utility.hessian, optimum, utility.rows, ridge, utility.radius, excess)
    return Case(trials, _simulated(trial), getattr(numba_data, task), common + rest)


def _integers(trials: int) -> Case:
    """Return the case of `skellam_counts` under discrete Laplace noise."""
    chosen = skellam_counts.Settings(mechanism=("discrete_laplace",))
    (case,) = skellam_counts.cases(chosen).values()
    trial: Any = case.trial
    allowed = int(-float(trial.rule.threshold) * len(trial.utility.counts))
    arguments = (*_floats(trial.schedule.times, trial.utility.slack), allowed)
    return Case(trials, _simulated(trial, case.batching), numba_data.integers, arguments)


def _budgeted_counts(trials: int, samples: int) -> Case:
    """Return a case of `rogers2023` under Brownian noise."""
    chosen = rogers2023.Settings(samples=(samples,), method=("brownian",))
    (case,) = rogers2023.cases(chosen)[0].values()
    facts, release = case.labels, case.trial
    assert isinstance(release, CountRelease)
    program = montecarlo.custom_trials(release, trials)
    budget = numpy_rogers.unified(facts["epsilon"], facts["delta"], facts["selection"])
    plain = facts["selection"], budget.selection, budget.total, facts["smallest"], facts["levels"]
    arguments = (*_floats(release.counts, facts["alpha"]), *plain)

    def ours(key: Any, trials: int) -> np.ndarray:
        return program.run_all(key, trials)["attempted"] - 1

    return Case(trials, ours, numba_data.budgeted_counts, arguments, unit="count")


_SCALAR = {
    "Brownian, public": ("brownian", "public"),
    "Laplace, public": ("laplace", "public"),
    "Brownian, AboveThreshold": ("brownian", "above_threshold"),
    "Brownian, ReducedAboveThreshold": ("brownian", "reduced_above_threshold"),
}
CASES: dict[str, Callable[[], Case]] = {
    **{f"scalar: {name}": functools.partial(_small, 2**20, *how) for name, how in _SCALAR.items()},
    "8 coordinates: squares": functools.partial(
        _small, 2**18, "brownian", "public", (8,), squares=True, tolerance=120.0
    ),
    "38 coordinates: largest error": functools.partial(
        _small, 2**16, "brownian", "public", (38,), tolerance=8.5
    ),
    "logistic: 10,000 rows": functools.partial(_erm, 1024, "logistic"),
    "ridge: 39 features": functools.partial(_erm, 1024, "ridge"),
    "counts: discrete Laplace": functools.partial(_integers, 2**14),
    "counts under a budget: 128,000 samples": functools.partial(_budgeted_counts, 2**12, 128_000),
}
"""Functions that make the cases, by name."""


def quantile_errors(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference of two samples of steps, in standard errors.

    It is that of the means, or of the fraction of trials that stop at a quantile or before.
    """
    points = np.quantile(np.concatenate([ours, theirs]), [0.1, 0.5, 0.9])
    pairs = [(ours, theirs), *((ours <= point, theirs <= point) for point in points)]
    return max(standard_errors(one.astype(float), other.astype(float)) for one, other in pairs)


class Measured(NamedTuple):
    """The result of one case. Times are in nanoseconds per step.

    Attributes:
        ours: time of nrjax.
        loop: time of the compiled loop.
        numpy: time of the NumPy loop, if there is one.
        steps: mean number of steps.
        apart: difference of both sides by `quantile_errors`.
        first: seconds of the first run of nrjax and of the compiled loop, with compilation.
    """

    ours: float
    loop: float
    numpy: float | None
    steps: float
    apart: float
    first: list[float]


def measure(case: Case, trials: int, repeats: int, numpy_trials: int) -> Measured:
    """Run both sides by turns."""
    sides = (
        lambda turn: case.ours(jax.random.key(turn), trials),
        lambda turn: case.loop(trials, turn, case.arguments)[0],
    )
    steps: tuple[list[np.ndarray], ...] = [], []
    seconds: tuple[list[float], ...] = [], []
    for turn in range(repeats + 1):
        for side, stops, spent in zip(sides, steps, seconds, strict=True):
            time.sleep(_PAUSE)
            before = time.perf_counter()
            stops.append(np.asarray(side(turn)))
            spent.append(time.perf_counter() - before)
    slow = None
    if case.numpy is not None and numpy_trials:
        rng, before = np.random.default_rng(0), time.perf_counter()
        count = sum(case.numpy(rng) + 1 for _ in range(numpy_trials))
        slow = 1e9 * (time.perf_counter() - before) / count
    fast, loop = (
        1e9 * statistics.median(spent[i] / np.sum(stops[i] + 1.0) for i in range(1, repeats + 1))
        for stops, spent in zip(steps, seconds, strict=True)
    )
    ours, theirs = map(np.concatenate, steps)
    apart, first = quantile_errors(ours, theirs), [spent[0] for spent in seconds]
    return Measured(fast, loop, slow, float(np.mean(ours + 1.0)), apart, first)


def race(options: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """Print the table, and return its rows and the names of cases that differ in distribution."""
    jax.config.update("jax_num_cpu_devices", options.devices)
    numba.set_num_threads(options.devices)
    warnings.simplefilter("ignore", nrjax.FirstLevelWarning)
    baseline, rows, different, ratios = f"numba, {options.devices} threads", [], [], []
    print(_machine())
    headings = "numba, ns", "nrjax, ns", "numba / nrjax", "NumPy / nrjax", "apart", "first run, s"
    print(f"| case (mean steps) | {' | '.join(headings)} |\n| --- |{' ---: |' * len(headings)}")
    for name, make in CASES.items():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.cases):
            continue
        case = make()
        trials = max(int(case.trials * options.scale), 2)
        found = measure(case, trials, options.repeats, options.numpy)
        ratio, rate = found.loop / found.ours, 1e9 / (found.ours * found.steps)
        slow = "" if found.numpy is None else f"{found.numpy / found.ours:.0f}"
        first = f"{found.first[1]:.1f}, {found.first[0]:.1f}"
        print(
            f"| {name} ({found.steps:.1f}) | {found.loop:.3g} | {found.ours:.3g} | {ratio:.2f} | "
            f"{slow} | {found.apart:.1f} | {first} |",
            flush=True,
        )
        note = f"{found.ours:.3g} ns a {case.unit}, baseline "
        rows.append(Row(name, rate, ratio, baseline, note=f"{note}{found.loop:.3g}"))
        if found.numpy is not None:
            ratios.append(ratio)
            numpy = f"{note}{found.numpy:.3g}"
            rows.append(Row(name, rate, found.numpy / found.ours, "NumPy", note=numpy))
        if not found.apart < 5:
            different.append(name)
    if ratios:
        print(f"Geometric mean of the first {len(ratios)}: {statistics.geometric_mean(ratios):.2f}")
    return rows, different


def _machine() -> str:
    """Return the date, the processor and the load of the machine."""
    info, processor = Path("/proc/cpuinfo"), platform.processor()
    if info.exists():
        facts = dict(re.findall(r"(model name|cpu family)\s*: (.*)", info.read_text()))
        processor = f"{facts.get('model name')}, family {facts.get('cpu family')}"
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    return f"{datetime.date.today()}; {os.cpu_count()} cores, {processor}; load {load} before"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--cases", nargs="+", default=["*"], help="patterns of case names")
    arguments.add_argument("--scale", type=float, default=1.0, help="factor of the trials")
    arguments.add_argument("--repeats", type=int, default=5, help="turns of each side")
    arguments.add_argument("--numpy", type=int, default=200, help="trials of NumPy; 0 for none")
    cores = os.cpu_count() or 1
    arguments.add_argument("--devices", type=int, default=cores, help="devices and threads")
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--scale", "0.002", "--repeats", "1", "--numpy", "5", "--cases", "8 *", "counts: d*"]
    found, different = race(parser().parse_args(tiny if quick else []))
    check_same_distribution(different)
    return found


def main() -> None:
    """Print nanoseconds per step and ratios."""
    check_same_distribution(race(parser().parse_args())[1])


if __name__ == "__main__":
    main()
