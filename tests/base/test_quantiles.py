"""Quantiles of outcomes are order statistics, and right beside infinite epsilons."""

import jax
import numpy as np
import pytest

import nrjax


def outcomes(epsilon, statuses):
    """Return outcomes of trials that hold an epsilon and a status only."""
    fields = dict.fromkeys(nrjax.Outcome._fields)
    return nrjax.Outcome(**fields | {"epsilon": epsilon, "status": statuses})


def test_quantiles_of_outcomes_are_right_beside_trials_that_did_not_stop():
    """Of 1,000 trials 11 % do not stop: their 95 % quantile is infinite, and was NaN."""
    epsilon = np.arange(1.0, 1001.0)
    statuses = np.full(1000, nrjax.Status.STOPPED)
    statuses[890:900], statuses[900:] = nrjax.Status.NAN_UTILITY, nrjax.Status.EXHAUSTED
    made = outcomes(epsilon, statuses)
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.quantile(made.stopping_epsilon, 0.95))  # the planted fault
    assert made.quantile(0.95) == made.quantile(0.9) == made.quantile(0.891) == np.inf
    assert (made.quantile(0.89), made.quantile(0.5), made.quantile(0)) == (890, 500, 1)
    for q in (0.5, [0.05, 0.5], [[0.1], [0.99]]):
        expected = nrjax.Sample(made.stopping_epsilon).quantile(q)
        np.testing.assert_array_equal(made.quantile(q), expected)
    points = outcomes(np.stack([epsilon, 2 * epsilon]), np.stack([statuses, statuses]))
    np.testing.assert_array_equal(points.quantile(0.5), [500, 1000])
    expected = [[500, 1000], [np.inf, np.inf]]
    np.testing.assert_array_equal(points.quantile([0.5, 0.95]), expected)
    assert outcomes(epsilon[0], statuses[0]).quantile(0.5) == 1


def test_quantiles_of_outcomes_refuse_what_has_none():
    stopped = np.full(3, nrjax.Status.STOPPED)
    with pytest.raises(ValueError, match="epsilon must be numbers, without NaN"):
        outcomes(np.full(3, np.nan), stopped).quantile(0.5)
    with pytest.raises(ValueError, match="at least one trial"):
        outcomes(np.ones(0), stopped[:0]).quantile(0.5)
    with pytest.raises(ValueError, match=r"q must be .* type 0\.95"):
        outcomes(np.ones(3), stopped).quantile(95)
    with pytest.raises(ValueError, match="outside of jit and vmap"):
        jax.jit(lambda epsilon: outcomes(epsilon, stopped).quantile(0.5))(np.ones(3))
