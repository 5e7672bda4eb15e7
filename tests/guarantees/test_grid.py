"""Boundaries that are exact on a fixed grid of times."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import nrjax
from nrjax.guarantees import GridBoundary, LinearBoundary, OneSidedMixtureBoundary
from nrjax.guarantees._crossing import crossing, lowest_curve
from tests.guarantees import oracle
from tests.problems import Distance, interaction

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

DELTA = 1e-6


def test_two_looks_are_a_bivariate_normal():
    times, heights = np.array([1.0, 2.5]), np.array([1.5, 2.0])
    below = multivariate_normal(mean=[0, 0], cov=[[1, 1], [1, 2.5]]).cdf(heights)
    found, upper = crossing(times, heights)
    assert found == pytest.approx(1 - below, abs=1e-9)
    assert found <= upper <= found * (1 + 1e-12)
    alone = norm.sf(heights / np.sqrt(times))
    assert alone.max() < found < alone.sum()


@pytest.mark.parametrize("spaced", [np.geomspace, np.linspace])
def test_twenty_looks_against_counting(spaced):
    times = spaced(0.1, 10, 20)
    heights = 1.7 * np.sqrt(times)
    steps = np.random.default_rng(0).normal(size=(100_000, 20)) * np.sqrt(np.diff(times, prepend=0))
    crossed = np.any(np.cumsum(steps, axis=1) > heights, axis=1)
    error = crossed.std() / np.sqrt(len(crossed))
    found = crossing(times, heights)[0]
    assert abs(crossed.mean() - found) < 4 * error
    # The other clock is the same Brownian motion. Negative control: heights that it does not scale.
    inverted = crossing(1 / times[::-1], (heights / times)[::-1])[0]
    assert inverted == pytest.approx(found, rel=1e-12)
    assert abs(crossing(1 / times[::-1], heights[::-1])[0] - found) > 20 * error


def test_other_panels_agree():
    times = np.geomspace(0.1, 10, 30)
    heights = 5.0 * np.sqrt(times)
    found, upper = crossing(times, heights)
    assert 0 <= upper - found < 1e-10 * found
    for nodes in (28, 40):
        assert crossing(times, heights, nodes)[0] == pytest.approx(found, rel=1e-12)
    for unit in (2.0**-500, 2.0**509):  # near the ends of float64, where squares leave it
        assert crossing(unit**2 * times, unit * heights) == (found, upper)
    with pytest.raises(ValueError, match=r"times must be within a factor of 1e\+200"):
        crossing(np.append(1e-250, times), np.append(1.0, heights))


@pytest.mark.parametrize(
    ("looks", "constant", "line", "mixture"),
    [(1, 4.7534, 4.7534, 4.7534), (5, 5.0681, 4.7585, 4.9779), (50, 5.3836, 5.0833, 5.3116)],
)
def test_published_heights(looks, constant, line, mixture):
    """`docs/proofs/boundaries.md` has `u(t*)/sqrt(t*)` for times over a factor of 100 around t*."""
    times = np.geomspace(0.1, 10, looks) if looks > 1 else np.ones(1)
    assert lowest_curve(times, np.sqrt(times), DELTA)[0] / np.sqrt(times[0]) == pytest.approx(
        constant, abs=6e-5
    )
    for family, height in ((LinearBoundary, line), (OneSidedMixtureBoundary, mixture)):
        boundary = family.tight_at_time(1.0, 1.0, DELTA)
        shape = np.asarray(boundary.curve(times), float)
        found = lowest_curve(times, shape, DELTA)
        scaled = float(boundary.curve(1.0)) * found[0] / shape[0]
        assert scaled == pytest.approx(height, abs=6e-5)
        assert 0.999999 * DELTA < crossing(times, found)[1] <= DELTA


@pytest.fixture(scope="module")
def boundary():
    line = LinearBoundary.tight_at_epsilon(0.3, 2.0, DELTA)
    return line, GridBoundary.of(line, nrjax.Grid.geometric(line, 0.2, 3.0, 10).times)


def test_costs_less_than_the_boundary_it_lowers(boundary):
    line, grid = boundary
    assert (grid.sensitivity, grid.delta) == (2.0, DELTA)
    here, there = (np.asarray(one.epsilon(grid.times), float) for one in (grid, line))
    assert np.all(here < 0.97 * there)
    exact = 2.0 / grid.times * (1.0 + grid.heights)
    assert np.all(here >= exact)
    np.testing.assert_allclose(here, exact, rtol=1e-5)
    inside = jax.jit(lambda grid, time: (grid.epsilon(time), grid.time(here[3])))
    epsilon, time = inside(grid, grid.times[3])
    assert (epsilon, time) == (here[3].astype(epsilon.dtype), grid.times[3])
    assert np.isnan(inside(grid, grid.times[3] * 1.01)[0])


def test_a_look_of_a_coarser_dtype_is_that_look(boundary):
    grid = boundary[1]
    for time in grid.times:
        coarse = np.float32(time)
        if float(coarse) == time or jnp.result_type(float) == jnp.float64:
            exact, eps = grid.epsilon(time), float(np.finfo(np.float32).eps)
            if jnp.result_type(float) == jnp.float64:
                exact *= 1 + grid.margin * eps
            np.testing.assert_allclose(grid.epsilon(coarse), exact, rtol=1e-6)
            # Not less than at the rounded time, which is that of the noise.
            index = np.searchsorted(-grid.times, -time)
            assert grid.epsilon(coarse) >= 2.0 / float(coarse) * (1.0 + grid.heights[index])


def test_on_a_schedule(boundary):
    """`on` works for boundaries and mechanisms, and changes no other guarantee."""
    line, grid = boundary
    times = np.append(grid.times, grid.times[-1])  # a time may come twice
    found = line.on(nrjax.Grid(times))
    np.testing.assert_array_equal(found.heights, grid.heights)
    mechanism = nrjax.Mechanism(3.0, nrjax.Brownian(()), line).on(nrjax.Grid(times))
    trial = mechanism.interaction(nrjax.Grid(times), Distance(3.0), nrjax.PublicThreshold(-1.0))
    outcome = nrjax.run_until(jax.random.key(0), trial)
    plain = dataclasses.replace(trial, guarantee=line)
    assert outcome.epsilon < 0.97 * nrjax.run_until(jax.random.key(0), plain).epsilon
    chosen = nrjax.AdaptiveTimes(9.0, lambda *_: _[1], 1.0, 5)
    assert line.on(chosen) is line
    assert jax.jit(lambda times: line.on(nrjax.Grid(times)).epsilon(2.0))(times) > 0
    for other in (nrjax.PureGuarantee(1.0), nrjax.RenyiBoundary(1.0, 1e-6, 9.0)):
        assert other.on(nrjax.Grid(times)) is other
        with pytest.raises(ValueError, match=r"boundary must be a LinearBoundary or"):
            GridBoundary.of(other, times)


def test_looks_that_are_too_near_each_other():
    """Times are refused at once if the quadrature would not fit into memory."""
    line = LinearBoundary.tight_at_time(1.0, 1.0, DELTA)
    for apart, fits in ((1e-7, True), (1e-10, False)):
        times = np.array([0.5, 1.0, 1.0 + apart])
        heights = np.asarray(5.5 * np.sqrt(times))
        if fits:
            assert crossing(times, heights, 6)[0] < DELTA
        else:
            with pytest.raises(ValueError, match=r"times must be farther apart: .* nodes"):
                crossing(times, heights)
    if jnp.result_type(float) == jnp.float64:
        with pytest.raises(ValueError, match="farther apart"):
            GridBoundary.of(line, [1.0 + 1e-10, 1.0, 0.5])
        # A run in float32 would put these twice as far apart, with more crossings than delta.
        grid = GridBoundary.of(line, [1.0, 1 - 3.1e-8])
        with pytest.raises(ValueError, match=r"looks of GridBoundary must be held by float32, or"):
            interaction(grid.times, guarantee=grid, value=np.float32(0))


def assert_minimax(times, levels, sensitivity, delta):
    """Assert a constant ratio to the oracle, and that the curve is valid and uses all of delta."""
    x = sensitivity / np.sqrt(times)
    ratios = levels / (x * (x / 2 + norm.isf(delta)))
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
    assert 0.9998 < oracle.exceeded(times, levels, sensitivity) / delta < 1 + 2e-6
    return ratios[0]


@pytest.mark.parametrize(("looks", "worst"), [(1, 1.0), (10, 1.0813), (50, 1.1182)])
def test_minimax(looks, worst):
    times = np.geomspace(10, 0.1, looks) if looks > 1 else [3.0]
    grid = GridBoundary.minimax(sensitivity=1.0, delta=DELTA, times=times)
    levels = np.asarray(grid.epsilon(grid.times), float)
    assert assert_minimax(grid.times, levels, 1.0, DELTA) == pytest.approx(worst, abs=1e-4)


@pytest.mark.parametrize("fault", ["D2 for D2/2", "union bound", "last look"])
def test_minimax_faults_are_seen(fault):
    times = np.geomspace(10, 0.1, 10)
    root, z = np.sqrt(times), norm.isf(DELTA)
    if fault == "D2 for D2/2":
        base, shape = z * root[::-1], z * root[::-1] + 1
        heights = lowest_curve(times[::-1], shape, DELTA, base)[::-1]
    else:
        heights = root * (norm.isf(DELTA / 10) if fault == "union bound" else z)
    with pytest.raises(AssertionError):
        assert_minimax(times, (0.5 + heights) / times, 1.0, DELTA)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.4])
@pytest.mark.parametrize("sensitivity", [1e-6, 2.0, 3e5])
def test_minimax_levels(sensitivity, delta):
    """The stated epsilons are the levels up to rounding, and enough for the rounded times."""
    grid = GridBoundary.minimax_levels(
        sensitivity=sensitivity, delta=delta, low=0.1, high=10.0, levels=12
    )
    levels = np.asarray(grid.epsilon(grid.times), float)
    np.testing.assert_allclose(levels, np.geomspace(0.1, 10.0, 12), rtol=2e-6)
    assert_minimax(grid.times, levels, sensitivity, delta)
    again = GridBoundary.minimax(sensitivity=sensitivity, delta=delta, times=grid.times)
    np.testing.assert_allclose(again.heights, grid.heights, rtol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"sensitivity": nrjax.Sensitivity(1.0, "l1")}, "sensitivity must be an l2"),
        ({"sensitivity": np.ones(2)}, "sensitivity must be a single concrete number"),
        ({"delta": 0.6}, "delta must be at least .* and at most 0.5"),
        ({"delta": 1e-18}, "delta must be at least"),
        ({"low": 20.0}, "high must be above low"),
        ({"levels": 0}, "levels must be an integer"),
    ],
)
def test_minimax_refuses(changes, message):
    good = {"sensitivity": 1.0, "delta": DELTA, "low": 0.1, "high": 10.0, "levels": 5}
    with pytest.raises(ValueError, match=message):
        GridBoundary.minimax_levels(**(good | changes))


def test_small_deltas_end():
    line = LinearBoundary.tight_at_time(1.0, 1.0, 1e-12)
    found = GridBoundary.of(line, np.geomspace(10, 0.1, 20))
    assert np.all(found.heights <= np.asarray(line.curve(found.times), float) * (1 + 1e-6))
    with pytest.raises(ValueError, match=r"delta must be at least"):
        GridBoundary.of(LinearBoundary.tight_at_time(1.0, 1.0, 1e-20), [2.0, 1.0])


def test_runs_on_its_own_looks(boundary):
    grid = boundary[1]
    trial = interaction(grid.times, threshold=-1.0, guarantee=grid)
    outcome = nrjax.run_until(jax.random.key(0), trial)
    assert float(outcome.epsilon) == float(grid.epsilon(grid.times[int(outcome.step)]))
    with pytest.raises(ValueError, match=r"times of the schedule must be among the 10"):
        interaction(grid.times * 1.001, guarantee=grid)
    chosen = nrjax.AdaptiveTimes(grid.times[0], lambda *_: 0.9 * _[1], grid.times[-1], 5)
    strayed = nrjax.run_until(jax.random.key(0), dataclasses.replace(trial, schedule=chosen))
    assert strayed.status == nrjax.Status.INVALID_COST


def test_refuses(boundary):
    line, grid = boundary
    with pytest.raises(ValueError, match=r"heights must be crossed with probability at most"):
        GridBoundary(2.0, DELTA, grid.times, 0.999 * grid.heights)
    more = np.sort(np.append(grid.times, 0.5 * grid.times[:-1] + 0.5 * grid.times[1:]))[::-1]
    with pytest.raises(ValueError, match="crossed"):  # more times than delta pays for
        GridBoundary(2.0, DELTA, more, np.interp(more[::-1], grid.times[::-1], grid.heights[::-1]))
    with pytest.raises(ValueError, match=r"time must be among the 10 times"):
        grid.epsilon(grid.times[0] * 0.99)
    with pytest.raises(ValueError, match=r"epsilon must be finite and at least"):
        grid.time(0.01)
    wrong = [1.0, 2.0], [1.0, 1.0], [2.0, -1.0], [], [[2.0, 1.0]], [np.inf, 1.0]
    for times in (*wrong, [2.0, [1.0]], ["2", "1"], np.array([2, 1j]), None):
        with pytest.raises(ValueError, match="times must"):
            GridBoundary.of(line, times)


def test_a_shape_is_scaled_to_delta():
    """Heights of Pocock, and of O'Brien and Fleming, as in tables of group-sequential tests.

    The tables are for one-sided tests at 0.025: Jennison and Turnbull (1999), 2.3 and 2.4, have
    2.413 and 2.040 for five two-sided looks at 0.05.
    """
    looks = np.arange(1.0, 11.0)
    for delta, number, shape, height, slack in (
        (1e-9, 10, np.sqrt, 6.335316211, 1e-8),
        (0.025, 5, np.sqrt, 2.413, 5e-4),
        (0.025, 5, lambda times: times, 2.040, 5e-4),
    ):
        times = 1 / looks[:number]
        options = {"sensitivity": 2.0, "delta": delta, "times": times}
        found = GridBoundary.scaled(**options, shape=shape(times))
        last = found.heights[-1] / np.sqrt(found.times[-1])
        assert abs(last - height) <= slack * height
        assert crossing(found.times[::-1], found.heights[::-1])[1] <= delta
        assert crossing(found.times[::-1], found.heights[::-1] * (1 - 1e-7))[0] > delta  # a fault
        for factor in (1e-200, 1e-3, 1e250):  # only the shape matters
            again = GridBoundary.scaled(**options, shape=factor * shape(times))
            np.testing.assert_allclose(again.heights, found.heights, rtol=1e-9)
    assert found.sensitivity == 2.0
    for wrong in ([1.0], [1.0] * 6, [1.0, 0, 1, 1, 1], [np.inf] * 5, [np.nan] * 5, None, "text"):
        with pytest.raises(ValueError, match="shape must be"):
            GridBoundary.scaled(**options, shape=wrong)
    for name, value in (("delta", 0.0), ("delta", 1.1), ("times", times[::-1]), ("sensitivity", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            GridBoundary.scaled(**options | {name: value}, shape=times)


def test_a_boundary_keeps_its_curve_if_the_arrays_are_refilled():
    found = GridBoundary.scaled(sensitivity=1.0, delta=DELTA, times=[2.0, 1.0], shape=[1.0, 1.0])
    times, heights = found.times.copy(), found.heights.copy()
    boundary = GridBoundary(1.0, DELTA, times, heights)
    times[:] = heights[:] = 0.01
    np.testing.assert_array_equal(boundary.heights, found.heights)
    np.testing.assert_array_equal(boundary.times, found.times)
