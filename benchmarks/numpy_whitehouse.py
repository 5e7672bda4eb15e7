"""The trials of `whitehouse2022` in plain NumPy, one at a time and step by step.

It is the baseline of `benchmarks.whitehouse2022`. For speed, noise is drawn only where it is used,
nothing is computed twice, and a ridge step takes one eigendecomposition, whether the matrix is
definite or not. It shares no code with nrjax.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np


def first_noise(rng, mechanism, time, size, dtype):
    """Return noise at the first and largest time, shape (size,)."""
    if mechanism == "brownian":
        return rng.standard_normal(size, dtype) * math.sqrt(time)
    noise = rng.standard_exponential(size, dtype) * time
    return np.where(rng.random(size, dtype) < 0.5, -noise, noise)


def rewind(rng, mechanism, noise, now, time):
    """Return noise at a smaller time, by the exact reverse kernel."""
    if mechanism == "brownian":
        fresh = rng.standard_normal(noise.size, noise.dtype)
        return (time / now) * noise + math.sqrt(time * ((now - time) / now)) * fresh
    # In the direction of the noise's sign. Few coordinates move in a short step.
    half, rate, far = (now - time) / (2 * now), 1 / time - 1 / now, 1 / time + 1 / now
    distance, coin = np.abs(noise), rng.random(noise.size, noise.dtype)
    near = rng.standard_exponential(noise.size, noise.dtype)
    across = coin < half
    between = ~across & (near < rate * distance)
    moved = np.flatnonzero((coin < 2 * half) | between)
    jump = rng.standard_exponential(moved.size, noise.dtype) / far
    target = np.where(between[moved], near[moved] / rate, distance[moved] + jump)
    target = np.where(across[moved], -jump, target)
    noise = noise.copy()
    noise[moved] = np.copysign(1, noise[moved]) * target
    return noise


def rewind_one(rng, noise, now, time):
    """Return one number of Laplace noise at a smaller time, without the cost of arrays."""
    half, rate, far = (now - time) / (2 * now), 1 / time - 1 / now, 1 / time + 1 / now
    distance, coin = abs(noise), rng.random()
    if coin < half:
        target = -rng.standard_exponential() / far
    else:
        near = rng.standard_exponential()
        if near < rate * distance:
            target = near / rate
        elif coin < 2 * half:
            target = distance + rng.standard_exponential() / far
        else:
            return noise
    return target if noise >= 0 else -target


@dataclasses.dataclass(frozen=True)
class Logistic:
    """The risk of a noisy optimum, projected onto a ball. Rows are features times labels."""

    rows: np.ndarray
    weights: np.ndarray
    regularisation: float
    radius: float

    def __call__(self, release):
        """Return the regularised risk. The radius bounds the margins: `exp` does not overflow."""
        norm = math.sqrt(release @ release)
        if norm > self.radius:
            release = release * (self.radius / norm)
        losses = np.log1p(np.exp(-(self.rows @ release)))
        return self.weights @ losses + 0.5 * self.regularisation * (release @ release)


@dataclasses.dataclass(frozen=True)
class Ridge:
    """The risk, from sufficient statistics, of the minimiser for noisy statistics."""

    hessian: np.ndarray
    optimum: np.ndarray
    optimum_loss: float
    rows: float
    regularisation: float
    radius: float
    layout: str
    place: np.ndarray = dataclasses.field(init=False)
    scale: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self):
        d = self.optimum.size
        i, j = np.triu_indices(d)
        off = math.sqrt(2) if self.layout == "isometric" else 1.0
        object.__setattr__(self, "place", i * d + j)
        object.__setattr__(self, "scale", np.where(i == j, 1.0, 1 / off) / self.rows)

    def __call__(self, release):
        """Return the regularised risk."""
        d = self.optimum.size
        if self.layout == "matrix":
            matrix = release[: d * d].reshape(d, d)
            matrix = (matrix + matrix.T) * (0.5 / self.rows)
        else:  # `eigh` reads the upper triangle only
            matrix = np.zeros((d, d))
            matrix.ravel()[self.place] = release[:-d] * self.scale
        away = self._minimise(matrix, release[-d:] / self.rows) - self.optimum
        return self.optimum_loss + 0.5 * (away @ self.hessian @ away)

    def _minimise(self, matrix, vector):
        """Return the minimiser over the ball, by Newton steps for the multiplier on `1/|x|`."""
        values, vectors = np.linalg.eigh(matrix, UPLO="U")
        values += self.regularisation
        linear = vector @ vectors
        mu = 0.0
        if values[0] <= 0:  # |x| is at least that of its first coordinate
            mu = abs(linear[0]) / self.radius - values[0]
        while True:
            shifted = values + mu
            x = linear / shifted
            square = x @ x
            ratio = math.sqrt(square) / self.radius
            if ratio <= 1 + 1e-9:
                return vectors @ x
            mu += square / (x @ (x / shifted)) * (ratio - 1)


@dataclasses.dataclass(frozen=True)
class Trials:
    """One case of the study.

    Attributes:
        mechanism: "brownian" or "laplace".
        test: "public", "above_threshold" or "reduced_above_threshold".
        value: private value; its dtype is that of the noise.
        times: noise levels, falling.
        epsilons: epsilons of the levels.
        loss: function of a release.
        target: loss at which a trial stops.
        sensitivity: sensitivity of the loss, for private tests.
        test_epsilon: epsilon of AboveThreshold.
    """

    mechanism: str
    test: str
    value: np.ndarray
    times: list[float]
    epsilons: list[float]
    loss: Callable
    target: float
    sensitivity: float = math.nan
    test_epsilon: float = math.nan

    def stop_step(self, rng):
        """Return the step at which a trial stops, or the last step."""
        noise, threshold, size, dtype = None, 0.0, self.value.size, self.value.dtype
        for step, (time, epsilon) in enumerate(zip(self.times, self.epsilons, strict=True)):
            if noise is None:
                noise = first_noise(rng, self.mechanism, time, size, dtype)
            else:
                noise = rewind(rng, self.mechanism, noise, self.times[step - 1], time)
            loss = self.loss(self.value + noise)
            query = 0.0
            if self.test != "public":
                level = self.test_epsilon if self.test == "above_threshold" else epsilon
                scale = 2 * self.sensitivity / level
                if step == 0:
                    threshold = rng.laplace(scale=scale)
                elif self.test == "reduced_above_threshold":
                    was = 2 * self.sensitivity / self.epsilons[step - 1]
                    threshold = rewind_one(rng, threshold, was, scale)
                query = rng.laplace(scale=2 * scale)
            if -loss + query >= -self.target + threshold:
                return step
        return len(self.times) - 1
