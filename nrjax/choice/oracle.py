"""The oracle that finds the noise or the epsilon of a release that is fixed in advance."""

from collections.abc import Callable

import numpy as np

from nrjax._base.keys import study_key
from nrjax._base.outcome import Status
from nrjax.choice.plan import SEARCH, Plan
from nrjax.engine.interaction import Interaction
from nrjax.simulation.montecarlo import outcomes


def first_that_meets(
    once: Callable[[float], Interaction], numbers: np.ndarray, plan: Plan
) -> float | None:
    """Return the first of some times or epsilons at which one release meets the target.

    It cannot be known beforehand. It is found by bisection, and is None if the last number does not
    suffice.

    Args:
        once: function of a time or an epsilon that returns the interaction of one release.
        numbers: times or epsilons, the noisiest release first.
        plan: target of the choice.
    """
    key = study_key(plan.seed)

    def meets(index: int) -> bool:
        program = outcomes(once(float(numbers[index])), SEARCH.launch)
        outcome = program.run(key, SEARCH.launch, SEARCH.oracle_first)
        return bool(np.mean(outcome["status"] == Status.STOPPED) >= plan.confidence)

    missed, met = -1, numbers.size - 1
    if not meets(met):
        return None
    while met - missed > 1:
        middle = (missed + met) // 2
        missed, met = (missed, middle) if meets(middle) else (middle, met)
    return float(numbers[met])
