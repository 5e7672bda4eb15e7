"""The trials on data as compiled loops: numba, like `numba_loops`.

They are baselines of `benchmarks.compiled`. A test of the loss ends as soon as its answer is known:
logistic regression reads no more rows, and ridge regression solves only where a trial may stop.
"""

import numpy as np
from numba import float32, njit, uint64

from benchmarks.numba_loops import in_parallel, move, normals, uniform, word

BLOCK = 64
"""Number of rows in a block. A block is read feature by feature, in vector instructions."""


def blocks(rows, weights):
    """Return rows and weights in blocks, shape (blocks, features or none, BLOCK)."""
    extra = -len(rows) % BLOCK
    split = np.pad(rows, ((0, extra), (0, 0))).reshape(-1, BLOCK, rows.shape[1])
    return np.ascontiguousarray(split.transpose(0, 2, 1)), np.pad(weights, (0, extra)).reshape(
        -1, BLOCK
    )


def loss_coefficients(largest, degree=14):
    """Return p, highest first, with `log(1 + exp(-m)) = p(2 (m/largest)^2 - 1) - m/2`, to 1e-8."""

    def even(x):
        return np.log(2 * np.cosh(largest / 2 * np.sqrt(np.maximum((x + 1) / 2, 0))))

    series = np.polynomial.Chebyshev.interpolate(even, degree)
    return series.convert(kind=np.polynomial.Polynomial).coef[::-1]


@njit(fastmath=True)
def _logistic(
    state, value, ratios, deviations, rows, weights, loss, optimum, ridge, radius, lowest, target
):
    """Run logistic regression until the risk is at most `target`.

    All losses are positive, so rows are read only until their sum exceeds the target. None is read
    if `lowest + ridge/2 |theta - optimum|^2`, a lower bound on the risk, does. Returns the step,
    and the number of blocks of rows that were read.
    """
    dimension, read = value.size, 0
    noise = np.zeros(dimension + dimension % 2, np.float32)
    theta, margins = np.empty(dimension, np.float32), np.empty(BLOCK, np.float32)
    squares, losses = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for step in range(ratios.size):
        state = move(state, noise, ratios[step], deviations[step])
        square, away = float32(0), float32(0)
        for i in range(dimension):
            theta[i] = value[i] + noise[i]
            square += theta[i] * theta[i]
        shrink = min(float32(1), radius / np.sqrt(square))
        for i in range(dimension):
            theta[i] *= shrink
            away += (theta[i] - optimum[i]) ** 2
        if lowest + float32(0.5) * ridge * away > target:
            continue
        risk = float32(0.5) * ridge * square * shrink * shrink
        for block in range(len(rows)):
            margins[:] = 0
            for i in range(dimension):
                for j in range(BLOCK):
                    margins[j] += theta[i] * rows[block, i, j]
            for j in range(BLOCK):
                squares[j] = float32(2) * (margins[j] / radius) ** 2 - float32(1)
                losses[j] = loss[0]
            for coefficient in loss[1:]:
                for j in range(BLOCK):
                    losses[j] = losses[j] * squares[j] + coefficient
            for j in range(BLOCK):
                risk += weights[block, j] * (losses[j] - float32(0.5) * margins[j])
            read += 1
            if risk > target:
                break
        if risk <= target:
            return step, read
    return ratios.size - 1, read


@njit(fastmath=True)
def _solve(matrix, vector):
    """Solve `matrix x = vector` in place by Cholesky's method, and return whether it could."""
    size = len(vector)
    for k in range(size):
        if not matrix[k, k] > 0:
            return False
        scale = 1 / np.sqrt(matrix[k, k])
        vector[k] *= scale
        for j in range(k, size):
            matrix[k, j] *= scale
        for i in range(k + 1, size):
            factor = matrix[k, i]
            vector[i] -= factor * vector[k]
            for j in range(i, size):
                matrix[i, j] -= factor * matrix[k, j]
    for k in range(size - 1, -1, -1):
        total = vector[k]
        for j in range(k + 1, size):
            total -= matrix[k, j] * vector[j]
        vector[k] = total / matrix[k, k]
    return True


