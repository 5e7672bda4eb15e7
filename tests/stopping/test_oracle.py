"""The exact laws against closed forms, a double integral, and finer panels."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from tests.stopping.oracle import stopping_law, survival

both_noises = pytest.mark.parametrize("noise", ["laplace", "exponential"])


def density(x, scale, noise):
    if noise == "exponential":
        return np.exp(-x / scale) / scale if x > 0 else 0.0
    return np.exp(-abs(x) / scale) / (2 * scale)


def integral(function, *marks):
    pieces = pairwise([-120.0, *np.unique([0.0, *marks]), 120.0])
    return sum(quad(function, low, high, epsrel=1e-10, epsabs=0)[0] for low, high in pieces)


@both_noises
def test_the_classical_law_by_another_quadrature(noise):
    gaps, epsilon, sensitivity = np.array([1.0, -2.0, 0.5, 3.0]), 0.8, 1.5
    thresholds = np.array([0.0, 1.0, -1.0, 2.0])
    stop, none = stopping_law(gaps + thresholds, epsilon, sensitivity, thresholds, noise=noise)
    scale = 2 * sensitivity / epsilon

    def yes(z, n):
        return survival((z - gaps[n]) / (2 * scale), noise)

    def noes(z, count):
        return density(z, scale, noise) * np.prod([1 - yes(z, n) for n in range(count)])

    for n in range(4):
        yes_at_n = integral(lambda z, n=n: noes(z, n) * yes(z, n), *gaps)
        noes_alone = integral(lambda z, n=n: noes(z, n + 1), *gaps)
        np.testing.assert_allclose([stop[n], none[n]], [yes_at_n, noes_alone], rtol=1e-9)


@both_noises
def test_the_reduced_law_of_two_queries_by_the_reverse_kernel(noise):
    """Integrate from the first noise to the second (the oracle goes the other way)."""
    gaps, epsilons = np.array([1.0, -0.7]), np.array([0.5, 0.8])
    t, s = 2 / epsilons
    ratio, near, far = s / t, 1 / s - 1 / t, 1 / s + 1 / t

    def answer_yes(w):
        return survival((w - gaps[1]) / (2 * s), noise)

    def after(z):
        """Return P(positive second answer | first noise z) by the kernel of the process."""
        a, sign = abs(z), np.sign(z)
        if noise == "exponential":
            inside = integral(lambda w: near * np.exp(-near * w) * answer_yes(w) * (0 < w < a), a)
            return np.exp(-near * a) * answer_yes(a) + inside
        stay = ratio * np.exp(-near * a) * answer_yes(z)

        def moving(w):  # in the direction of z
            if w < 0:
                weight = (1 - ratio) / 2 * far * np.exp(far * w)
            elif w < a:
                weight = (1 + ratio) / 2 * near * np.exp(-near * w)
            else:
                weight = (1 - ratio) / 2 * np.exp(-near * a) * far * np.exp(-far * (w - a))
            return weight * answer_yes(sign * w)

        return stay + integral(moving, a, sign * gaps[1])

    def no_then_yes(z):
        first = density(z, t, noise)
        return first and first * (1 - survival((z - gaps[0]) / (2 * t), noise)) * after(z)

    stop, none = stopping_law(gaps, epsilons, noise=noise)
    np.testing.assert_allclose(stop[1], integral(no_then_yes, *gaps), rtol=1e-7)
    np.testing.assert_allclose(none[0] - none[1], stop[1], rtol=1e-12)


@pytest.mark.long
@both_noises
@pytest.mark.parametrize("epsilons", [0.6, np.geomspace(0.2, 2.0, 8)])
def test_finer_panels_and_longer_tails_change_nothing(epsilons, noise):
    utilities = np.random.default_rng(0).normal(0, 8.0, (3, 8))
    coarse, fine = (stopping_law(utilities, epsilons, noise=noise, fine=f) for f in (1, 2))
    for one, other in zip(coarse, fine, strict=True):
        assert one.min() > 0
        np.testing.assert_allclose(one, other, rtol=1e-11)
    total = coarse[0].sum(axis=1) + coarse[1][:, -1]
    np.testing.assert_allclose(total, 1, rtol=1e-12)
