"""Batching: no result may depend on trials, chunks, lanes, devices or the neighbours in a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.erm import RidgeProblem
from nrjax.simulation import montecarlo
from nrjax.simulation.program import _on_devices
from nrjax.types import Status, overrides
from tests.problems import Distance, scalar, small_data, small_logistic

KEY = jax.random.key(3)
ONE = tuple(jax.devices()[:1])
SMALL = nrjax.Batching(tile=16, lanes=32, devices=ONE)


def assert_same(one, two):
    """Equal bits, NaN included."""
    for name, left, right in zip(one._fields, one, two, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name, strict=True)


def logistic_parts(target=1.05):
    problem = small_logistic()
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, problem.l2_sensitivity, 1e-6)
    return {
        "value": problem.optimum,
        "process": nrjax.Brownian((problem.dimension,)),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.8, 30.0, 60),
        "utility": problem.utility,
        "rule": nrjax.PublicThreshold(-target * problem.optimum_loss),
        "shift": np.full(problem.dimension, 0.01),
    }


def ridge_parts():
    """Laplace noise, and a solve for each hypothesis."""
    rng = np.random.default_rng(4)
    x, _ = small_data(rows=2000)
    problem = RidgeProblem.fit(x, 0.5 * x[:, 0] + 0.1 * rng.uniform(-1, 1, len(x)), 0.2)
    value, sensitivity, utility = problem.released("laplace")
    guarantee = nrjax.PureGuarantee(sensitivity)
    return {
        "value": value,
        "process": nrjax.Laplace(value.shape),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.3, 60.0, 40),
        "utility": utility,
        "rule": nrjax.ReducedAboveThreshold(
            -1.5 * problem.optimum_loss, problem.utility_sensitivity
        ),
        "shift": np.full(value.shape, 0.01),
    }


def process_parts(process):
    shape = process.shape
    return scalar(
        np.geomspace(40.0, 0.02, 30),
        threshold=-2.0,
        process=process,
        guarantee=None,
        value=np.full(shape, 3.0),
        utility=Distance(np.full(shape, 3.0)),
        shift=np.ones(shape),
    )


def doubling_parts():
    """Independent releases, tests of their own, all of them paid for."""
    return process_parts(nrjax.IndependentLaplace((3,))) | {
        "guarantee": nrjax.PureGuarantee(1.0),
        "rule": nrjax.LaplaceTests(-2.0, 0.1, 0.2),
        "shift": None,
    }


PARTS = {
    "brownian": lambda: process_parts(nrjax.Brownian((3,))),
    "laplace": lambda: process_parts(nrjax.Laplace((3,))),
    "jumps": lambda: process_parts(nrjax.LaplaceJumps((3,), 0.02, 40.0)),
    "skellam": lambda: process_parts(nrjax.Skellam((3,), 2.0, 2.0)),
    "doubling": lambda: doubling_parts(),
    "logistic": logistic_parts,
    "ridge": ridge_parts,
}


def but_long(*names):
    """Names of parts, those marked whose programs take long to compile and show little more."""
    return [pytest.param(n, marks=[pytest.mark.long] if n in names else []) for n in PARTS]


@pytest.mark.parametrize("name", but_long("jumps", "skellam", "ridge"))
def test_results_do_not_depend_on_places(name):
    """Nor on how many trials there are."""
    parts = PARTS[name]()
    whole = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150, batching=SMALL)
    assert np.unique(whole.step).size > 5
    if name != "skellam":  # whose releases are integers
        assert np.unique(whole.release, axis=0).shape[0] == 150
    # Fewer trials, from the middle; not so few that another program would be compiled for them.
    assert_same(
        jax.tree.map(lambda leaf: leaf[11:144], whole),
        nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=133, first_trial=11, batching=SMALL),
    )


@pytest.mark.parametrize("name", but_long("jumps", "skellam", "ridge", "laplace"))
def test_results_do_not_depend_on_batching(name):
    """Other lanes, inner steps and chunks, odd ones, on eight devices; the tile is part of it."""
    parts = PARTS[name]()
    whole = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150, batching=SMALL)
    odd = nrjax.Batching(tile=16, lanes=48, chunk=67, inner_steps=3)
    assert_same(whole, nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150, batching=odd))


@pytest.mark.parametrize("name", ["brownian", "logistic", "doubling"])
def test_trials_are_those_of_run_until(name, dtype):
    parts = PARTS[name]()
    many = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150, batching=SMALL)
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    for number in (0, 1, 77, 149):
        one = nrjax.run_until(nrjax.trial_key(KEY, number), nrjax.Interaction(**parts))
        assert one.step == many.step[number]
        assert one.status == many.status[number]
        for field in ("time", "release", "hypothesis", "utility", "privacy_loss", "epsilon"):
            np.testing.assert_allclose(
                getattr(many, field)[number],
                getattr(one, field),
                rtol=tolerance,
                atol=tolerance,
                err_msg=field,
            )


def test_the_default_tile_gives_the_same_stops():
    parts = logistic_parts()
    default = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150)
    other = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=150, batching=SMALL)
    np.testing.assert_array_equal(default.step, other.step)
    np.testing.assert_array_equal(default.release, other.release)
    np.testing.assert_allclose(default.utility, other.utility, rtol=1e-6)


def test_a_trial_alone_is_the_trial_among_others():
    """Also in tiles of one, where it might have a single lane, which rounds otherwise."""
    batching = nrjax.Batching(tile=1, lanes=4, devices=ONE)
    many = nrjax.simulate(KEY, nrjax.Interaction(**scalar()), trials=60, batching=batching)
    alone = [
        nrjax.simulate(
            KEY, nrjax.Interaction(**scalar()), trials=1, first_trial=i, batching=batching
        )
        for i in range(60)
    ]
    assert_same(jax.tree.map(lambda *rows: np.concatenate(rows), *alone), many)
    single = nrjax.simulate(
        KEY, nrjax.Interaction(**scalar()), trials=60, batching=nrjax.Batching(1, 1, devices=ONE)
    )
    np.testing.assert_allclose(single.epsilon, many.epsilon, rtol=1e-6)


def test_a_lane_is_not_refilled_before_its_trial_has_ended():
    # Alternating short and long trials: every one must appear once, in its own place.
    parts = scalar(np.geomspace(100.0, 0.01, 50), threshold=-0.05)
    outcome = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=500, batching=SMALL)
    assert set(np.unique(outcome.status)) == {Status.STOPPED, Status.EXHAUSTED}
    later = nrjax.simulate(
        KEY, nrjax.Interaction(**parts), trials=500, batching=nrjax.Batching(tile=512, lanes=512)
    )
    assert_same(outcome, later)


def test_statuses_of_mixed_trials():
    parts = scalar(np.geomspace(100.0, 0.01, 50), threshold=-0.05, utility=Distance(3.0, 12.0))
    outcome = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=500, batching=SMALL)
    broken = outcome.status == Status.NAN_UTILITY
    assert 0.1 < broken.mean() < 0.9
    np.testing.assert_array_equal(np.isnan(outcome.utility), broken)
    assert np.all(outcome.release[broken] > 12.0)
    assert np.all(outcome.utility[outcome.status == Status.STOPPED] >= -0.05)


def test_trials_that_fail_at_the_start_are_all_reported():
    # A buffer of one jump where about fourteen are needed: nearly every trial overflows at once.
    process = nrjax.LaplaceJumps((), 0.02, 40.0, size=1)
    parts = scalar(np.geomspace(40.0, 0.02, 30), process=process, guarantee=None)
    outcome = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=500, batching=SMALL)
    assert np.mean(outcome.status == Status.OVERFLOW) > 0.98
    assert set(np.unique(outcome.status)) <= {Status.OVERFLOW, Status.STOPPED, Status.EXHAUSTED}
    failed = outcome.status == Status.OVERFLOW
    assert np.all(outcome.step[failed] == -1)
    assert np.all(np.isnan(outcome.release[failed]))


def numpy_stops(rng, times, trials, fresh):
    """Stop steps of the scalar problem, one vectorised NumPy loop; `fresh` plants the fault."""
    stops = np.full(trials, len(times))
    noise = np.sqrt(times[0]) * rng.normal(size=trials)
    for step, time in enumerate(times):
        if step > 0:
            now = times[step - 1]
            kept = 0.0 if fresh else time / now
            variance = time if fresh else time * (now - time) / now
            noise = kept * noise + np.sqrt(variance) * rng.normal(size=trials)
        stops = np.where((stops == len(times)) & (np.abs(noise) <= 0.5), step, stops)
    return stops


def stop_p_value(steps, others):
    """Chi-square test that two samples of stop steps have one law, in bins of about equal size."""
    edges = np.unique(np.quantile(others, np.linspace(0, 1, 13)[1:-1]))
    table = [
        np.bincount(np.searchsorted(edges, s), minlength=edges.size + 1) for s in (steps, others)
    ]
    return stats.chi2_contingency(table).pvalue


def test_stop_steps_have_the_law_of_a_plain_numpy_loop():
    times = np.geomspace(100.0, 0.01, 50)
    steps = nrjax.simulate(KEY, nrjax.Interaction(**scalar(times)), trials=40_000).step
    rng = np.random.default_rng(0)
    assert stop_p_value(steps, numpy_stops(rng, times, 40_000, fresh=False)) > 1e-4
    # Negative control: fresh noise at each step has the same marginals, and is found out.
    assert stop_p_value(steps, numpy_stops(rng, times, 40_000, fresh=True)) < 1e-12


def test_paths_are_those_of_scan_path():
    parts = logistic_parts()
    trial = nrjax.Interaction(**parts)
    program = montecarlo.paths(trial, 70, ("time", "utility", "epsilon"), SMALL)
    first = program.run(KEY, 70)
    np.testing.assert_array_equal(first["time"][0], parts["schedule"].times)
    for number in (0, 69):
        path = nrjax.scan_path(nrjax.trial_key(KEY, number), nrjax.Interaction(**parts))
        np.testing.assert_allclose(first["utility"][number], path.utility, rtol=2e-5)
    odd = montecarlo.paths(trial, 41, ("utility",), nrjax.Batching(tile=16))
    np.testing.assert_array_equal(odd.run(KEY, 29, 41)["utility"], first["utility"][41:])


def _norm(outcome):
    return jnp.linalg.norm(outcome.hypothesis)


def _ends_and_release(outcome):
    return jnp.stack([outcome.epsilon, jnp.sum(outcome.release)])


DERIVED = (("norm", _norm), ("two", _ends_and_release))


class Ceiled(Distance):
    """With a ceiling, so that most hypotheses are not made, and the last one late."""

    def ceiling(self, release):
        return self.evaluate(release) + 0.1


def test_derived_results_are_made_of_each_outcome(dtype):
    """Also where a trial ends on the ceiling of its utility, and its hypothesis is made late."""
    parts = doubling_parts()
    whole = nrjax.simulate(
        KEY, nrjax.Interaction(**parts, max_steps=12), trials=150, batching=SMALL
    )._asdict()
    whole = {name: leaf[:100] for name, leaf in whole.items()}
    assert set(np.unique(whole["status"])) == {Status.STOPPED, Status.EXHAUSTED}
    ceiled = parts | {"utility": Ceiled(np.full(3, 3.0))}
    trial = nrjax.Interaction(**ceiled, max_steps=12)
    found = montecarlo.outcomes(trial, 100, ("step",), SMALL, DERIVED).run(KEY, 100)
    assert set(found) == {"step", "norm", "two"}
    assert all(isinstance(leaf, np.ndarray) for leaf in found.values())
    assert found["norm"].dtype == dtype
    np.testing.assert_array_equal(found["step"], whole["step"])
    norms = np.linalg.norm(whole["hypothesis"], axis=1)
    np.testing.assert_allclose(found["norm"], norms, rtol=1e-5)
    assert np.unique(found["norm"]).size == 100
    np.testing.assert_array_equal(found["two"][:, 0], whole["epsilon"])
    sums = whole["release"].sum(axis=1)
    np.testing.assert_allclose(found["two"][:, 1], sums, rtol=1e-4, atol=1e-4)
    before = _on_devices._cache_size()
    again = montecarlo.outcomes(trial, 100, ["step"], SMALL, list(DERIVED)).run(KEY, 33, 7)
    np.testing.assert_array_equal(again["norm"], found["norm"][7:40])
    assert _on_devices._cache_size() == before


@pytest.mark.parametrize(
    ("derived", "message"),
    [
        ((("epsilon", _norm),), r"derived = \['epsilon'\]: must be names of their own, none of"),
        ((("norm", _norm), ("norm", _norm)), r"derived = \['norm', 'norm'\]: must be names of"),
        ((("norm", 3),), "derived 'norm' = 3: must be a function of a trial's results"),
    ],
)
def test_bad_derived_results_are_named(derived, message):
    with pytest.raises(ValueError, match=message):
        montecarlo.outcomes(nrjax.Interaction(**scalar()), 5, ("step",), derived=derived)


def test_the_last_trials_that_have_keys():
    # On eight devices, so that some have no trials left.
    outcome = nrjax.simulate(KEY, nrjax.Interaction(**scalar()), trials=3, first_trial=2**32 - 3)
    assert np.unique(outcome.release).size == 3
    with pytest.raises(ValueError, match=r"first_trial \+ trials = 4294967297: must be at most"):
        nrjax.simulate(KEY, nrjax.Interaction(**scalar()), trials=4, first_trial=2**32 - 3)


def test_results_are_no_more_than_int32_numbers():
    trial = nrjax.Interaction(**scalar())
    with pytest.raises(ValueError, match="chunk = 1073741825: must be at most 1073741824 results"):
        montecarlo.outcomes(trial, 2**30 + 1, ("step",), nrjax.Batching(devices=jax.devices()[:1]))


class Shaken(nrjax.Brownian):
    """With draws that JAX makes by no keys but its own."""

    def rewind(self, key, state, time):
        rewound = super().rewind(key, state, time)
        return rewound._replace(value=rewound.value + jax.random.poisson(key, 1.0))


def test_a_process_may_draw_from_the_poisson_law():
    parts = scalar(process=Shaken(()))
    outcome = nrjax.simulate(
        KEY,
        nrjax.Interaction(**parts),
        trials=3,
        batching=nrjax.Batching(devices=jax.devices()[:1]),
    )
    one = nrjax.run_until(nrjax.trial_key(KEY, 2), nrjax.Interaction(**parts))
    assert outcome.step[2] == one.step
    np.testing.assert_allclose(outcome.release[2], one.release, rtol=1e-5)


def test_a_second_simulation_does_not_compile():
    parts = scalar()
    nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=300, batching=SMALL)
    before = _on_devices._cache_size()
    nrjax.simulate(
        jax.random.key(9), nrjax.Interaction(**parts | {"value": 2}), trials=320, batching=SMALL
    )
    assert _on_devices._cache_size() == before


def test_raw_keys_are_keys():
    raw = jax.random.key_data(KEY)
    one, other = (
        nrjax.simulate(k, nrjax.Interaction(**scalar()), trials=300, batching=SMALL)
        for k in (KEY, raw)
    )
    assert_same(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trials": 0}, "trials = 0: must be an integer, at least 1"),
        ({"trials": 2.5}, r"trials = 2.5: must be an integer"),
        ({"trials": 2**33}, r"first_trial \+ trials = 8589934592: must be at most 2\^32"),
        ({"first_trial": -1}, "first_trial = -1: must be an integer, at least 0"),
        ({"key": 0}, "key = 0: must be a JAX random key"),
        ({"key": jax.random.split(KEY, 2)}, "must be a single key"),
        ({"value": np.zeros(4)}, "value has shape"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    own = {"key": KEY, "trials": 5} | arguments
    parts = scalar() | {name: own.pop(name) for name in ("value",) if name in own}
    with pytest.raises(ValueError, match=message):
        nrjax.simulate(interaction=nrjax.Interaction(**parts), **own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile": 0}, "tile = 0"),
        ({"tile": 24}, "tile = 24: must be a power of two"),
        ({"lanes": 10, "tile": 4}, "lanes = 10: must be a multiple of tile = 4"),
        ({"chunk": 0}, "chunk = 0"),
        ({"inner_steps": True}, "inner_steps = True"),
        ({"devices": ()}, "devices"),
    ],
)
def test_bad_batching_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        nrjax.Batching(**options)


def test_integers_of_numpy_are_integers():
    batching = nrjax.Batching(tile=np.int64(16), lanes=np.int32(32), chunk=np.int64(7), devices=ONE)
    found = nrjax.simulate(
        KEY,
        nrjax.Interaction(**scalar()),
        trials=np.int64(10),
        first_trial=np.uint8(3),
        batching=batching,
    )
    want = nrjax.simulate(
        KEY, nrjax.Interaction(**scalar()), trials=10, first_trial=3, batching=SMALL
    )
    assert_same(found, want)


@pytest.mark.parametrize("utility", [small_logistic().utility, Ceiled(np.full(5, 3.0))])
def test_a_sequence_is_batched_like_its_elements(utility):
    parts = logistic_parts() | {"rule": nrjax.PublicThreshold(0.0)}
    sizes = []
    for one in (utility, nrjax.UtilitySequence.of([utility] * 60)):
        trial = nrjax.Interaction(**parts | {"utility": one})
        sizes.append(nrjax.Batching().resolve(trial))
    assert sizes[0] == sizes[1]
    # Bounds ask for smaller tiles; a ceiling alone does not.
    spared = sizes[0] != nrjax.Batching().resolve(trial, stopping=False)
    assert spared == overrides(utility, nrjax.Utility, "bounds")


def test_large_releases_are_batched_in_bounded_memory():
    small = nrjax.Interaction(**scalar())
    assert nrjax.Batching().resolve(small) == (4096, 4096)
    assert nrjax.Batching().resolve_chunk(small) == 65_536
    size = 1_000_000
    large = nrjax.Interaction(
        **scalar(
            value=np.zeros(size), process=nrjax.Brownian((size,)), utility=Distance(np.zeros(size))
        )
    )
    tile, lanes = nrjax.Batching().resolve(large)
    state = 3 * size * large.dtype.itemsize
    assert tile >= 1
    assert lanes * state <= 2**28
    assert nrjax.Batching().resolve_chunk(large) * state <= 2**29


def test_simulate_cannot_be_traced():
    with pytest.raises(ValueError, match=r"under jit or vmap use nrjax.run_until"):
        jax.jit(
            lambda value: nrjax.simulate(
                KEY, nrjax.Interaction(**scalar() | {"value": value}), trials=5
            )
        )(3.0)
