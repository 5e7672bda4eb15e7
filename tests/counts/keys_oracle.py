"""The exact hockey-stick divergence of counts of unknown keys, on a few noise levels.

One key is held by both neighbours, with counts c and c - 1, and `lonely` keys by one user of one
neighbour. A trial stops when the common key is shown. With noise at rising times, the increments
are independent, so that the paths that were below the curve so far follow from a recursion which
shares nothing with the engine's reverse kernels.
"""

import numpy as np
from scipy import stats

_POINT, _WEIGHT = np.polynomial.legendre.leggauss(12)


def nodes(low, high, scale):
    """Return Gauss-Legendre nodes and weights on panels of length at most `scale`."""
    if high <= low:
        return np.zeros(0), np.zeros(0)
    edges = np.linspace(low, high, 2 + int((high - low) / scale))
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + _POINT)).ravel(), (half * _WEIGHT).ravel()


class Levels:
    """The noise of one key at falling times, below `heights - count` so far or not."""

    def __init__(self, kind, times, heights):
        self.kind, self.times, self.heights = kind, np.asarray(times, float), np.asarray(heights)
        self.alone = [self.hidden(i, 1) for i in range(len(self.times))]

    def noise(self, i):
        if self.kind == "laplace":
            return stats.laplace(scale=self.times[i])
        return stats.norm(scale=np.sqrt(self.times[i]))

    def unit(self, i):
        return self.times[i] if self.kind == "laplace" else np.sqrt(self.times[i])

    def reach(self, i):
        return self.unit(i) * (20 if self.kind == "laplace" else 8)

    def below(self, i, y, count):
        """Return P(count + noise <= height at all levels before i | noise y at level i)."""
        if i == 0:
            return np.ones_like(y)
        end, scale = self.heights[i - 1] - count, self.times[i - 1]
        if self.kind == "laplace":
            ratio = (self.times[i] / scale) ** 2  # probability that the noise is the same
            stay = ratio * (y <= end) * self.below(i - 1, y, count)
            jump = lambda x: (1 - ratio) * stats.laplace(scale=scale).pdf(x)  # noqa: E731
        else:
            deviation = np.sqrt(scale - self.times[i])
            stay, jump, scale = 0.0, stats.norm(scale=deviation).pdf, deviation
        x, w = nodes(-self.reach(i - 1), end, scale)
        return stay + jump(x[None] - y[:, None]) @ (w * self.below(i - 1, x, count))

    def hidden(self, i, count):
        """Return the probability that a key is not shown at levels 0 to i."""
        x, w = nodes(-self.reach(i), self.heights[i] - count, self.unit(i))
        return float(w @ (self.noise(i).pdf(x) * self.below(i, x, count)))

    def divergences(self, epsilons, count, lonely):
        """Return the divergences of x (count, lonely keys) from x' (count - 1), and of x' from x.

        Both are `sup_S P(S) - int_S exp(epsilon(T)) dQ` for the transcript up to the stop time T.
        """
        forth, back, seen = 0.0, 0.0, 0.0
        last = len(self.times) - 1
        for i, epsilon in enumerate(epsilons):
            alone = self.alone[i] ** lonely
            s, w = nodes(self.heights[i], count + self.reach(i), self.unit(i))
            p, q = (self.noise(i).pdf(s - c) * self.below(i, s - c, c) for c in (count, count - 1))
            p, grown = alone * p, np.exp(epsilon)
            forth += w @ np.maximum(p - grown * q, 0)
            back += w @ np.maximum(q - grown * p, 0)
            seen += w @ p
            if i == last:  # the trial ends with nothing shown
                p, q = alone * self.hidden(i, count), self.hidden(i, count - 1)
                forth, back = forth + max(p - grown * q, 0), back + max(q - grown * p, 0)
                seen += p
        return forth + 1 - seen, back
