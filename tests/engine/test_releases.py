"""Releases in any order have the distribution of the sorted path, and cost what its last does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.engine.releases import Releases
from nrjax.processes import Brownian, DiscreteLaplace, Laplace
from tests.processes.laws import FAULTY, SOUND, gaussian, integers, laplace, path_p

pytestmark = pytest.mark.numerical

TIMES = np.array([6.0, 3.0, 1.5, 0.9])
ORDERS = ((0, 1, 2, 3), (3, 0, 1, 2), (1, 3, 0, 2), (2, 3, 1, 0), (0, 3, 2, 1))
TRIALS = 20_000


@jax.jit
def _paths(process, keys, times):
    def path(key):
        def step(releases, inputs):
            i, time = inputs
            return releases.at(jax.random.fold_in(key, i), time)

        start = Releases.of(np.zeros(2), process, capacity=4)
        return jax.lax.scan(step, start, (jnp.arange(4), times))[1]

    return jax.vmap(path)(keys)


def paths(process, order, seed):
    """Return noise (trials, times, 2) at the falling TIMES, drawn in the given order."""
    keys = jax.random.split(jax.random.key(seed), TRIALS)
    drawn = np.asarray(_paths(process, keys, jnp.asarray(TIMES[list(order)], float)), float)
    return drawn[:, np.argsort(order)]


@pytest.mark.parametrize(
    ("process", "law"),
    [
        (Brownian, gaussian),
        pytest.param(Laplace, laplace, marks=pytest.mark.long),
        pytest.param(DiscreteLaplace, integers, marks=pytest.mark.long),
    ],
)
def test_the_distribution_does_not_depend_on_the_order(process, law):
    for seed, order in enumerate(ORDERS, 2):
        assert path_p(paths(process((2,)), order, seed), TIMES, law) > SOUND, order


class WithoutLower(Laplace):
    """Fault: noise between two times is rewound from above, whatever is below."""

    def bridge(self, key, lower, upper, time):
        return self.rewind(key, upper, time)


class NeverTied(DiscreteLaplace):
    """Fault: equal values on both sides are taken for a stay, as in Laplace noise."""

    def bridge(self, key, lower, upper, time):
        drawn = super().bridge(key, lower, upper, time)
        same = lower.value == upper.value
        return drawn._replace(value=jnp.where(same, lower.value, drawn.value))


class Reversed(Brownian):
    """Fault: the variance of the reverse kernel in place of the bridge's."""

    def bridge(self, key, lower, upper, time):
        mean = super().bridge(key, lower, upper, time).value
        return self.rewind(key, upper, time)._replace(value=0.5 * mean + 0.5 * upper.value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "law"), [(WithoutLower, laplace), (NeverTied, integers), (Reversed, gaussian)]
)
def test_planted_faults_are_seen(fault, law):
    assert path_p(paths(fault((2,)), (1, 3, 0, 2), seed=3), TIMES, law) < FAULTY


def test_costs_what_the_smallest_time_does():
    guarantee = nrjax.PureGuarantee(2.0)
    releases = Releases.of(np.array([1.0, 2.0]), Laplace((2,)), guarantee, capacity=3)
    assert releases.epsilon() == 0
    keys = jax.random.split(jax.random.key(0), 5)
    releases, first = releases.at(keys[0], 4.0)
    releases, second = releases.at(keys[1], 0.5)
    releases, third = releases.at(keys[2], 2.0)
    assert releases.epsilon() == guarantee.epsilon(0.5)
    again, same = releases.at(keys[3], 4.0)  # a time that was used before
    np.testing.assert_array_equal(same, first)
    assert again.count == 3
    with pytest.raises(ValueError, match=r"time must be one of the 3 times used so far"):
        releases.at(keys[4], 1.0)
    full, nothing = jax.jit(lambda r, time: r.at(keys[4], time))(releases, 0.1)
    assert np.all(np.isnan(nothing))
    assert full.epsilon() == releases.epsilon()
    assert not np.array_equal(second, third)


