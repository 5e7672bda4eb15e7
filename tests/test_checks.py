"""Bad arguments are refused with a message that names them, and narrow numbers are widened."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import private_selection as selected
from nrjax.composition import conversions
from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity
from nrjax.erm._stated_bounds import StatedBounds
from nrjax.stopping import first_yes
from tests.custom import GUARANTEE, LARGEST, Costs, Counting, Part, run
from tests.problems import Distance, interaction, scalar

KEY = jax.random.key(3)
OBJECTS = (None, "a", np.array([None]), np.array(["1"]), 1j, [1.0, 2.0], np.zeros(0))
X, Y = np.ones((4, 2)) / 2, np.array([1.0, -1.0, 1.0, -1.0])
PURE = nrjax.PureGuarantee(1.0)
NORM = nrjax.Sensitivity(0.01, "l2")
FILTER = nrjax.UnifiedFilter(1.0, 1e-6)
REQUEST = nrjax.composition.Pure(0.1)
KIND = nrjax.composition.BrownianReduction
PAID = FILTER, FILTER.init(), KIND, 1.0
LAPLACE = nrjax.laplace(3.0, 1.0)
LINEAR = partial(nrjax.brownian, 3.0, 1.0, 1e-6, boundary="linear")
MEAN = nrjax.questions.mean([0.5, 1.0], (0.0, 1.0))
PRIOR = [4.0, 2.0, 1.0], [1.0, 1.0, 1.0]
ERROR = nrjax.counts.RelativeError(0.1)
RAGGED = [[1.0], [2.0, 3.0]]


def simulate(trials, **changes):
    return nrjax.simulate(KEY, interaction(**changes), trials=trials)


NUMBERS = [
    ("sensitivity", nrjax.PureGuarantee),
    ("sensitivity", lambda bad: nrjax.LinearBoundary(bad, 1e-6, 1.0, 10.0)),
    ("delta", lambda bad: nrjax.LinearBoundary(1.0, bad, 1.0, 10.0)),
    ("rho", lambda bad: nrjax.MixtureBoundary(1.0, 1e-6, bad)),
    ("sensitivity", lambda bad: nrjax.AboveThreshold(0.0, bad, 0.5)),
    ("epsilon", lambda bad: nrjax.AboveThreshold(0.0, 1.0, bad)),
    ("epsilon", lambda bad: nrjax.LaplaceTests(0.0, 1.0, bad)),
    ("sensitivity", lambda bad: nrjax.ReducedAboveThreshold(0.0, bad)),
    ("sensitivity", lambda bad: nrjax.Sensitivity(bad, "l1")),
    ("sensitivity", lambda bad: nrjax.laplace(3.0, bad)),
    ("delta", lambda bad: nrjax.brownian(3.0, 1.0, bad)),
    ("delta", lambda bad: nrjax.BrownianOdometer(bad, 1.0)),
    ("tight_at_epsilon", lambda bad: LINEAR(tight_at_epsilon=bad)),
    ("epsilon", lambda bad: nrjax.FixedRelease(LAPLACE, bad)),
    ("time", lambda bad: nrjax.FixedRelease.at_time(LAPLACE, bad)),
    ("Pure.epsilon", nrjax.composition.Pure),
    ("BrownianReduction.sensitivity", lambda bad: KIND(bad, 1.0)),
    ("sensitivity", lambda bad: FILTER.smallest_time(FILTER.init(), KIND, bad)),
    ("confidence", lambda bad: nrjax.choose(MEAN, 0.1, bad)),
    ("indifference", lambda bad: nrjax.choose(MEAN, 0.1, indifference=bad)),
    ("shape", lambda bad: nrjax.private_selection.negative_binomial_cost(0.5, bad)),
]
CALLS = [
    ("threshold", nrjax.PublicThreshold),
    ("threshold", lambda bad: nrjax.AboveThreshold(bad, 1.0, 1.0)),
    ("labels", lambda bad: LogisticProblem.fit(X, bad, 0.1)),
    ("labels", lambda bad: RidgeProblem.fit(X, bad, 0.1)),
    ("features", lambda bad: RidgeProblem.fit(bad, Y, 0.1)),
    ("regularisation", lambda bad: LogisticProblem.fit(X, Y, bad)),
    ("low", lambda bad: nrjax.Grid.geometric(PURE, bad, 1.0, 5)),
    ("high", lambda bad: nrjax.Grid.linear(PURE, 0.1, bad, 5)),
    ("guarantee", lambda bad: nrjax.Grid.linear(bad, 0.1, 1.0, 5)),
    ("times", nrjax.Grid),
    ("epsilon", lambda bad: nrjax.LinearBoundary.tight_at_epsilon(bad, 1.0, 1e-6)),
    ("delta", lambda bad: nrjax.MixtureBoundary.tight_at_time(1.0, 1.0, bad)),
    ("epsilon", PURE.time),
    ("time", PURE.epsilon),
    ("rate1", lambda bad: nrjax.Skellam((), bad, 1.0)),
    ("eta", lambda bad: nrjax.LaplaceJumps((), bad, 2.0)),
    ("rule", lambda bad: first_yes(KEY, bad, [1.0])),
    ("utilities", lambda bad: first_yes(KEY, nrjax.PublicThreshold(0.0), bad)),
    ("epsilons", lambda bad: first_yes(KEY, nrjax.ReducedAboveThreshold(0.0, 1.0), [1.0], bad)),
    ("value", lambda bad: interaction(value=bad)),
    ("max_steps", lambda bad: interaction(max_steps=bad or "")),
    ("trials", simulate),
    ("key", run),
    ("process", lambda bad: interaction(process=bad)),
    ("schedule", lambda bad: LAPLACE.interaction(bad, Distance(3.0), nrjax.PublicThreshold(0.0))),
    ("process", lambda bad: nrjax.noise_path(KEY, bad, [2.0, 1.0])),
    ("times", lambda bad: nrjax.noise_path(KEY, nrjax.Laplace(()), bad)),
    ("mechanism", lambda bad: nrjax.FixedRelease(bad, 0.5)),
    ("notion", lambda bad: nrjax.FixedRelease(LAPLACE, 0.5, bad)),
    ("notion", lambda bad: nrjax.FixedRelease.at_time(LAPLACE, 2.0, bad)),
    ("boundary", lambda bad: nrjax.brownian(3.0, 1.0, 1e-6, boundary=bad)),
    ("private", lambda bad: LAPLACE.until(abs, at_least=-1.0, private=bad)),
    ("noise", lambda bad: nrjax.AboveThreshold(0.0, 1.0, 0.5, noise=bad)),
    ("norm", lambda bad: nrjax.Sensitivity(1.0, bad)),
    ("conversion", lambda bad: nrjax.UnifiedFilter(1.0, 1e-6, conversion=bad)),
    ("objective", lambda bad: nrjax.RenyiMixture.design(*PRIOR, 1.0, 1e-6, objective=bad)),
    ("orders", lambda bad: nrjax.RenyiMixture.design(*PRIOR, 1.0, 1e-6, orders=[bad, "a"])),
    ("orders", lambda bad: nrjax.RenyiMixture(1.0, 1e-6, bad, [1.0])),
    ("orders", lambda bad: nrjax.private_selection.repeated_divergence(bad, [0.1], 2.0, 1.0)),
    ("schedule", lambda bad: nrjax.composition.FilteredSchedule(bad, *PAID)),
    ("utilities", nrjax.UtilitySequence.of),
    ("data", lambda bad: nrjax.PoissonSelection(abs, [0.5], 2.0, data=bad)),
    ("progress", lambda bad: nrjax.simulate(KEY, interaction(), trials=1, progress=bad)),
    ("x", lambda bad: nrjax.questions.mean(bad, (0.0, 1.0))),
    ("bounds", lambda bad: nrjax.questions.mean([0.5], bad)),
    ("within", lambda bad: nrjax.questions.counts(["a", "b"], bad)),
]


@pytest.mark.parametrize(
    ("name", "call", "objects"),
    [*[(*row, OBJECTS) for row in NUMBERS], *[(*row, OBJECTS[:3]) for row in CALLS]],
)
def test_values_that_are_not_numbers(name, call, objects):
    for bad in objects:
        with pytest.raises(ValueError, match=rf"^(shape of )?{name} must"):
            call(bad)


SKELLAM = {"process": nrjax.Skellam((), 1.0, 1.0), "guarantee": None}
INDEPENDENT = {"process": nrjax.IndependentLaplace(()), "guarantee": None}
INTERACTIONS = [
    ({"value": [[3.0]]}, r"shape of value must be \(\), the process's shape \(got \(1, 1\)\)"),
    ({"value": np.zeros(2)}, r"shape of value must be \(\)"),
    ({"value": np.nan}, "value must be finite"),
    ({"value": 1e16}, "Subtract a public centre"),
    ({"shift": np.zeros(2)}, r"shape of shift must be \(\)"),
    ({"shift": 0.5, **SKELLAM}, "shift must"),
    ({"shift": 1.0, **INDEPENDENT}, r"shift must be None for IndependentLaplace"),
    ({"shift": 2.0}, r"shift must be of l2 norm at most 1, the sensitivity of the guar"),
    (
        {"shift": 3.0, "process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(2)},
        "must be of l1 norm at most 2",
    ),
    ({"guarantee": Part(GUARANTEE, "delta", lambda delta: delta)}, "delta of Part must be a"),
    ({"shift": "1"}, "shift must be numbers"),
    ({"rule": nrjax.AboveThreshold(np.int64(2**40), 1.0, 0.5)}, "resolve the sensitivity"),
    ({"utility": Distance(np.array([2**40]))}, r"utility.*target must be within int32"),
    ({"max_steps": 0}, "max_steps must be an integer, at least 1"),
    ({"max_steps": 1.5}, "max_steps must be an integer"),
    ({"max_steps": True}, "max_steps must be an integer"),
    ({"max_steps": 2**31}, "must be an integer, at least 1 and below"),
    ({"guarantee": PURE}, "must be for gaussian noise, which Brownian"),
    ({"process": nrjax.Laplace(())}, "must be for laplace noise, which Laplace makes"),
    ({"process": nrjax.Brownian}, "process must be an instance"),
    ({"process": Part(nrjax.Brownian(()), "shape", 3)}, "shape of Part must be a tuple"),
    ({"rule": -2.0}, r"rule must be an instance of nrjax\.StoppingRule"),
    ({"utility": abs}, r"utility must be an instance of nrjax\.Utility .*FunctionUtility"),
    ({"key": 0}, "key must be a JAX random key"),
    ({"key": jax.random.key(0, impl="rbg")}, "must be of the generator threefry2x32"),
    ({"utility": Distance(lambda release: release)}, r"utility.target must be a number"),
    ({"utility": Distance("far")}, r"must be .* \(got 'far'\)\. .*nrjax.static\(\)"),
    ({"utility": Distance([3.0, "far"])}, r"utility.target\[1\] must"),
    ({"utility": Distance(LARGEST + 1)}, r"utility.target must be an integer"),
    ({"utility": Distance(np.int64(LARGEST + 1))}, r"holds exactly .*static\(\)"),
    ({"utility": Distance(10**400)}, "utility.target must be an integer"),
    ({"guarantee": Costs(lambda t: -1 / t)}, r"epsilon of Costs at time 100 must.*-0.0"),
    ({"guarantee": Costs(lambda t: 0 * t / 0)}, "at time 100 must be at l"),
    ({"guarantee": Costs(jnp.sqrt)}, r"at time 82.* must be at least 0 and at least 10"),
]


@pytest.mark.parametrize(("changes", "message"), INTERACTIONS)
def test_parts_that_do_not_fit(changes, message):
    if jnp.result_type(float) == jnp.float64 and ("int32" in message or "resolve" in message):
        pytest.skip("float64 holds these integers")
    with pytest.raises(ValueError, match=message):
        run(**changes)


ARGUMENTS = [
    (lambda: first_yes(KEY, Counting(LARGEST + 1), [1.0]), "fields of the rule must be int"),
    (lambda: nrjax.counts.release_count(KEY, RAGGED, ERROR, 1e-6, 0.1), "count must be a scalar"),
    (lambda: nrjax.counts.release_count(KEY, 3, ERROR, RAGGED, 0.1), "smallest must be a scalar"),
    *[
        (partial(nrjax.counts.KeyThreshold, np.ones(3), 1.0, 9.0, bad), "least must be a number")
        for bad in ("a", None, np.nan, [1.0])
    ],
    *[
        (partial(nrjax.counts.ShareOutside, np.ones(3), bad), r"slack must be numbers of sh.*3,")
        for bad in ("a", None, np.nan, -1.0, [1.0] * 3, np.ones(2))
    ],
    (lambda: nrjax.brownian([], 1.0, 1e-6), r"shape of value must be that of at least one"),
    (lambda: nrjax.Releases.of(np.zeros(0), nrjax.Laplace((0,))), "shape of value must be that"),
    (lambda: nrjax.choose(MEAN, 0.1, folder=["runs"]), "folder must be the path of a folder"),
    (lambda: nrjax.Results.open(None), "folder must be the path of a folder"),
    (lambda: nrjax.Batching(devices=np.array(3)), "devices must be a non-empty list"),
    (lambda: nrjax.LinearBoundary.tight_at_epsilon(NORM, 0.3, 1e-6), "epsilon must be"),
    (lambda: nrjax.RenyiBoundary.tight_at_time(NORM, 0.3, 1e-6), "Sensitivity"),
    (lambda: nrjax.LinearBoundary(1.0, NORM, 1.0, 10.0), "delta must .*Sensitivity"),
    (lambda: nrjax.Grid.geometric(Costs(abs), 0.1, 1.0, 10**9), "levels must be.*10000"),
    *[
        (partial(nrjax.Grid.explicit, bad), "times must be a vector of numbers")
        for bad in ("abc", ["a"], [[1.0], [2.0, 3.0]], None, np.array(["1"]))
    ],
    *[
        (partial(getattr(FILTER, ask), REQUEST, FILTER.init(rounds=1)), r"Pure\(epsilon=0.1\)")
        for ask in ("take", "admits", "open")
    ],
    *[
        (partial(getattr(FILTER, ask), FILTER.init(rounds=1), ()), r"request must be .*got \(\)")
        for ask in ("take", "admits", "open", "spend")
    ],
    (lambda: FILTER.cost(((), ())), "request must be a request, or a tuple of at least one"),
    (lambda: FILTER.close(FILTER.init(rounds=1), REQUEST, REQUEST), "round must be a handle"),
    (lambda: nrjax.laplace(RAGGED, 1.0), "value must be numbers"),
    (lambda: nrjax.laplace("45", 1.0), r"value must be numbers, not text \(got '45'\)"),
    (lambda: nrjax.laplace(["4", "5"], 1.0), "value must be numbers, not text"),
    (lambda: nrjax.PublicThreshold(RAGGED), "threshold must be a number, or a vector"),
    (lambda: nrjax.RenyiMixture(1.0, 1e-6, RAGGED, RAGGED), "orders must be positive"),
    (lambda: nrjax.questions.mean(["0.5", "1"], (0.0, 1.0)), "x must be numbers, not text"),
    (lambda: nrjax.questions.mean([0.5], (0.0, np.inf)), "bounds must be .*low < high"),
    (lambda: nrjax.Grid.linear(PURE, np.ones(2), 3.0, 5), "low and high must be single numbers"),
    (lambda: nrjax.Sensitivity(np.ones(2), "l1"), "sensitivity must be a single concrete number"),
    *[
        (partial(nrjax.Sensitivity, kind(2**53 + 1), "l1"), "sensitivity must be .* a float holds")
        for kind in (int, np.int64, np.uint64, np.array)
    ],
    (lambda: nrjax.PublicThreshold(np.timedelta64(1, "D")), "threshold must be a number"),
    (lambda: nrjax.Sensitivity(1.0, "l1", "replace").of_rows(10**400), "rows must be an integer"),
    (lambda: nrjax.choose(MEAN, 0.1, prior=(1.0, 0.1)), "prior must be epsilons"),
    (lambda: nrjax.choose(MEAN, 0.1, seed=True), "seed must be an integer"),
    (lambda: nrjax.choose(MEAN, 0.1, progress="no"), "progress must be True or False"),
    (lambda: nrjax.audit(interaction(shift=1.0), delta="1e-6"), "delta must be at least 0"),
    (lambda: nrjax.Releases.of(3.0, nrjax.Laplace(()), "pure"), "guarantee must be a nrjax.Guar"),
    (lambda: interaction(relation=3), "relation must be one of"),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def keys(**changes):
    options = {"keys_per_user": 3, "delta": 1e-3, "levels": (0.1, 1.0, 9), "relation": "replace"}
    return nrjax.counts.unknown_keys([9.0, 1.0], **options | changes)


def threshold(number):
    options = {"epsilon": 1.0, "delta": 1e-6, "relation": "replace", "keys_per_user": number}
    return nrjax.counts.KeyThreshold.fitted([9.0], "laplace", **options).scale


ORDERS = np.arange(2.0, 9.0)
NARROW = [
    (255, lambda n: selected.negative_binomial_cost(0.5, n)),
    (1e-3, lambda n: selected.negative_binomial_cost(0.5, n)),
    (255, lambda n: selected.repeated_divergence(ORDERS, ORDERS, 9.0, n)),
    (3, lambda n: conversions.of_group(0.1, 1e-6, n)),
    (200, lambda n: nrjax.counts.ExponentialMechanism(n, monotone=False).request.epsilon),
    (0.3, lambda n: nrjax.counts.ExponentialMechanism(n).scores(KEY, [2049.0, 1.0])),
    (200, lambda n: keys(keys_per_user=n).guarantee.sensitivity),
    (100, lambda n: keys(levels=(0.1, 1.0, n), keys_per_user=type(n)(3)).process.quantile),
    (1e-6, lambda n: keys(delta=n).process.quantile),
    (200, threshold),
    (0.1, lambda n: nrjax.AboveThreshold(0.0, 1.0, epsilon=0.1).cost(n)),
    (0.3, lambda n: sensitivity.output_l2(10**6, n, n, n)),
    (0.3, lambda n: sensitivity.ridge_output_l2(10**6, n, "tight", n)),
    (255, lambda n: sensitivity.removed_output_l2(n, 0.05)),
    (0.3, lambda n: sensitivity.evaluated(sensitivity.squared_loss(99, n), n)),
    (0.3, lambda n: sensitivity.excess_risk(n, n, n)),
    (0.05, lambda n: StatedBounds(n, type(n)(1.0), 1.0).ball),
    (3.0, lambda n: run(value=n).release),
    (0.5, lambda n: nrjax.Laplace(()).init(KEY, n).value),
    (0.5, lambda n: nrjax.counts.release_count(KEY, 41, ERROR, 1e-6, n).time),
    (7.1, lambda n: nrjax.questions.counts(["a", "b", "a"], n).sensitivity),
    (1.0, lambda n: nrjax.questions.count([n] * 2049).mechanisms["laplace"].value),
]


@pytest.mark.parametrize(("number", "call"), NARROW)
def test_numbers_of_few_bits_are_computed_with_in_full(number, call):
    """NumPy would wrap `2 * np.uint8(200)` to 144, and round `2 + np.float16(1e-3)` down."""
    narrow = (np.uint8 if isinstance(number, int) else np.float16)(number)
    wide = int(narrow) if isinstance(number, int) else np.float32(narrow)
    np.testing.assert_allclose(call(narrow), call(wide), rtol=1e-6)


def test_a_filter_pays_for_the_sensitivity_of_the_value():
    kind, grid = nrjax.composition.BrownianReduction, nrjax.Grid([100.0, 10.0, 1.0])
    paid = nrjax.composition.FilteredSchedule(grid, FILTER, FILTER.init(), kind, NORM)
    build = partial(interaction, schedule=paid)
    build(guarantee=None, shift=0.01)
    with pytest.raises(ValueError, match=r"shift must be of l2 norm at most 0.01, .*schedule"):
        build(guarantee=None, shift=1.0)
    expected = r"sensitivity of the schedule must be at least 0.3, that of the guarantee"
    with pytest.raises(ValueError, match=expected):
        build(guarantee=nrjax.LinearBoundary.tight_at_time(1.0, 0.3, 1e-6))


def test_messages_and_representations_contain_no_arrays():
    large = np.arange(1000.0)
    for shown in (Distance(large), nrjax.Grid(large[:0:-1]), nrjax.AboveThreshold(large, 1.0, 1.0)):
        assert len(repr(shown)) < 200
    with pytest.raises(ValueError, match=r"^threshold must be") as error:
        nrjax.PublicThreshold(np.append(large, np.nan))
    assert len(str(error.value)) < 200
    many = nrjax.Outcome(*[np.zeros(10, np.int32)] * len(nrjax.Outcome._fields))
    assert "step=int32[10]" in repr(many)
    assert "value=3.0" in repr(interaction())


@pytest.mark.parametrize("value", [[2, 1], jnp.array([2, 1]), [2.0, 1.0]], ids=repr)
def test_integers_are_values(value):
    parts = {"process": nrjax.Brownian((2,)), "utility": Distance(np.array([2.0, 1]))}
    outcome = simulate(np.int64(5), **parts, value=value)
    chex.assert_trees_all_equal(outcome, simulate(5, **parts, value=np.array([2, 1])))
    assert run(value=np.int64(3)).status == nrjax.Status.STOPPED


def test_a_copy_keeps_a_large_integer():
    if jnp.result_type(float) == jnp.float64:
        pytest.skip("float64 holds it")
    parts = {"process": nrjax.Laplace(()), "guarantee": PURE}
    trial = nrjax.Interaction(**scalar([1e14, 1e13], **parts, value=2**40 + 1))
    copy = dataclasses.replace(trial, rule=nrjax.PublicThreshold(-1.0))
    assert copy.value == trial.value
    assert copy.value.rest == 1
