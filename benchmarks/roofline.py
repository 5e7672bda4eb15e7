"""Measured peaks of a device, and the cost of a kernel as XLA counts it.

A kernel of `flops` operations that moves `bytes` takes at least
`max(flops / peak flops, bytes / peak bandwidth)` seconds (the roofline of Williams, Waterman and
Patterson 2009). Divided by the measured seconds, that is the fraction of the roofline.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Cost:
    """Numbers of operations, and of bytes moved to and from memory."""

    flops: float
    moved: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.moved + other.moved)

    def __mul__(self, times: float) -> "Cost":
        return Cost(self.flops * times, self.moved * times)


class Peaks(NamedTuple):
    """The peaks of a device in operations and bytes per second."""

    flops: float
    bandwidth: float

    def seconds(self, cost: Cost) -> float:
        """Return the least time of a kernel of this cost."""
        return max(cost.flops / self.flops, cost.moved / self.bandwidth)


def spent(call: Callable[[], Any], repeats: int = 5) -> list[float]:
    """Return the seconds of calls, after a first call that compiles."""
    jax.block_until_ready(call())
    elapsed = []
    for _ in range(repeats):
        before = time.perf_counter()
        jax.block_until_ready(call())
        elapsed.append(time.perf_counter() - before)
    return elapsed


def seconds(call: Callable[[], Any]) -> float:
    """Return the median seconds of a call, after a first call that compiles."""
    return statistics.median(spent(call))


def measure_peaks(matrix: int = 8192, vector: int = 2**28) -> Peaks:
    """Measure the peaks: a float32 product of square matrices, and `x + 2 y` of vectors.

    Args:
        matrix: number of rows of the matrices.
        vector: length of the vectors, which should exceed any cache.
    """
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    triad = jax.jit(lambda x, y: x + 2 * y)
    a, x = jnp.ones((matrix, matrix), jnp.float32), jnp.ones(vector, jnp.float32)
    y = x * 3
    flops = 2 * matrix**3 / seconds(lambda: product(a))
    return Peaks(flops, 3 * 4 * vector / seconds(lambda: triad(x, y)))


def cost(function: Callable[..., Any], *arguments: Any) -> Cost:
    """Return the cost of a function by XLA's analysis, which counts bodies of loops once."""
    counted = jax.jit(function).lower(*arguments).compile().cost_analysis()
    counted = counted if isinstance(counted, dict) else {}
    # A logarithm or an exponential counts as one operation: the roofline is too optimistic.
    flops = counted.get("flops", 0.0) + counted.get("transcendentals", 0.0)
    return Cost(flops, counted.get("bytes accessed", 0.0))
