"""What each kind of request costs under each filter, against 40 digits; and the tuned order."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax.composition import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    ExPost,
    ExPostFilter,
    GaussianFilter,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
    RenyiFilter,
    UnifiedFilter,
    ZCDPFilter,
    gaussian,
)
from nrjax.composition.conversions import rdp_for
from tests.composition import exact

pytestmark = pytest.mark.numerical

N = 120
ORDER = 3.75
FILTERS = {
    "unified": UnifiedFilter(10.0, 1e-6),
    "gaussian": GaussianFilter(10.0, 1e-6),
    "renyi": RenyiFilter(ORDER, 10.0, 1e-6),
    "ex-post": ExPostFilter(10.0, 1e-6),
}
NUMBERS = np.random.default_rng(8)


def numbers(dtype):
    """Sizes over many decades, sensitivities and times, as the dtype has them."""
    x = 10 ** NUMBERS.uniform(-9, 1, N)
    sensitivity = 10 ** NUMBERS.uniform(-5, 5, N)
    return tuple(a.astype(dtype) for a in (x, sensitivity, sensitivity / x))


def requests(x, sensitivity, time):
    return {
        ZCDP: ZCDP(x),
        GDP: GDP(x),
        BoundedRange: BoundedRange(x),
        Pure: Pure(x),
        ExPost: ExPost(x),
        LaplaceMechanism: LaplaceMechanism(sensitivity, time),
        BrownianReduction: BrownianReduction(sensitivity, time),
        LaplaceReduction: LaplaceReduction(sensitivity, time),
    }


def tanh_half(e):
    return e * mp.tanh(e / 2)


def kappa(e):
    return e + mp.expm1(-e)


def mu_of_laplace(e):
    """`2 Phi^-1(1 - exp(-e/2)/2)`."""
    if e < 1:
        return 2 * mp.sqrt(2) * mp.erfinv(-mp.expm1(-e / 2))
    target = -e / 2 - mp.log(2)
    return 2 * mp.findroot(lambda z: mp.log(exact.phi(-z)) - target, mp.sqrt(e))


# Of a size x, a ratio r = sensitivity/time, and sensitivity^2/time.
TRUE = {
    "unified": {
        ZCDP: lambda x, r, q: x,
        GDP: lambda x, r, q: x * x / 2,
        BoundedRange: lambda x, r, q: x * x / 8,
        Pure: lambda x, r, q: tanh_half(x),
        LaplaceMechanism: lambda x, r, q: kappa(r),
        BrownianReduction: lambda x, r, q: q / 2,
    },
    "gaussian": {
        GDP: lambda x, r, q: x * x,
        BoundedRange: lambda x, r, q: exact.mu_of_odds(x / 2) ** 2,
        Pure: lambda x, r, q: exact.mu_of_odds(x) ** 2,
        LaplaceMechanism: lambda x, r, q: mu_of_laplace(r) ** 2,
        BrownianReduction: lambda x, r, q: q,
    },
    "renyi": {
        ZCDP: lambda x, r, q: ORDER * x,
        GDP: lambda x, r, q: ORDER * x * x / 2,
        BoundedRange: lambda x, r, q: ORDER * x * x / 8,
        Pure: lambda x, r, q: exact.rdp_of_pure(ORDER, x),
        LaplaceMechanism: lambda x, r, q: exact.rdp_of_laplace(ORDER, r),
        BrownianReduction: lambda x, r, q: ORDER * q / 2,
        ExPost: lambda x, r, q: x,
    },
    "ex-post": {
        ExPost: lambda x, r, q: x,
        Pure: lambda x, r, q: x,
        BoundedRange: lambda x, r, q: x,
        LaplaceMechanism: lambda x, r, q: r,
        LaplaceReduction: lambda x, r, q: r,
    },
}


@functools.cache
def costs():
    """All costs, by filter and kind, and the numbers they are for."""
    given = numbers(jnp.result_type(float))

    @jax.jit
    @jax.vmap
    def all_costs(x, sensitivity, time):
        asked = requests(x, sensitivity, time)
        # Types are no keys that JAX could sort.
        return {
            name: {kind.__name__: FILTERS[name].cost(asked[kind]) for kind in TRUE[name]}
            for name in TRUE
        }

    return given, jax.tree.map(lambda c: np.asarray(c, float), all_costs(*given))


def assert_costs(name, stated):
    given, _ = costs()
    loose = 150 if name != "renyi" else 1000  # at order - 1, 2 machine epsilons of the order
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    for kind, true in TRUE[name].items():
        for number, (x, sensitivity, time) in enumerate(zip(*given, strict=True)):
            x, sensitivity, time = (mp.mpf(float(value)) for value in (x, sensitivity, time))
            with mp.workdps(60):
                wanted = true(x, sensitivity / time, sensitivity**2 / time)
            got = stated[kind.__name__][number]
            assert wanted <= got <= wanted * (1 + loose * eps), (kind, float(x))


@pytest.mark.parametrize("name", TRUE)
def test_costs(name):
    assert_costs(name, costs()[1][name])


def test_planted_costs_to_the_nearest_are_found():
    """Smaller by what they are rounded up by: caught for each filter."""
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    for name in TRUE:
        smaller = jax.tree.map(lambda c: c * (1 - 70 * eps), costs()[1][name])
        with pytest.raises(AssertionError):
            assert_costs(name, smaller)


def test_zcdp_filter_is_the_unified_one_without_brownian_rounds():
    zcdp, unified = ZCDPFilter(1.0, 1e-6), UnifiedFilter(1.0, 1e-6)
    assert zcdp.budget == unified.budget
    for request in (ZCDP(0.01), GDP(0.1), Pure(0.2), BoundedRange(0.3), LaplaceMechanism(1.0, 9.0)):
        assert zcdp.cost(request) == unified.cost(request)


def test_laplace_mechanism():
    """Less than randomised response, for any epsilon."""
    zcdp, gaussian = FILTERS["unified"], FILTERS["gaussian"]
    for e, kappa, mu2 in ((0.1, 0.004837, 0.014964), (1, 0.36788, 1.06103), (2, 1.13534, 3.24326)):
        assert zcdp.cost(LaplaceMechanism(e, 1.0)) == pytest.approx(kappa, rel=1e-4)
        assert gaussian.cost(LaplaceMechanism(e, 1.0)) == pytest.approx(mu2, rel=1e-4)
    for filter in (zcdp, gaussian):
        assert filter.cost(LaplaceMechanism(1e4, 1.0)) >= 1e4 - 1  # refused, not NaN
        for e in (1e-3, 0.99, 1.01, 1.99, 2.01, 9.0):
            assert filter.cost(LaplaceMechanism(e, 1.0)) < filter.cost(Pure(e))


def test_exponential_mechanism_in_gaussian_units():
    """THEORY 9: `mu^2` about `0.3927 e^2`, less than `2 e^2/4 = e^2/2` as a pure mechanism."""
    filter = FILTERS["gaussian"]
    assert filter.cost(BoundedRange(0.1)) == pytest.approx(0.3927 * 0.01, rel=1e-3)
    assert filter.cost(BoundedRange(1e-4)) == pytest.approx(math.pi / 8 * 1e-8, rel=1e-5)


def test_epsilon_too_large_for_gaussian_units_is_refused():
    filter = FILTERS["gaussian"]
    for epsilon in (200.0, 1e3, 1e30):
        assert filter.cost(Pure(epsilon)) > 100
        assert not filter.admits(filter.init(), Pure(epsilon))
    values = np.asarray(gaussian.squared_mu_of_odds(jnp.linspace(0.0, 80.0, 2001)))
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("delta", [0.0, 4e-7])
def test_approximation_is_taken_from_delta(delta):
    """Approximate mechanisms are let in for a part of delta, which the conversion then lacks."""
    filter = UnifiedFilter(1.0, 1e-6, delta)
    plain = UnifiedFilter(1.0, 1e-6 - delta)
    assert filter.budget == pytest.approx(plain.budget, rel=1e-6)
    state, accepted = filter.init(), []
    for _ in range(3):
        state, ok = filter.take(state, ZCDP(1e-4, 1.5e-7))
        accepted.append(bool(ok))
    assert accepted == ([True, True, False] if delta else [False] * 3)
    assert filter.admits(state, ZCDP(1e-4, filter.remaining_delta(state)))
    assert filter.admits(state, BrownianReduction(1.0, 1e4))


def test_tuned_order():
    """THEORY 9: a hundred mechanisms stopped at 0.1 within 5.85 at delta = 1e-6, with A = 5."""
    request = LaplaceReduction(1.0, 10.0)
    filter = RenyiFilter.tuned(5.86, 1e-6, request)
    assert filter.order == pytest.approx(5.01, abs=0.02)
    rounds = filter.budget / float(filter.cost(request))
    assert 100 < rounds < 101
    for factor in (0.97, 1.03):
        other = RenyiFilter(1 + (filter.order - 1) * factor, 5.86, 1e-6)
        assert other.budget / float(other.cost(request)) < rounds
    # For Brownian rounds it is the best conversion of zCDP.
    brownian = RenyiFilter.tuned(10.0, 1e-6, BrownianReduction(1.0, 10.0))
    assert 2 * brownian.budget / brownian.order == pytest.approx(3.0786, abs=1e-4)
    mixed = RenyiFilter.tuned(1.0, 1e-6, (request, GDP(0.01)))
    assert mixed.budget == pytest.approx(rdp_for(mixed.order, 1.0, 1e-6), rel=1e-6)
    assert mixed.budget <= rdp_for(mixed.order, 1.0, 1e-6)
