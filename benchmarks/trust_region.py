"""Claim: a batched solve over the ball takes a fifth of the time of eigendecompositions.

The baseline is a hand-written solver: one eigendecomposition per matrix, and Newton's method on the
secular equation. The matrices are those of private ridge regression (10,000 rows of unit norm, 77
features, lambda 0.05), with symmetric noise on X'X from weak to strong. Both solve the same
matrices, in one run. Compile time is not counted. Processor time of all threads is printed next to
wall time: NumPy's threads slow each other down on small matrices, so pin the process to one core
for a fair ratio.

    python -m benchmarks.trust_region [--dimension 77] [--batch 64] [--noise 35 55 100 300 1200]

benchmarks/notes has a typical output.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rows import Row
from nrjax.erm import minimise_in_ball


def problems(
    rng: np.random.Generator, d: int, batch: int, noise: float, rows: int = 10_000
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return noisy ridge problems: A, c and the radius."""
    x = rng.normal(size=(rows, d)) / np.sqrt(np.arange(1, d + 1))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.clip(x @ rng.normal(size=d) / 3, -1, 1)
    b = rng.normal(scale=noise, size=(batch, d, d))
    c = x.T @ y + rng.normal(scale=noise, size=(batch, d))
    a = (x.T @ x + (b + b.transpose(0, 2, 1)) / 2) / rows + 0.05 * np.eye(d)
    return a, c / rows, 1 / np.sqrt(0.05)


def by_eigh(a: np.ndarray, c: np.ndarray, radius: float) -> np.ndarray:
    """Return the minimiser of one problem. The hard case is not covered."""
    values, vectors = np.linalg.eigh(a)
    values, b = values.astype(float), (vectors.T @ c).astype(float)
    if values[0] > 0 and np.linalg.norm(b / values) <= radius:
        return vectors @ (b / values)
    # From the left of the solution Newton's method on 1/|x| converges monotonically.
    mu = max(0.0, -values[0] + abs(b[0]) / radius)
    for _ in range(50):
        x = b / (values + mu)
        norm = np.linalg.norm(x)
        step = (norm / radius - 1) * norm**2 / np.sum(x * x / (values + mu))
        mu += step
        if abs(step) < 1e-6 * mu:
            break
    return vectors @ (b / (values + mu))


def best(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the least processor and wall seconds."""
    seconds = []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        call()
        seconds.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(cpu for cpu, _ in seconds), min(wall for _, wall in seconds)


def race(options: argparse.Namespace) -> list[Row]:
    """Print microseconds per solve and ratios, and return their rows by wall time."""
    report_rows = []
    rng = np.random.default_rng(0)
    solve = jax.jit(jax.vmap(minimise_in_ball, (0, 0, None)))
    dtype = jnp.result_type(float)
    print(f"d = {options.dimension}, batch {options.batch}, {dtype}, microseconds a solve")
    print(
        f"{'noise sd':>8} {'on sphere':>9} {'nrjax cpu':>9} {'wall':>7} {'eigh cpu':>9} {'wall':>7}"
        f" {'ratio cpu':>9} {'wall':>6} {'residual':>9}"
    )
    for noise in options.noise:
        a, c, radius = problems(rng, options.dimension, options.batch, noise)
        a, c, radius = a.astype(dtype), c.astype(dtype), dtype.type(radius)
        minimum = jax.block_until_ready(solve(a, c, radius))
        slow = np.array([by_eigh(*pair, radius) for pair in zip(a, c, strict=True)])

        def value(theta: np.ndarray, a: np.ndarray = a, c: np.ndarray = c) -> np.ndarray:
            theta = np.asarray(theta, float)
            return 0.5 * np.einsum("bi,bij,bj->b", theta, a, theta) - np.sum(theta * c, axis=1)

        assert np.allclose(value(minimum.argument), value(slow), rtol=1e-4), "not the same minimum"
        data = jax.device_put((a, c, radius))
        fast = best(lambda data=data: jax.block_until_ready(solve(*data)), options.repeats)
        baseline = best(
            lambda a=a, c=c, r=radius: [by_eigh(*pair, r) for pair in zip(a, c, strict=True)],
            options.repeats,
        )
        us = [1e6 * seconds / options.batch for seconds in (*fast, *baseline)]
        bound = np.mean(minimum.multiplier > 0)
        print(
            f"{noise:8g} {bound:9.0%} {us[0]:9.1f} {us[1]:7.1f} {us[2]:9.1f} {us[3]:7.1f}"
            f" {us[2] / us[0]:9.1f} {us[3] / us[1]:6.1f} {np.max(minimum.residual):9.1e}"
        )
        claim = f"solve over the ball, d = {options.dimension}, noise {noise:g}"
        report_rows.append(Row(claim, 1e6 / us[1], us[3] / us[1], "NumPy", note="solves a second"))
    return report_rows


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--dimension", type=int, default=77)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--noise", type=float, nargs="+", default=[35, 55, 100, 300, 1200])
    arguments.add_argument("--repeats", type=int, default=10)
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--dimension", "5", "--batch", "8", "--noise", "100", "--repeats", "1"]
    return race(parser().parse_args(tiny if quick else []))


def main():
    """Print microseconds per solve and ratios."""
    race(parser().parse_args())


if __name__ == "__main__":
    main()
