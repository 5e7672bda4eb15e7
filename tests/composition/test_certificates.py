"""Renyi certificates against mpmath: never below, hardly above, at every size of argument."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nrjax.composition import certificates
from tests.composition import exact

pytestmark = pytest.mark.numerical

DTYPE = np.dtype(jnp.result_type(float))
EPS = float(np.finfo(DTYPE).eps)
SINGLE = EPS > 1e-10
NUMBERS = 100


CASES = {
    "laplace_reduction": exact.rdp_of_reduction,
    "pure": exact.rdp_of_pure,
    "laplace_mechanism": exact.rdp_of_laplace,
}
COMPUTED = {name: jax.jit(getattr(certificates, name)) for name in CASES}
reduction, inverse = COMPUTED["laplace_reduction"], jax.jit(certificates.laplace_reduction_inverse)


@pytest.fixture(scope="module")
def drawn():
    """Orders and epsilons, `x = 2 l e` from 1e-30 to 80 and past the ends of the formulas.

    With the certificates in JAX and to 50 digits.
    """
    rng = np.random.default_rng(0)
    order = (1 + 10 ** rng.uniform(-3, 2, NUMBERS)).astype(DTYPE)
    x = 10 ** np.append(rng.uniform(-30, 0, NUMBERS // 3), rng.uniform(0, 1.9, NUMBERS))[:NUMBERS]
    x[:6] = 19.999, 20.001, 39.999, 40.001, 1e-30, 80.0
    epsilon = (x / (2 * (order.astype(float) - 1))).astype(DTYPE)
    with mpmath.workdps(120):  # the differences lose 60 of these
        pairs = [[mpmath.mpf(float(x)) for x in pair] for pair in zip(order, epsilon, strict=True)]
        right = {name: [formula(*pair) for pair in pairs] for name, formula in CASES.items()}
    stated = {name: np.asarray(compute(order, epsilon)) for name, compute in COMPUTED.items()}
    return order, epsilon, stated, right


def excesses(stated, right):
    """Relative excess of what is stated; NaN where the exact number is not within the dtype."""
    limits = np.finfo(DTYPE)
    within = [10 * limits.tiny < number < limits.max for number in right]
    assert np.mean(within) > 0.6
    pairs = zip(stated.astype(float), right, within, strict=True)
    return np.array([float(s / number - 1) if ok else np.nan for s, number, ok in pairs])


@pytest.mark.parametrize("name", CASES)
def test_rounded_up_by_little(drawn, name):
    order, epsilon, stated, right = drawn
    excess = excesses(stated[name], right[name])
    low, middle, high = np.nanquantile(excess, [0, 0.5, 1]) / EPS
    print(f"{name}: excess {low:.1f} ... {middle:.1f} ... {high:.1f} machine epsilons")
    assert low > 2  # left for the casts of the arguments
    # The order may have been rounded, which counts 1/l times and again in the exponent.
    x = 2 * (order.astype(float) - 1) * epsilon
    allowed = 50 + 8 * x * (1 + order / (order.astype(float) - 1))
    assert not np.any(excess > allowed * EPS)
    assert middle < 160
    small = [i for i, number in enumerate(right[name]) if number < np.finfo(DTYPE).tiny]
    assert np.all(stated[name][small] == np.finfo(DTYPE).tiny)
    # Planted: a result that is short by its last 64 machine epsilons is below somewhere.
    assert np.nanmin(excesses(stated[name].astype(float) * (1 - 64 * EPS), right[name])) < 0


def test_exact_by_its_integral():
    """The closed form is the integral it is said to be, and its series too."""
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
    """At the switch above Ei, and from there rising faster; no larger a factor than needed."""
    precision = certificates._PRECISIONS[np.dtype(dtype)]
    terms, last = precision.asymptotic, precision.last
    with mpmath.workdps(60):
        x = mpmath.mpf(precision.switch)
        partial = sum(mpmath.factorial(k) / x**k for k in range(terms))
        rest = mpmath.ei(x) * x * mpmath.exp(-x) - partial
        needed = rest * x**terms / mpmath.factorial(terms)
        assert needed <= last < 1.01 * needed
        assert last * (1 - (terms + 1) / x) >= 1
        # And the series leaves out what is below a quarter of a machine epsilon of it.
        series = [x ** (k - 2) / (k * mpmath.factorial(k)) for k in range(2, 3 * precision.terms)]
        left_out = sum(series[precision.terms + 1 :])
        assert left_out < float(np.finfo(dtype).eps) / 4 * sum(series)


@pytest.mark.parametrize("name", CASES)
def test_rises_in_both_arguments(name):
    order = np.linspace(1.01, 12, 40).astype(DTYPE)
    epsilon = np.geomspace(1e-12, 3, 400).astype(DTYPE)
    value = np.asarray(COMPUTED[name](order[:, None], epsilon))
    assert np.all(np.diff(value, axis=1) > 0)
    # Rounding may show where the order hardly matters, at most by some machine epsilons.
    assert np.all(np.diff(value, axis=0) >= -16 * EPS * value[1:])
    assert np.all(value > 0)


def test_is_between_its_bounds(drawn):
    """`A e^2/2 <= C` for noise reduction; a pure mechanism costs at most `A e^2/2`, and e.

    And C(e) = e at 0.70, 0.31, 0.20 and 0.116 for the orders 2, 4, 6 and 10.
    """
    order, epsilon, stated, _ = drawn
    gauss = order.astype(float) * epsilon.astype(float) ** 2 / 2
    shown = gauss > 10 * np.finfo(DTYPE).tiny
    value = {name: column.astype(float)[shown] for name, column in stated.items()}
    assert np.all(value["laplace_reduction"] >= gauss[shown])
    assert np.all(value["pure"] <= np.minimum(gauss, epsilon)[shown] * (1 + 60 * EPS))
    assert np.all(value["laplace_mechanism"] <= value["pure"] * (1 + 60 * EPS))
    for order, crossing in ((2, 0.70), (4, 0.31), (6, 0.20), (10, 0.116)):
        low, high = reduction(order, crossing * np.array([0.97, 1.03]))
        assert low < 0.97 * crossing
        assert high > 1.03 * crossing


@pytest.mark.parametrize("name", [*CASES, "laplace_reduction_inverse"])
def test_extreme_and_unusable_arguments(name):
    function = jax.jit(getattr(certificates, name))
    tiny = np.finfo(DTYPE).tiny
    nan, inf = np.nan, np.inf
    epsilon = np.array([-1.0, nan, -inf, 0.5, 0.5, 0.5, 0.5, 0.0, inf, 4 * tiny], DTYPE)
    order = np.array([2.0, 2.0, 2.0, 1.0, 0.5, nan, inf, 2.0, 2.0, 2.0], DTYPE)
    value = np.asarray(function(order, epsilon))
    assert value.dtype == DTYPE
    assert np.isnan(value[:7]).all()
    assert value[7] == 0
    assert value[8] == inf
    assert 0 < value[9] < 1e-15
    huge = np.asarray(function(DTYPE.type(5.0), np.array([80.0, 1e4, 1e30], DTYPE)))
    assert np.all(huge > 1)
    if name == "laplace_reduction":
        assert np.isinf(huge[1:]).all()
        assert np.isinf(huge[0]) == SINGLE
    if name in ("pure", "laplace_mechanism"):
        np.testing.assert_allclose(huge[1:], [1e4, 1e30], rtol=1e-3)
    if name != "laplace_reduction_inverse":
        subnormal = np.nextafter(DTYPE.type(0), DTYPE.type(1))
        assert function(DTYPE.type(2.0), subnormal) == tiny


def test_inverse_fits_and_uses_the_budget():
    rng = np.random.default_rng(1)
    order = (1 + 10 ** rng.uniform(-3, 2, 4000)).astype(DTYPE)
    budget = (10 ** rng.uniform(-30, 4, 4000)).astype(DTYPE)
    epsilon = inverse(order, budget)
    cost = np.asarray(reduction(order, epsilon))
    lost = 1 - cost.astype(float) / budget
    print(
        f"budget left: {np.median(lost) / EPS:.0f}, at most {lost.max() / EPS:.0f} machine epsilons"
    )
    assert np.all(cost <= budget)
    assert lost.max() < 300 * EPS
    # Planted: without its check it would overspend.
    assert np.any(np.asarray(reduction(order, epsilon * (1 + 64 * EPS))) > budget)


def test_arguments_cast_down_still_count_in_full():
    """Python numbers that lose their last digits on the way are not undercharged."""
    rng = np.random.default_rng(2)
    for order, epsilon in zip(1.5 + 8 * rng.random(8), 2 * rng.random(8), strict=True):
        for name, formula in CASES.items():
            value = float(COMPUTED[name](float(order), float(epsilon)))
            assert value >= formula(mpmath.mpf(float(order)), mpmath.mpf(float(epsilon)))


def drift(y, order, epsilon):
    """D(y) of the proof (`docs/composition.md`): the integral, and what it is said to be."""
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


def test_drift_of_the_proof_is_at_most_what_the_certificate_takes():
    with mpmath.workdps(20):
        for order, epsilon in ((1.3, 2), (2, 0.7), (4, 0.1), (4, 1)):
            order, epsilon = mpmath.mpf(order), mpmath.mpf(epsilon)
            slope = mpmath.diff(lambda e, order=order: exact.rdp_of_reduction(order, e), epsilon)
            taken = (order - 1) * epsilon * slope
            for share in (-2.5, -1, -0.8, -0.3, -0.01, 0, 0.4, 3):
                integral, closed = drift(share * epsilon, order, epsilon)
                assert abs(integral - closed) < 1e-10
                assert closed <= taken * (1 + mpmath.mpf(10) ** -10)
            assert abs(drift(-2 * epsilon, order, epsilon)[1] / taken - 1) < 1e-10
