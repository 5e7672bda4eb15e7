"""The exact laws against closed forms, a direct double integral, and themselves."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from tests.stopping.oracle import stopping_law, survival


def density(x, scale):
    return np.exp(-abs(x) / scale) / (2 * scale)


def integral(function, *marks):
    pieces = pairwise([-120.0, *np.unique([0.0, *marks]), 120.0])
    return sum(quad(function, low, high, epsrel=1e-10, epsabs=0)[0] for low, high in pieces)


def test_the_classical_law_by_another_quadrature():
    gaps, epsilon, sensitivity = np.array([1.0, -2.0, 0.5, 3.0]), 0.8, 1.5
    thresholds = np.array([0.0, 1.0, -1.0, 2.0])
    stop, none = stopping_law(gaps + thresholds, epsilon, sensitivity, thresholds)
    scale = 2 * sensitivity / epsilon

    def noes(z, count):
        return density(z, scale) * np.prod(survival((gaps[:count] - z) / (2 * scale)))

    for n in range(4):
        yes = integral(lambda z, n=n: noes(z, n) * survival((z - gaps[n]) / (2 * scale)), *gaps)
        noes_alone = integral(lambda z, n=n: noes(z, n + 1), *gaps)
        np.testing.assert_allclose([stop[n], none[n]], [yes, noes_alone], rtol=1e-9)


def test_the_reduced_law_of_two_queries_by_the_reverse_kernel():
    """From the first noise to the second, as it is drawn; the oracle goes the other way."""
    gaps, epsilons = np.array([1.0, -0.7]), np.array([0.5, 0.8])
    t, s = 2 / epsilons
    ratio, near, far = s / t, 1 / s - 1 / t, 1 / s + 1 / t

    def answer_yes(w):
        return survival((w - gaps[1]) / (2 * s))

    def after(z):
        """P(yes at the second | first noise z), by the kernel of `nrjax.Laplace`."""
        a, sign = abs(z), np.sign(z)
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

    want = integral(lambda z: density(z, t) * survival((gaps[0] - z) / (2 * t)) * after(z), *gaps)
    stop, none = stopping_law(gaps, epsilons)
    np.testing.assert_allclose(stop[1], want, rtol=1e-7)
    np.testing.assert_allclose(none[0] - none[1], stop[1], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("epsilons", [0.6, np.geomspace(0.2, 2.0, 8)])
def test_finer_panels_and_longer_tails_change_nothing(epsilons):
    utilities = np.random.default_rng(0).normal(0, 8.0, (3, 8))
    coarse, fine = (stopping_law(utilities, epsilons, fine=f) for f in (1, 2))
    for one, other in zip(coarse, fine, strict=True):
        assert one.min() > 0
        np.testing.assert_allclose(one, other, rtol=1e-11)
    total = coarse[0].sum(axis=1) + coarse[1][:, -1]
    np.testing.assert_allclose(total, 1, rtol=1e-12)
