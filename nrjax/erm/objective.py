"""Objective perturbation of a logistic regression: one pure release at a fixed epsilon."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.sensitivities import Sensitivity, split_relation
from nrjax._base.validation import check, check_number, check_positive
from nrjax.engine.fixed import SingleRelease
from nrjax.engine.mechanism import Mechanism
from nrjax.erm.logistic import LogisticProblem
from nrjax.erm.perturbed import PerturbedOptimum, remainder
from nrjax.guarantees._rounding import SafeGuarantee
from nrjax.schedules import Grid

_CURVATURE = 0.25
"""Largest second derivative c of the logistic loss in the margin."""

_LARGEST_REMAINDER = 0.05
"""Largest remainder of the solver, as a fraction of the change of b that one row makes."""


def split_epsilon(
    epsilon: float, rows: int, regularisation: float, curvature: float = _CURVATURE
) -> tuple[float, float]:
    """Return the epsilon for the noise, and the additional penalty (Chaudhuri et al. 2011).

    They are `epsilon' = epsilon - 2 log(1 + c/(n lambda))` and 0 if epsilon' is positive, and else
    `epsilon/2` and the penalty `extra = c/(n (exp(epsilon/4) - 1)) - lambda`.

        >>> noise, extra = nrjax.erm.objective.split_epsilon(0.2, rows=10_000, regularisation=0.05)
        >>> round(noise, 4), extra
        (0.199, 0.0)

    Args:
        epsilon: epsilon of the release.
        rows: number of rows n.
        regularisation: lambda.
        curvature: bound c on the second derivative of the loss in the margin, for rows of l2 norm
            at most 1.
    """
    noise = epsilon - 2 * math.log1p(curvature / (rows * regularisation))
    if noise > 0:
        return noise, 0.0
    return epsilon / 2, curvature / (rows * math.expm1(epsilon / 4)) - regularisation


def most_rows() -> int:
    """Return the largest number of rows for which the dtype of JAX resolves one row's change."""
    return int(_LARGEST_REMAINDER / remainder(float_dtype()))


