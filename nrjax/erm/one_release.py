"""One release of a model whose loss is good enough with a given probability, for any data."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from nrjax._base.fields import explain_fields
from nrjax._base.validation import check_number, check_probability
from nrjax.erm.logistic import LogisticProblem
from nrjax.erm.ridge import RidgeProblem
from nrjax.statistics.closed_forms import times_by_curvature

_ROUNDING = 1 + 1e-5
"""Factor of an epsilon, above the rounding of its formula and that of a run in float32."""


@explain_fields
class OneRelease(NamedTuple):
    """One release at an epsilon that is fixed in advance.

    Attributes:
        noise: kind of noise. Spherical Laplace noise is pure.
        epsilon: cost of the release, rounded up.
        time: noise level: variance (Gaussian) or scale (spherical Laplace).
    """

    noise: Literal["brownian", "spherical laplace"]
    epsilon: float
    time: float


def bounded_release(
    problem: LogisticProblem | RidgeProblem,
    excess: float,
    confidence: float,
    delta: float,
    relation: str = "replace",
) -> OneRelease:
    """Return the cheapest single release of the optimum that is good enough for any data.

    Its loss, penalty included, is at most `excess` above the optimum's with probability
    `confidence`. The second derivatives of the loss are at most `c + lambda`, where c is 1/4 for
    logistic regression and 1 for ridge regression and rows have an l2 norm of at most 1. So noise
    of length r adds at most `(c + lambda) r^2/2`. Nothing is tested, so that the epsilon covers
    all that is shown, apart from `excess` if that depends on the data.

    >>> x, y = np.eye(4)[np.arange(200) % 4], np.where(np.arange(200) % 3, 1.0, -1.0)
    >>> problem = nrjax.erm.LogisticProblem.fit(x, y, 0.05)
    >>> release = nrjax.erm.bounded_release(problem, excess=0.03, confidence=0.9, delta=1e-6)
    >>> release.noise, round(release.epsilon, 2)
    ('spherical laplace', 2.99)

    Args:
        problem: regression, fitted to rows of l2 norm at most 1.
        excess: largest loss above the optimum's, positive.
        confidence: probability, strictly between 0 and 1.
        delta: probability with which the privacy loss may exceed epsilon with Gaussian noise, whose
            loss is normal of mean `D^2/(2t)` and variance `D^2/t` for a sensitivity D.
        relation: relation of the neighbours, as for `released`.

    Raises:
        ValueError: an argument is out of range.
    """
    from scipy.special import ndtri  # slow to import

    check_number("excess", excess)
    check_probability("confidence", confidence)
    check_probability("delta", delta)
    is_ridge = isinstance(problem, RidgeProblem)
    released: Any = (
        problem.released_optimum("brownian", "tight", relation)
        if isinstance(problem, RidgeProblem)
        else problem.released("brownian", relation)
    )
    sensitivity = float(released.sensitivity)
    time_of = times_by_curvature(
        (1.0 if is_ridge else 0.25) + problem.regularisation, problem.dimension
    )
    variance, scale = (
        float(time_of(noise, excess, confidence) or 0.0)
        for noise in ("brownian", "spherical laplace")
    )
    shift = sensitivity / math.sqrt(variance)
    gaussian = shift * (shift / 2 - float(ndtri(delta)))
    return min(
        OneRelease("spherical laplace", _ROUNDING * sensitivity / scale, scale),
        OneRelease("brownian", _ROUNDING * gaussian, variance),
        key=lambda release: release.epsilon,
    )
