"""Mechanisms and `until`: laws of the six parts, levels, private tests, mistakes."""

import copy
import dataclasses
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.guarantees import MinimaxBoundary
from nrjax.simulation.program import _on_devices
from nrjax.utilities import FunctionUtility
from tests.problems import Distance, small_logistic

KEY = jax.random.key(0)
TRUTH = np.array([30.0, 4.0])
ENDS = 0.3, 3.0, 12

line = nrjax.LinearBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
mixture = nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
OLD = {
    "linear": (nrjax.Brownian((2,)), line),
    "mixture": (nrjax.Brownian((2,)), mixture),
    "object": (nrjax.Brownian((2,)), mixture),
    "laplace": (nrjax.Laplace((2,)), nrjax.PureGuarantee(1.0)),
    "discrete": (nrjax.DiscreteLaplace((2,)), nrjax.DiscretePureGuarantee(1.0)),
}
"""Process and guarantee of the same mechanism, written out."""


def brownian(**options):
    return nrjax.brownian(TRUTH, 1.0, 1e-6, **options)


def made():
    return {
        "linear": brownian(tight_at_epsilon=0.3),
        "mixture": brownian(tight_at_epsilon=0.3, boundary=nrjax.OneSidedMixtureBoundary),
        "object": brownian(boundary=mixture),
        "laplace": nrjax.laplace(TRUTH, nrjax.Sensitivity(1.0, "l1")),
        "discrete": nrjax.discrete_laplace(TRUTH, 1.0),
    }


def worst(release, truth):
    return -jnp.max(jnp.abs(release - truth))


def level(release, score):
    return score + 0 * release


def numpy_score(release):
    return -np.abs(release).max()


def branching(release):
    return 0.0 if release[0] > 3 else -1.0


def rounded(release):
    return -float(release[0])


def vector(release):
    return -jnp.abs(release)


def nothing(release):
    vector(release)


@pytest.mark.parametrize("name", OLD)
def test_an_interaction_is_that_of_the_six_parts(name):
    mechanism, (process, guarantee) = made()[name], OLD[name]
    value, *rest = mechanism
    assert np.array_equal(value, TRUTH)
    assert rest == [process, guarantee]
    utility, rule = Distance(TRUTH), nrjax.PublicThreshold(-2.0)
    grid = nrjax.Grid.geometric(guarantee, *ENDS)
    parts = {"value": TRUTH, "process": process, "guarantee": guarantee, "schedule": grid}
    expected = nrjax.Interaction(**parts, utility=utility, rule=rule, shift=[1.0, 0.0])
    for found in (
        mechanism.until(utility, at_least=-2.0, levels=ENDS, shift=[1.0, 0.0]),
        mechanism.until(utility, rule=rule, levels=grid, shift=[1.0, 0.0]),
        mechanism.interaction(grid, utility, rule, shift=[1.0, 0.0]),
    ):
        assert found == expected


@pytest.mark.long
def test_a_function_gives_the_trials_of_a_utility_and_shares_its_program():
    mechanism = brownian()
    trial = mechanism.until(worst, at_least=-9.0, data=(TRUTH,), levels=ENDS)

    class Worst(Distance):
        def evaluate(self, hypothesis):
            return -jnp.max(jnp.abs(hypothesis - self.target))

    other = mechanism.until(Worst(TRUTH), at_least=-9.0, levels=ENDS)
    first, second = (nrjax.simulate(KEY, each, trials=64) for each in (trial, other))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    programs = _on_devices._cache_size()
    again = nrjax.brownian(2 * TRUTH, 2.0, 1e-5)
    again = again.until(worst, at_least=-3.0, data=(2 * TRUTH,), levels=ENDS)
    nrjax.simulate(KEY, again, trials=64)
    assert _on_devices._cache_size() == programs


