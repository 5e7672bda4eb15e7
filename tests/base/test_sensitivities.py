"""Relations of neighbouring data sets: exact sensitivities, and no mixing without an error."""

import copy
import dataclasses
import decimal
import functools
import itertools
import math
import pickle
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax import questions
from nrjax._base.sensitivities import describe_relation
from nrjax.composition import conversions
from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity

pytestmark = pytest.mark.numerical

ADDED = nrjax.Sensitivity(1.0, "l1", "add-remove")
REPLACED = nrjax.Sensitivity(2.0, "l1", "replace")


def closeness(release):
    return -jnp.abs(release - 3.0)


def interaction(size):
    return nrjax.laplace(3.0, size).until(closeness, at_least=-0.5)


# Exact sensitivities


def neighbours(rows, domain, relation, most):
    """Yield all data sets that differ from `rows` in at most `most` rows."""
    for changed in range(most + 1):
        for places in itertools.combinations(range(len(rows)), changed):
            kept = [row for place, row in enumerate(rows) if place not in places]
            if relation == "add-remove":
                yield kept
                kept = list(rows)
            yield from (kept + list(new) for new in itertools.product(domain, repeat=changed))


EDGES = [0, 1.5, 2.5, 4]
VALUES = {
    "histogram": (
        lambda x: np.histogram(x, EDGES)[0],
        lambda x, relation: questions.histogram(x, EDGES, relation=relation),
    ),
    "sum": (
        lambda x: np.atleast_1d(np.sum(x)),
        lambda x, relation: questions.sum(x, (1.0, 3.0), relation=relation),
    ),
    "count": (
        lambda x: np.atleast_1d(np.sum(x)),
        lambda x, relation: questions.count(x, relation=relation),
    ),
}
NAMES = ("replace", "add-remove", "replace, 2 rows", "add-remove, 2 rows")


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("relation", NAMES)
def test_sensitivities_are_attained(name, relation):
    value, ask = VALUES[name]
    domain = (0.0, 1.0) if name == "count" else (1.0, 2.0, 3.0)
    base, rows = relation.split(",")[0], 2 if "2" in relation else 1
    largest = {"l1": 0.0, "l2": 0.0}
    for data in itertools.product(domain, repeat=3):
        for other in neighbours(data, domain, base, rows):
            change = value(np.array(data)) - value(np.array(other))
            for norm, order in (("l1", 1), ("l2", 2)):
                largest[norm] = max(largest[norm], np.linalg.norm(change, order))
    question = ask(np.array([1.0, 1.0, 1.0]), relation=relation)
    for mechanism in question.mechanisms.values():
        stated = mechanism.guarantee.sensitivity
        assert stated.relation == mechanism.relation == relation
        slack = 1e-5 if name == "sum" else 1e-12  # for the rounding of a sum of up to 2^31 rows
        assert largest[stated.norm] <= stated * (1 + 1e-12) <= largest[stated.norm] * (1 + slack)


def test_means_have_no_private_number_of_rows():
    for ask in (questions.mean, questions.vector_mean):
        data, bound = ([1.0], (0.0, 5.0)) if ask is questions.mean else ([[1.0]], 1.0)
        with pytest.raises(ValueError, match="'replace' for a mean"):
            ask(data, bound, relation="add-remove")
        asked = [ask(data, bound, relation=name) for name in ("replace", "replace, 3 rows")]
        one, three = (each.mechanisms["laplace"].guarantee.sensitivity for each in asked)
        assert three / one == pytest.approx(3)
    assert questions.sum([1.0], (0.0, 1.0), relation="add-remove").sensitivity is None


@pytest.mark.parametrize("name", ["sum", "count"])
def test_names_of_questions_disclose_no_private_number_of_rows(name):
    _, ask = VALUES[name]
    of_size = [ask(np.ones(size), relation="add-remove").name for size in (3, 4)]
    assert of_size[0] == of_size[1]
    assert ask(np.ones(3), relation="replace").name != ask(np.ones(4), relation="replace").name


