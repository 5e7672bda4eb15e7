"""Certificates of capped rounds and of discrete noise reduction, against their definition."""

import jax
import mpmath
import numpy as np
import pytest

from nrjax.composition import certificates
from nrjax.composition.certificates import (
    discrete_laplace_reduction_inverse,
    laplace_reduction_inverse,
)
from tests.composition.exact import rdp_of_discrete

pytestmark = pytest.mark.numerical

DTYPE = np.dtype(jax.dtypes.canonicalize_dtype(np.float64))
EPS = float(np.finfo(DTYPE).eps)
capped, pure = jax.jit(certificates.capped), jax.jit(certificates.pure)
discrete_laplace_reduction = jax.jit(certificates.discrete_laplace_reduction)
laplace_reduction = jax.jit(certificates.laplace_reduction)


def exact(order, epsilon, cap):
    """The formula with 150 digits."""
    with mpmath.workdps(150):
        a, e, m = (mpmath.mpf(float(x)) for x in (order, epsilon, cap))
        slope = mpmath.sinh((a - 1) * m) / (mpmath.sinh(a * m) - mpmath.sinh((a - 1) * m))
        return e - mpmath.log(1 + slope * (1 - mpmath.exp(-e))) / (a - 1)


def test_never_below_its_exact_number_and_hardly_above():
    rng = np.random.default_rng(0)
    orders = (1 + np.exp(rng.uniform(-13, 7, 600))).astype(DTYPE)
    caps = np.exp(rng.uniform(-42, 3, 600)).astype(DTYPE)
    epsilons = (caps * np.exp(-rng.exponential(1.0, 600))).astype(DTYPE)
    found = np.asarray(capped(orders, epsilons, caps))
    want = [exact(*point) for point in zip(orders, epsilons, caps, strict=True)]
    ratio = np.array([float(mpmath.mpf(float(f)) / w) for f, w in zip(found, want, strict=True)])
    assert ratio.min() >= 1
    lost = 16 * float(np.finfo(DTYPE).tiny)  # of numbers that XLA takes for 0
    assert np.all(found - lost <= np.array(want, float) * (1 + 200 * EPS))
    at_cap = np.asarray(pure(orders, caps))
    np.testing.assert_allclose(capped(orders, caps, caps), at_cap, rtol=300 * EPS, atol=lost)


@pytest.mark.parametrize(
    ("order", "epsilon", "published"),
    [
        (4.0, 0.1, (0.01960, 0.02336, 0.02804, 0.04885)),
        (4.0, 0.3, (0.15372, 0.18596, 0.21200, 0.26473)),
        (5.0, 0.1, (0.02419, 0.02940, 0.03549, 0.05848)),
    ],
)
def test_published(order, epsilon, published):
    """FRONTIER, section 8: caps of 1, 1.5, 2 and 4 times epsilon."""
    found = capped(order, epsilon, epsilon * np.array([1, 1.5, 2, 4]))
    np.testing.assert_allclose(found, published, atol=6e-6)


