"""Utilities of counts by group, and neighbouring counts."""

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.counts import MeanAbsoluteError, Neighbour, ShareOutside


def test_utilities_of_counts():
    share = ShareOutside.relative([30, 0, 100, 7], 0.1)
    np.testing.assert_array_equal(share.slack, [3, 0, 10, 0])
    release = jnp.array([33.4, -5.0, 89.4, np.nan])
    hypothesis = share.hypothesis(release)
    np.testing.assert_array_equal(hypothesis, [33, 0, 89, np.nan])
    assert share.evaluate(hypothesis) == -0.5
    error = MeanAbsoluteError(np.array([30, 0, 100, 7]))
    assert error.evaluate(error.hypothesis(release.at[3].set(6.6))) == -14 / 4
    for utility in (share, error):  # halfway between k and k + 1 of 4 groups
        for target, threshold in ((0.0, -0.125), (0.25, -0.375), (0.3, -0.375), (0.5, -0.625)):
            assert utility.threshold(target) == threshold
    for counts in ([1.5], [-1], [np.nan], []):
        with pytest.raises(ValueError, match="counts = "):
            MeanAbsoluteError(np.array(counts))
    with pytest.raises(ValueError, match=r"error = -0\.1: must be"):
        ShareOutside.relative([1], -0.1)


def test_neighbours():
    moved, gone = Neighbour.replace(4, 2, 0), Neighbour.remove(4, 1)
    np.testing.assert_array_equal(moved.shift, [-1, 0, 1, 0])
    np.testing.assert_array_equal(gone.shift, [0, 1, 0, 0])
    assert (moved.l1_sensitivity, moved.l2_sensitivity) == (2, np.sqrt(2))
    assert (gone.l1_sensitivity, gone.l2_sensitivity) == (1, 1)
    for build, match in (
        (lambda: Neighbour.replace(4, 4, 0), r"i = 4: must be in \[0, 4\)"),
        (lambda: Neighbour.replace(4, 1, 1), r"j = 1: must be .* not i = 1"),
        (lambda: Neighbour.remove(4, -1), r"i = -1: must be"),
    ):
        with pytest.raises(ValueError, match=match):
            build()