@njit(fastmath=True)
def _ridge(state, value, ratios, deviations, hessian, optimum, rows, ridge, radius, tolerance):
    """Run ridge regression from noisy statistics until the excess risk is at most `tolerance`.

    A minimiser on the sphere is too far from the optimum to stop, so the noisy risk is minimised
    without the constraint. Returns the step, and the number of such minimisers in the ball.
    """
    dimension, inside = optimum.size, 0
    noise = np.zeros(value.size + value.size % 2, np.float32)
    matrix = np.empty((dimension, dimension), np.float32)
    theta, away = np.empty(dimension, np.float32), np.empty(dimension, np.float32)
    weight, half = 1 / rows, 1 / (rows * np.sqrt(float32(2)))
    for step in range(ratios.size):
        state = move(state, noise, ratios[step], deviations[step])
        at = 0
        for i in range(dimension):
            matrix[i, i] = (value[at] + noise[at]) * weight + ridge
            at += 1
            for j in range(i + 1, dimension):
                matrix[i, j] = (value[at] + noise[at]) * half
                at += 1
        for i in range(dimension):
            theta[i] = (value[at] + noise[at]) * weight
            at += 1
        if not _solve(matrix, theta):
            continue
        square, excess = float32(0), float32(0)
        for i in range(dimension):
            square += theta[i] * theta[i]
            away[i] = theta[i] - optimum[i]
        if square > radius * radius:
            continue
        inside += 1
        for i in range(dimension):
            for j in range(dimension):
                excess += float32(0.5) * away[i] * hessian[i, j] * away[j]
        if excess <= tolerance:
            return step, inside
    return ratios.size - 1, inside


@njit(fastmath=True)
def _integers(state, times, slack, allowed):
    """Run discrete Laplace noise until at most `allowed` counts are off by more than their slack.

    The kernel is that of `nrjax.DiscreteLaplace`: a count moves if `draw` is below
    `1 - (1 - 2 side) exp(-k distance)`. Returns the step, and the number of counts that are off.
    """
    noise, outside = np.empty(slack.size, np.float32), 0
    for i in range(slack.size):
        a, state = uniform(state)
        b, state = uniform(state)
        noise[i] = np.floor(-times[0] * np.log(a)) - np.floor(-times[0] * np.log(b))
        outside += abs(noise[i]) > slack[i]
    for step in range(1, times.size):
        if outside <= allowed:
            return step - 1, outside
        now, time = times[step - 1], times[step]
        k, m = (now - time) / now / time, (1 + time / now) / time
        side = np.exp(-m) * np.expm1(-k) / np.expm1(-2 / time)
        for i in range(slack.size):
            draw, state = uniform(state)
            distance = abs(noise[i])
            if draw > 2 * side + (1 - 2 * side) * k * distance:  # an upper bound, without `exp`
                continue
            kept = np.exp(-k * distance)
            if draw > 1 - (1 - 2 * side) * kept:
                continue
            outside -= distance > slack[i]
            sign = np.copysign(float32(1), noise[i])
            if draw <= side:
                noise[i] = sign * (-1 - np.floor(-np.log(draw / side) / m))
            elif draw <= side + side * kept:
                jump = np.floor(-np.log((draw - side) / (side * kept)) / m)
                noise[i] = sign * (distance + 1 + jump)
            else:
                low = (draw - side - side * kept) / (1 - side)
                noise[i] = sign * min(np.floor(-np.log1p(-low) / k), distance - 1)
            outside += abs(noise[i]) > slack[i]
    return times.size - 1, outside


@njit(fastmath=True)
def _budgeted_counts(state, counts, alpha, selection, charge, total, smallest, levels):
    """Release the largest counts until the budget is spent, as in `numpy_rogers.run_trial`.

    All of a trial's Gumbel noise is drawn at once, which has the same distribution. A count is
    released level by level. Returns the number of the last selected count, from 0, and of those
    returned.
    """
    upper, lower = (2 + alpha) / alpha, (2 - alpha) / alpha
    scores = np.empty(counts.size)
    for i in range(counts.size):
        bits, state = word(state)
        draw = (np.float64(bits >> uint64(11)) + 0.5) * 2.0**-53
        scores[i] = np.log(-np.log(draw)) - selection * counts[i]
    spent, returned, attempted, spare, half = 0.0, 0, 0, float32(0), False
    for item in np.argsort(scores):
        if spent + charge + smallest > total:
            break
        spent += charge
        attempted += 1
        count, walk, square = counts[item], float32(0), float32(smallest)
        spacing = float32((total - spent - smallest) / (levels - 1))
        deviation = np.sqrt(square)
        for level in range(levels):
            draw = spare
            if not half:
                draw, spare, state = normals(state)
            half = not half
            walk += deviation * draw
            noisy, root = count * square + walk, np.sqrt(square)
            if noisy >= upper * root or noisy < -lower * root:
                returned += 1
                break
            if level < levels - 1:
                square, deviation = float32(smallest) + (level + 1) * spacing, np.sqrt(spacing)
        spent += square
    return attempted - 1, returned


logistic, ridge = in_parallel(_logistic), in_parallel(_ridge)
integers, budgeted_counts = in_parallel(_integers), in_parallel(_budgeted_counts)