def test_large_values_lose_nothing():
    """The remainder of the cast is kept, as in an interaction: neighbours stay apart."""
    if jnp.result_type(float) == jnp.float64:
        pytest.skip("float64 holds both")
    key = jax.random.key(0)
    near, far = (
        Releases.of(np.float64(v), Brownian(()), nrjax.LinearBoundary.tight_at_time(1.0, 1.0, 1e-6))
        for v in (2.0**23, 2.0**23 + 0.25)
    )
    assert near.value.rest == 0
    assert far.value.rest == 0.25
    assert near.at(key, 9.0)[1].dtype == jnp.float32


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"value": [1.0]}, r"shape of value must be \(2,\)"),
        ({"value": [1.0, np.nan]}, r"value must be finite"),
        ({"process": nrjax.Skellam((2,), 1.0, 1.0)}, "process must be one that implements"),
        ({"process": Brownian((2,))}, "guarantee must be for gaussian noise"),
        ({"capacity": 0}, "capacity must be an integer"),
    ],
)
def test_refuses(change, match):
    usual = {"value": [1.0, 2.0], "process": Laplace((2,)), "guarantee": nrjax.PureGuarantee(1.0)}
    with pytest.raises(ValueError, match=match):
        Releases.of(**(usual | change))


@pytest.mark.parametrize("process", [Brownian, Laplace])
def test_a_time_out_of_range_shows_nothing(process):
    """An infinite time must not match the unused entries, which are infinite."""
    releases = Releases.of(np.array([41.0, -17.0]), process((2,)))
    shown = jax.jit(jax.vmap(lambda t: releases.at(jax.random.key(0), t)[1]))
    times = jnp.array([1.0, np.inf, 0.0, -1.0, np.nan, np.finfo(jnp.result_type(float)).tiny / 2])
    assert np.all(np.isnan(np.asarray(shown(times))) == (np.arange(6) > 0)[:, None])


@pytest.mark.long
def test_a_release_without_a_cost_is_not_shown():
    """The guarantee states no epsilon below its last time, or before it has its levels."""
    boundary = nrjax.HockeyStickBoundary.design(np.geomspace(1000, 10, 5), np.ones(5), 1.0, 1e-6)
    releases = nrjax.Releases.of(3.0, nrjax.Brownian(()), boundary)
    with pytest.raises(ValueError, match="time must be a time at which the guarantee states"):
        releases.at(jax.random.key(0), 5.0)
    after, release = jax.jit(nrjax.Releases.at)(releases, jax.random.key(0), 5.0)
    assert np.isnan(release)
    assert after.epsilon() == 0
    after, release = after.at(jax.random.key(0), 20.0)
    assert np.isfinite(release)
    assert after.epsilon() > 0
    # Negative control: the same call within the times shows a release.
    assert np.isfinite(jax.jit(nrjax.Releases.at)(releases, jax.random.key(0), 20.0)[1])


def test_a_guarantee_for_looks_releases_only_at_its_looks():
    line = nrjax.LinearBoundary.tight_at_time(3.3, 1.0, 1e-6)
    looks = nrjax.GridBoundary.of(line, [9.1, 3.3, 1.1])
    releases = Releases.of(np.zeros(1, np.float32), Brownian((1,)), looks)
    assert releases.epsilon() == 0
    releases, _ = releases.at(jax.random.key(0), 3.3)
    time = np.float32(3.3)  # in the dtype of the noise
    np.testing.assert_allclose(releases.epsilon(), looks.epsilon(time), rtol=1e-6)
    assert releases.epsilon() >= looks.epsilon(3.3)
    with pytest.raises(ValueError, match=r"time must be among the 3 looks"):
        releases.at(jax.random.key(1), 2.0)
    shown = jax.jit(lambda r, t: r.at(jax.random.key(1), t)[1])(releases, 2.0)
    assert np.isnan(shown).all()


@pytest.mark.parametrize("time", [0.0, -1.0, 1e300, np.inf, np.nan, np.ones(2)])
def test_refuses_times(time):
    with pytest.raises(ValueError, match=r"time must"):
        Releases.of(np.float32(1.0), Brownian(())).at(jax.random.key(0), time)
    with pytest.raises(ValueError, match=r"guarantee must .*got None"):
        Releases.of(1.0, Brownian(())).epsilon()
