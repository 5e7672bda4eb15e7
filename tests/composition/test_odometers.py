"""Odometers: their bounds, that they never understate, and what traces out of range do."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax.composition import (
    GDP,
    ZCDP,
    BrownianOdometer,
    BrownianReduction,
    ExPost,
    ExPostOdometer,
    LaplaceReduction,
    OneSidedBrownianOdometer,
    RenyiOdometer,
)
from nrjax.composition.conversions import epsilon_of_rdp

pytestmark = pytest.mark.numerical

FAMILIES = {"two": BrownianOdometer, "one": OneSidedBrownianOdometer}


def exact_bound(name, v, delta, gamma):
    """`V/2 + u(V)` to 40 digits."""
    v, delta, gamma = mp.mpf(v), mp.mpf(delta), mp.mpf(gamma)
    if name == "two":
        return v / 2 + mp.sqrt((v + gamma) * mp.log((v + gamma) / (delta**2 * gamma)))
    level = mp.log(1 / delta) + mp.log1p(v / gamma) / 2

    # By bisection: near a delta of 1 a root finder does not get there.
    low, high = mp.mpf(0), mp.sqrt(2 * level)
    for _ in range(140):
        z = (low + high) / 2
        below = z * z / 2 + mp.log(mp.erfc(-z / mp.sqrt(2))) < level
        low, high = (z, high) if below else (low, z)
    return v / 2 + low * mp.sqrt(v + gamma)


@pytest.mark.parametrize(("name", "published"), [("two", 10.67), ("one", 10.46)])
def test_brownian(name, published):
    """THEORY 6: V = 2.706, tuned there, at delta = 1e-6. As one round, as many, and as zCDP."""
    odometer = FAMILIES[name].tight_at(2.706, 1e-6)
    state = odometer.spend(odometer.init(), BrownianReduction(2.0, 4 / 2.706))
    assert odometer.bound(state) == pytest.approx(published, abs=0.005)
    many = (BrownianReduction(1.0, 10 / 2.706),) * 4 + (
        ZCDP(0.15 * 2.706),
        GDP((0.3 * 2.706) ** 0.5),
    )
    state = odometer.spend(odometer.init(), many)
    assert odometer.bound(state) == pytest.approx(published, abs=0.005)
    assert float(odometer.bound(state)) >= exact_bound(name, 2.706, 1e-6, odometer.gamma)
    # Tight where it was tuned.
    for factor in (0.9, 1.1):
        other = FAMILIES[name](1e-6, odometer.gamma * factor)
        assert exact_bound(name, 2.706, 1e-6, other.gamma) > exact_bound(
            name, 2.706, 1e-6, odometer.gamma
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_bounds_are_not_understated(name):
    """Over many decades of V, delta and gamma; and by little too high."""
    rng = np.random.default_rng(1)
    n = 60
    rho, delta = 10 ** rng.uniform(-8, 4, n), 10 ** rng.uniform(-12, -0.4, n)
    gamma = 10 ** rng.uniform(-4, 4, n)
    one = jax.jit(jax.vmap(lambda o, r: o.bound(o.spend(o.init(), ZCDP(r)))))
    odometers = FAMILIES[name](jnp.asarray(delta), jnp.asarray(gamma))
    rho = np.asarray(jnp.asarray(rho))
    bounds = np.asarray(one(odometers, rho), float)
    gamma, delta = (np.asarray(jnp.asarray(x), float) for x in (gamma, delta))
    for stated, r, d, g in zip(bounds, rho, delta, gamma, strict=True):
        true = exact_bound(name, 2 * mp.mpf(float(r)), d, g)
        assert true <= stated <= true * (1 + 1e-5)


def test_one_sided_is_smaller():
    for v in (1e-3, 0.3, 2.0, 100.0):
        two, one = (family(1e-6, 0.1) for family in FAMILIES.values())
        bounds = [odo.bound(odo.spend(odo.init(), ZCDP(v / 2))) for odo in (one, two)]
        assert bounds[0] < bounds[1]


def test_states_of_another_odometer():
    one, two = (family(1e-6, 0.1) for family in FAMILIES.values())
    with pytest.raises(ValueError, match=r"must be of OneSidedBrownianOdometer, from its init"):
        two.bound(one.init())
    low, high = RenyiOdometer(2.0, 1e-6), RenyiOdometer(3.0, 1e-6)
    state = high.spend(high.init(), ExPost(0.1))
    with pytest.raises(ValueError, match=r"must be for RenyiOdometer's own order, 2\.0"):
        low.bound(state)
    assert jax.jit(RenyiOdometer.bound)(low, state) == np.inf
    for family in FAMILIES.values():  # or the best gamma could be picked afterwards
        one, two = (family(1e-6, gamma) for gamma in (0.1, 0.5))
        state = one.spend(one.init(), ZCDP(0.1))
        assert one.bound(state) < np.inf
        with pytest.raises(ValueError, match=r"for gamma 0.1.*: must be for .*'s own gamma, 0\.5"):
            two.bound(state)
        assert jax.jit(family.bound)(two, state) == np.inf


def test_renyi(dtype):
    """THEORY 9: 100 Laplace mechanisms stopped at 0.1, delta = 1e-6: 6.46 instead of 10."""
    odometer = RenyiOdometer(5.23, 1e-6)
    spend = jax.jit(odometer.spend)
    state = odometer.init()
    for _ in range(100):
        state = spend(state, LaplaceReduction(1.0, 10.0))
    bound = odometer.bound(state)
    assert bound == pytest.approx(6.46, abs=0.005)
    total = float(state.spent.total[0]) + float(state.spent.rest[0])
    order = float(np.asarray(5.23, dtype))
    true = mp.mpf(total) + mp.log(1 / mp.mpf(1e-6)) / (mp.mpf(order) - 1)
    assert true <= float(bound) <= true * (1 + 1e-5)
    assert epsilon_of_rdp(5.23, total, 1e-6) == pytest.approx(5.86, abs=0.005)


def test_ex_post():
    odometer = ExPostOdometer()
    state = odometer.spend(odometer.init(), (ExPost(0.1, 1e-7), ExPost(0.25), ExPost(0.0, 1e-8)))
    assert 0.35 <= float(odometer.bound(state)) < 0.35 * (1 + 1e-5)
    assert 1.1e-7 <= float(odometer.delta(state)) < 1.1e-7 * (1 + 1e-5)
    assert odometer.delta(odometer.init()) == 0