def worst_round(charge, order, cap, seed):
    """The largest `E exp(l (L - C))` of random rounds with `|L| <= e(o) <= cap`."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(400):
        loss = np.sort(rng.choice([-1, 1], 3) * cap * rng.choice([1, rng.random()], 3))
        if loss[0] >= 0 or loss[-1] <= 0:
            continue
        # p with sum p = sum p exp(-L) = 1: a mixture of pairs of opposite losses.
        pairs = [(i, j) for i in range(3) for j in range(3) if loss[i] < 0 < loss[j]]
        p = np.zeros(3)
        for share, (i, j) in zip(rng.dirichlet(np.ones(len(pairs))), pairs, strict=True):
            up = np.expm1(-loss[i]) / (np.expm1(-loss[i]) - np.expm1(-loss[j]))
            p += share * (up * (np.arange(3) == j) + (1 - up) * (np.arange(3) == i))
        assert np.sum(p * np.exp(-loss)) == pytest.approx(1)
        # Each outcome's epsilon is its own loss's size.
        worst = max(worst, np.sum(p * np.exp((order - 1) * (loss - charge(np.abs(loss))))))
    return worst


@pytest.mark.parametrize("order", [2.0, 4.0, 8.0])
def test_certificate_of_every_capped_round(order):
    cap = 1.0
    grid = np.linspace(0, cap, 4001)
    table = np.asarray(capped(order, grid, cap), float)
    sound = worst_round(lambda e: np.interp(e, grid, table), order, cap, seed=1)
    assert 0.99 < sound <= 1 + 1e-5
    alone = np.asarray(pure(order, grid), float)
    assert worst_round(lambda e: np.interp(e, grid, alone), order, cap, seed=1) > 1.02  # no cap
    small = np.asarray(capped(order, grid, grid + 1e-9), float)  # a cap chosen at the stop
    assert worst_round(lambda e: np.interp(e, grid, small), order, cap, seed=1) > 1.02


Z = np.arange(-160, 161)


def law(t, k):
    """Of discrete Laplace noise."""
    q = np.exp(-1 / t)
    return (1 - q) / (1 + q) * q ** np.abs(k)


def backwards(t, s, z):
    """Probabilities of the noise at s, along the last axis, given that at t."""
    stay = (np.sinh(0.5 / t) / np.sinh(0.5 / s)) ** 2
    joint = law(s, z) * (stay * np.eye(z.size) + (1 - stay) * law(t, z[:, None] - z))
    return joint / law(t, z)[:, None]


def payoff(order, shift, t, charge, z):
    """`exp(l (L - C))` where the noise is z at the stop."""
    loss = (np.abs(z + shift) - np.abs(z)) / t
    return np.exp((order - 1) * (loss - charge))


def best_stop(charge, order, shift, times):
    """The largest `E exp(l (L - C(1/t)))` of a stopping rule of discrete noise reduction."""
    value = payoff(order, shift, times[-1], charge(times[-1]), Z)
    for t, s in zip(times[-2::-1], times[:0:-1], strict=True):
        value = np.maximum(payoff(order, shift, t, charge(t), Z), backwards(t, s, Z) @ value)
    return float(law(times[0], Z) @ value)


@pytest.mark.parametrize("order", [2.0, 4.0])
def test_certificate_of_discrete_noise_reduction(order):
    times = np.geomspace(20, 1, 120)
    sound = best_stop(lambda t: float(discrete_laplace_reduction(order, 1, t)), order, 1, times)
    assert 0.9 < sound <= 1
    fault = best_stop(lambda t: float(laplace_reduction(order, 1 / t)), order, 1, times)
    assert fault > 1.004  # Laplace's certificate is false of integers


def test_discrete_certificate_and_its_inverse():
    """Never below 60 digits, hardly above; and what is left fits, nearly all of it."""
    rng = np.random.default_rng(3)
    order = (1 + 10 ** rng.uniform(-3, 2, 200)).astype(DTYPE)
    size = rng.integers(1, 9, 200).astype(DTYPE)
    y = 10 ** rng.uniform(-6, 1.8, 200)  # 2 l D1/t
    time = (2 * (order.astype(float) - 1) * size / y).astype(DTYPE)
    certificate = jax.jit(discrete_laplace_reduction)
    stated = np.asarray(certificate(order, size, time))
    with mpmath.workdps(60):
        points = zip(order, size, time, strict=True)
        exact_ones = [rdp_of_discrete(*(mpmath.mpf(float(x)) for x in one)) for one in points]
        pairs = zip(stated, exact_ones, strict=True)
        excess = np.array([float(mpmath.mpf(float(got)) / want - 1) for got, want in pairs])
    assert excess.min() > 0
    y = 2 * (order.astype(float) - 1) * size / time
    assert np.all(excess < (150 + 8 * y * (1 + order / (order.astype(float) - 1))) * EPS)

    budget = (10 ** rng.uniform(-12, 2, 200)).astype(DTYPE)
    inverse = jax.jit(discrete_laplace_reduction_inverse)
    largest = np.asarray(inverse(order, budget, size))
    cost = np.asarray(certificate(order, size, size / largest))
    assert np.all(cost <= budget)
    assert np.max(1 - cost.astype(float) / budget) < 500 * EPS
    # Planted: a little more, or what Laplace's certificate would allow, does not fit.
    over = np.asarray(certificate(order, size, size / (largest * (1 + 100 * EPS))))
    assert np.mean(over > budget) > 0.5
    laplace = np.asarray(certificate(order, size, size / laplace_reduction_inverse(order, budget)))
    assert np.mean(laplace > budget * (1 + 1e-3)) > 0.2
    assert np.array_equal(inverse(2.0, np.array([0, -1, np.inf]), 1), [0, np.nan, np.inf], True)


def test_out_of_range_is_no_number():
    for order, epsilon, cap in ((1.0, 0.1, 0.2), (2.0, -0.1, 0.2), (2.0, 0.3, 0.2)):
        assert np.isnan(capped(order, epsilon, cap))
    assert capped(2.0, 0.0, 0.2) == 0
    assert np.isnan(capped(np.nan, 0.1, 0.2))
