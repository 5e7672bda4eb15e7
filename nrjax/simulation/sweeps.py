"""Sweeps: the same trials at many points (sensitivities, levels, targets), in one program."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import numpy as np
from jax import Array

from nrjax._base.outcome import Outcome
from nrjax.engine.interaction import Interaction
from nrjax.simulation import montecarlo
from nrjax.simulation.batching import Batching
from nrjax.simulation.families import Family


def sweep(
    key: Array,
    interactions: Iterable[Interaction],
    *,
    trials: int,
    first_trial: int = 0,
    batching: Batching | None = None,
    progress: bool = False,
) -> Outcome:
    """Run the same trials of many interactions that differ only in numbers.

    Use it in place of several calls of `nrjax.simulate`: one program runs all points. A later sweep
    of as many points, with other numbers, does not compile again. Trial i has the same noise at
    every point (common random numbers) as trial i of `simulate`. Results of the two functions can
    differ in their last bits, since the programs differ.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> mechanism = nrjax.laplace(120.0, sensitivity=1.0)
        >>> points = [mechanism.until(score, at_least=target) for target in (-0.5, -1.0, -2.0)]
        >>> outcome = nrjax.sweep(jax.random.key(0), points, trials=1000)
        >>> outcome.stopping_epsilon.shape
        (3, 1000)

    Args:
        key: key of the study.
        interactions: one per point, alike in class, shape and dtype. Data that are equal at all
            points are kept once; an iterator is consumed one interaction at a time.
        trials: number of trials per point.
        first_trial: number of the first trial.
        batching: tile, lanes, chunk and devices; the chunk counts trials per point.
        progress: whether to show the progress; needs the extra `studies`.

    Returns:
        An `Outcome` of NumPy arrays with leading axes (points, trials).

    Raises:
        ValueError: there are no interactions, one differs from the first in structure, or an
            argument is out of range.
    """
    family = Family.from_interactions(interactions)
    fields = montecarlo.run_all(key, family, trials, first_trial, batching, progress)
    return Outcome(**jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), fields))