def test_removing_a_row_moves_optima_by_at_most_the_sensitivity():
    """The linear loss attains the general bound, which half of the replacement constant breaks."""
    regularisation, rows = 0.05, 40
    with_row = (rows - 2) / (rows * regularisation)  # all rows 1 but one of -1, loss -theta x
    moved = abs(1 / regularisation - with_row)
    assert moved == pytest.approx(sensitivity.removed_output_l2(rows - 1, regularisation))
    assert moved > 1.9 * sensitivity.output_l2(rows, regularisation) / 2
    # Under a large penalty the optimum is near 0, where the removed row moves it most.
    penalty, x = 10.0, np.ones((rows, 1))
    y = np.append(np.ones(rows - 1), -1)
    fits = [LogisticProblem.fit(x[:k], y[:k], penalty) for k in (rows, rows - 1)]
    bound = fits[0].released("brownian", "add-remove", least_rows=rows - 1).sensitivity
    assert 0.9 * bound < abs(fits[0].optimum - fits[1].optimum)[0] <= bound
    assert bound.relation == "add-remove"
    released = fits[0].released("laplace", "add-remove, 2 rows", least_rows=20)
    assert released.sensitivity == pytest.approx(2 * 1.0518 / (21 * penalty))
    stated = fits[0].utility_sensitivity
    assert released.utility.sensitivity == pytest.approx(2 * rows / 21 * stated, rel=1e-4)
    # The number of rows is private: 40 and 39 rows state the same.
    other = fits[1].released("laplace", "add-remove, 2 rows", least_rows=20)
    assert other.sensitivity == released.sensitivity
    assert other.utility.sensitivity == released.utility.sensitivity
    scaled = [fit.utility_sensitivity * fit.rows for fit in fits]
    assert scaled[0] != scaled[1]  # a planted fault: the sensitivity for replacement, scaled
    excess = dataclasses.replace(fits[0], utility=fits[0].utility.excess_risk())
    assert excess.released("laplace", "add-remove", least_rows=20).utility.sensitivity is None
    for relation, least_rows, words in (
        ("add-remove", None, "least_rows must be given"),
        ("add-remove", rows + 1, "least_rows must be"),
        ("replace", 3, "None for replacement"),
    ):
        with pytest.raises(ValueError, match=words):
            fits[0].released("laplace", relation, least_rows)


def test_group_privacy_covers_the_gaussian_mechanism():
    for mu, epsilon, rows in ((0.3, 0.5, 2), (0.1, 0.4, 5), (1.0, 3.0, 3)):
        delta = conversions.delta_of_gdp(mu, epsilon)
        total, covered = conversions.of_group(epsilon, delta, rows)
        exact = conversions.delta_of_gdp(rows * mu, rows * epsilon)
        assert total >= rows * epsilon
        assert exact <= covered
        series = delta * math.fsum(math.exp(k * epsilon) for k in range(rows))
        assert series <= covered <= series * (1 + 1e-11)
        assert covered > rows * delta  # a planted fault: delta times the number of rows
    assert conversions.of_group(1.0, 0.0, 4) == (pytest.approx(4.0), 0.0)
    assert conversions.of_group(500.0, 1e-6, 9)[1] == 1


@pytest.mark.parametrize("epsilon", [0.720959041, 0.01, 3.0])
@pytest.mark.parametrize("delta", [1.24e-322, 5e-324, 1e-310])
def test_group_privacy_rounds_subnormal_deltas_up(epsilon, delta):
    with decimal.localcontext(prec=60):
        ratio = decimal.Decimal(epsilon).exp()
        for rows in range(2, 40):
            exact = decimal.Decimal(delta) * (ratio**rows - 1) / (ratio - 1)
            assert decimal.Decimal(conversions.of_group(epsilon, delta, rows)[1]) >= exact


# No mixing


def test_sensitivities_keep_their_relation():
    three = REPLACED.of_rows(3)
    assert (three, three.relation) == (6.0, "replace, 3 rows")
    assert describe_relation(three.relation) == "up to 3 rows are replaced by others"
    for copied in (copy.deepcopy(three), pickle.loads(pickle.dumps(three))):
        assert (copied, copied.norm, copied.relation) == (6.0, "l1", "replace, 3 rows")
    for wrong in ("swap", "replace, 1 rows", "replace, x rows", ""):
        with pytest.raises(ValueError, match="relation must be one of"):
            nrjax.Sensitivity(1.0, "l1", wrong)
    for group in (three, nrjax.Sensitivity(1.0, "l1")):
        with pytest.raises(ValueError, match="relation must be 'replace' or 'add-remove'"):
            group.of_rows(2)


