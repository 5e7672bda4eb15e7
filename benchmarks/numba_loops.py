"""The trials of numbers and vectors as compiled loops: numba, one trial after another.

They are the baseline of `benchmarks.compiled`, written as an engineer would write them by hand, and
share no code with nrjax. Threads share the trials. Each trial has its own stream of xoshiro256++
(Blackman and Vigna 2018), seeded by SplitMix64. Normals come in pairs by Marsaglia's polar method.
Laplace noise takes one uniform per step, and a logarithm only if it moves. Numbers are float32.

A trial is a function of its random state and of its case's numbers. It returns two numbers: the
step at which it stopped, and one more that its docstring names.
"""

import numpy as np
from numba import float32, int64, njit, prange, uint64

_GAMMA = uint64(0x9E3779B97F4A7C15)


def in_parallel(trial):
    """Return a compiled function of the number of trials, a seed and a trial's arguments."""

    @njit(parallel=True)
    def run(trials, seed, arguments):
        steps, others = np.empty(trials, np.int32), np.empty(trials, np.float32)
        for number in prange(trials):
            steps[number], others[number] = trial(_seeded(seed, number), *arguments)
        return steps, others

    return run


@njit
def _mixed(x):
    z = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit
def _seeded(seed, number):
    """Return the random state of a trial."""
    x = uint64(seed) * _GAMMA + uint64(number) * uint64(0xD1342543DE82EF95)
    return (
        _mixed(x + _GAMMA),
        _mixed(x + uint64(2) * _GAMMA),
        _mixed(x + uint64(3) * _GAMMA),
        _mixed(x + uint64(4) * _GAMMA),
    )


@njit
def word(state):
    """Return 64 random bits, and the next state."""
    s0, s1, s2, s3 = state
    total, shifted = s0 + s3, s1 << uint64(17)
    bits = ((total << uint64(23)) | (total >> uint64(41))) + s0
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    return bits, (s0, s1, s2 ^ shifted, (s3 << uint64(45)) | (s3 >> uint64(19)))


@njit(fastmath=True)
def uniform(state):
    """Return a uniform number on (0, 1], and the next state."""
    bits, state = word(state)
    return (float32(bits >> uint64(32)) + float32(0.5)) * float32(2.0**-32), state


@njit(fastmath=True)
def normals(state):
    """Return two standard normals, and the next state."""
    while True:
        bits, state = word(state)
        a = float32(int64(bits) >> 32) * float32(2.0**-31)
        b = float32(int64(bits << uint64(32)) >> 32) * float32(2.0**-31)
        square = a * a + b * b
        if float32(0) < square < float32(1):
            factor = np.sqrt(float32(-2) * np.log(square) / square)
            return a * factor, b * factor, state


@njit(fastmath=True)
def laplace(state):
    """Return standard Laplace noise, and the next state."""
    bits, state = word(state)
    size = -np.log((float32(bits >> uint64(33)) + float32(0.5)) * float32(2.0**-31))
    return (-size if bits & uint64(1) else size), state


@njit(fastmath=True)
def rewound(state, noise, now, time):
    """Return Laplace noise at `time`, given its value at `now`, and the next state."""
    draw, state = uniform(state)
    gap = (now - time) / now
    side, distance = float32(0.5) * gap, abs(noise)
    if draw <= side:
        return np.copysign(np.log(draw / side) * time / (1 + time / now), -noise), state
    kept = np.exp(-distance * gap / time)
    left = draw - side - side * kept
    if left < 0:
        jump = np.log((draw - side) / (side * kept)) * time / (1 + time / now)
        return np.copysign(distance - jump, noise), state
    low = left / (1 - side)
    return (np.copysign(-np.log1p(-low) * time / gap, noise) if low < 1 - kept else noise), state


def scalar(brownian, rule):
    """Return the trial of one number, until its noise is at most `tolerance`.

    Args:
        brownian: whether the noise is Brownian, else Laplace.
        rule: "public", "above_threshold" or "reduced_above_threshold".

    Returns:
        A trial that returns its step and its noise. What is constant costs no branch.
    """
    private, reduced = rule != "public", rule == "reduced_above_threshold"

    @njit(fastmath=True)
    def trial(state, times, ratios, deviations, scales, tolerance):
        noise, spare, threshold, half = float32(0), float32(0), float32(0), False
        for step in range(times.size):
            if brownian:
                draw = spare
                if not half:
                    draw, spare, state = normals(state)
                half = not half
                noise = ratios[step] * noise + deviations[step] * draw
            elif step == 0:
                draw, state = laplace(state)
                noise = times[0] * draw
            else:
                noise, state = rewound(state, noise, times[step - 1], times[step])
            margin = tolerance - abs(noise)
            if private:
                if step == 0:
                    draw, state = laplace(state)
                    threshold = scales[0] * draw
                elif reduced:
                    threshold, state = rewound(state, threshold, scales[step - 1], scales[step])
                draw, state = laplace(state)
                margin += 2 * scales[step] * draw - threshold
            if margin >= 0:
                return step, noise
        return times.size - 1, noise

    return in_parallel(trial)


@njit(fastmath=True)
def move(state, noise, ratio, deviation):
    """Move Brownian noise of an even length to the next time, and return the next state."""
    for i in range(0, noise.size, 2):
        a, b, state = normals(state)
        noise[i] = ratio * noise[i] + deviation * a
        noise[i + 1] = ratio * noise[i + 1] + deviation * b
    return state


def vector(largest):
    """Return the trial of a vector under Brownian noise, until its error is small.

    The error is the largest error of a coordinate, or else the sum of squares. The trial returns
    its step and its error.
    """

    @njit(fastmath=True)
    def trial(state, dimension, ratios, deviations, tolerance):
        noise, error = np.zeros(dimension, np.float32), float32(0)
        for step in range(ratios.size):
            state = move(state, noise, ratios[step], deviations[step])
            error = float32(0)
            for i in range(dimension):
                error = max(error, abs(noise[i])) if largest else error + noise[i] * noise[i]
            if error <= tolerance:
                return step, error
        return ratios.size - 1, error

    return in_parallel(trial)
