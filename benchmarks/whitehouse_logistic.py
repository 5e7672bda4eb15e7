"""Claim: the engine runs the Whitehouse 2022 logistic study ten times faster than a NumPy loop.

The peer is what one would write by hand: one trial at a time, each release made in NumPy, its loss
taken over all rows (and, more kindly, over the distinct rows, as nrjax does) until the target is
met. Same data, grid, target, law and number of trials, in one run; compilation is apart.

    NRJAX_DATA=... python -m benchmarks.whitehouse_logistic [--trials 1000] [--data kdd99]

A typical printout is in benchmarks/README.md.
"""

import argparse
import os
import statistics
import time

import jax
import numpy as np

import nrjax
from nrjax import datasets, montecarlo
from nrjax.erm import LogisticProblem
from nrjax.interaction import build_interaction


def numpy_trial(rng, mechanism, optimum, times, rows, weights, regularisation, radius, target):
    """Step at which one trial stops, or the number of times."""
    value, dimension = optimum.astype(np.float32), optimum.size
    noise = None
    for step, time_ in enumerate(times):
        now = None if step == 0 else times[step - 1]
        if mechanism == "brownian":
            if now is None:
                noise = np.sqrt(time_) * rng.standard_normal(dimension, np.float32)
            else:
                spread = np.sqrt(time_ * (now - time_) / now)
                noise = (time_ / now) * noise + spread * rng.standard_normal(dimension, np.float32)
        elif now is None:
            noise = rng.laplace(scale=time_, size=dimension)
        else:
            sign, a = np.sign(noise), np.abs(noise)
            h, k, m = (now - time_) / (2 * now), (now - time_) / (time_ * now), 1 / time_ + 1 / now
            u, e, f = rng.random(dimension), *rng.exponential(size=(2, dimension))
            inner = np.where(e < k * a, e / k, np.where(u < 2 * h, a + f / m, a))
            noise = sign * np.where(u < h, -f / m, inner)
        release = (value + noise).astype(np.float32)
        norm = np.linalg.norm(release)
        if norm > radius:
            release *= radius / norm
        loss = weights @ np.logaddexp(np.float32(0), -(rows @ release))
        loss += 0.5 * regularisation * release @ release
        if loss <= target:
            return step
    return len(times)


def main():
    """Print seconds and ratios for both mechanisms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--data", default="kdd99")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5, help="runs of nrjax; the median counts")
    parser.add_argument("--devices", type=int, default=os.cpu_count(), help="virtual CPU devices")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", options.devices)

    data = datasets.load(options.data, "logistic", rows=options.rows)
    problem = LogisticProblem.fit(data.x, data.y, 0.05)
    target = 0.41 if data.name == "kdd99" else 1.03 * problem.optimum_loss
    shape, key = (problem.dimension,), jax.random.key(0)
    linear = nrjax.LinearBoundary.tight_at_epsilon(0.3, problem.l2_sensitivity, 1e-6)
    pure = nrjax.PureGuarantee(problem.l1_sensitivity)
    every_row = (data.x * data.y[:, None]).astype(np.float32)
    merged = np.asarray(problem.utility.signed_rows, np.float32)
    inputs = {
        "all rows": (every_row, np.full(len(every_row), 1 / len(every_row), np.float32)),
        "merged rows": (merged, np.asarray(problem.utility.weights, np.float32)),
    }
    print(
        f"{data.name}, {options.rows} rows, {len(merged)} distinct, {options.trials} trials, "
        f"{len(jax.devices())} x {jax.devices()[0].device_kind}"
    )
    print(
        f"{'mechanism':<10} {'nrjax s':>8} {'compile s':>10} {'mean step':>10}"
        f" {'numpy s':>8} {'ratio':>6}  numpy on"
    )
    for name, process, guarantee in (
        ("brownian", nrjax.Brownian(shape), linear),
        ("laplace", nrjax.Laplace(shape), pure),
    ):
        grid = nrjax.Grid.geometric(guarantee, 0.16, 20.0, 1000)
        trial = build_interaction(
            problem.optimum,
            process,
            guarantee,
            grid,
            problem.utility,
            nrjax.PublicThreshold(-target),
        )
        program = montecarlo.outcomes(trial, options.trials, ("step",))
        before = time.perf_counter()
        program.compile(key)
        compiling = time.perf_counter() - before
        outcome = program.run(key, options.trials)
        seconds = []
        for _ in range(options.repeats):
            before = time.perf_counter()
            program.run(key, options.trials)  # NumPy arrays: nothing left to wait for
            seconds.append(time.perf_counter() - before)
        fast = statistics.median(seconds)
        times = np.asarray(grid.times, np.float64)
        for label, (rows, weights) in inputs.items():
            rng = np.random.default_rng(0)
            before = time.perf_counter()
            steps = [
                numpy_trial(
                    rng,
                    name,
                    problem.optimum,
                    times,
                    rows,
                    weights,
                    problem.regularisation,
                    problem.utility.radius,
                    target,
                )
                for _ in range(options.trials)
            ]
            slow = time.perf_counter() - before
            # The same law, so that neither does less work.
            error = np.std(steps) * np.sqrt(2 / len(steps))
            assert abs(np.mean(steps) - outcome["step"].mean()) < 5 * error, "not the same study"
            print(
                f"{name:<10} {fast:8.2f} {compiling:10.2f} {outcome["step"].mean():10.1f}"
                f" {slow:8.2f} {slow / fast:6.1f}  {label}"
            )


if __name__ == "__main__":
    main()
