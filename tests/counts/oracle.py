"""The release of counts in plain NumPy and SciPy, level by level; shared by the tests."""

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
    """TRIALS passages of a kind on LEVELS levels, which share a program for each kind."""
    keys = jax.random.split(jax.random.key(1), TRIALS)
    found = _follow(keys, count, kind(RelativeError(alpha), smallest, LEVELS), largest)
    return jax.tree.map(np.asarray, found)


def bounds(alpha):
    """How many deviations a noisy count must be above, or below, zero."""
    return (2 + alpha) / alpha, (2 - alpha) / alpha


def stopping_law(count, alpha, smallest, largest, levels=LEVELS, nodes=400):
    """Probability that a Brownian release is accepted at each level, by numerical integration.

    The density of the walk that was not accepted so far is carried from level to level on
    Gauss-Legendre nodes between the two bounds. Returns the squared parameters and probabilities.
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
    return u, stop


def step_p(step, accepted, law):
    """Chi-square p-value of stopping levels against their law; the last bin is "not accepted"."""
    levels = len(law)
    expected = np.append(law, max(1 - law.sum(), 0)) * len(step)
    seen = np.bincount(np.where(accepted, step, levels), minlength=levels + 1)
    common = expected > 8
    # What is rare is one bin together.
    few, rest = seen[~common].sum(), max(expected[~common].sum(), 1e-9)
    rare = stats.poisson.sf(few - 1, rest)
    expected, seen = expected[common], seen[common]
    if len(seen) < 2:
        return rare
    statistic = np.sum((seen - expected) ** 2 / expected)
    return min(1.0, 2 * min(rare, stats.chi2.sf(statistic, len(seen) - 1)))


def same_step_p(first, second):
    """Two-sample chi-square p-value of two samples of whole numbers."""
    first, second = (np.bincount(sample, minlength=1000) for sample in (first, second))
    total = first + second
    order = np.argsort(-total)
    first, second = first[order], second[order]
    common = int(np.sum(total > 20))
    table = np.array([np.append(s[:common], s[common:].sum()) for s in (first, second)])
    table = table[:, table.sum(0) > 0]
    return stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0


def check_result(result, rule, times, deviations):
    """Releases of `release_count` are where they say, and accepted where the rule says so."""
    assert np.allclose(result.time, times[result.step], rtol=1e-5)
    scaled = result.release / deviations[result.step]
    says = np.asarray(rule.accepts(scaled, 1.0))
    near = np.abs(scaled - rule.upper) < 1e-3
    assert np.array_equal(result.accepted | near, says | near)
    assert np.all(result.step[~result.accepted] == len(times) - 1)


def discrete_certificate(order, epsilon):
    """The one of discrete Laplace noise on a value of sensitivity 1."""
    c = 2 * (order - 1)
    more = (np.exp(c * epsilon) * (c * epsilon - 1) + 1) / c**2 - epsilon**2 / 2
    return laplace_certificate(order, epsilon) + order / (3 * c) * more


def laplace_certificate(order, epsilon):
    """`C(e)` of Laplace noise reduction at an order."""
    slope = order - 1
    x = 2 * slope * epsilon
    return order / (2 * slope**2) * (special.expi(x) - np.log(x) - np.euler_gamma - x)


class Prices:
    """What a level of squared parameter u costs, what a selection costs, and the budget."""

    def __init__(self, level, selection, budget):
        self.level, self.selection, self.budget = level, selection, budget

    def largest(self, left):
        """The largest squared parameter for what is left, by bisection."""
        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.level(middle) <= left else (low, middle)
        return low


def _noisy(rng, method, count, u):
    """Noisy counts at falling noise, and the noise's deviations."""
    if method == "brownian":
        walk = np.cumsum(rng.normal(size=len(u)) * np.sqrt(np.diff(u, prepend=0)))
        return count + walk / u, 1 / np.sqrt(u)
    if method == "fresh":  # a fault: no noise reduction
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


def session(rng, counts, method, prices, selection, alpha, smallest, levels, marks, unpaid=False):
    """One session, a count at a time; with `unpaid` only the last try of doubling is paid for.

    Returns the numbers of counts returned, precise and attempted, what was spent, and the counts
    returned by each share of the budget.
    """
    upper, lower = bounds(alpha)
    left, spent, attempted, precise, paid_at = list(counts), 0.0, 0, 0, []
    while left and spent + prices.selection + prices.level(smallest) <= prices.budget:
        count = left.pop(int(np.argmax(np.array(left) + rng.gumbel(size=len(left)) / selection)))
        spent += prices.selection
        attempted += 1
        if method == "doubling":
            u, accepted, paid = smallest, False, 0.0
            while not accepted and spent + prices.level(u) <= prices.budget:
                paid = prices.level(u)
                spent += 0.0 if unpaid else paid
                release = count + rng.normal() / np.sqrt(u)
                accepted = release * np.sqrt(u) >= upper or release * np.sqrt(u) < -lower
                u *= 2
            spent += paid if unpaid else 0.0
        else:
            u = np.linspace(smallest, prices.largest(prices.budget - spent), levels)
            noisy, deviation = _noisy(rng, method, count, u)
            hits = np.flatnonzero((noisy >= upper * deviation) | (noisy < -lower * deviation))
            accepted = len(hits) > 0
            at = hits[0] if accepted else levels - 1
            spent += prices.level(u[at])
            release = noisy[at]
        if accepted:
            precise += abs(release - count) <= alpha * count
            paid_at.append(spent)
    by = [np.sum(np.array(paid_at) <= prices.budget * j / marks) for j in range(1, marks)]
    return len(paid_at), precise, attempted, spent, *by, len(paid_at)
