"""The exponential mechanism and repeated selection against the exact distribution."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
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
    """Return the probability of each order, from the weights of the items left at each place."""
    weight = np.exp(EPSILON * COUNTS)
    return np.array(
        [
            np.prod([weight[order[i]] / weight[list(order[i:])].sum() for i in range(4)])
            for order in ORDERS
        ]
    )


def order_p(orders):
    """Return the chi-square p-value of orders against the exact distribution."""
    drawn = collections.Counter(map(tuple, np.asarray(orders).tolist()))
    if not drawn.keys() <= set(ORDERS):
        return 0.0
    seen = [drawn[order] for order in ORDERS]
    return stats.chisquare(seen, plackett_luce() * len(orders)).pvalue


order = ExponentialMechanism.order


def peel(mechanism, key, counts):
    """Return the order by fresh noise for each selection, as printed: the slow oracle."""

    def take(gone, key):
        scores = mechanism.scores(key, counts)
        winner = jnp.argmax(jnp.where(gone, -jnp.inf, scores))
        return gone.at[winner].set(True), winner

    return jax.lax.scan(take, jnp.zeros(4, bool), jax.random.split(key, 4))[1]


def peel_without_removing(mechanism, key, counts):
    keys = jax.random.split(key, 4)
    return jax.vmap(lambda key: mechanism.order(key, counts)[0])(keys)


@functools.partial(jax.jit, static_argnums=0)
def _draw(method, mechanism, keys, counts):
    return jax.vmap(lambda key: method(mechanism, key, counts))(keys)


def draw(method, seed, epsilon=EPSILON, counts=COUNTS):
    """Return the orders of many trials."""
    keys = jax.random.split(jax.random.key(seed), TRIALS)
    return _draw(method, ExponentialMechanism(epsilon), keys, counts.astype(float))


@pytest.mark.parametrize("method", [order, peel])
def test_both_have_the_exact_distribution(method):
    assert order_p(draw(method, seed=1)) > SOUND
    # Only differences matter, also where `epsilon count` leaves few digits to the noise.
    assert order_p(draw(method, seed=4, counts=COUNTS + 1e7)) > SOUND


@pytest.mark.long
def test_planted_faults_are_found():
    assert order_p(draw(order, seed=2, epsilon=0.8 * EPSILON)) < FAULTY
    assert order_p(draw(peel_without_removing, seed=3)) < FAULTY


@pytest.mark.parametrize("monotone", [True, False])
def test_the_loss_of_a_selection_has_the_stated_range(monotone):
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
        (lambda: ExponentialMechanism(0.0), "epsilon must be positive"),
        (lambda: ExponentialMechanism(0.1, 1), "monotone must be True or False"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ValueError, match=message):
            build()
