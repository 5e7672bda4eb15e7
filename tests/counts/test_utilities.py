"""Utilities of counts, the relative-error rule against the paper's display, neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax import Brownian, Laplace
from nrjax.counts import MeanAbsoluteError, Neighbour, RelativeError, ShareOutside

pytestmark = [pytest.mark.numerical, pytest.mark.bits]


def printed(noisy, e, alpha):
    """Return the rule of Rogers 2023, section 7.2, for the standard deviation 1/e."""
    with np.errstate(divide="ignore"):
        ratio = np.abs((noisy + 1 / e) / (noisy - 1 / e))
    return (1 - alpha < ratio) & (ratio <= 1 + alpha) & (np.abs(noisy) > 1 / e)


def grid():
    return np.linspace(-60, 60, 24_001) + 1e-4  # not on the bounds, where strictness would matter


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5, 0.9])
def test_the_rule_is_the_one_displayed(alpha):
    for e in (0.5, 1.0, 3.0):
        accepted = RelativeError(alpha).accepts(jnp.asarray(grid() / e), 1 / e)
        assert np.array_equal(accepted, printed(grid() / e, e, alpha))
        assert accepted.any()
        assert not accepted.all()
    # Negative control: a symmetric rule is another.
    symmetric = np.abs(grid()) >= RelativeError(alpha).upper
    assert not np.array_equal(symmetric, printed(grid(), 1.0, alpha))


def test_precision_is_against_the_true_count():
    rule = RelativeError(0.1)
    error = jnp.array([-11.0, -9.0, 0.0, 9.0, 11.0])
    assert rule.precise(error, 100.0).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("process", [Brownian(()), Laplace(())])
def test_the_utility_is_at_least_zero_where_the_rule_accepts(process):
    rule, times = RelativeError(0.3), jnp.array([4.0, 1.0, 0.25])
    utility, noisy = rule.utility(process, times), jnp.asarray(grid()[::997])

    @jax.jit
    def margins(step):
        at = utility.at(step)
        return jax.vmap(lambda y: at.evaluate(at.hypothesis(y)))(noisy)

    for step, time in enumerate(times):
        accepted = rule.accepts(noisy, process.deviation(time))
        assert np.array_equal(np.asarray(margins(jnp.int32(step))) >= 0, accepted)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha must be .*strictly between 0 and 1"):
        RelativeError(alpha)


def test_utilities_of_counts():
    share = ShareOutside.relative([30, 0, 100, 7], 0.1)
    np.testing.assert_array_equal(share.slack, [3, 0, 10, 0])
    release = jnp.array([33.4, -5.0, 89.4, np.nan])
    hypothesis = share.hypothesis(release)
    np.testing.assert_array_equal(hypothesis, [33, 0, 89, np.nan])
    assert share.evaluate(hypothesis) == -0.5
    error = MeanAbsoluteError(np.array([30, 0, 100, 7]))
    assert error.evaluate(error.hypothesis(release.at[3].set(6.6))) == -14 / 4
    for utility in (share, error):  # halfway between k/4 and (k + 1)/4
        for target, threshold in ((0.0, -0.125), (0.25, -0.375), (0.3, -0.375), (0.5, -0.625)):
            assert utility.threshold(target) == threshold
    most = 2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1)  # a cast changes larger counts
    for counts in ([1.5], [-1], [np.nan], [], [most + 2]):
        with pytest.raises(ValueError, match="counts must"):
            MeanAbsoluteError(np.array(counts))
    with pytest.raises(ValueError, match=r"error must be"):
        ShareOutside.relative([1], -0.1)


def test_neighbours():
    moved, gone = Neighbour.replace(4, 2, 0), Neighbour.remove(4, 1)
    np.testing.assert_array_equal(moved.shift, [-1, 0, 1, 0])
    np.testing.assert_array_equal(gone.shift, [0, 1, 0, 0])
    assert (moved.l1_sensitivity, moved.l2_sensitivity) == (2, np.sqrt(2))
    assert (gone.l1_sensitivity, gone.l2_sensitivity) == (1, 1)
    for build, match in (
        (lambda: Neighbour.replace(4, 4, 0), r"i must be in \[0, 4\)"),
        (lambda: Neighbour.replace(4, 1, 1), r"j must be .* not i = 1"),
        (lambda: Neighbour.remove(4, -1), r"i must be"),
    ):
        with pytest.raises(ValueError, match=match):
            build()
