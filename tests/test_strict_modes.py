"""Public functions under the checks of JAX that are meant for your own code: they are off inside.

`tests/test_jax_modes.py` covers runs of interactions, mechanisms and budgets.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import counts, private_selection, stopping
from nrjax.composition import certificates
from nrjax.counts.unknown_keys import UnknownKeysGuarantee

KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 4)
ACCURACY = counts.RelativeError(0.1)
ORDERS, TIMES = np.array([2.0, 8.0]), np.array([10.0, 1.0])


@contextlib.contextmanager
def checked():
    """Turn on all of the checks at once."""
    with (
        jax.debug_nans(True),
        jax.debug_infs(True),
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.transfer_guard("disallow"),
    ):
        yield


def base(key, epsilon):
    return private_selection.Candidate(jax.random.uniform(key), jnp.int32(1))


def poisson():
    """A selection that publishes nothing in some trials, whose score is then NaN."""
    return nrjax.PoissonSelection(base, epsilons=[0.5, 1.0], means=[0.2, 0.1], threshold=0.99)


def repeated():
    return private_selection.RepeatedSelection(base, 0.5, stop=0.5, threshold=0.999)


def threshold(method):
    options = {"epsilon": 1.0, "delta": 1e-6, "keys_per_user": 1}
    return counts.KeyThreshold.fitted([900, 3, 1], method, **options).run(KEY)


def count_release():
    budget = nrjax.UnifiedFilter(1.0, 1e-6, relation="add-remove")
    selection = counts.ExponentialMechanism(0.1)
    return counts.CountRelease([90, 7], selection, ACCURACY, budget, smallest=1e-2).run(KEY)


def first_passage(method):
    return counts.release_count(KEY, 1000.0, ACCURACY, 1e-4, 0.1, levels=50, method=method)


def first_yes(rule, **options):
    return stopping.first_yes(KEY, rule, [0.0, 3.0], **options)


def unknown(noise):
    levels = (0.5, 1.0, 2)
    found = counts.unknown_keys([900, 1], keys_per_user=1, delta=1e-6, noise=noise, levels=levels)
    return found.guarantee.epsilon(found.guarantee.fixed_times), found.process.quantile


def keys_guarantee():
    return UnknownKeysGuarantee(nrjax.PureGuarantee(1.0), 1e-3, np.array([1.0, 0.5]), 3)


def boundaries():
    linear = nrjax.LinearBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
    mixture = nrjax.MixtureBoundary.tight_at_time(10.0, 1.0, 1e-6)
    grid = nrjax.GridBoundary.minimax(sensitivity=1.0, delta=1e-6, times=TIMES)
    hockey = nrjax.HockeyStickBoundary.single(1.0, 1e-6, epsilon=1.0)
    curves = [each.curve(TIMES) for each in (linear, mixture, grid)]
    costs = [each.epsilon(TIMES) for each in (linear, mixture, grid)]
    return curves, costs, hockey.epsilon(hockey.times), linear.on(nrjax.Grid(TIMES)).heights


def accuracies():
    accuracy, gaps = stopping.accuracy, np.array([0.5, -1.0])
    options = {"sensitivity": 0.1, "confidence": 0.9, "margin": 0.5}
    return (
        accuracy.acceptance_probability(gaps, 0.7, 1.0),
        accuracy.shortfall(np.array([0.5, 1.0]), 1.0, 0.1),
        accuracy.surplus(0.5, 1.0, np.array([0.1, 0.2])),
        accuracy.epsilon_for_shortfall(np.array([0.5, 1.0]), 1.0, 0.1),
        accuracy.first_level(np.geomspace(0.1, 10, 50), 0.5, 0.01),
        accuracy.private_test(-1.0, np.geomspace(0.1, 10, 50), **options).first,
        accuracy.whitehouse_shortfall(np.array([0.5, 1.0]), 1.0, 0.1, 0.5),
        accuracy.ligett_shortfall(np.array([0.5, 1.0]), 1.0, 0.1, 10),
        accuracy.ligett_epsilon(np.array([0.5, 1.0]), 1.0, 0.1, 10),
    )


def divergences():
    return (
        certificates.laplace_reduction(ORDERS, 0.1),
        certificates.laplace_reduction_inverse(ORDERS, 0.1),
        certificates.pure(ORDERS, 0.1),
        certificates.laplace_mechanism(ORDERS, 0.1),
        certificates.capped(ORDERS, 0.1, 0.3),
        certificates.discrete_laplace_reduction(ORDERS, 1, 10.0),
        certificates.discrete_laplace_reduction_inverse(ORDERS, 0.1, 1),
    )


def filtered():
    budget, kind = nrjax.UnifiedFilter(1.0, 1e-6), nrjax.composition.BrownianReduction
    state, grid = budget.init(), nrjax.Grid(TIMES)
    return nrjax.composition.FilteredSchedule(grid, budget, state, kind, 1.0).times


CALLS = {
    "poisson": lambda: jax.vmap(poisson().run)(KEYS),
    "poisson cost": lambda: (poisson().cost(np.array([0, 1, 2])), poisson().total_delta),
    "repeated": lambda: repeated().run(KEY),
    "repeated cost": lambda: repeated().cost(np.array([0, 1])),
    "thresholds": lambda: [threshold(each) for each in ("laplace", "gaussian", "geometric")],
    "counts": count_release,
    "first passages": lambda: [
        first_passage(each) for each in ("brownian", "laplace", "discrete_laplace")
    ],
    "order": lambda: counts.ExponentialMechanism(0.1).order(KEY, np.array([3, 4, 5])),
    "accepts": lambda: ACCURACY.accepts(np.array([900, 5]), 10.0),
    "precise": lambda: ACCURACY.precise(np.array([90.0, 5.0]), 100),
    "unknown keys": lambda: [unknown(each) for each in ("laplace", "brownian")],
    "unknown keys' costs": lambda: (
        keys_guarantee().epsilon(np.array([1.0, 0.5, 0.7])),
        keys_guarantee().time(np.array([0.1, 5.0])),
    ),
    "boundaries": boundaries,
    "accuracy": accuracies,
    "divergences": divergences,
    "filtered schedule": filtered,
    "sequence of utilities": lambda: (
        nrjax.UtilitySequence.of([counts.KeysShown(least) for least in (1.0, 2.0)]).utilities.least
    ),
    "accuracy as a utility": lambda: ACCURACY.utility(nrjax.Brownian(()), TIMES).deviations,
    "minimum in a ball": lambda: nrjax.erm.minimise_in_ball(np.eye(3), np.ones(3), 1.0),
    "first yes": lambda: first_yes(nrjax.AboveThreshold(1.0, 1.0, 0.5)),
    "first yes with levels": lambda: first_yes(
        nrjax.ReducedAboveThreshold(1.0, 1.0), epsilons=[0.1, 0.2]
    ),
    "costs of rules": lambda: (
        nrjax.AboveThreshold(1.0, 1.0, 0.5).cost(np.array([0.1, 0.2])),
        nrjax.ReducedAboveThreshold(1.0, 1.0).cost(np.array([0.1, 0.2])),
        nrjax.LaplaceTests(1.0, 1.0, 0.5).cost(np.array([0.1, 0.2]), answers=3),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_public_functions_are_the_same_under_checks_of_your_code(name):
    expected = CALLS[name]()
    with checked():
        found = CALLS[name]()
    same = jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), found, expected)
    assert all(jax.tree.leaves(same))


def test_the_checks_find_faults():
    """A planted fault: a product of two dtypes without the isolation."""
    with checked(), pytest.raises(Exception, match=r"(?i)transfer|promotion|nan"):
        jnp.ones(3) * np.arange(3.0)
