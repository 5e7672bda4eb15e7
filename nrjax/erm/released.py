"""Base class of problems, the specification of a release, and the mechanism made from it."""

import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax.typing import ArrayLike

from nrjax._format import representation
from nrjax._validation import check
from nrjax.erm.minimise import Minimum
from nrjax.guarantees import LinearBoundary, PureGuarantee
from nrjax.guarantees.boundaries import Boundary
from nrjax.interaction import Interaction
from nrjax.processes import Brownian, Laplace
from nrjax.sensitivities import Sensitivity
from nrjax.types import NoiseProcess, Schedule, StoppingRule, Utility

U = TypeVar("U")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A data set, its non-private optimum, and the public numbers that mechanisms need.

    Neighbouring data sets differ in one row (replacement). The number n of rows is public.

    Attributes:
        rows: number of rows n.
        dimension: length d of theta.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm.
    """

    rows: int
    dimension: int
    regularisation: float
    minimum: Minimum

    __repr__ = representation

    @property
    def optimum(self) -> np.ndarray:
        """The non-private minimiser, shape (dimension,)."""
        return self.minimum.argument

    @property
    def optimum_loss(self) -> float:
        """The regularised risk of the optimum."""
        return self.minimum.value


class Mechanism(NamedTuple):
    """A private value with the noise process and the guarantee that fit its sensitivity.

    `Released.mechanism` makes a mechanism. `interaction` adds the schedule, the utility and the
    rule. To choose process and guarantee yourself, write `nrjax.Interaction` instead.

    Attributes:
        value: private value f(x), of the process's shape.
        process: noise process.
        guarantee: guarantee for this process and for the sensitivity of the value.
    """

    value: Any
    process: Any
    guarantee: Any

    __repr__ = representation

    def on(self, schedule: Schedule) -> "Mechanism":
        """Return the mechanism with its guarantee tightened for one schedule (`Guarantee.on`).

        On a `Grid` a boundary is exact at the times of the grid, and has smaller epsilons. Use the
        result in interactions with the same schedule only.
        """
        return self._replace(guarantee=self.guarantee.on(schedule))

    def interaction(
        self, schedule: Schedule, utility: Utility, rule: StoppingRule, **options: Any
    ) -> Interaction:
        """Return the interaction of this mechanism with a schedule, a utility and a rule.

        `options` are other arguments of `nrjax.Interaction`, such as `max_steps`.
        """
        rest = {"schedule": schedule, "utility": utility, "rule": rule, **options}
        return Interaction(**self._asdict(), **rest)


class Released(NamedTuple, Generic[U]):
    """The specification of a release: a private value, its sensitivity and a utility.

    `released(noise)` of a problem returns it for "gaussian" or "laplace" noise.

    Attributes:
        value: private value f(x), a vector of float64. The noise has the same shape.
        sensitivity: sensitivity of the value, in the norm that goes with the noise: l2 for
            Gaussian noise, l1 for Laplace noise.
        utility: minus the risk of the hypothesis that a release gives.
    """

    value: np.ndarray
    sensitivity: Sensitivity
    utility: U

    __repr__ = representation

    def mechanism(
        self,
        process: NoiseProcess | None = None,
        *,
        delta: ArrayLike | None = None,
        tight_at_epsilon: ArrayLike | None = None,
        tight_at_time: ArrayLike | None = None,
        boundary: type[Boundary] = LinearBoundary,
    ) -> Mechanism:
        """Return the mechanism for this value, with a process and a guarantee that fit it.

        Laplace noise has a pure guarantee and needs no argument. Gaussian noise has a boundary, and
        needs `delta` and one of `tight_at_epsilon` and `tight_at_time`. A time is a noise level:
        the variance of Gaussian noise.

        Args:
            process: process to use in place of `Laplace` or `Brownian`, with noise of that kind.
            delta: probability with which the loss may exceed the stated epsilon.
            tight_at_epsilon: epsilon that the boundary reaches with the least possible noise.
            tight_at_time: time at which the boundary has the smallest possible epsilon.
            boundary: class of the boundary, such as `LinearBoundary`.

        Raises:
            ValueError: an argument is missing, out of range, or has no meaning for this noise.
        """
        is_class = isinstance(boundary, type) and hasattr(boundary, "tight_at_epsilon")
        check(is_class, "boundary", boundary, "a class of boundaries, such as LinearBoundary")
        norm = getattr(self.sensitivity, "norm", None)
        hint = "Write nrjax.Sensitivity(number, 'l1') for Laplace noise, 'l2' for Gaussian noise."
        expected = "a nrjax.Sensitivity, which has a norm"
        check(norm is not None, "sensitivity", self.sensitivity, expected, hint)
        noise, usual = ("gaussian", Brownian) if norm == "l2" else ("laplace", Laplace)
        process = usual(self.value.shape) if process is None else process
        ok = isinstance(process, NoiseProcess) and process.noise == noise
        check(ok, "process", process, f"a process of {noise} noise, as the sensitivity is")
        tight = {"tight_at_epsilon": tight_at_epsilon, "tight_at_time": tight_at_time}
        if noise == "laplace":
            for name, value in {"delta": delta, **tight}.items():
                hint = "The guarantee is pure: leave the argument away."
                check(value is None, name, value, "None for Laplace noise", hint)
            return Mechanism(self.value, process, PureGuarantee(self.sensitivity))
        hint = "For example mechanism(tight_at_epsilon=0.3, delta=1e-6)."
        check(delta is not None, "delta", delta, "given for Gaussian noise", hint)
        stated = {name: value for name, value in tight.items() if value is not None}
        either = "exactly one of tight_at_epsilon and tight_at_time"
        check(len(stated) == 1, either, tuple(tight.values()), "given for Gaussian noise", hint)
        [(name, level)] = stated.items()
        guarantee = getattr(boundary, name)(level, self.sensitivity, delta)
        return Mechanism(self.value, process, guarantee)
