"""Rényi certificates against mpmath, and against rounds that attack them."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nrjax.composition import certificates
from tests.composition import exact
from tests.composition.discrete import backwards, payoff, probability

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

DTYPE = np.dtype(jnp.result_type(float))
EPS, TINY = float(np.finfo(DTYPE).eps), float(np.finfo(DTYPE).tiny)
SINGLE = EPS > 1e-10
NUMBERS, BUDGETS = 100, 2000

CASES = {
    "laplace_reduction": exact.rdp_of_reduction,
    "pure": exact.rdp_of_pure,
    "laplace_mechanism": exact.rdp_of_laplace,
}
OTHERS = {"capped": exact.rdp_of_capped, "discrete_laplace_reduction": exact.rdp_of_discrete}
"""The certificates of three arguments."""
COMPUTED = {name: jax.jit(getattr(certificates, name)) for name in (*CASES, *OTHERS)}
INVERSES = {
    name + "_inverse": jax.jit(getattr(certificates, name + "_inverse"))
    for name in ("laplace_reduction", "discrete_laplace_reduction")
}
reduction, pure, _, capped, discrete = COMPUTED.values()


@pytest.fixture(scope="module")
def drawn():
    """Return orders and epsilons, and their certificates in JAX and to many digits.

    `x = 2 l e` goes from 1e-30 to 80 and past the ends of the formulas.
    """
    rng = np.random.default_rng(0)
    order = (1 + 10 ** rng.uniform(-3, 2, NUMBERS)).astype(DTYPE)
    x = 10 ** np.append(rng.uniform(-30, 0, NUMBERS // 3), rng.uniform(0, 1.9, NUMBERS))[:NUMBERS]
    x[:6] = 19.999, 20.001, 39.999, 40.001, 1e-30, 80.0
    epsilon = (x / (2 * (order.astype(float) - 1))).astype(DTYPE)
    cap = epsilon * np.exp(rng.exponential(1.0, NUMBERS) * (np.arange(NUMBERS) % 5 > 0))
    size = rng.integers(1, 9, NUMBERS).astype(DTYPE)
    arguments = dict.fromkeys(CASES, (order, epsilon))
    arguments["capped"] = order, epsilon, cap.astype(DTYPE)
    arguments["discrete_laplace_reduction"] = order, size, size / epsilon
    stated = {name: np.asarray(COMPUTED[name](*arguments[name])) for name in arguments}
    true = {}
    with mpmath.workdps(150):  # the differences lose 60 of these
        for name, formula in (CASES | OTHERS).items():
            points = zip(*arguments[name], strict=True)
            true[name] = [formula(*(mpmath.mpf(float(x)) for x in point)) for point in points]
    return order, epsilon, stated, true


def excesses(stated, true):
    """Return the relative excess of stated numbers, NaN where the dtype has not the true one."""
    within = [10 * TINY < number < np.finfo(DTYPE).max for number in true]
    assert np.mean(within) > 0.6
    pairs = zip(stated.astype(float), true, within, strict=True)
    return np.array([float(s / number - 1) if ok else np.nan for s, number, ok in pairs])


@pytest.mark.parametrize("name", COMPUTED)
def test_rounded_up_by_little(drawn, name):
    order, epsilon, stated, true = drawn
    stated, true = stated[name], true[name]
    excess = excesses(stated, true)
    low, middle, high = np.nanquantile(excess, [0, 0.5, 1]) / EPS
    print(f"{name}: excess {low:.1f} ... {middle:.1f} ... {high:.1f} machine epsilons")
    assert low > 2  # left for the casts of the arguments
    # The order may have been rounded, which counts 1/l times, and in the exponent.
    x = 2 * (order.astype(float) - 1) * epsilon
    casts = 8 * x * (1 + order / (order.astype(float) - 1))
    allowed = 200 if name == "capped" else (50 if name in CASES else 150) + casts
    lost = 16 * TINY  # of subnormal terms
    assert not np.any(excesses(stated.astype(float) - lost, true) > allowed * EPS)
    assert middle < (160 if name in CASES else 200)
    small = [i for i, number in enumerate(true) if number < TINY]
    assert np.all((stated[small] >= TINY) & (stated[small] <= TINY + lost))
    # Planted fault: a result that is too small by 64 machine epsilons.
    assert np.nanmin(excesses(stated.astype(float) * (1 - 64 * EPS), true)) < 0


def test_exact_by_its_integral():
    """The closed form, the integral and the series are equal."""
    with mpmath.workdps(30):
        for order, epsilon in ((2, 0.7), (4, 1.1), (1.5, 3.0), (10, 0.05)):
            twice = 2 * (mpmath.mpf(order) - 1)
            inner = mpmath.quad(lambda u, k=twice: mpmath.expm1(k * u) / (k * u) - 1, [0, epsilon])
            x = twice * epsilon
            series = mpmath.nsum(lambda k, x=x: x**k / (k * mpmath.factorial(k)), [2, mpmath.inf])
            closed = exact.rdp_of_reduction(mpmath.mpf(order), mpmath.mpf(epsilon))
            assert abs(2 * order / twice * inner / closed - 1) < 1e-20
            assert abs(2 * order / twice**2 * series / closed - 1) < 1e-20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_series_and_asymptotic_form_from_the_switch_on(dtype):
    """The factor makes the asymptotic form an upper bound of Ei, and is hardly too large."""
    precision = certificates._PRECISIONS[np.dtype(dtype)]
    terms, last = precision.asymptotic, precision.last
    with mpmath.workdps(60):
        x = mpmath.mpf(precision.switch)
        partial = sum(mpmath.factorial(k) / x**k for k in range(terms))
        rest = mpmath.ei(x) * x * mpmath.exp(-x) - partial
        needed = rest * x**terms / mpmath.factorial(terms)
        assert needed <= last < 1.01 * needed
        assert last * (1 - (terms + 1) / x) >= 1
        # The terms left out of the series are below a quarter of a machine epsilon.
        series = [x ** (k - 2) / (k * mpmath.factorial(k)) for k in range(2, 3 * precision.terms)]
        left_out = sum(series[precision.terms + 1 :])
        assert left_out < float(np.finfo(dtype).eps) / 4 * sum(series)


@pytest.mark.parametrize("name", [*CASES, *INVERSES])
def test_extreme_and_unusable_arguments(name):
    inverse, integers = name in INVERSES, name.startswith("discrete")
    least, nan, inf = np.nextafter(DTYPE.type(0), DTYPE.type(1)), np.nan, np.inf
    epsilon = [-1.0, nan, -inf, 0.5, 0.5, 0.5, 0.5, 0.0, inf, 4 * TINY, least, 80.0, 1e4, 1e30]
    order = [2.0, 2.0, 2.0, 1.0, 0.5, nan, inf, 2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0]
    # Shapes of other tests, which are compiled already.
    size = BUDGETS if inverse else NUMBERS
    columns = [np.resize(column, size).astype(DTYPE) for column in (order, epsilon, [100.0])]
    value = np.asarray((INVERSES if inverse else COMPUTED)[name](*columns[: 2 + integers]))
    assert value.dtype == DTYPE
    value, huge = value[:11], value[11:14]
    assert np.isnan(value[:7]).all()
    assert value[7] == 0
    assert value[8] == inf
    assert 0 < value[9] < 1e-15 or integers
    assert value[10] in (0, TINY)
    assert np.all(huge > 1)
    if name == "laplace_reduction":
        assert np.isinf(huge[1:]).all()
        assert np.isinf(huge[0]) == SINGLE
    if name in ("pure", "laplace_mechanism"):
        np.testing.assert_allclose(huge[1:], [1e4, 1e30], rtol=1e-3)


@pytest.mark.parametrize("integers", [False, True])
def test_inverse_fits_and_uses_the_budget(integers):
    rng = np.random.default_rng(1)
    order = (1 + 10 ** rng.uniform(-3, 2, BUDGETS)).astype(DTYPE)
    budget = (10 ** rng.uniform(-12 if integers else -30, 4, BUDGETS)).astype(DTYPE)
    size = rng.integers(1, 9, BUDGETS).astype(DTYPE)

    def cost(epsilon):
        stated = discrete(order, size, size / epsilon) if integers else reduction(order, epsilon)
        return np.asarray(stated)

    laplace, of_integers = INVERSES.values()
    epsilon = np.asarray(of_integers(order, budget, size) if integers else laplace(order, budget))
    lost = 1 - cost(epsilon).astype(float) / budget
    print(f"budget left: {np.median(lost) / EPS:.0f}, at most {lost.max() / EPS:.0f} epsilons")
    assert np.all(cost(epsilon) <= budget)
    assert lost.max() < (500 if integers else 300) * EPS
    # Planted fault: a little more, or as much as Laplace's certificate allows, does not fit.
    assert np.mean(cost(epsilon * (1 + (100 if integers else 64) * EPS)) > budget) > 0.3
    if integers:
        assert np.mean(cost(laplace(order, budget)) > budget * (1 + 1e-3)) > 0.2


def drift(y, order, epsilon):
    """Return D(y) of statement 31 of `docs/proofs`, as an integral and in closed form."""
    excess = order - 1

    def loss(w):
        return abs(w + epsilon) - abs(w)

    def jump(w):
        weight = mpmath.exp(-(abs(w) + abs(y - w) - abs(y)))
        return weight * mpmath.expm1(excess * (loss(w) - loss(y)))

    kinks = sorted({-epsilon, mpmath.mpf(0), y})
    ends = [kinks[0] - 40, kinks[0] - 4, *kinks, kinks[-1] + 4, kinks[-1] + 40]
    integral = excess * loss(y) + mpmath.quad(jump, ends)
    late = excess / (2 * order)
    early = order / (2 * excess)
    if y <= -epsilon:
        closed = order * (mpmath.expm1(2 * excess * epsilon) / (2 * excess) - epsilon)
    elif y >= 0:
        closed = excess * epsilon + late * mpmath.expm1(-2 * order * epsilon)
    else:
        a = y + epsilon
        closed = excess * (2 * a - epsilon) + late * mpmath.expm1(-2 * order * a)
        closed += early * mpmath.expm1(2 * excess * (epsilon - a)) - (epsilon - a)
    return integral, closed


def test_drift_of_the_proof_is_at_most_that_of_the_certificate():
    with mpmath.workdps(20):
        for order, epsilon in ((1.3, 2), (4, 0.1)):
            order, epsilon = mpmath.mpf(order), mpmath.mpf(epsilon)
            slope = mpmath.diff(lambda e, order=order: exact.rdp_of_reduction(order, e), epsilon)
            taken = (order - 1) * epsilon * slope
            for share in (-2.5, -1, -0.8, -0.3, -0.01, 0, 0.4, 3):
                integral, closed = drift(share * epsilon, order, epsilon)
                assert abs(integral - closed) < 1e-10
                assert closed <= taken * (1 + mpmath.mpf(10) ** -10)
            assert abs(drift(-2 * epsilon, order, epsilon)[1] / taken - 1) < 1e-10


def test_capped_out_of_range():
    orders, epsilons = np.array([1.0, 2.0, 2.0, np.nan, 2.0]), np.array([0.1, -0.1, 0.3, 0.1, 0.0])
    np.testing.assert_array_equal(capped(orders, epsilons, 0.2), [np.nan] * 4 + [0])


@pytest.mark.parametrize(
    ("order", "epsilon", "published"),
    [
        (4.0, 0.1, (0.01960, 0.02336, 0.02804, 0.04885)),
        (4.0, 0.3, (0.15372, 0.18596, 0.21200, 0.26473)),
        (5.0, 0.1, (0.02419, 0.02940, 0.03549, 0.05848)),
    ],
)
def test_published(order, epsilon, published):
    """The table of `docs/proofs/certificates.md`: caps of 1, 1.5, 2 and 4 times epsilon."""
    stated = capped(order, epsilon, epsilon * np.array([1, 1.5, 2, 4]))
    np.testing.assert_allclose(stated, published, atol=6e-6)


def worst_round(charge, order, cap, seed):
    """Return the largest `E exp(l (L - C))` of random rounds with `|L| <= e(o) <= cap`."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(400):
        loss = np.sort(rng.choice([-1, 1], 3) * cap * rng.choice([1, rng.random()], 3))
        if loss[0] >= 0 or loss[-1] <= 0:
            continue
        # A mixture of pairs of opposite losses has sum p = sum p exp(-L) = 1.
        pairs = [(i, j) for i in range(3) for j in range(3) if loss[i] < 0 < loss[j]]
        p = np.zeros(3)
        for share, (i, j) in zip(rng.dirichlet(np.ones(len(pairs))), pairs, strict=True):
            up = np.expm1(-loss[i]) / (np.expm1(-loss[i]) - np.expm1(-loss[j]))
            p += share * (up * (np.arange(3) == j) + (1 - up) * (np.arange(3) == i))
        assert np.sum(p * np.exp(-loss)) == pytest.approx(1)
        # The epsilon of an outcome is the size of its loss.
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


def best_stop(charges, order, shift, times):
    """Return the largest `E exp(l (L - C))` of a stopping rule of discrete noise reduction."""
    ends = [payoff(order, shift, *end, Z) for end in zip(times, charges, strict=True)]
    value = ends.pop()
    for t, s in zip(times[-2::-1], times[:0:-1], strict=True):
        value = np.maximum(ends.pop(), backwards(t, s, Z) @ value)
    return float(probability(times[0], Z) @ value)


@pytest.mark.parametrize("order", [2.0, 4.0])
def test_certificate_of_discrete_noise_reduction(order):
    times = np.geomspace(20, 1, 120)
    sound = best_stop(np.asarray(discrete(order, 1, times), float), order, 1, times)
    assert 0.9 < sound <= 1
    # Laplace's certificate is false for integers.
    assert best_stop(np.asarray(reduction(order, 1 / times), float), order, 1, times) > 1.004
