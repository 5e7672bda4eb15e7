"""What problems have and release under a kind of noise, and the mechanism that is made from it."""

import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax.typing import ArrayLike

from nrjax._format import format_value, representation
from nrjax._validation import check
from nrjax.erm.minimise import Minimum
from nrjax.guarantees import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    PureGuarantee,
)
from nrjax.interaction import Interaction
from nrjax.processes import Brownian, Laplace
from nrjax.sensitivities import Sensitivity
from nrjax.types import NoiseProcess, Schedule, StoppingRule, Utility

U = TypeVar("U")
Boundary = LinearBoundary | MixtureBoundary | OneSidedMixtureBoundary


@dataclasses.dataclass(frozen=True)
class Problem:
    """A data set, its non-private optimum, and what mechanisms need to know of it.

    Neighbouring data sets differ in one row (replacement); their number n is public.

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
        """Its regularised risk."""
        return self.minimum.value


class Mechanism(NamedTuple):
    """Three parts of an interaction that belong together."""

    value: Any
    """The private value f(x)."""
    process: Any
    guarantee: Any
    """Of this process, for this value's sensitivity."""

    __repr__ = representation

    def on(self, schedule: Schedule) -> "Mechanism":
        """The same, with the guarantee for this schedule alone: on a `Grid` a boundary exact there.

        For the interaction with that schedule; its epsilons are smaller (`Guarantee.on`).
        """
        return self._replace(guarantee=self.guarantee.on(schedule))

    def interaction(
        self, schedule: Schedule, utility: Utility, rule: StoppingRule, **options: Any
    ) -> Interaction:
        """The interaction of these three and the rest of its parts; as `nrjax.Interaction`."""
        rest = {"schedule": schedule, "utility": utility, "rule": rule, **options}
        return Interaction(**self._asdict(), **rest)


class Released(NamedTuple, Generic[U]):
    """What a mechanism needs to know of a problem, for one kind of noise."""

    value: np.ndarray
    """The private value f(x), a vector of float64; its shape is the process's."""
    sensitivity: Sensitivity
    """Of the value, in the norm that the noise asks for: l2 for Gaussian, l1 for Laplace."""
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
        """Value, noise and guarantee: pure under Laplace noise, which needs nothing to be given.

        Under Gaussian noise it is a boundary, which needs `delta` and where it is tight.

        Args:
            process: another than `Laplace` or `Brownian` of the value's shape, for the same noise.
            delta: probability with which the stated epsilon may be exceeded.
            tight_at_epsilon: epsilon that the boundary reaches at the smallest time.
            tight_at_time: time at which its epsilon is smallest; this or `tight_at_epsilon`.
            boundary: its class.

        Raises:
            ValueError: an argument is missing, out of range, or has no meaning for this noise.
        """
        known = isinstance(boundary, type) and hasattr(boundary, "tight_at_epsilon")
        check(known, "boundary", boundary, "a class of boundaries, such as LinearBoundary")
        norm = getattr(self.sensitivity, "norm", None)
        right = "a nrjax.Sensitivity, which says its norm"
        check(norm is not None, "sensitivity", self.sensitivity, right)
        noise, usual = ("gaussian", Brownian) if norm == "l2" else ("laplace", Laplace)
        process = usual(self.value.shape) if process is None else process
        ok = isinstance(process, NoiseProcess) and process.noise == noise
        check(ok, "process", process, f"one of {noise} noise, as the sensitivity is")
        tight = {"tight_at_epsilon": tight_at_epsilon, "tight_at_time": tight_at_time}
        if noise == "laplace":
            for name, value in {"delta": delta, **tight}.items():
                check(value is None, name, value, "None: under Laplace noise nothing is left to it")
            return Mechanism(self.value, process, PureGuarantee(self.sensitivity))
        check(delta is not None, "delta", delta, "given, for Gaussian noise")
        given = [(name, value) for name, value in tight.items() if value is not None]
        if len(given) != 1:
            both = ", ".join(f"{name} = {format_value(value)}" for name, value in tight.items())
            raise ValueError(f"{both}: must be one of the two, for Gaussian noise")
        name, at = given[0]
        guarantee = getattr(boundary, name)(at, self.sensitivity, delta)
        return Mechanism(self.value, process, guarantee)
