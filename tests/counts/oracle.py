"""The release of counts in plain NumPy and SciPy, level by level."""

import functools

import jax
import numpy as np
from scipy import special, stats

from nrjax.counts import RelativeError
from nrjax.counts.first_passage import follow

TRIALS, LEVELS = 20_000, 60


@jax.jit
def _follow(keys, count, passage, largest):
    return jax.vmap(lambda key: follow(key, count, passage, largest))(keys)


@functools.cache
def passages(kind, count, alpha, smallest, largest):
    """Return TRIALS passages of a kind on LEVELS levels."""
    keys = jax.random.split(jax.random.key(1), TRIALS)
    passage = kind(RelativeError(alpha), smallest, LEVELS)
    return jax.tree.map(np.asarray, _follow(keys, count, passage, largest))


def bounds(alpha):
    """Return the standard deviations that an accepted count has above, and below, zero."""
    return (2 + alpha) / alpha, (2 - alpha) / alpha


def stopping_law(count, alpha, smallest, largest, levels=LEVELS, nodes=400):
    """Return the probability that a Brownian release is accepted at each level.

    By numerical integration: the density of the walk not accepted so far is carried from level to
    level on Gauss-Legendre nodes between the two bounds.
    """
    upper, lower = bounds(alpha)
    u = np.linspace(smallest, largest, levels)
    high, low = upper * np.sqrt(u) - count * u, -lower * np.sqrt(u) - count * u
    point, weight = np.polynomial.legendre.leggauss(20)
    deviation = np.sqrt(np.diff(u, prepend=0))
    stop, now, mass = np.zeros(levels), np.zeros(1), np.ones(1)
    for i, d in enumerate(deviation):
        stop[i] = mass @ (special.ndtr((now - high[i]) / d) + special.ndtr((low[i] - now) / d))
        left, right = max(low[i], -9 * np.sqrt(u[i])), min(high[i], 9 * np.sqrt(u[i]))
        if right <= left:
            break
        edges = np.linspace(left, right, nodes // 20 + 1)[:, None]
        half = np.diff(edges, axis=0) / 2
        following = (edges[:-1] + half + half * point).ravel()
        density = mass @ np.exp(-(((following[None] - now[:, None]) / d) ** 2) / 2)
        density /= np.sqrt(2 * np.pi) * d
        now, mass = following, density * (half * weight).ravel()
    return stop


def step_p(step, accepted, law):
    """Return the chi-square p-value of stopping levels, or none, against their distribution."""
    levels = len(law)
    expected = np.append(law, max(1 - law.sum(), 0)) * len(step)
    seen = np.bincount(np.where(accepted, step, levels), minlength=levels + 1)
    common = expected > 8
    # Rare levels are one bin.
    few, rest = seen[~common].sum(), max(expected[~common].sum(), 1e-9)
    rare = stats.poisson.sf(few - 1, rest)
    expected, seen = expected[common], seen[common]
    if len(seen) < 2:
        return rare
    statistic = np.sum((seen - expected) ** 2 / expected)
    return min(1.0, 2 * min(rare, stats.chi2.sf(statistic, len(seen) - 1)))


def same_step_p(first, second):
    """Return the two-sample chi-square p-value of two samples of integers."""
    first, second = (np.bincount(sample, minlength=1000) for sample in (first, second))
    total = first + second
    order = np.argsort(-total)
    first, second = first[order], second[order]
    common = int(np.sum(total > 20))
    table = np.array([np.append(s[:common], s[common:].sum()) for s in (first, second)])
    table = table[:, table.sum(0) > 0]
    return stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0


def check_result(result, rule, times, deviations):
    """Check that releases of `release_count` are at their levels, and accepted by the rule."""
    assert np.allclose(result.time, times[result.step], rtol=1e-5)
    scaled = result.release / deviations[result.step]
    accepts = np.asarray(rule.accepts(scaled, 1.0))
    near = np.abs(scaled - rule.upper) < 1e-3
    assert np.array_equal(result.accepted | near, accepts | near)
    assert np.all(result.step[~result.accepted] == len(times) - 1)


def discrete_certificate(order, epsilon):
    """Return the certificate of discrete Laplace noise reduction at sensitivity 1."""
    c = 2 * (order - 1)
    more = (np.exp(c * epsilon) * (c * epsilon - 1) + 1) / c**2 - epsilon**2 / 2
    return laplace_certificate(order, epsilon) + order / (3 * c) * more


def laplace_certificate(order, epsilon):
    """Return the certificate `C(e)` of Laplace noise reduction."""
    slope = order - 1
    x = 2 * slope * epsilon
    return order / (2 * slope**2) * (special.expi(x) - np.log(x) - np.euler_gamma - x)


class Costs:
    """The cost of a level of squared parameter u, the cost of a selection, and the budget."""

    def __init__(self, level, selection, budget):
        self.level, self.selection, self.budget = level, selection, budget

    def largest(self, left):
        """Return the largest squared parameter for what is left, by bisection."""
        low, high = 0.0, 100.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.level(middle) <= left else (low, middle)
        return low


def _noisy(rng, method, count, u):
    """Return noisy counts at falling noise, and the noise's standard deviations."""
    if method == "brownian":
        walk = np.cumsum(rng.normal(size=len(u)) * np.sqrt(np.diff(u, prepend=0)))
        return count + walk / u, 1 / np.sqrt(u)
    if method == "fresh":  # a planted fault: no noise reduction
        return count + rng.normal(size=len(u)) / np.sqrt(u), 1 / np.sqrt(u)
    times = 1 / np.sqrt(u[::-1])  # rising
    if method == "discrete_laplace":
        variance = 0.5 / np.sinh(0.5 / times) ** 2
        first, second = (rng.geometric(-np.expm1(-1 / times)) for _ in range(2))
        stays = rng.random(len(u) - 1) < variance[:-1] / variance[1:]
        steps = np.where(np.append(False, stays), 0, first - second)
        return count + np.cumsum(steps)[::-1], np.sqrt(variance)[::-1]
    stays = rng.random(len(u) - 1) < (times[:-1] / times[1:]) ** 2
    steps = np.where(stays, 0, rng.laplace(scale=times[1:]))
    noise = np.cumsum(np.append(rng.laplace(scale=times[0]), steps))[::-1]
    return count + noise, np.sqrt(2) * times[::-1]


def play(rng, counts, method, costs, selection, alpha, smallest, levels, marks, unpaid=False):
    """Play one trial, count by count. With `unpaid` only the last try of doubling is charged.

    Returns:
        The numbers of counts returned, precise and attempted, the cost, and the counts returned
        until each fraction of the budget was spent.
    """
    upper, lower = bounds(alpha)
    left, spent, attempted, precise, paid_at = list(counts), 0.0, 0, 0, []
    while left and spent + costs.selection + costs.level(smallest) <= costs.budget:
        count = left.pop(int(np.argmax(np.array(left) + rng.gumbel(size=len(left)) / selection)))
        spent += costs.selection
        attempted += 1
        if method == "doubling":
            u, accepted, paid = smallest, False, 0.0
            while not accepted and spent + costs.level(u) <= costs.budget:
                paid = costs.level(u)
                spent += 0.0 if unpaid else paid
                release = count + rng.normal() / np.sqrt(u)
                accepted = release * np.sqrt(u) >= upper or release * np.sqrt(u) < -lower
                u *= 2
            spent += paid if unpaid else 0.0
        else:
            u = np.linspace(smallest, costs.largest(costs.budget - spent), levels)
            noisy, deviation = _noisy(rng, method, count, u)
            hits = np.flatnonzero((noisy >= upper * deviation) | (noisy < -lower * deviation))
            accepted = len(hits) > 0
            at = hits[0] if accepted else levels - 1
            spent += costs.level(u[at])
            release = noisy[at]
        if accepted:
            precise += abs(release - count) <= alpha * count
            paid_at.append(spent)
    by = [np.sum(np.array(paid_at) <= costs.budget * j / marks) for j in range(1, marks)]
    return len(paid_at), precise, attempted, spent, *by, len(paid_at)