class ObjectiveGuarantee(SafeGuarantee):
    """The cost `2/t + 2 log(1 + c/(n (lambda + extra)))` of objective perturbation.

    It covers a single release, at the time `single`, which is the scale t of the noise b. At other
    times the cost is infinite. Source: Chaudhuri, Monteleoni and Sarwate 2011, Theorem 9; statement
    43 of `docs/proofs`. `nrjax.erm.ObjectivePerturbation` makes it.

    Attributes:
        sensitivity: largest change of b that the change of the data can make up for, 2 per row.
        jacobian: bound on the logarithm of the ratio of the Jacobians.
        single: time of the release.
    """

    noise: ClassVar[str] = PerturbedOptimum.noise
    notion: ClassVar[str] = Notion.PURE
    margin: ClassVar[int] = 6  # the formula loses 3
    jacobian: ArrayLike
    single: ArrayLike

    @property
    def fixed_times(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The time of the release, shape (1,)."""
        single = self.single
        return jnp.reshape(single, 1) if isinstance(single, Array) else np.reshape(single, 1)

    def _epsilon(self, time: Array, sensitivity: Array, jacobian: Array, single: Array) -> Array:
        return jnp.where(time == single, sensitivity / time + jacobian, jnp.inf)

    def _time(self, target: Array, sensitivity: Array, jacobian: Array, single: Array) -> Array:
        cost = sensitivity / single + jacobian
        enough = target >= cost * (1 + self.margin * float(jnp.finfo(cost.dtype).eps))
        return jnp.where(enough, single, jnp.inf)


@dataclasses.dataclass(frozen=True)
class ObjectivePerturbation(SingleRelease):
    """One pure release of a logistic regression by objective perturbation.

    Use it as the baseline of noise reduction at pure privacy: at one epsilon that is fixed in
    advance it errs less than noise on the optimum. It adds noise to the risk before minimising
    (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2 and Theorem 9):

        theta = argmin R(theta) + <b, theta>/n + (extra/2) |theta|^2,

    where R is the risk of `nrjax.erm.LogisticProblem`, and b has a density proportional to
    `exp(-epsilon' |b|/2)`. With c = 1/4, `epsilon' = epsilon - 2 log(1 + c/(n lambda))` and extra
    is 0. If that is not positive, `epsilon' = epsilon/2` and
    `extra = c/(n (exp(epsilon/4) - 1)) - lambda`.

    The theorem's conditions hold for every `LogisticProblem`: rows have l2 norm at most 1, an
    intercept column included; the loss is convex and twice differentiable in the margin, with first
    derivative in [-1, 0] and second derivative at most c; the penalty is `(lambda/2) |theta|^2`;
    neighbours differ by replacement, and n is public. The squared loss of ridge regression is not
    Lipschitz, so it is refused. (Kifer, Smith and Thakurta 2012 cover losses that are Lipschitz on
    a bounded domain.)

    Limits: the theorem assumes the exact minimiser. The solver stops at a gradient e of a few
    machine epsilons (`nrjax.erm.PerturbedOptimum`), as if b were n e away. The noise is larger by
    the factor 1 + n e, which pays for a remainder of that size, but not for the law of its digits,
    nor for a part that grows with |b|: 8 eps d of the loss on average, 1e-6 d in float32, which
    matters if epsilon' is as small. Use float64 there.
    In float32 more than 100,000 rows are refused. The release cannot be refined: no guarantee is
    known for a second one on the same noise.

        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(1000, 3))
        >>> features /= np.linalg.norm(features, axis=1, keepdims=True)
        >>> problem = nrjax.erm.LogisticProblem.fit(features, np.sign(features[:, 0]), 0.05)
        >>> release = nrjax.erm.ObjectivePerturbation(problem, epsilon=1.0)
        >>> interaction = release.until(at_least=-1.05 * problem.optimum_loss)
        >>> outcome = nrjax.simulate(jax.random.key(0), interaction, trials=100)
        >>> float(outcome.mechanism_epsilon.max()) <= 1.0
        True

    Attributes:
        problem: the logistic regression.
        epsilon: epsilon of the release.
        relation: relation of the neighbours, "replace", or such as "replace, 3 rows", for which one
            row has a third of epsilon.

    Raises:
        ValueError: the problem is no `LogisticProblem`, epsilon is not positive, or the relation is
            not one of replacement.
    """

    problem: LogisticProblem
    epsilon: float
    relation: str = "replace"

    @neutral_config()
    def __post_init__(self):
        hint = "The theorem needs a loss with bounded first and second derivatives."
        known = isinstance(self.problem, LogisticProblem)
        check(known, "problem", self.problem, "a nrjax.erm.LogisticProblem", hint)
        check_number("epsilon", self.epsilon)
        check_positive("epsilon", self.epsilon)
        base = split_relation(self.relation)[0]
        hint = "The number of rows must be public."
        check(base == "replace", "relation", self.relation, "'replace', or of several rows", hint)
        dtype, most = float_dtype(), most_rows()
        hint = "Use float64 (JAX_ENABLE_X64=1)."
        expected = f"at most {most}, of which {dtype} resolves one under the noise"
        check(self.problem.rows <= most, "rows of problem", self.problem.rows, expected, hint)
        self.mechanism  # noqa: B018, for its checks

    @property
    def noise_epsilon(self) -> float:
        """The part epsilon' of epsilon that pays for the noise, for one row."""
        return self._split[0]

    @property
    def extra(self) -> float:
        """The additional factor of the l2 penalty, 0 unless epsilon is very small."""
        return self._split[1]

    @property
    def time(self) -> float:
        """The time of the release, the scale of the noise b: `2/epsilon'`, and the allowance."""
        guarantee: Any = self.mechanism.guarantee
        return float(guarantee.single)

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism, whose value is the optimum and whose noise depends on the data."""
        problem, (noise, extra) = self.problem, self._split
        utility, rows = problem.utility, split_relation(self.relation)[1]
        penalty = problem.regularisation + extra
        guarantee = ObjectiveGuarantee(
            Sensitivity(2.0 * self._allowance, "l2", "replace").of_rows(rows),
            rows * 2 * math.log1p(_CURVATURE / (problem.rows * penalty)),
            2 * self._allowance / noise,
        )
        margins = utility.rows @ problem.optimum
        curvature = utility.weights / (2 + 2 * np.cosh(margins))
        hessian = (utility.rows.T * curvature) @ utility.rows
        process = PerturbedOptimum(
            utility.rows,
            utility.weights,
            float(problem.rows),
            problem.regularisation,
            extra,
            problem.optimum,
            np.linalg.inv(hessian + penalty * np.eye(problem.dimension)),
        )
        if self.relation != "replace":
            released = problem.released("brownian", self.relation)
            utility = released.utility
        return Mechanism(problem.optimum, process, guarantee, utility)

    @property
    def _allowance(self) -> float:
        """The factor of the noise that pays for the remainder of the solver."""
        return 1 + self.problem.rows * remainder(float_dtype())

    @functools.cached_property
    def _split(self) -> tuple[float, float]:
        # A little less, so that a run in the default dtype states at most epsilon.
        slack = 64 * float(jnp.finfo(float_dtype()).eps)
        single = float(self.epsilon) * (1 - slack) / split_relation(self.relation)[1]
        return split_epsilon(single, self.problem.rows, float(self.problem.regularisation))

    @property
    def _one_release(self) -> tuple[Mechanism, Grid]:
        return self.mechanism, Grid.explicit(np.reshape(self.time, 1))
