"""Races of candidates with known costs: verdicts, the rate of false statements, and faults."""

import numpy as np
import pytest

from nrjax.choice import racing
from nrjax.choice.racing import FIRST_ROUND, Limits, Verdict, race
from nrjax.statistics import anytime

LIMITS = Limits(confidence=0.9, level=0.95, indifference=0.02, trials=16_384)


def candidates(scales, hits, seed=0, correlation=0.8):
    """Return names and a `draw` of log-normal epsilons that share a part of their noise."""
    names = [f"c{i}" for i in range(len(scales))]

    def draw(name, first, count):
        index = names.index(name)
        shared, uniform = (np.random.default_rng([seed, kind, first]) for kind in range(2))
        own = np.random.default_rng([seed, 2 + index, first]).normal(size=count)
        noise = correlation * shared.normal(size=count) + (1 - correlation**2) ** 0.5 * own
        met = uniform.random(count) < hits[index]
        return np.where(met, scales[index] * np.exp(noise), np.inf), met

    return names, draw


def verdicts(*arguments, limits=LIMITS, **options):
    names, draw = candidates(*arguments, **options)
    entries = race(names, draw, limits, names.index)
    return [entry.verdict for entry in entries.values()]


def test_the_cheapest_that_meets_the_target_wins():
    scales, hits = [1.0, 0.5, 1.5], [1.0, 0.6, 0.99]
    assert verdicts(scales, hits) == [Verdict.BEST, Verdict.MISSED, Verdict.DEARER]
    names, draw = candidates(scales, hits)
    missed = race(names, draw, LIMITS, names.index)["c1"]
    assert missed.reached is False
    np.testing.assert_array_equal(missed.epsilon, draw("c1", 0, FIRST_ROUND)[0])


def test_the_simplest_of_equal_candidates_is_best():
    assert verdicts([1.001, 1.0], [1, 1], correlation=1) == [Verdict.BEST, Verdict.EQUAL]


def test_too_few_trials_are_undecided():
    limits = LIMITS._replace(trials=64)
    assert verdicts([1.0, 1.05], [1, 1], limits=limits)[1] is Verdict.UNDECIDED


def test_a_candidate_of_which_all_miss_is_not_ranked():
    assert verdicts([1.0, 2.0], [0.2, 0.1]) == [Verdict.MISSED, Verdict.MISSED]


@pytest.mark.parametrize("fault", [None, "fixed sample"])
def test_one_candidate_under_two_names_is_rarely_called_cheaper(fault):
    """Under 500 seeds and a look at every 64 trials, 5 % of races may name a cheaper one."""
    seeds, looks, chunk = 500, 32, 64
    wins = np.random.default_rng(1).binomial(chunk, 0.5, (seeds, looks)).cumsum(axis=1)
    losses = chunk * np.arange(1, looks + 1) - wins
    if fault is None:
        wealth = np.vectorize(anytime.log_wealth)
        called = np.maximum(wealth(wins, losses), wealth(losses, wins)) >= np.log(2 / 0.05)
    else:
        called = np.abs(wins - losses) > 1.96 * np.sqrt(wins + losses)
    rate = called.any(axis=1).mean()
    assert (rate <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / seeds)) == (fault is None)


@pytest.mark.parametrize("statistic", ["median of signs", "mean"])
def test_signs_decide_and_not_means(statistic):
    """One candidate is cheaper in 60 % of the trials, and its mean is larger."""
    rng = np.random.default_rng(2)
    first = np.where(rng.random(4096) < 0.6, 1.0, 9.0)
    second = np.full(4096, 2.0)
    if statistic == "mean":  # planted: the mean names the other candidate
        assert first.mean() > second.mean()
    else:
        cheaper = int(np.sum(first < second))
        assert anytime.log_wealth(cheaper, 4096 - cheaper) > np.log(1000)


@pytest.mark.parametrize("fault", [None, "rank interval of one look"])
def test_intervals_of_quantiles_hold_at_all_looks(fault):
    """Values on a grid, with atoms, as epsilons of levels are."""
    seeds, looks, chunk = 150, 32, 64
    truth, alpha, missed = 69, 0.1, 0
    for seed in range(seeds):
        values = np.random.default_rng(seed).geometric(0.01, looks * chunk)
        failed = False
        for look in range(1, looks + 1):
            ordered = np.sort(values[: look * chunk])
            if fault is None:
                low, high = anytime.quantile_interval(ordered, 0.5, alpha)
            else:
                half = 0.5 * 1.645 * np.sqrt(ordered.size)
                middle = 0.5 * ordered.size
                low, high = ordered[int(middle - half)], ordered[int(middle + half)]
            failed |= not low <= truth <= high
        missed += failed
    assert (missed / seeds <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / seeds)) == (fault is None)


def test_the_interval_of_a_probability_holds_at_all_looks():
    trials, alpha, seeds = 1024, 0.1, 100
    hits = np.random.default_rng(3).random((seeds, trials)) < 0.9
    counts = hits.cumsum(axis=1)[:, 31::32]
    looks = np.arange(32, trials + 1, 32)
    ends = [
        [anytime.interval(int(c), int(n), alpha) for c, n in zip(row, looks, strict=True)]
        for row in counts
    ]
    missed = np.mean([any(not low <= 0.9 <= high for low, high in row) for row in ends])
    assert missed <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / seeds)
    assert anytime.interval(0, 0, alpha) == (0.0, 1.0)


@pytest.mark.parametrize("fault", [None, "missed candidates are ranked"])
def test_a_missed_candidate_would_win_without_the_constraint(fault, monkeypatch):
    names, draw = candidates([1.0, 0.5], [1.0, 0.8])
    if fault is not None:
        monkeypatch.setattr(anytime, "interval", lambda *_: (1.0, 1.0))
    best = [n for n, e in race(names, draw, LIMITS, names.index).items() if e.verdict == "best"]
    assert best == (["c0"] if fault is None else ["c1"])


@pytest.mark.parametrize("fault", [None, "any candidate may lead"])
def test_a_candidate_that_may_miss_drops_no_other(fault, monkeypatch):
    """The cheapest candidate misses narrowly, which only many trials show."""
    if fault is not None:
        decided = racing.Entry.add

        def add(self, *arguments):
            decided(self, *arguments)
            self.reached = self.reached is not False

        monkeypatch.setattr(racing.Entry, "add", add)
    found = verdicts([1.0, 0.5], [1.0, 0.87])
    assert (found == [Verdict.BEST, Verdict.MISSED]) == (fault is None)


def test_quick_candidates_run_first():
    names, draw = candidates([1.0, 1.0, 1.0], [1, 1, 1])
    drawn = []

    def noted(name, *numbers):
        drawn.append(name)
        return draw(name, *numbers)

    race(names, noted, LIMITS._replace(trials=512), {"c0": 3, "c1": 1, "c2": 2}.__getitem__)
    assert drawn == ["c1", "c2", "c0"] * 2


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, "intervals of one look"])
def test_whole_races_rarely_name_one_of_two_equal_candidates(fault, monkeypatch):
    """One candidate under two names, with separate noise, is called cheaper in few of 500 races."""
    if fault is not None:

        def significant(wins, losses):
            return np.inf if wins - losses > 1.96 * np.sqrt(wins + losses) else -np.inf

        monkeypatch.setattr(anytime, "log_wealth", significant)
    limits = LIMITS._replace(indifference=0.0, trials=4096)
    found = [verdicts([1, 1], [1, 1], seed=seed, limits=limits) for seed in range(500)]
    rate = np.mean([Verdict.DEARER in each for each in found])
    assert (rate <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)) == (fault is None)
