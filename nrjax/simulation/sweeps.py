"""The same study at many points (sensitivities, levels, targets), as one program."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax import Array

from nrjax.interaction import Interaction
from nrjax.simulation import montecarlo
from nrjax.simulation.batching import Batching
from nrjax.simulation.family import Family
from nrjax.types import Outcome


def sweep(
    key: Array,
    interactions: Iterable[Interaction],
    *,
    trials: int,
    first_trial: int = 0,
    batching: Batching | None = None,
    progress: bool = False,
) -> Outcome:
    """Run the same trials of many interactions that differ in numbers alone.

    One vmapped program runs all points: lanes are shared, so that a point whose trials are long
    does not keep the others waiting, and other numbers, as many of them, do not compile again.
    Points share their random numbers: trial i has the same noise at each, which makes differences
    between points far less noisy than the points themselves (common random numbers). So it is the
    trial i that `simulate` gives, up to the last bits, as the two are compiled apart. Another call
    with the same key shares them too.

    Args:
        key: the study's key; calls that are to be independent need keys of their own.
        interactions: one for each point, alike in class, shape and dtype; what is the same in all
            of them, such as the data, is kept once. An iterator is used up one by one.
        trials: how many trials of each point.
        first_trial: number of the first trial.
        batching: lanes, tiles, chunks and devices; a chunk counts trials, each of all points.
        progress: whether to show it, as `simulate` does.

    Returns:
        An `Outcome` of NumPy arrays with leading axes (points, trials).

    Raises:
        ValueError: there are no interactions, one is not like the first, or an argument is out of
            range.
    """
    family = Family.of(interactions)
    batching = Batching() if batching is None else batching
    whole = montecarlo.run_all(key, family, trials, first_trial, batching, progress)
    return Outcome(**jax.tree.map(_points_first, whole))


def _points_first(leaf: Any) -> np.ndarray:
    return np.swapaxes(leaf, 0, 1)
