"""Fake races with known costs: how often a verdict is false, and what the report then says."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.choice import choosing, racing
from nrjax.choice.candidates import FIXED, ORACLE, PUBLIC, Candidate
from nrjax.choice.racing import TIE, Limits, Verdict, race
from nrjax.choice.report import Choice, Row, advice
from nrjax.statistics import anytime

LIMITS = Limits(confidence=0.9, level=0.95, indifference=0.02, trials=4096)
SEEDS, ZONE, ALPHA = 40, 1.02, 1 - LIMITS.level
MOST = SEEDS * ALPHA + 3 * math.sqrt(SEEDS * ALPHA * (1 - ALPHA))  # three standard errors


LAW = (0.5, 0.8, 1.0, 1.6)
ALONE = [(1 / 256, costs) for costs in itertools.product(LAW, repeat=4)]
SHUFFLED = [(1 / 24, costs) for costs in itertools.permutations(LAW)]
RACES = {
    # name: (probabilities of the costs of all candidates, probabilities with which they meet it)
    "an open candidate at a third": ([(0.5, (1.1, 3.3)), (0.5, (1.3, 3.6))], (0.905, 0.999)),
    "a cycle": ([(0.4, (4, 5, 1)), (0.2, (4, 2.9, 3)), (0.4, (4.5, 9, 10))], (1, 1, 1)),
    "four of one law": (SHUFFLED, (1, 1, 1, 1)),
    "four that are independent": (ALONE, (1, 1, 1, 1)),
    "three names of one": ([(0.5, (1, 1, 1)), (0.5, (3, 3, 3))], (1, 1, 1)),
    "cheaper in half": ([(0.5, (1, 2)), (0.5, (2, 1))], (1, 1)),
    "a target just met": ([(1.0, (1, 2, 3))], (0.9, 0.9, 1)),
    "a target just missed": ([(1.0, (1, 2))], (0.89, 1)),
    "within the zone": ([(0.5, (1.01, 1.0, 1.03)), (0.5, (2.0, 2.03, 2.05))], (1, 1, 1)),
    "a tenth in 52 %": ([(0.52, (0.1, 1)), (0.48, (1.1, 1))], (1, 1)),
    "a clear winner": ([(0.7, (1, 2, 3)), (0.3, (2.5, 2.4, 9))], (0.95, 0.99, 1)),
    "all miss": ([(1.0, (1, 2))], (0.5, 0.8)),
}


def run(name, seed, limits=LIMITS):
    """Return the entries of a race, with the numbers of trials in the order of the draws."""
    states, hits = RACES[name]
    rng, drawn = np.random.default_rng([seed, len(states)]), []
    chances, costs = (np.array(column, float) for column in zip(*states, strict=True))
    epsilon = costs[rng.choice(len(chances), limits.trials, p=chances)]
    met = rng.random(epsilon.shape) < hits

    def draw(name, first, count):
        drawn.append((name, count))
        place = slice(first, first + count), int(name)
        return epsilon[place], met[place]

    names = [str(index) for index in range(len(hits))]
    return race(names, draw, limits, lambda _: 1.0), drawn


def false_statements(name, entries):
    """Return the verdicts of a race that are not true."""
    states, hits = RACES[name]

    def costlier(first, second):
        """Return the probability that one costs more than another by more than the zone."""
        pairs = [(chance, costs[int(first)], costs[int(second)]) for chance, costs in states]
        return sum(chance for chance, one, other in pairs if one > ZONE * other)

    best = next((each for each, entry in entries.items() if entry.verdict.leads), None)
    rivals = [other for other in entries if other != best and hits[int(other)] >= 0.9]
    no_better = all(
        costlier(best, other) <= 0.5 + 1e-9 or entries[other].verdict is Verdict.TIED
        for other in rivals
        if best is not None
    )
    wrong = []
    for each, entry in entries.items():
        meets, verdict = hits[int(each)] >= 0.9, entry.verdict
        more, less = (0, 0) if best is None else (costlier(each, best), costlier(best, each))
        true = {
            Verdict.BEST: meets and no_better,
            Verdict.LEADER: meets,
            Verdict.EQUAL: meets and max(more, less) < 0.5,
            Verdict.TIED: meets and max(more, less) < 0.5 + TIE,
            Verdict.CHEAPER: meets and less > 0.5,
            Verdict.DEARER: more > 0.5 + 1e-9,
            Verdict.MISSED: not meets,
            Verdict.UNDECIDED: True,
        }
        if not true[verdict]:
            wrong.append((each, verdict))
    return wrong


def races_with_false_verdicts(name):
    return sum(bool(false_statements(name, run(name, seed)[0])) for seed in range(SEEDS))


@pytest.mark.parametrize("name", RACES)
def test_verdicts_are_false_in_as_few_races_as_stated(name):
    wrong = races_with_false_verdicts(name)
    print(f"{name}: {wrong} of {SEEDS} races have a false verdict")
    assert wrong <= MOST


def test_statistics_of_one_look_are_found_out(monkeypatch):
    """A planted fault: each look is tested as if it were the only one."""

    def significant(wins, losses):
        return np.inf if wins - losses > 1.96 * np.sqrt(wins + losses) else -np.inf

    monkeypatch.setattr(anytime, "log_wealth", significant)
    assert races_with_false_verdicts("four of one law") > MOST


def verdicts(name, seed=0, limits=LIMITS):
    return [entry.verdict for entry in run(name, seed, limits)[0].values()]


def test_a_candidate_left_open_prevents_best_and_gets_the_trials():
    entries, drawn = run("an open candidate at a third", 0)
    cheap, sure = entries.values()
    assert (cheap.verdict, sure.verdict) == (Verdict.UNDECIDED, Verdict.LEADER)
    assert cheap.is_open
    assert (cheap.epsilon.size, sure.epsilon.size) == (LIMITS.trials, racing.FIRST_ROUND)
    assert sum(count for name, count in drawn if name == "1") == racing.FIRST_ROUND
    # With many more trials the cheap one is known to meet the target.
    limits = LIMITS._replace(trials=2**18)
    assert verdicts("an open candidate at a third", 0, limits) == [Verdict.BEST, Verdict.DEARER]


def test_verdicts_are_about_the_final_leader():
    """Each of three candidates is beaten by another one, so that none is best."""
    for seed in range(3):
        found = run("a cycle", seed)[0]
        assert [entry.verdict for entry in found.values()] == [
            Verdict.DEARER,
            Verdict.CHEAPER,
            Verdict.LEADER,
        ]
        assert found["1"].is_open


def test_ties_are_called_ties():
    limits = LIMITS._replace(trials=16_384)  # the default
    found = [verdicts("four of one law", seed, limits) for seed in range(5)]
    assert {each for one in found for each in one} == {Verdict.BEST, Verdict.TIED}
    assert verdicts("three names of one") == [Verdict.BEST, Verdict.EQUAL, Verdict.EQUAL]
    assert sorted(verdicts("cheaper in half", 0, limits)) == [Verdict.BEST, Verdict.TIED]


def row(name, verdict, median, is_open=False):
    one = (1.0, 1.0)
    cells = verdict, 1.0, one, median, one, 2 * median, one, 0.5, None, "pure", 256, is_open
    return Row(name, "Public test", *cells)


@pytest.mark.parametrize(
    ("verdict", "rival", "texts"),
    [
        (
            Verdict.LEADER,
            row("a", Verdict.UNDECIDED, 1.18, True),
            ["b is the cheapest known to meet the error", "a may meet it at 34% of this median"],
        ),
        (Verdict.LEADER, row("a", Verdict.CHEAPER, 6.9, True), ["a (at 200% of this median)"]),
        (Verdict.BEST, row("a", Verdict.TIED, 3.45), ["take b: ", "Tied with it: a."]),
        (Verdict.BEST, row("a", Verdict.DEARER, 9.0), ["take b: its median epsilon is 3.45"]),
    ],
)
def test_the_report_names_what_is_open_and_what_it_may_cost(verdict, rival, texts):
    rows = row("b", verdict, 3.45), rival
    text = advice(rows, rows[0], "", 0.9)
    assert all(each in text for each in texts)
    names = ("a",) if rival.is_open else ()
    choice = Choice("mean", 1.0, 0.9, "b", (), (), rows, text, None, open=names)
    assert (f"{rival.verdict}, may be best" in choice._repr_html_()) == rival.is_open
    assert ("open=('a',)" in repr(choice)) == rival.is_open


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        (
            {"b": FIXED, "c": FIXED, "d": ORACLE},
            "No candidate that tests its releases meets the error in 90% of runs. Take c, which "
            "needs no test: its epsilon is 400.",
        ),
        (
            {"d": ORACLE},
            "No candidate that tests its releases meets the error in 90% of runs. Nearest.",
        ),
        ({}, "No candidate meets the error in 90% of runs. Nearest."),
    ],
)
def test_a_release_at_a_known_epsilon_that_meets_the_error_is_no_miss(fixed, expected):
    medians = {"b": 461.0, "c": 400.0, "d": 3.0}
    rows = [row("a", Verdict.MISSED, 7.0), row("e", Verdict.MISSED, 2.0)._replace(section=FIXED)]
    rows += [
        row(n, Verdict.FIXED, medians[n])._replace(section=section) for n, section in fixed.items()
    ]
    assert advice(rows, None, "Nearest.", 0.9) == expected


def test_the_nearest_candidate_is_one_that_tests_its_releases():
    trial = nrjax.laplace(3.0, 1.0).until(jnp.abs, at_least=-1.0, levels=(0.1, 1.0, 2))
    scores = {"a": (PUBLIC, -2.0), "b": (FIXED, -0.9), "c": (ORACLE, -0.8)}
    listed = {name: Candidate(trial, kind, -1.0, 0.0) for name, (kind, _) in scores.items()}
    runs = choosing._Runs("question", listed, 0, None, False)
    for name, (_, score) in scores.items():
        runs._first[name] = {"utility": np.full(10, score), "epsilon": np.ones(10)}
    assert runs.reachable(0.9).startswith("a comes closest: an error of 2 in 90% of runs")
