"""Private logistic regression by output perturbation.

`R(theta) = (1/n) sum log(1 + exp(-y <x, theta>)) + (lambda/2) |theta|^2`, labels +-1, rows of l2
norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax.erm import _door, sensitivity
from nrjax.erm.expansion import Expansion
from nrjax.erm.logistic_utility import LogisticUtility
from nrjax.erm.minimise import Minimum
from nrjax.erm.output import OutputPerturbation, distinct, merge
from nrjax.erm.output_utility import OutputUtility, find_minimum
from nrjax.erm.radius import Ball, logistic_radius


def _signed_loss(theta: Array, signed_row: Array, _label: Array) -> Array:
    """`log(1 + exp(-m))` at the margin m, without overflow; the label is in the row."""
    margin = jnp.matmul(signed_row, theta)
    return jnp.maximum(-margin, 0) + jnp.log1p(jnp.exp(-jnp.abs(margin)))


Found = dict[str, np.ndarray]

Memory = Callable[[str, Sequence[Any], Path, Sequence[str], Callable[[], Found]], Found]
"""Given a name, inputs, the folder of the code, names and work: what the work makes of the inputs,
by these names."""


def anew(name: str, inputs: Sequence[Any], code: Path, names: Sequence[str], work: Any) -> Found:
    """No memory: the work is done."""
    del name, inputs, code, names
    return work()


_MERGED = ("index", "counts")
_EXPANSION = tuple(field.name for field in dataclasses.fields(Expansion))


def _data(table: np.ndarray, found: Found, regularisation: float) -> dict[str, Any]:
    """What a utility knows of the data."""
    signed, weights = merge(table, (found["index"], found["counts"]))
    return {
        "rows": signed,
        "labels": np.ones(len(signed)),
        "weights": weights,
        "regularisation": regularisation,
        "loss": _signed_loss,
    }


def _find(table: np.ndarray, regularisation: float, tolerance: float) -> Found:
    """All that takes long: rows alike, the optimum, and the expansion there."""
    index, counts = distinct(table)
    found = {"index": index.astype(np.int32), "counts": counts.astype(np.int32)}
    data = _data(table, found, regularisation)
    utility = OutputUtility(**data, radius=np.inf, sensitivity=None)
    minimum = find_minimum(utility, table.shape[1], tolerance)
    expansion = Expansion.fit(
        data["rows"], data["weights"], minimum.argument, minimum.gradient_norm
    )
    named = minimum._asdict() | {name: getattr(expansion, name) for name in _EXPANSION}
    return found | {name: np.asarray(value) for name, value in named.items()}


def _plain(array: np.ndarray) -> Any:
    """Numbers as Python's."""
    return array if array.ndim else array.item()


@dataclasses.dataclass(frozen=True, repr=False)
class LogisticProblem(OutputPerturbation):
    """Logistic regression on a data set: `OutputProblem` with its loss and constants known.

    The loss has Lipschitz constant 1; no optimum is outside the ball of radius M
    (`nrjax.erm.radius.logistic_radius`); and the utility has sensitivity `M/n`. A label only turns
    its row round, so the data are label times row.
    """

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        regularisation: float,
        *,
        tolerance: float = 1e-12,
        ball: Ball = "paper",
        memory: Memory = anew,
    ) -> "LogisticProblem":
        """Find the optimum and prepare the data.

        Args:
            features: shape (rows, dimension), each row of l2 norm at most 1.
            labels: shape (rows,), each +1 or -1.
            regularisation: lambda > 0.
            tolerance: gradient norm that the optimum must reach.
            ball: radius M of the ball that hypotheses are projected onto: "paper" for
                `sqrt(2 log 2/lambda)`, "tight" for `sqrt(W(1/e)/lambda)`, 0.448 of it, which
                makes both sensitivities of the utility smaller by as much.
            memory: keeps what was found for the next time: `nrjax.datasets.remembered`, on disk.

        Raises:
            ValueError: an argument is out of range, or the optimum was not found.
        """
        x, y = _door.checked(features, labels, regularisation)
        wrong = y[np.abs(y) != 1]
        if wrong.size:
            raise ValueError(f"labels holds {float(wrong[0])!r}: must be +1 or -1")
        rows, dimension = x.shape
        table = x * y[:, None]
        found = memory(
            "logistic",
            [table, float(regularisation), float(tolerance)],
            Path(__file__).parent,
            (*_MERGED, *Minimum._fields, *_EXPANSION),
            lambda: _find(table, float(regularisation), tolerance),
        )
        minimum = Minimum(*(_plain(found[name]) for name in Minimum._fields))
        radius = float(logistic_radius(regularisation, ball))
        utility = LogisticUtility(
            **_data(table, found, float(regularisation)),
            radius=radius,
            sensitivity=sensitivity.evaluated(sensitivity.logistic_loss(rows, radius), math.log(2)),
            optimum=minimum.argument,
            optimum_loss=minimum.value,
            tolerance=tolerance,
            expansion=Expansion(**{name: _plain(found[name]) for name in _EXPANSION}),
        )
        return cls(
            rows=rows,
            dimension=dimension,
            regularisation=float(regularisation),
            lipschitz=1.0,
            tolerance=float(tolerance),
            minimum=minimum,
            utility=utility,
        )

    @property
    def utility_sensitivity(self) -> float:
        """Sensitivity `M/n` of the utility at any one hypothesis, and its rounding.

        See `nrjax.erm.sensitivity.evaluated`.
        """
        return self.utility.sensitivity

    @property
    def excess_risk_sensitivity(self) -> float:
        """Sensitivity of the excess risk; see `nrjax.erm.sensitivity.excess_risk`."""
        return self.utility.excess_risk().sensitivity