@pytest.mark.parametrize("sensitivity", [1.0, nrjax.Sensitivity(3.0, "l2")])
def test_releases_under_the_minimax_boundary_cost_the_levels(sensitivity):
    mechanism = nrjax.brownian(TRUTH, sensitivity, 1e-6)
    open_until = {"at_least": -9.0, "data": (TRUTH,)}
    trial = mechanism.until(worst, levels=ENDS, **open_until)
    costs = np.asarray(trial.guarantee.epsilon(trial.schedule.times))
    np.testing.assert_allclose(costs, np.geomspace(*ENDS), rtol=1e-5)
    for settled in (mechanism.on(ENDS), mechanism.on(trial.schedule)):
        again = settled.until(worst, **open_until)
        np.testing.assert_array_equal(again.schedule.times, trial.schedule.times)
        np.testing.assert_allclose(again.guarantee.epsilon(again.schedule.times), costs, rtol=1e-6)
    by_hand = mechanism.interaction(trial.schedule, trial.utility, trial.rule)
    np.testing.assert_allclose(by_hand.guarantee.epsilon(trial.schedule.times), costs, rtol=1e-6)


def test_default_levels_are_those_that_the_mechanism_reaches():
    floor = float(line.sensitivity * line.a)
    expected = {
        "linear": (1.05 * floor, 10),
        "mixture": (0.01, 10),
        "laplace": (0.01, 10),
        "discrete": (0.01, 10 if jax.config.jax_enable_x64 else 5),
    }
    for name, ends in expected.items():
        trial = made()[name].until(worst, at_least=-9.0, data=(TRUTH,))
        costs = trial.guarantee.epsilon(trial.schedule.times)
        np.testing.assert_allclose((costs[0], costs[-1]), ends, rtol=1e-4)
        assert costs.shape == (100,)


def test_mechanisms_are_values():
    for mechanism in (brownian(), brownian().on(ENDS), *made().values()):
        for same in (
            copy.deepcopy(mechanism),
            pickle.loads(pickle.dumps(mechanism)),
            dataclasses.replace(mechanism),
            jax.tree.map(lambda leaf: leaf, mechanism),
        ):
            assert same == mechanism
            assert hash(same) == hash(mechanism)
        assert dataclasses.replace(mechanism, value=2 * TRUTH) != mechanism
        assert len(repr(mechanism)) < 200
    assert repr(brownian()).startswith("Mechanism(value=float64 [30.0, 4.0], process=Brownian")
    assert brownian() == nrjax.brownian([30.0, 4.0], 1.0, 1e-6)
    assert brownian() != nrjax.brownian(TRUTH, 1.0, 1e-5)


def stopping(trial, trials=4000):
    """Return the fraction of trials that stop, and its standard error at a probability of 0.1."""
    stopped = nrjax.simulate(KEY, trial, trials=trials).stopped
    return np.mean(stopped), math.sqrt(0.09 / trials)


def test_a_private_test_rarely_accepts_a_score_below_its_target():
    """Every score is just below the target, and the first levels would accept too many of them."""
    levels = (0.01, 3.0, 60)
    mechanism = nrjax.laplace(0.0, 1.0)
    options = {"data": (-1.0,), "sensitivity": 0.1, "levels": levels}
    trial = mechanism.until(level, at_least=-1.0, margin=0.6, private=True, **options)
    costs = np.asarray(trial.guarantee.epsilon(trial.schedule.times))
    assert 0.01 < costs[0] < costs[-1] == pytest.approx(3.0, rel=1e-5)
    assert (trial.rule.threshold, trial.rule.sensitivity) == pytest.approx((-0.4, 0.1))
    found, error = stopping(trial)
    assert 0.05 < found < 0.1 + 3 * error
    # Planted faults: levels from half of the first level, and no margin.
    early = nrjax.Grid.geometric(trial.guarantee, 0.5 * costs[0], 3.0, costs.size)
    assert stopping(dataclasses.replace(trial, schedule=early))[0] > 0.1 + 3 * error
    rule = nrjax.ReducedAboveThreshold(-1.0, 0.1)
    assert stopping(dataclasses.replace(trial, rule=rule))[0] > 0.1 + 3 * error


