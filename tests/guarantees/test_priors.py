"""The deprecated keyword `prior_from` of the three designs."""

import pytest

import nrjax

PRIOR = [2.0, 1.0], [1.0, 1.0], 1.0, 1e-6


@pytest.mark.parametrize(
    "kind", [nrjax.LinearBoundary, nrjax.RenyiMixture, nrjax.HockeyStickBoundary]
)
def test_prior_from_is_deprecated_and_changes_nothing(kind):
    for origin in ("public", "paid"):
        with pytest.warns(DeprecationWarning, match="prior_from has no effect") as caught:
            made = kind.design(*PRIOR, prior_from=origin)
        assert caught[0].filename == __file__
        assert made == kind.design(*PRIOR)
    with pytest.raises(ValueError, match=r"prior_from must be 'public' or 'paid'.*paid for"):
        kind.design(*PRIOR, prior_from="private")
    with pytest.raises(ValueError, match="objective must be 'log' or 'mean'"):
        kind.design(*PRIOR, objective="Log")
