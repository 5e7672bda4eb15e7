"""Base class of problems, and the specification of a release."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.pytrees import Pytree, record, static
from nrjax._base.sensitivities import Noise, Norm, Sensitivity
from nrjax._base.validation import check, check_choice
from nrjax.engine.mechanism import Mechanism, brownian, laplace
from nrjax.erm.minimise import Minimum
from nrjax.types import NoiseProcess

U = TypeVar("U")


class Problem(Pytree, abc.ABC):
    """A data set, its non-private optimum, and the public numbers that mechanisms need.

    By default neighbouring data sets differ in one row (replacement), and the number n of rows is
    public. Another relation can be stated: "replace, 3 rows" for people with up to 3 rows, and
    "add-remove" for output perturbation.

    Attributes:
        rows: number of rows n.
        dimension: length d of theta.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm.
    """

    rows: int = static()
    dimension: int = static()
    regularisation: float
    minimum: Minimum

    @property
    def optimum(self) -> np.ndarray:
        """The non-private minimiser, shape (dimension,)."""
        return self.minimum.argument

    @property
    def optimum_loss(self) -> float:
        """The regularised risk of the optimum."""
        return self.minimum.value

    @abc.abstractmethod
    def released(self, noise: Noise) -> Released[Any]:
        """Return the private value with its sensitivity and utility, for one kind of noise.

        Args:
            noise: "brownian" (or "gaussian"), "laplace" or "spherical laplace".
        """

    def brownian(
        self,
        delta: ArrayLike,
        *,
        boundary: Any = "minimax",
        tight_at_epsilon: ArrayLike | None = None,
        **options: Any,
    ) -> Mechanism:
        """Return the Brownian mechanism of the problem, with the problem's utility.

        For example `problem.brownian(delta=1e-6).until(at_least=-1.05 * problem.optimum_loss)`.

        Args:
            delta: probability with which the loss may exceed the stated epsilon.
            boundary: boundary, as for `nrjax.brownian`.
            tight_at_epsilon: as for `nrjax.brownian`.
            options: further arguments of `released`, such as `relation`, or `constants` for ridge
                regression.
        """
        parts: Any = {"boundary": boundary, "tight_at_epsilon": tight_at_epsilon}
        return self.released("brownian", **options).mechanism(delta=delta, **parts)

    def laplace(self, norm: Norm = "l1", **options: Any) -> Mechanism:
        """Return the Laplace mechanism of the problem, with the problem's utility.

        Args:
            norm: norm of the sensitivity: "l1" for independent Laplace noise, or "l2" for
                `nrjax.SphericalLaplace`, which needs less noise for most problems.
            options: further arguments of `released`, such as `constants` for ridge regression.
        """
        check_choice("norm", norm, ("l1", "l2"))
        noise = "laplace" if norm == "l1" else "spherical laplace"
        return self.released(noise, **options).mechanism()


@record
class Released(NamedTuple, Generic[U]):
    """The specification of a release: a private value, its sensitivity and a utility.

    `released(noise)` of a problem returns it for one kind of noise.

    Attributes:
        value: private value f(x), a vector of float64. The noise has the same shape.
        sensitivity: sensitivity of the value, in the norm that goes with the noise: l2 for
            Gaussian and spherical Laplace noise, l1 for Laplace noise.
        utility: minus the risk of the hypothesis that a release gives.
    """

    value: np.ndarray
    sensitivity: Sensitivity
    utility: U

    def mechanism(
        self,
        process: NoiseProcess | None = None,
        *,
        delta: ArrayLike | None = None,
        boundary: Any = "minimax",
        tight_at_epsilon: ArrayLike | None = None,
    ) -> Mechanism:
        """Return the mechanism for this value, with its utility and a guarantee that fits it.

        Laplace noise, spherical or not, has a pure guarantee, and needs no argument
        (`nrjax.laplace`). Gaussian noise has a boundary, and needs `delta` (`nrjax.brownian`).

        Args:
            process: process to use in place of that of the noise, with noise of the same kind.
            delta: probability with which the loss may exceed the stated epsilon.
            boundary: boundary, as for `nrjax.brownian`.
            tight_at_epsilon: epsilon that the boundary reaches with the least possible noise, if it
                is tuned to one; by default a linear one.

        Raises:
            ValueError: an argument is missing, out of range, or has no meaning for this noise.
        """
        norm = getattr(self.sensitivity, "norm", None)
        hint = "Write nrjax.Sensitivity(number, 'l1') for Laplace noise, 'l2' for Gaussian noise."
        expected = "a nrjax.Sensitivity, which has a norm"
        check(norm is not None, "sensitivity", self.sensitivity, expected, hint)
        if norm == "l1" or isinstance(self, SphericalReleased):
            given = {
                "delta": delta,
                "tight_at_epsilon": tight_at_epsilon,
                "boundary": None if boundary == "minimax" else boundary,
            }
            for name, value in given.items():
                hint = "The guarantee is pure: leave the argument away."
                check(value is None, name, value, "None for Laplace noise", hint)
            made = laplace(self.value, self.sensitivity)
        else:
            hint = "For example mechanism(delta=1e-6)."
            check(delta is not None, "delta", delta, "given for Gaussian noise", hint)
            options: Any = {
                "delta": delta,
                "boundary": boundary,
                "tight_at_epsilon": tight_at_epsilon,
            }
            made = brownian(self.value, self.sensitivity, **options)
        process = made.process if process is None else process
        return dataclasses.replace(made, process=process, utility=self.utility)


class SphericalReleased(Released[U]):
    """The specification of a release with spherical Laplace noise, whose guarantee is pure.

    Attributes:
        value: as in `Released`.
        sensitivity: l2-sensitivity of the value.
        utility: as in `Released`.
    """


def released_as(
    noise: Noise, value: np.ndarray, sensitivity: Sensitivity, utility: U
) -> Released[U]:
    """Return the specification of a release for one kind of noise."""
    kind = SphericalReleased if noise == "spherical laplace" else Released
    return kind(value, sensitivity, utility)