def test_groups_of_rows_have_at_least_the_exact_multiple():
    sizes = np.random.default_rng(0).uniform(0.1, 10, 300)
    exact = [Fraction(size) * 7 for size in sizes]
    products = [nrjax.Sensitivity(size, "l1", "replace").of_rows(7) for size in sizes]
    assert all(Fraction(float(a)) >= b for a, b in zip(products, exact, strict=True))
    assert not all(Fraction(size * 7) >= b for size, b in zip(sizes, exact, strict=True))  # fault


REQUESTS = {
    "sensitivity": lambda relation: c.LaplaceMechanism(nrjax.Sensitivity(1.0, "l1", relation), 2.0),
    "pure": lambda relation: c.Pure(0.1, relation=relation),
    "ex-post": lambda relation: c.ExPost(0.1, relation=relation),
}
OWNERS = {
    "ex-post": lambda relation: c.ExPostFilter(1.0, relation=relation),
    "renyi": lambda relation: c.RenyiFilter(16.0, 1.0, 1e-6, relation=relation),
    "side by side": lambda relation: c.SideBySideFilter(
        c.UnifiedFilter(1.0, 1e-6, relation=relation), c.ExPostFilter(1.0, relation=relation)
    ),
    "odometer": lambda relation: c.ExPostOdometer(relation=relation),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_a_state_is_for_one_relation(owner):
    replaced, added = OWNERS[owner]("replace"), OWNERS[owner]("add-remove")
    replaced.spend(replaced.init(), c.ExPost(0.1))
    with pytest.raises(ValueError, match="relation of the state must be 'add-remove'"):
        added.spend(replaced.init(), c.ExPost(0.1))


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("request_", REQUESTS)
def test_filters_and_odometers_refuse_another_relation(owner, request_):
    for own, other in (("replace", "add-remove"), ("add-remove", "add-remove, 3 rows")):
        made, request = OWNERS[owner](own), REQUESTS[request_]
        made.spend(made.init(), request(own))
        made.spend(made.init(), request(None))  # takes the relation of the filter
        assert f"relation={own!r}" in repr(made) or owner == "side by side"
        with pytest.raises(ValueError, match="relation of the request must be"):
            made.spend(made.init(), (request(own), request(other)))
        with pytest.raises(ValueError, match="relation of the request must be"):
            jax.jit(made.spend)(made.init(), request(other))


def test_parts_of_two_relations_are_refused():
    added = interaction(ADDED)
    assert (added.relation, interaction(1.0).relation) == ("add-remove", None)
    budget = c.ExPostFilter(1.0, relation="add-remove")
    grid = nrjax.Grid([4.0, 2.0])
    round = grid, budget, budget.init(), c.LaplaceReduction, 1.0
    paid = c.FilteredSchedule(*round)
    for make in (lambda **wrong: c.FilteredSchedule(*round, **wrong), functools.partial(c.GDP, 1)):
        with pytest.raises(ValueError, match="relation must be one of"):
            make(relation=3)
    assert paid.request(2.0).relation == "add-remove"
    sizes = [nrjax.Sensitivity(1.0, "l2", name) for name in ("replace", "add-remove")]
    line = nrjax.LinearBoundary.tight_at_epsilon(1.0, sizes[0], 1e-6)
    for mixed in (
        lambda: dataclasses.replace(added, guarantee=nrjax.PureGuarantee(REPLACED)),
        lambda: nrjax.laplace(3.0, REPLACED).until(closeness, at_least=-0.5, levels=paid),
        lambda: c.FilteredSchedule(grid, budget, budget.init(), c.LaplaceReduction, REPLACED),
        lambda: c.LaplaceReduction(REPLACED, 1.0, relation="add-remove"),
        lambda: c.SideBySideFilter(c.UnifiedFilter(1.0, 1e-6), budget),
        lambda: c.SideBySideFilter(
            c.UnifiedFilter(1.0, 1e-6), c.ExPostFilter(1.0), relation="add-remove"
        ),
        lambda: dataclasses.replace(interaction(1.0), relation="swap"),
        lambda: c.ExPostFilter(1.0, relation="swap"),
        lambda: c.RenyiOdometer(5.0, 1e-6, relation="swap"),
        lambda: c.BrownianOdometer(1e-6, 1.0, relation="swap"),
        lambda: c.ExPostOdometer(relation="swap"),
        lambda: budget.smallest_time(budget.init(), c.LaplaceReduction, REPLACED),
        lambda: nrjax.brownian(3.0, sizes[1], 1e-6, boundary=line),
        lambda: nrjax.Study("mixed", {"a": added, "b": interaction(REPLACED)}),
        lambda: nrjax.Case(trial=added, labels={"relation": "replace"}),
    ):
        with pytest.raises(ValueError, match=r"relation|labels must be"):
            mixed()
    nrjax.Study("mixed", {"a": added, "b": interaction(REPLACED)}, compares_relations=True)


def test_utilities_of_one_row_are_refused_for_groups_under_private_tests():
    """The sensitivity of a utility of counts is for one row, so the test would cost too little."""
    counts = np.array([30.0, 20.0, 5.0])
    utility = nrjax.counts.MeanAbsoluteError(counts)
    sensitivity = nrjax.counts.Neighbour.replace(3, 0, 1).l1_sensitivity
    single = nrjax.laplace(counts, sensitivity).until(utility, at_least=-2.0, private=True)
    assert single.relation == "replace"
    group = nrjax.laplace(counts, sensitivity.of_rows(3))
    with pytest.raises(
        ValueError, match="sensitivity of the utility must be stated for 'replace, 3"
    ):
        group.until(utility, at_least=-2.0, private=True)
    assert group.until(utility, at_least=-2.0).relation == "replace, 3 rows"


def test_the_utility_of_a_problem_is_for_one_relation():
    """Under add-remove, a row changes the risk by more than the replacement's sensitivity."""
    x = np.linspace(-1, 1, 40)[:, None]
    problem, ridge = (
        LogisticProblem.fit(x, np.sign(x[:, 0]), 0.1),
        RidgeProblem.fit(x, x[:, 0], 0.1),
    )
    added = problem.laplace(relation="add-remove", least_rows=20)
    assert added.until(at_least=-0.6, levels=(1.0, 2.0, 3)).relation == "add-remove"
    plain = dataclasses.replace(added, guarantee=nrjax.PureGuarantee(ADDED))
    sequence = nrjax.UtilitySequence.of([problem.utility] * 3)
    for utility in (problem.utility, problem.utility.excess_risk(), sequence):
        for mechanism in (added, plain):
            with pytest.raises(ValueError, match="relation of the utility must be 'add-remove'"):
                mechanism.until(utility, at_least=-0.6, levels=(1.0, 2.0, 3))
    with pytest.raises(ValueError, match="relation of the utility must be 'add-remove'"):
        plain.until(ridge.released_optimum("laplace").utility, at_least=-0.6, levels=(1.0, 2.0, 3))


def test_fixed_releases_of_two_relations_are_not_mixed():
    trials = {}
    for relation in NAMES[:2]:
        question = questions.histogram([1.0, 2.0, 3.0], EDGES, relation=relation)
        fixed = nrjax.FixedRelease(question.mechanisms["brownian"], 0.5)
        trials[relation] = fixed.until(question.score, at_least=-1.0, data=question.data)
        assert trials[relation].relation == relation
    with pytest.raises(ValueError, match="relation"):
        nrjax.Study("mixed", trials)


def test_reports_name_the_relation(tmp_path, monkeypatch):
    pytest.importorskip("xarray")
    monkeypatch.setattr(nrjax.Results, "write_figures", lambda self, writer: None)
    options = {"epsilon": 1.0, "delta": 1e-6, "keys_per_user": 1}
    trial = nrjax.counts.KeyThreshold.fitted([9, 1], "laplace", **options)
    case = nrjax.Case(trial=trial, labels={"relation": "add-remove, 2 rows"})
    nrjax.Study("keys", {"laplace": case}).run(tmp_path / "run", trials=10, progress=False)
    report = (tmp_path / "run" / "report.md").read_text()
    assert "up to 2 rows are added or removed (neighbours: add-remove, 2 rows)" in report
