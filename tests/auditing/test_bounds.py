"""Lower bounds of epsilon hold at any time, and come close to the truth."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

import nrjax
from nrjax._base.keys import study_key
from nrjax.auditing import events, losses
from nrjax.auditing.tilted import tilted
from tests.auditing.cases import DELTA, HONEST, brownian, flat
from tests.marks import long_except

pytestmark = pytest.mark.numerical
ALPHA, ENOUGH = 0.05, -math.log(0.05)


def responses(rng, trials, epsilon, delta=0.0):
    """Return randomised responses on two data sets, of which a fraction delta reveals the data."""
    coins = rng.random((2, trials, 1)) < 1 / (1 + math.exp(-epsilon))
    tables = [coins[0] + 0.0, 1.0 - coins[1]]
    revealed = rng.random((2, trials, 1)) < delta
    return [np.where(revealed[n], 2.0 + n, tables[n]) for n in range(2)]


def laplace(rng, trials, epsilon, delta=0.0):
    """Return Laplace noise on two numbers at a distance of 1, with a column of other noise."""
    noise, other = rng.laplace(0, 1 / epsilon, (2, trials, 1)), rng.normal(size=(2, trials, 1))
    return [np.concatenate([noise[n] + n, other[n]], axis=1) for n in range(2)]


def bets(make, seed, trials, truth, stated, delta=0.0, epsilons=events.EPSILONS):
    tables = make(np.random.default_rng(seed), trials, truth, delta)
    paid = np.full(trials, stated)
    return events.compare((tables[0], paid), (tables[1], paid), delta, ALPHA, epsilons)


TRANSCRIPTS = [(responses, 0.0), (responses, 0.02), (laplace, 0.0)]


@pytest.mark.parametrize(("make", "delta"), TRANSCRIPTS)
def test_bets_on_transcripts_rarely_refute_a_true_epsilon_at_any_time(make, delta):
    """Three quarters of the stated epsilon is a planted fault that they refute."""
    seeds, few = 40, np.array([0.9, 1.0, 1.1])
    found = [bets(make, seed, 2000, 1.0, 1.0, delta, few) for seed in range(seeds)]
    limit = stats.binom.isf(1e-4, seeds, ALPHA)
    assert sum(one.log_wealth >= ENOUGH for one in found) <= limit
    assert sum(max(b for _, b in one.bounds) > 1.0 for one in found) <= limit
    wrong = [bets(make, seed, 6000, 1.0, 0.75, delta, few) for seed in range(8)]
    assert sum(one.log_wealth >= ENOUGH for one in wrong) >= 7


def test_stakes_that_see_the_pairs_they_bet_on_refute_a_true_epsilon():
    """The order of learning and betting is what the level rests on: a planted fault."""
    one, two = laplace(np.random.default_rng(0), 400, 1.0)
    score = events._scores(one, two)[0]
    bins, paid = events._Bins(score, one, two), np.ones((400, 1))
    pair = [bins.of(table) for table in (one, two)]
    growth = events._growth(bins.first, pair, [paid, paid], np.ones(1), 0.0)
    assert np.max(growth) > ENOUGH
    assert bets(laplace, 0, 400, 1.0, 1.0).log_wealth < ENOUGH


@pytest.mark.parametrize(("make", "delta"), TRANSCRIPTS)
def test_bounds_from_transcripts_rise_to_the_truth(make, delta):
    found = [bets(make, seed, 20_000, 1.0, 0.5, delta) for seed in range(5)]
    bounds = [[bound for _, bound in one.bounds] for one in found]
    assert all(one == sorted(one) for one in bounds)
    assert 0.7 < np.median([one[-1] for one in bounds]) <= 1.0
    assert [one.bounds[-1][0] for one in found] == [20_000] * 5


def sparse_vector(rng, trials, queries, scale):
    """Return the first positive answer of a sparse vector whose query noise is too small.

    At epsilon = 1 the threshold noise is `Lap(2)`, and the query noise `Lap(4)` would be right.
    """
    noise = rng.laplace(0, scale, (trials, queries.size)) - rng.laplace(0, 2, (trials, 1))
    yes = queries + noise >= 0
    return np.where(yes.any(axis=1), yes.argmax(axis=1), queries.size)[:, None] + 0.0


def runs_to_refute(scale, queries, seed, trials):
    """Return the number of runs per data set after which epsilon = 1 is refuted at level 0.99."""
    rng, first = np.random.default_rng(seed), np.append(np.zeros(queries - 1), 1.0)
    paid, tables = (
        np.ones(trials),
        [sparse_vector(rng, trials, each, scale) for each in (first, 1 - first)],
    )
    found = events.compare((tables[0], paid), (tables[1], paid), 0.0, 0.01, np.ones(1))
    return next((count for count, bound in found.bounds if bound >= 1), math.inf)


@pytest.mark.parametrize(
    ("scale", "queries", "trials", "most"),
    [
        (1.0, 6, 8_000, 2_000),
        pytest.param(2.0, 6, 64_000, 16_000, marks=pytest.mark.long),
        pytest.param(1.0, 12, 16_000, 6_000, marks=pytest.mark.long),
        pytest.param(2.0, 12, 100_000, 64_000, marks=pytest.mark.long),
    ],
)
def test_faulty_sparse_vectors_are_refuted_with_few_runs(scale, queries, trials, most):
    # The constants of the bets were chosen on other seeds, below 20.
    runs = [runs_to_refute(scale, queries, seed, trials) for seed in range(100, 120)]
    print(f"query noise {scale:g}/eps, {queries} queries: median {np.median(runs):g} of {runs}")
    assert np.median(runs) <= most
    honest = [runs_to_refute(4.0, queries, seed, trials) for seed in range(20)]
    assert sum(map(math.isfinite, honest)) <= stats.binom.isf(1e-4, 20, 0.01)


def exact(mean, delta):
    """Return the epsilon of Gaussian noise with a loss of variance `mean**2` at delta."""

    def excess(epsilon):
        tail = stats.norm.sf(epsilon / mean - mean / 2)
        return tail - math.exp(epsilon) * stats.norm.sf(epsilon / mean + mean / 2) - delta

    return float(optimize.root_scalar(excess, bracket=(0, 50)).root)


@pytest.mark.parametrize("boundary", long_except(("minimax", "linear"), "minimax"))
def test_bounds_from_losses_hold_and_need_the_weights(boundary):
    """The whole path has the epsilon of its last release, at time 10."""
    trial = tilted(HONEST[boundary]()[0], np.ones(()))[0]
    truth = exact(10**-0.5, DELTA)
    bounds, unweighted = [], []
    for seed in range(12):
        one, paths = losses.Losses(trial, False), []
        for first in range(0, 4096, 1024):
            one.run(study_key(seed), 1024, first)
            paths.append(one.bound(DELTA, ALPHA, max(paths, default=0.0)))
        assert paths == sorted(paths)
        bounds.append(paths[-1])
        one.weights = np.ones_like(one.weights)  # a planted fault
        unweighted.append(one.bound(DELTA, ALPHA, 0.0))
    assert sum(bound > truth for bound in bounds) <= stats.binom.isf(1e-4, 12, ALPHA)
    assert np.median(bounds) > 0.9 * truth
    assert min(unweighted) > truth


def test_the_bound_of_a_pure_mechanism_is_its_largest_loss(monkeypatch):
    monkeypatch.setattr(losses.planted, "refutable_scale", lambda refutes: None)
    audit = nrjax.audit(HONEST["laplace"]()[0], trials=1024)
    assert 0.0999 < audit.epsilon <= 0.1  # the last time is 10
    assert "One epsilon for all runs, at delta 0, cannot be below 0.099" in flat(audit)
    assert audit.bounds == ((1024, audit.epsilon),)
    axes = audit.plot().axes[0]
    assert axes.lines[0].get_ydata()[-1] == audit.epsilon
    assert "at δ = 0" in axes.get_ylabel()


def test_a_loss_that_does_not_describe_the_releases_has_no_bound():
    silent = nrjax.audit(brownian(process=Loud(())), trials=4096)
    assert silent.reason == "distribution"
    assert (silent.epsilon, silent.bounds) == (0.0, ())
    assert "One epsilon for all runs" not in flat(silent)
    assert "no bound" in silent.plot().axes[0].texts[0].get_text()


class Loud(nrjax.Brownian):
    """Gaussian noise of half the stated scale."""

    def value(self, state):
        return 0.5 * super().value(state)