def test_a_private_test_leaves_out_the_first_levels_of_any_kind():
    options = {"at_least": -1.0, "data": (TRUTH,), "private": True, "sensitivity": 0.1}
    firsts = []
    for mechanism in (brownian(), brownian(tight_at_epsilon=0.3), nrjax.laplace(TRUTH, 1.0)):
        grid = mechanism.until(worst, rule=nrjax.PublicThreshold(0.0), data=(TRUTH,), levels=ENDS)
        for levels in (ENDS, grid.schedule):
            trial = mechanism.until(worst, levels=levels, **options)
            assert trial.rule.threshold == -0.25  # by default 3/4 of the way to the best score, 0
            costs = trial.guarantee.epsilon(trial.schedule.times)
            np.testing.assert_allclose(costs, np.geomspace(*ENDS)[-costs.size :], rtol=1e-5)
            firsts.append(costs.size)
    assert set(firsts) == {firsts[0]}
    assert 1 < firsts[0] < ENDS[-1]
    # At the levels (0.229, 1.45, 4) this boundary costs 0.234, 0.432 and 0.798 only.
    times = np.geomspace(1000.0, 10.0, 5)
    boundary = nrjax.HockeyStickBoundary.design(times, np.ones(5), 1.0, 1e-6)
    options |= {"at_least": -30.0, "sensitivity": 1.0, "levels": (0.229, 1.45, 4)}
    trial = nrjax.brownian(TRUTH, 1.0, 1e-6, boundary=boundary).until(worst, **options)
    costs = trial.guarantee.epsilon(trial.schedule.times)
    wrong = nrjax.stopping.accuracy.acceptance_probability(22.5, costs, 1.0)
    assert np.sum(wrong) <= 0.1
    problem = small_logistic()
    target = -1.5 * problem.optimum_loss
    trial = problem.laplace().until(at_least=target, private=True)
    assert trial.rule.threshold == pytest.approx(-1.125 * problem.optimum_loss)
    assert trial.rule.sensitivity == pytest.approx(problem.utility_sensitivity)


def until(score=worst, **changes):
    return lambda: brownian().until(
        score, **{"at_least": -9.0, "data": (TRUTH,), "levels": ENDS} | changes
    )


def private(**changes):
    return until(**{"private": True, "sensitivity": 1.0} | changes)


def traced(boundary):
    return lambda s: nrjax.brownian(0.0, s, 1e-6, boundary=boundary).guarantee.epsilon(1.0)


