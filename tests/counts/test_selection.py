"""The exponential mechanism: one draw against peeling, and both against their exact law."""

import collections
import functools
import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from nrjax.composition.requests import BoundedRange
from nrjax.counts import ExponentialMechanism
from tests.processes.laws import FAULTY, SOUND

pytestmark = pytest.mark.numerical

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
    drawn = collections.Counter(map(tuple, np.asarray(orders).tolist()))
    if not drawn.keys() <= set(ORDERS):
        return 0.0
    seen = [drawn[order] for order in ORDERS]
    return stats.chisquare(seen, plackett_luce() * len(orders)).pvalue


order = ExponentialMechanism.order


def peel(mechanism, key, counts):
    return mechanism.peel(key, counts, 4)


def peel_without_removing(mechanism, key, counts):
    keys = jax.random.split(key, 4)
    return jax.vmap(lambda key: mechanism.order(key, counts)[0])(keys)


@functools.partial(jax.jit, static_argnums=0)
def _draw(method, mechanism, keys, counts):
    return jax.vmap(lambda key: method(mechanism, key, counts))(keys)


def draw(method, seed, epsilon=EPSILON, counts=COUNTS):
    """Orders of many trials; a program a method."""
    keys = jax.random.split(jax.random.key(seed), TRIALS)
    return _draw(method, ExponentialMechanism(epsilon), keys, counts.astype(float))


@pytest.mark.parametrize("method", [order, peel])
def test_both_have_the_exact_law(method):
    assert order_p(draw(method, seed=1)) > SOUND
    # Only differences matter, also where `epsilon count` leaves few digits to the noise.
    assert order_p(draw(method, seed=4, counts=COUNTS + 1e7)) > SOUND


@pytest.mark.long
def test_planted_faults_are_found():
    assert order_p(draw(order, seed=2, epsilon=0.8 * EPSILON)) < FAULTY
    assert order_p(draw(peel_without_removing, seed=3)) < FAULTY


@pytest.mark.parametrize("monotone", [True, False])
def test_the_loss_of_a_draw_has_that_range(monotone):
    """Over the winners, between neighbours that move all counts up, or one up and one down."""
    mechanism = ExponentialMechanism(EPSILON, monotone)
    shift = np.array([1.0, 0.0, 1.0, 0.0]) if monotone else np.array([1.0, 0.0, -1.0, 0.0])

    def logs(counts):
        return EPSILON * counts - np.log(np.sum(np.exp(EPSILON * counts)))

    loss = logs(COUNTS + shift) - logs(COUNTS)
    assert isinstance(mechanism.request, BoundedRange)
    assert np.ptp(loss) == pytest.approx(mechanism.request.epsilon)


def test_wrong_arguments_are_refused():
    for build, message in (
        (lambda: ExponentialMechanism(0.0), "epsilon = 0"),
        (lambda: ExponentialMechanism(0.1, 1), "monotone = 1"),  # pyright: ignore[reportArgumentType]
        (lambda: ExponentialMechanism(1.0).peel(jax.random.key(0), COUNTS, 5), r"in \[0, 4\]"),
    ):
        with pytest.raises(ValueError, match=message):
            build()
