"""What is kept of the trials of `skellam_counts` where summaries are kept."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from nrjax.bins import LogBins
from nrjax.interaction import Interaction
from nrjax.sketches import Fold, Sketch
from nrjax.study.folds import (
    DIGITS,
    ending_folds,
    epsilon_folds,
    grid_ends,
    of_outcome,
    positive,
    signed,
)
from nrjax.types import Status

_ALONG_PATH = LogBins(-10, 10, DIGITS, signed=True)
"""Of the loss at each level: nothing smaller or larger is seen in a figure."""


def derive(results: dict[str, Array], parameters: Any) -> dict[str, Array]:
    """As `of_outcome`, with what is said of the realised loss.

    `realised_loss` is infinite where the noise lost its law; `exp_minus_loss` is `exp` of minus it.
    """
    broken = jnp.isnan(results["privacy_loss"]) | (results["status"] == Status.OVERFLOW)
    loss = jnp.where(broken, jnp.inf, results["privacy_loss"])
    found = of_outcome(results, parameters)
    return {**found, "realised_loss": loss, "exp_minus_loss": jnp.exp(-loss)}


def along_path(results: dict[str, Array], parameters: Any) -> dict[str, Array]:
    """The loss at each level, infinite where the noise lost its law."""
    del parameters
    loss = results["privacy_loss"]
    return {"privacy_loss": jnp.where(jnp.isnan(loss), jnp.inf, loss)}


def outcome_sketch(interaction: Interaction, levels: int, width: float | None) -> Sketch:
    """Of the trials that are stopped; without a guarantee there is no epsilon.

    `width` is that of bins of epsilon, as `RunSettings.bin_width`.
    """
    folds: dict[str, Fold] = {
        **ending_folds(levels),
        "realised_loss": signed(),
        "privacy_loss": signed(),
        "exp_minus_loss": positive(),
        "stopped_utility": signed(),
    }
    ends = grid_ends(interaction)
    if ends is not None:
        low, high, _ = ends
        folds |= epsilon_folds(low, high, width)
    return Sketch(folds, derive=derive)


def curve_sketch(levels: int) -> Sketch:
    """Of paths that are not: the loss at each level."""
    return Sketch({"privacy_loss": Fold(bins=_ALONG_PATH, dim=("level", levels))}, None, along_path)
