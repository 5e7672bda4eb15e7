"""Brownian noise reduction of one count against the exact distribution of the full walk."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.counts import RelativeError, release_count
from nrjax.counts.first_passage import BrownianPassage
from nrjax.counts.passages import skip_quantile
from tests.counts.oracle import LEVELS, check_result, passages, step_p, stopping_law
from tests.processes.laws import FAULTY, SOUND

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

CASES = {  # count, alpha, smallest and largest squared parameter
    "at once": (3000.0, 0.1, 1e-4, 0.05),
    "early": (400.0, 0.1, 1e-4, 0.02),
    "middle": (135.0, 0.1, 1e-4, 0.05),
    "half": (97.0, 0.1, 1e-4, 0.05),
    "rarely": (80.0, 0.1, 1e-4, 0.05),
    "small alpha": (1000.0, 0.01, 1e-4, 0.05),
    "large alpha": (3.0, 0.9, 1e-3, 1.0),
    "no count": (0.0, 0.9, 1e-3, 1.0),
}


class Fresh(BrownianPassage):
    """A planted fault: fresh noise at each level, right in every marginal."""

    def move(self, state, count, draw):
        moved, _, _ = super().move(state, count, draw)
        walk = jnp.sqrt(moved.square) * draw
        total = count * moved.square + walk
        accepted = self.accuracy.accepts(total, jnp.sqrt(moved.square))
        ended = accepted | (moved.level == self.levels - 1)
        return moved._replace(walk=walk), ended, accepted


class Shrunk(BrownianPassage):
    """A planted fault: the variance is too small by 10 %."""

    def draws(self, key, number, dtype):
        return np.sqrt(0.9) * super().draws(key, number, dtype)


class Hasty(BrownianPassage):
    """A planted fault: it jumps over levels at which acceptance is likely."""

    @property
    def quantile(self):
        return 1.5


def run(case, kind=BrownianPassage):
    return passages(kind, *CASES[case])


@functools.cache
def exact(case):
    return stopping_law(*CASES[case])


def law_p(case, kind=BrownianPassage):
    result = run(case, kind)
    return step_p(result.step, result.accepted, exact(case))


def test_the_oracle_sums_up_to_one_where_all_are_accepted():
    assert exact("early").sum() == pytest.approx(1, abs=1e-9)
    finer = stopping_law(*CASES["large alpha"], nodes=600)
    assert np.allclose(exact("large alpha"), finer, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_it_stops_like_the_full_walk(case):
    assert law_p(case) > SOUND


@pytest.mark.parametrize("kind", [Fresh, Shrunk, Hasty])
def test_planted_faults_are_found(kind):
    cases = ["middle", "half", "large alpha"] if kind is not Hasty else ["middle"]
    assert min(law_p(case, kind) for case in cases) < FAULTY


@pytest.mark.parametrize("case", ["half", "large alpha"])
def test_a_result_is_what_the_rule_says_of_it(case):
    _, alpha, smallest, largest = CASES[case]
    squares = np.linspace(smallest, largest, LEVELS)
    check_result(run(case), RelativeError(alpha), 1 / squares, np.sqrt(1 / squares))


def test_few_of_the_levels_are_drawn():
    for case, most in (("at once", 1.0), ("early", 20.0), ("middle", 25.0), ("small alpha", 15.0)):
        assert run(case).draws.mean() <= most
    assert run("no count").draws.max() <= LEVELS


def test_the_skipped_chance_is_bounded():
    """`2 levels Phi(-z)` is at most 1e-12, and hardly less."""
    for levels in (2, 120, 1000, 100_000):
        z = skip_quantile(levels)
        assert 2 * levels * stats.norm.sf(z) <= 1e-12
        assert 2 * levels * stats.norm.sf(z - 0.02) > 1e-12


def test_no_level_that_matters_is_within_reach(dtype):
    """The bounds by chord and tangent against their inequality, on a fine mesh."""
    rng = np.random.default_rng(0)
    passage = BrownianPassage(RelativeError(0.1), 1e-4, 1000)
    upper, lower, z = passage.accuracy.upper, passage.accuracy.lower, passage.quantile
    states = passage.init(jnp.asarray(0.4, dtype))
    square = np.exp(rng.uniform(np.log(1e-4), np.log(2.4), 4000))
    # Up to counts whose drift has to be cancelled by the walk, so that rounding matters.
    count = np.exp(rng.uniform(0, 16, 4000))
    walk = rng.uniform(-lower, upper, 4000) * np.sqrt(square) - count * square
    parts = [np.asarray(part, dtype) for part in (square, walk, count)]
    reach = jax.vmap(
        lambda u, w, f: passage._reach(states._replace(square=u, walk=w, level=jnp.int32(3)), f)
    )(*parts)
    square, walk, count = (part.astype(float) for part in parts)
    total = walk + count * square
    reach = np.minimum(np.asarray(reach, float), 2.5 - square)
    assert np.mean(reach > 0) > 0.6
    tau = reach[:, None] * np.linspace(0, 1, 300)[1:]
    moved = total[:, None] + count[:, None] * tau
    bound = np.sqrt(square[:, None] + tau)
    slack = z * np.sqrt(tau) * (1 - 1e-3)
    assert np.all(upper * bound - moved >= slack)
    assert np.all(moved + lower * bound >= slack)


@pytest.mark.parametrize("method", ["brownian", "laplace"])
def test_a_count_that_is_no_number_is_never_accepted(method):
    @jax.jit
    def accepted(count):
        key, rule = jax.random.key(0), RelativeError(0.1)
        return release_count(key, count, rule, 1e-4, 0.1, 10, method).accepted

    assert not accepted(np.nan)
    assert accepted(1e6)


def test_one_level_more_is_the_least():
    result = release_count(jax.random.key(0), 50.0, RelativeError(0.1), 0.3, 0.3, 2)
    assert result.step in (0, 1)
    assert result.time == pytest.approx(1 / 0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": -1.0}, "count must be finite and not negative"),
        (
            {"count": 3.5, "method": "discrete_laplace", "smallest": 0.01},
            "count must be a whole number",
        ),
        ({"count": 2.0**53 + 2}, "count must be at most"),
        ({"smallest": 0.0}, "smallest must be positive"),
        ({"largest": 1e-5}, "largest must be at least smallest"),
        ({"count": np.array([1.0, 2.0])}, "count must be a scalar"),
        ({"smallest": 1e-310}, "smallest must be from"),
        ({"levels": 1}, "levels must be an integer, at least 2"),
        ({"levels": 2**31}, "levels must be an integer, .* at most 16777216"),
        ({"method": ["brownian"]}, "method must be '"),
        ({"method": "doubling"}, "method must be '"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    usual = {"count": 50.0, "smallest": 1e-4, "largest": 0.1, "levels": 10, "method": "brownian"}
    with pytest.raises(ValueError, match=message):
        release_count(jax.random.key(0), accuracy=RelativeError(0.1), **(usual | change))


def test_a_traced_fraction_is_not_shown():
    """Integer noise would leave the fraction of a count visible."""

    def release(count):
        arguments = RelativeError(0.9), 0.01, 9.0, 20, "discrete_laplace"
        return release_count(jax.random.key(0), count, *arguments)

    shown = jax.jit(release)
    assert shown(3.0).release % 1 == 0
    assert np.isnan(shown(3.5).release)
    assert not shown(3.5).accepted