TRACE = r"score must be a function that JAX can trace \(got {}, .*\). Write jnp for np"
BARE = {"data": ()}
MISTAKES = [
    (until(numpy_score, **BARE), TRACE.format("numpy_score")),
    (until(branching, **BARE), TRACE.format("branching")),
    (until(rounded, **BARE), TRACE.format("rounded")),
    (until(vector, **BARE), r"result of score must be a scalar \(got .*\[2\]\). Reduce it"),
    (until(nothing, **BARE), r"result of score must be a scalar \(got None\)"),
    (until(data=()), r"score must take a release and its data, here float\d\d\[2\] \(got worst"),
    (until(data=(np.ones(3),)), "got worst, which raised TypeError: .* shapes"),
    (until(data=TRUTH), r"data must be a tuple of arguments .* data=\(truth,\)"),
    (until(3), "score must be a function of a release, or a nrjax.Utility"),
    (until(None), "score must be given for a mechanism without a utility"),
    (until(Distance(TRUTH)), r"data must be \(\) for a nrjax.Utility"),
    (until(sensitivity=-1.0), "sensitivity must be positive"),
    (until(at_least=None), "at_least must be given, or else a rule .* For example"),
    (until(rule=nrjax.PublicThreshold(0.0)), "rule must be None if at_least is given"),
    (until(levels=(1, 10)), r"levels must be \(low, high, count\), or a schedule"),
    (until(levels=(-1, 10, 5)), "low, high and count must be positive"),
    (until(levels=(10, 1, 5)), "low < high"),
    (until(levels=nrjax.AdaptiveTimes(9.0, lambda *_: 1.0, 1.0, 9)), "schedule must be one of fix"),
    (until(margin=1.0), "margin must be None for a public test"),
    (until(confidence=0.9), "confidence must be None for a public test"),
    (private(confidence=1.0), "confidence must be"),
    (private(sensitivity=None), "sensitivity must be given for a private test"),
    (private(at_least=0.5), "at_least must be below 0, the best score .* state margin="),
    (private(at_least=TRUTH), "at_least must be one finite number"),
    (private(at_least=-0.1), "margin must be at least .* at the last level .*smaller at_least"),
    (private(at_least=None, rule=nrjax.PublicThreshold(0.0)), "private must be False"),
    (lambda: nrjax.brownian(TRUTH, 1.0, 0.0), "delta must be strictly between 0 and 1"),
    (lambda: nrjax.brownian(TRUTH, nrjax.Sensitivity(1, "l1"), 1e-6), "an l2-sensitivity"),
    (lambda: nrjax.PureGuarantee(nrjax.Sensitivity(1, "l2")), "an l1-sensitivity"),
    (
        lambda: nrjax.SphericalPureGuarantee(nrjax.Sensitivity(1, "l1")),
        "by which Spherical Laplace",
    ),
    (lambda: nrjax.laplace([1.0, np.nan], 1.0), "value must be finite"),
    (lambda: nrjax.laplace("many", 1.0), "value must be numbers"),
    (lambda: nrjax.discrete_laplace(1.5, 1.0), "value must be integers"),
    (lambda: brownian(boundary="linear"), "tight_at_epsilon must be given .* LinearBoundary"),
    (lambda: brownian(boundary="best"), "boundary must be 'minimax', 'linear', a class"),
    (lambda: brownian(boundary=3, tight_at_epsilon=0.3), "boundary must be 'minimax'"),
    (lambda: brownian(boundary=line, tight_at_epsilon=0.3), "tight_at_epsilon must be None"),
    (lambda: nrjax.brownian(TRUTH, 2.0, 1e-6, boundary=line), "sensitivity must be .* boundary, 1"),
    (lambda: nrjax.brownian(TRUTH, 1.0, 1e-7, boundary=line), "delta must be .* boundary, 1e-06"),
    (lambda: nrjax.brownian(TRUTH, [1.0, 5.0], 1e-6, boundary=line), "sensitivity must be pos"),
    (lambda: nrjax.brownian(TRUTH, 1.0, "1e-9", boundary=line), "delta must be strictly between"),
    (lambda: jax.vmap(traced(line))(jnp.ones(2)), "sensitivity must be .* cannot be compared"),
    (lambda: brownian(boundary=nrjax.PureGuarantee(1.0)), "guarantee must be for gaussian noise"),
    (lambda: nrjax.Mechanism(TRUTH, line, None), "process must be an instance"),
    (lambda: nrjax.Mechanism(TRUTH, nrjax.Laplace(()), None), "shape of value must be"),
    (lambda: nrjax.Mechanism(TRUTH, nrjax.Laplace((2,)), line), "guarantee must be for laplace"),
    (
        lambda: nrjax.Mechanism(TRUTH, nrjax.Laplace((2,)), None).until(worst, at_least=-1.0),
        "guarantee must be given for levels of epsilon",
    ),
    (lambda: nrjax.Grid.geometric(brownian().guarantee, *ENDS), "Use mechanism.until"),
    (lambda: MinimaxBoundary(0.0, 1e-6), "sensitivity must be positive"),
    (lambda: FunctionUtility(worst, TRUTH), "data must be a tuple"),
]


def broken(release):
    return {}["scale"] * release


def test_an_error_that_a_trace_does_not_explain_passes_through():
    with pytest.raises(KeyError, match=r"^'scale'"):
        until(broken, **BARE)()


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert len(str(raised.value)) < 300


def test_a_mechanism_keeps_its_value_if_the_array_is_refilled():
    value = np.full(2, 5.0)
    mechanism, utility = nrjax.laplace(value, 1.0), FunctionUtility(worst, (value,))
    value[:] = 99.0
    assert mechanism.value.tolist() == utility.data[0].tolist() == [5.0, 5.0]
