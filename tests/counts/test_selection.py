"""The exponential mechanism: one draw against peeling, and both against their exact law."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.composition.requests import BoundedRange
from nrjax.counts import ExponentialMechanism
from tests.processes.laws import FAULTY, SOUND

COUNTS = np.array([3.0, 0.0, 5.0, 2.0])
EPSILON = 0.4
TRIALS = 30_000
ORDERS = list(itertools.permutations(range(4)))


def plackett_luce():
    """Probability of each order: each place in turn by the weights of those left."""
    weight = np.exp(EPSILON * COUNTS)
    return np.array(
        [
            np.prod([weight[order[i]] / weight[list(order[i:])].sum() for i in range(4)])
            for order in ORDERS
        ]
    )


def order_p(orders):
    """Chi-square p-value against the exact law; what is no order has no chance."""
    place = {order: number for number, order in enumerate(ORDERS)}
    seen = np.zeros(len(ORDERS))
    for order in np.asarray(orders):
        if tuple(order) not in place:
            return 0.0
        seen[place[tuple(order)]] += 1
    return stats.chisquare(seen, plackett_luce() * len(orders)).pvalue


def draw(method, mechanism, seed):
    keys = jax.random.split(jax.random.key(seed), TRIALS)
    return jax.jit(jax.vmap(lambda key: method(mechanism, key)))(keys)


def order(mechanism, key, counts=COUNTS):
    return mechanism.order(key, counts)


def peel(mechanism, key, counts=COUNTS):
    return mechanism.peel(key, counts, 4)


def peel_without_removing(mechanism, key):
    keys = jax.random.split(key, 4)
    return jax.vmap(lambda key: mechanism.order(key, COUNTS)[0])(keys)


@pytest.mark.parametrize("method", [order, peel])
def test_both_have_the_exact_law(method):
    assert order_p(draw(method, ExponentialMechanism(EPSILON), seed=1)) > SOUND


@pytest.mark.parametrize("method", [order, peel])
def test_large_counts_have_the_same_law(method):
    """Only differences matter, also where `epsilon count` leaves few digits to the noise."""
    drawn = draw(lambda *given: method(*given, COUNTS + 1e7), ExponentialMechanism(EPSILON), seed=4)
    assert order_p(drawn) > SOUND


def test_planted_faults_are_found():
    assert order_p(draw(order, ExponentialMechanism(EPSILON * 0.8), seed=2)) < FAULTY
    assert order_p(draw(peel_without_removing, ExponentialMechanism(EPSILON), seed=3)) < FAULTY


def test_peeling_takes_as_many_as_it_is_told():
    taken = ExponentialMechanism(1.0).peel(jax.random.key(0), COUNTS, 2)
    assert taken.shape == (2,)
    assert taken.dtype == jnp.int32
    with pytest.raises(ValueError, match=r"draws = 5: must be in \[0, 4\]"):
        ExponentialMechanism(1.0).peel(jax.random.key(0), COUNTS, 5)


def test_a_draw_is_charged_by_the_range_of_its_loss():
    assert ExponentialMechanism(0.3).request == BoundedRange(0.3)
    assert ExponentialMechanism(0.3, monotone=False).request == BoundedRange(0.6)


@pytest.mark.parametrize("monotone", [True, False])
def test_the_loss_of_a_draw_has_that_range(monotone):
    """Over the winners, between neighbours that move all counts up, or one up and one down."""
    mechanism = ExponentialMechanism(EPSILON, monotone)
    shift = np.array([1.0, 0.0, 1.0, 0.0]) if monotone else np.array([1.0, 0.0, -1.0, 0.0])

    def logs(counts):
        return EPSILON * counts - np.log(np.sum(np.exp(EPSILON * counts)))

    loss = logs(COUNTS + shift) - logs(COUNTS)
    assert np.ptp(loss) == pytest.approx(mechanism.request.epsilon)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="epsilon = 0"):
        ExponentialMechanism(0.0)
    with pytest.raises(ValueError, match="monotone = 1"):
        ExponentialMechanism(0.1, 1)  # pyright: ignore[reportArgumentType]
