"""What a device could do at most, measured; and what a kernel asks of it, counted by XLA.

A kernel that needs `flops` operations and moves `bytes` takes at least
`max(flops / peak flops, bytes / peak bandwidth)` seconds (the roofline of Williams, Waterman and
Patterson 2009); the fraction of it that a kernel reaches is that over its measured seconds.
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
    """Operations, and bytes moved to and from memory."""

    flops: float
    moved: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.moved + other.moved)

    def __mul__(self, times: float) -> "Cost":
        return Cost(self.flops * times, self.moved * times)


class Peaks(NamedTuple):
    """Operations and bytes per second."""

    flops: float
    bandwidth: float

    def seconds(self, cost: Cost) -> float:
        """The least a kernel of this cost takes."""
        return max(cost.flops / self.flops, cost.moved / self.bandwidth)


def spent(call: Callable[[], Any], repeats: int = 5) -> list[float]:
    """Seconds of calls, after one that compiles."""
    jax.block_until_ready(call())
    found = []
    for _ in range(repeats):
        before = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - before)
    return found


def seconds(call: Callable[[], Any]) -> float:
    """Median of the seconds of a call, after one that compiles."""
    return statistics.median(spent(call))


def measure_peaks(matrix: int = 8192, vector: int = 2**28) -> Peaks:
    """The device's peaks: a float32 product of two square matrices, and `x + 2 y` on vectors.

    Args:
        matrix: rows of the matrices.
        vector: length of the vectors, too long for any cache.
    """
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    triad = jax.jit(lambda x, y: x + 2 * y)
    a, x = jnp.ones((matrix, matrix), jnp.float32), jnp.ones(vector, jnp.float32)
    y = x * 3
    flops = 2 * matrix**3 / seconds(lambda: product(a))
    return Peaks(flops, 3 * 4 * vector / seconds(lambda: triad(x, y)))


def cost(function: Callable[..., Any], *arguments: Any) -> Cost:
    """What XLA says that a compiled function costs; bodies of loops are counted once.

    Args:
        function: to be compiled.
        arguments: its arguments.
    """
    counted = jax.jit(function).lower(*arguments).compile().cost_analysis()
    counted = counted if isinstance(counted, dict) else {}
    # A logarithm or an exponential counts as one operation: the roofline is on the high side.
    flops = counted.get("flops", 0.0) + counted.get("transcendentals", 0.0)
    return Cost(flops, counted.get("bytes accessed", 0.0))
