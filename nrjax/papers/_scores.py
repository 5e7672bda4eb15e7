"""Scores of a regression's models: the loss without penalty, accuracy or R2, and AUC."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax.papers._unpenalised import unpenalised
from nrjax.simulation.tiles import OfTrial
from nrjax.statistics.sample import Distribution
from nrjax.study.case import STOPPED, Quantity
from nrjax.study.formats import json_safe
from nrjax.study.results import Results

HELD_OUT = "held_out_"
"""The prefix of a score on the held-out rows."""

_ZERO = 1e-5
"""Largest absolute value of a score that may be a rounding error of 0."""

_QUANTILES = {"q05": 0.05, "median": 0.5, "q95": 0.95}
_LABELS = {"loss": "loss", "accuracy": "accuracy", "r2": "R2", "auc": "AUC"}


class Part(NamedTuple):
    """The rows on which models are scored: features of shape (n, d), and a target."""

    task: str
    x: np.ndarray
    y: np.ndarray

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the scores that the rows define."""
        if self.task == "ridge":
            return ("loss", "r2") if np.ptp(self.y) > 0 else ("loss",)
        return ("loss", "accuracy", "auc") if np.ptp(self.y) > 0 else ("loss", "accuracy")

    def score(self, name: str, predicted: Any, numpy: Any = np) -> Any:
        """Return a score of predictions, shape (n,): log odds (logistic) or targets (ridge).

        The loss is `mean(log(1 + exp(-y s)))` (logistic) or `mean((y - s)^2)/2` (ridge). R2 is 1
        less the squared error as a fraction of the variance of the target. AUC is the
        probability that a random row of the second label has the larger prediction, where ties
        count half. `numpy` is `jnp` in a trace; elsewhere NumPy compiles nothing.
        """
        if name == "auc":
            above, below = predicted[self.y > 0], numpy.sort(predicted[self.y < 0])
            places = (numpy.searchsorted(below, above, side=side) for side in ("left", "right"))
            return numpy.mean(sum(places) / (2 * below.size))
        if name == "accuracy":
            return numpy.mean((predicted > 0) == (self.y > 0))
        if self.task == "logistic":
            return numpy.mean(numpy.logaddexp(0, -self.y * predicted))
        loss = numpy.mean((self.y - predicted) ** 2) / 2
        return loss if name == "loss" else 1 - 2 * loss / self.y.var()

    def of_model(self, theta: np.ndarray) -> dict[str, float]:
        """Return the scores of a model by name."""
        predicted = self.x @ theta
        return {name: float(self.score(name, predicted)) for name in self.scores}

    def of_constant(self, trained: np.ndarray) -> dict[str, float]:
        """Return the scores of the base rate (logistic) or the mean (ridge) of the target.

        `trained` is the target of the rows from which the constant is taken.
        """
        constant = float(trained.mean())
        if self.task == "logistic":
            constant = 2 * float(np.arctanh(constant))
        predicted = np.full(self.y.shape, constant)
        return {name: float(self.score(name, predicted)) for name in self.scores}


@dataclasses.dataclass(frozen=True, eq=False)
class _Score(OfTrial):
    """A score of the last model of a trial.

    Attributes:
        part: rows on which the model is scored.
        name: name of the score.
    """

    part: Part
    name: str

    def __call__(self, outcome: Any, interaction: Any) -> Array:
        """Return the score of one trial's last model."""
        theta = interaction.utility.hypothesis(outcome.release)
        x = jnp.asarray(self.part.x, theta.dtype)
        predicted = jnp.matmul(x, theta, precision=jax.lax.Precision.HIGHEST)
        part = self.part._replace(y=self.part.y.astype(theta.dtype))
        return part.score(self.name, predicted, jnp)


def quantities(parts: Mapping[str, Part]) -> dict[str, Quantity]:
    """Return the scores to keep of each trial by name, for parts by the prefix of their names."""
    return {
        prefix + name: Quantity(cast(Any, _Score(part, name)))
        for prefix, part in parts.items()
        for name in part.scores
    }


