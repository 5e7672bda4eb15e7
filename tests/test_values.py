"""Public values compare, hash, copy, pickle, map and print without surprises."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax import counts, datasets, erm, private_selection, questions
from tests.problems import Distance, interaction, small_data

LINE = nrjax.LinearBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6)
GRID = nrjax.Grid([4.0, 2.0, 1.0])


def halve(parameters, time, release):
    return time / 2


def smooth(theta, row, label):
    return jnp.sqrt(1 + (row @ theta - label) ** 2)


@cache
def problem(kind):
    x, y = small_data()
    more = {"max_norm": 1.0, "label_range": (-1.0, 1.0), "lipschitz": 1.0}
    if kind is erm.OutputProblem:
        return kind.fit(smooth, x, y, 0.05, **more)
    return kind.fit(x, y, 0.05)


def filtered():
    budget = nrjax.UnifiedFilter(1.0, 1e-6)
    return c.FilteredSchedule(GRID, budget, budget.init(), c.BrownianReduction, 1.0)


def count_release():
    parts = counts.ExponentialMechanism(0.1), counts.RelativeError(0.1)
    budget = nrjax.UnifiedFilter(1.0, 1e-6, relation="add-remove")
    return counts.CountRelease([30, 7], *parts, budget, smallest=1e-6)


def key_threshold():
    return counts.KeyThreshold.fitted([9, 1], "laplace", epsilon=1.0, delta=1e-6, keys_per_user=1)


def found(part):
    return getattr(counts.unknown_keys([9, 1], keys_per_user=1, delta=1e-6), part)


def outcome(trials=None):
    numbers = jnp.full(() if trials is None else trials, jnp.nan)
    status = jnp.full(numbers.shape, nrjax.Status.EXHAUSTED, jnp.int32)
    return nrjax.Outcome(status, *[numbers] * 8, status)


BUILDERS: tuple[Callable[[], Any], ...] = (
    lambda: nrjax.Brownian((3,)),
    lambda: nrjax.DiscreteLaplace(()),
    lambda: nrjax.IndependentLaplace(()),
    lambda: nrjax.Laplace((3,)),
    lambda: nrjax.LaplaceJumps((), 0.1, 10.0),
    lambda: nrjax.Skellam((), 1.0, 2.0),
    lambda: nrjax.SphericalLaplace((3,)),
    lambda: nrjax.SphericalPureGuarantee(1.0),
    lambda: nrjax.processes.Exponential(()),
    lambda: LINE,
    lambda: nrjax.MixtureBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
    lambda: nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
    lambda: nrjax.RenyiBoundary.tight_at_epsilon(0.5, 1.0, 1e-6),
    lambda: nrjax.RenyiMixture(1.0, 1e-6, (5.0, 50.0), (0.4, 0.6)),
    lambda: nrjax.HockeyStickBoundary.single(1.0, 1e-6, epsilon=0.5),
    lambda: LINE.on(GRID),
    lambda: nrjax.guarantees.MinimaxBoundary(1.0, 1e-6),
    lambda: nrjax.guarantees.Notion.HOCKEY_STICK,
    lambda: nrjax.PureGuarantee(nrjax.Sensitivity(1.0, "l1")),
    lambda: nrjax.DiscretePureGuarantee(1),
    lambda: GRID,
    lambda: nrjax.AdaptiveTimes(8.0, halve, 1.0, 4),
    filtered,
    lambda: Distance(np.zeros(100)),
    lambda: nrjax.UtilitySequence.of([Distance(1.0), Distance(2.0)]),
    lambda: nrjax.utilities.FunctionUtility(halve, (np.ones(3),)),
    lambda: nrjax.PublicThreshold([1.0, np.inf]),
    lambda: nrjax.AboveThreshold(0.0, 1.0, 0.5),
    lambda: nrjax.ReducedAboveThreshold(0.0, 1.0),
    lambda: nrjax.LaplaceTests(0.0, 1.0, 0.5),
    lambda: nrjax.GaussianThreshold(0.0, 1.0, -0.5, 0.5, 3.8, 5.7, steps=10),
    interaction,
    lambda: nrjax.brownian(np.zeros(100), 1.0, delta=1e-6),
    lambda: nrjax.Releases.of(1.0, nrjax.Laplace(()), nrjax.PureGuarantee(1.0)),
    lambda: nrjax.Sensitivity(1.0, "l2"),
    outcome,
    lambda: outcome(1000),
    lambda: nrjax.Path(*outcome(5)[1:]),
    lambda: nrjax.Status.NO_TIME,
    lambda: nrjax.Batching(lanes=8),
    lambda: nrjax.Audit("holds", (0.0, 1e-6), 1e-6, 1e-6, "mean", "mean", None, 9, None, 0.99),
    lambda: nrjax.LogBins(-1, 1, 2),
    lambda: nrjax.WholeBins(0, 3),
    lambda: nrjax.Quantity(abs, dims=["level"]),
    lambda: nrjax.Curve(interaction(), {"utility": nrjax.Quantity()}, along={"x": np.ones(50)}),
    lambda: nrjax.Case(trial=interaction(), coordinates={"level": ("level", np.ones(50))}),
    lambda: nrjax.Study("mean", {"brownian": interaction()}),
    lambda: nrjax.Reporting(),
    lambda: nrjax.Sample(np.arange(1000.0)),
    lambda: nrjax.Outcomes({"brownian": outcome(10)}),
    lambda: nrjax.FixedRelease(nrjax.laplace(3.0, sensitivity=1.0), epsilon=0.5),
    lambda: nrjax.Choice("mean", 0.5, 0.9, "laplace", (), (), (), "Take laplace.", None),
    lambda: c.ZCDPFilter(1.0, 1e-6),
    lambda: c.UnifiedFilter(1.0, 1e-6),
    lambda: c.GaussianFilter(1.0, 1e-6),
    lambda: c.ExPostFilter(1.0, 1e-6),
    lambda: c.SideBySideFilter(c.UnifiedFilter(1.0, 1e-6), c.ExPostFilter(1.0, 1e-6)),
    lambda: c.RenyiFilter(16.0, 1.0, 1e-6),
    lambda: c.RenyiFilter(16.0, 1.0, 1e-6).init(rounds=2),
    lambda: c.BrownianOdometer(1e-6, 1.0),
    lambda: c.OneSidedBrownianOdometer(1e-6, 1.0),
    lambda: c.RenyiOdometer(16.0, 1e-6),
    lambda: c.ExPostOdometer(),
    lambda: c.ZCDP(0.1),
    lambda: c.GDP(0.1),
    lambda: c.Pure(0.1),
    lambda: c.BoundedRange(0.1),
    lambda: c.ExPost(0.1, cap=0.2),
    lambda: c.LaplaceMechanism(1.0, 2.0),
    lambda: c.BrownianReduction(1.0, 2.0),
    lambda: c.LaplaceReduction(1.0, 2.0),
    lambda: c.DiscreteLaplaceReduction(1, 2.0),
    lambda: problem(erm.LogisticProblem),
    lambda: problem(erm.LogisticProblem).minimum,
    lambda: problem(erm.LogisticProblem).released("gaussian"),
    lambda: problem(erm.LogisticProblem).released("laplace").mechanism(),
    lambda: problem(erm.LogisticProblem).utility.excess_risk(),
    lambda: erm.ObjectivePerturbation(problem(erm.LogisticProblem), 1.0),
    lambda: erm.bounded_release(problem(erm.LogisticProblem), 0.03, 0.9, 1e-6),
    lambda: erm.ObjectivePerturbation(problem(erm.LogisticProblem), 1.0).mechanism.guarantee,
    lambda: erm.ObjectivePerturbation(problem(erm.LogisticProblem), 1.0).mechanism.process,
    lambda: erm.PerturbedPath(np.eye(2), np.ones(2) / 2, 2.0, 0.1, 0.0, np.zeros(2), np.eye(2)),
    lambda: problem(erm.OutputProblem),
    lambda: problem(erm.OutputProblem).utility,
    lambda: problem(erm.RidgeProblem),
    lambda: problem(erm.RidgeProblem).released("gaussian").utility,
    lambda: problem(erm.RidgeProblem).released_optimum("laplace").utility,
    lambda: jax.jit(erm.minimise_in_ball)(np.eye(3), np.ones(3), 1.0),
    lambda: datasets.zipf_counts(8000),
    lambda: datasets.describe({"a": [1, 2]}),
    lambda: datasets.describe({"a": [1, 2]}).columns[0],
    lambda: datasets.Dataset("own", "ridge", np.ones((50, 3)), np.ones(50), ("a", "b", "c")),
    lambda: counts.ShareOutside.relative([30, 7], 0.1),
    lambda: counts.MeanAbsoluteError(np.ones(50)),
    lambda: counts.Neighbour.replace(50, 0, 1),
    lambda: counts.RelativeError(0.1),
    lambda: counts.RelativeError(0.1).utility(nrjax.Brownian(()), np.ones(50)),
    lambda: counts.ExponentialMechanism(0.1),
    *(partial(found, part) for part in ("process", "guarantee")),
    lambda: counts.KeysShown(5.0),
    key_threshold,
    lambda: counts.KeyCounts(np.ones(3), np.ones(())),
    count_release,
    lambda: counts.CountOutcome(*[np.ones(3)] * len(counts.CountOutcome._fields)),
    lambda: nrjax.PoissonSelection(smooth, [0.5, 1.0], 2.0, others=1.0),
    lambda: private_selection.RepeatedSelection(smooth, 0.5, 0.1),
    lambda: private_selection.Candidate(jnp.float32(0.5), np.ones(3)),
    lambda: private_selection.Selected(*[np.ones(3)] * 4),
    lambda: private_selection.Simulated(private_selection.Selected(*[np.ones(3)] * 4), np.ones(3)),
    lambda: counts.FirstPassage(*[np.ones(3)] * 5),
    lambda: erm.TrivialLosses(0.7, 0.5),
    lambda: questions.mean([1.0, 4.0], (0.0, 5.0)),
    lambda: questions.count([True, False]),
    lambda: questions.counts(["a", "b"], within=100),
    lambda: questions.vector_mean(np.ones((2, 3)), 1.0),
    lambda: questions.logistic_regression(*small_data()),
    lambda: questions.custom(halve),
    lambda: nrjax.stopping.FirstYes(*[np.ones(3)] * len(nrjax.stopping.FirstYes._fields)),
)

BY_IDENTITY = {
    *(nrjax.Case, nrjax.Curve, nrjax.Study, nrjax.Reporting, nrjax.Sample, nrjax.Outcomes),
    *(datasets.Counts, datasets.Dataset, counts.Neighbour, nrjax.Choice, nrjax.FixedRelease),
    *(questions.Question, questions.Custom),
}
"""Classes whose copies are not equal."""
MODULES = (
    *("composition", "counts", "datasets", "erm", "guarantees", "private_selection"),
    *("processes", "questions", "stopping"),
)
SPECIAL = {
    nrjax.Pytree,
    nrjax.Distribution,
    nrjax.Results,
    nrjax.FailedTrialsWarning,
    nrjax.FirstLevelWarning,
    nrjax.NoStopWarning,
    datasets.Available,
    datasets.PrivacyLeakWarning,
}
"""Classes without an instance in the table."""


def copies(value):
    yield copy.copy(value)
    yield copy.deepcopy(value)
    yield pickle.loads(pickle.dumps(value))
    yield jax.tree.map(lambda leaf: leaf, value)
    if dataclasses.is_dataclass(value):
        yield dataclasses.replace(value)


def moved(leaf):
    return leaf + 1 if isinstance(leaf, (int, float, np.ndarray, jax.Array)) else leaf


def check_value(value):
    assert value == value
    assert {value: 1}[value] == 1
    for other in (None, 7, "text", np.zeros(3), ()):
        assert not np.all(value == other)
    text = repr(value)
    assert len(text) <= 600
    assert "\n" not in text
    assert "<function" not in text
    for copied in copies(value):
        assert type(copied) is type(value)
        if type(value) in BY_IDENTITY:
            assert (copied == value) == (copied is value)
        else:
            assert copied == value
            assert hash(copied) == hash(value)
            assert repr(copied) == text
    if jax.tree.leaves(value) and not jax.tree_util.all_leaves([value]):
        assert jax.tree.map(moved, value) != value


@pytest.mark.parametrize("build", BUILDERS)
def test_values_behave(build):
    check_value(build())


@pytest.mark.parametrize("build", BUILDERS)
def test_values_are_made_under_checks_of_your_code(build):
    usual = build()
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        made = build()
    same = zip(jax.tree.leaves(usual), jax.tree.leaves(made), strict=True)
    assert type(made) is type(usual)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in same if hasattr(a, "dtype"))


class Plain(NamedTuple):
    numbers: Any


class Wordy(nrjax.Pytree):
    numbers: Any

    def __repr__(self):
        return f"Wordy({self.numbers})"


class Forgetful(nrjax.Pytree):
    numbers: Any

    __hash__ = nrjax.Pytree.__hash__

    def __eq__(self, other):
        return isinstance(other, Forgetful)


@pytest.mark.parametrize("kind", [Plain, Wordy, Forgetful])
def test_a_class_that_raises_or_is_wordy_or_compares_wrongly_is_found(kind):
    with pytest.raises((AssertionError, TypeError, ValueError)):
        check_value(kind(np.ones((9, 9))))


def public():
    """Return the objects that public modules export."""
    modules = [nrjax, *(getattr(nrjax, name) for name in MODULES)]
    return [getattr(module, name) for module in modules for name in module.__all__]


def test_every_public_name_is_pickled_by_its_name():
    for one in public():
        if callable(one):
            assert pickle.loads(pickle.dumps(one)) is copy.deepcopy(one) is one
            assert {one: 1}[one] == 1


def test_what_a_question_offers_survives_a_pickle():
    question = questions.mean([1.0, 4.0], (0.0, 5.0))
    copied = pickle.loads(pickle.dumps(question))
    assert copied.fixed_time("laplace", 0.5, 0.9) == question.fixed_time("laplace", 0.5, 0.9)
    assert copied.mechanisms == question.mechanisms
    regression = questions.logistic_regression(*small_data())
    copied = pickle.loads(pickle.dumps(regression))
    assert copied.bound_time("brownian", 0.5, 0.9) == regression.bound_time("brownian", 0.5, 0.9)


def test_every_public_class_has_a_value():
    names = public()
    classes = {one for one in names if inspect.isclass(one) and not inspect.isabstract(one)}
    missing = classes - SPECIAL - {type(build()) for build in BUILDERS}
    assert not missing


def test_lists_of_names_and_of_devices_can_be_hashed():
    for make in (
        partial(nrjax.Quantity, dims=["level"]),
        partial(nrjax.Batching, devices=jax.devices()),
    ):
        assert {make(): 1}[make()] == 1


def test_a_status_has_words():
    for status in nrjax.Status:
        assert f"{status}" == str(status) == status.name
        assert status.sentence.endswith(".")
        assert f"{status}: {int(status)}. {status.sentence}" in inspect.getdoc(nrjax.Status)
        assert nrjax.Status(np.int32(status)) is nrjax.Status(jnp.int32(status)) is status
    status = np.array([1, 2, 1, 1], np.int32)
    assert "status=3 STOPPED, 1 EXHAUSTED)" in repr(outcome(4)._replace(status=status))
    for strange in (jnp.int32(77), None, jax.ShapeDtypeStruct((), jnp.int32)):
        assert "status=" in repr(outcome()._replace(status=strange))
    for wrong in (jnp.int32(77), "STOPPED", None):
        with pytest.raises(ValueError, match="is not a valid Status"):
            nrjax.Status(wrong)
    traced = []
    jax.jit(lambda outcome: traced.append(repr(outcome)))(outcome())
    assert "status=traced int32[]" in traced[0]
