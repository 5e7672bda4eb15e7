"""What is kept of the sessions of `rogers2023` where summaries are kept."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from nrjax.sketches import Fold, Sketch
from nrjax.study.folds import positive, whole_numbers


def derive(results: dict[str, Array], parameters: Any) -> dict[str, Array]:
    """With `precision`: share of the results within alpha of the truth; 1 without any."""
    del parameters
    returned = results["returned"]
    share = results["precise"] / jnp.maximum(returned, 1)
    return {**results, "precision": jnp.where(returned > 0, share, 1.0)}


def session_sketch(items: int, levels: int, marks: int) -> Sketch:
    """Of sessions over so many items, each tried at most once."""
    counted = Fold(bins=whole_numbers(items))
    folds = {
        "returned": counted,
        "precise": counted,
        "attempted": counted,
        # A release that fails may go through levels without end; most end long before.
        "steps": Fold(bins=whole_numbers(items * levels)),
        "spent": positive(),
        "precision": positive(2.0**-12, 1.0),
        "returned_by": Fold(bins=whole_numbers(items), dim=("mark", marks)),
        "precise_by": Fold(dim=("mark", marks)),
    }
    return Sketch(folds, derive=derive)