def facts(parts: Mapping[str, Part], optimum: np.ndarray) -> dict[str, Any]:
    """Return the labels of a case on its rows, and on the models that are not released.

    These models are the optimum of the loss with the penalty, that of the loss without it, and the
    best constant, all of the rows for training.
    """
    task: Any = parts[""].task
    trained, free = parts[""].y, unpenalised(task, parts[""].x, parts[""].y)
    return {
        "scored_rows": {prefix: len(part.y) for prefix, part in parts.items()},
        "scores_of_optimum": _named(parts, lambda part: part.of_model(optimum)),
        "scores_of_unpenalised": _named(parts, lambda part: part.of_model(free)),
        "scores_of_constant": _named(parts, lambda part: part.of_constant(trained)),
    }


def _named(parts: Mapping[str, Part], scores_of: Any) -> dict[str, float]:
    return {
        prefix + name: score
        for prefix, part in parts.items()
        for name, score in scores_of(part).items()
    }


def measure(results: Results, case: str) -> dict[str, Any]:
    """Return quantiles of the scores of the models that stopped, as entries of a summary."""
    kept = results.cases[case].attributes.get("scores_of_optimum", {})
    found = {name: results.distribution(case, STOPPED + name) for name in kept}
    return {"scores": {name: _quantiles(values) for name, values in found.items() if values}}


def _quantiles(values: Distribution) -> dict[str, float | None]:
    return {name: json_safe(values.quantile(q)) for name, q in _QUANTILES.items()}


def sentences(case: Mapping[str, Any]) -> list[str]:
    """Return a sentence per part of the rows on the models that were not released."""
    models = {
        "optimum": f"the penalised optimum (lambda {case['regularisation']:.3g})",
        "unpenalised": "the optimum without a penalty",
        "constant": "the base rate" if case["task"] == "logistic" else "the mean",
    }
    models = {f"scores_of_{name}": words for name, words in models.items()}
    lines = []
    for prefix, rows in case.get("scored_rows", {}).items():
        where = "held-out rows, which no epsilon covers," if prefix else "rows of the data"
        each = "; ".join(
            f"{words} has {', '.join(_cells(case[key], prefix, _rounded, _unit_of(case)))}"
            for key, words in models.items()
            if key in case  # a folder may be older
        )
        lines.append(
            f"Scores on the {rows:,} {where} of the models that are not private, where the loss "
            f"leaves the penalty out: {each}."
        )
    return lines


def released(case: Mapping[str, Any]) -> list[str]:
    """Return a sentence per part of the rows on the models that were released at the stop."""
    lines = []
    for prefix in case.get("scored_rows", ()):
        cells = _cells(case["scores"], prefix, _interval, _unit_of(case))
        where = "the held-out rows" if prefix else "the data"
        if cells:
            lines.append(f"{case['case']}: the last models have {', '.join(cells)} on {where}.")
    return lines


def _rounded(score: float) -> str:
    """Return a score with three digits, where rounding errors of 0 are 0."""
    return f"{0.0 if abs(score) < _ZERO else score:.3g}"


def _interval(quantiles: Mapping[str, float | None]) -> str | None:
    numbers = [quantiles[name] for name in ("median", "q05", "q95")]
    texts = [_rounded(number) for number in numbers if number is not None]
    return "{} ({} to {})".format(*texts) if len(texts) == len(numbers) else None


def _unit_of(case: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the target, and the number of its units that became 1, or None for labels."""
    unit = case.get("target_unit")
    return None if unit is None else (unit["name"], unit["half"])


def _cells(
    scores: Mapping[str, Any], prefix: str, shown: Any, unit: tuple[str, float] | None
) -> list[str]:
    """Return the name and value of each score of a part in words.

    The loss of ridge regression is half the mean squared error of a target in [-1, 1], of which the
    root mean squared error (RMSE) is in the user's unit.
    """
    cells = {
        label: shown(scores[prefix + name])
        for name, label in _LABELS.items()
        if prefix + name in scores
    }
    if unit is not None and prefix + "loss" in scores:
        name, half = unit
        losses = scores[prefix + "loss"]
        parts = losses if isinstance(losses, Mapping) else {"": losses}
        errors = {n: None if e is None else half * math.sqrt(2 * e) for n, e in parts.items()}
        errors = errors if isinstance(losses, Mapping) else errors[""]
        cells[f"RMSE in units of {name}"] = shown(errors)
    return [f"{label} {cell}" for label, cell in cells.items() if cell is not None]
