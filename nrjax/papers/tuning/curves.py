"""Curves of `tuning`: mean loss by mean epsilon, and the epsilon that reaches a loss."""

import numpy as np

from nrjax.study.results import Results

Curve = tuple[np.ndarray, np.ndarray]
"""Mean epsilons, shape (n,), and mean losses with their 95 % intervals, shape (3, n)."""


def curves(results: Results, case: str) -> dict[str, Curve]:
    """Return the curves of a case by name: by rising epsilon, or by falling target.

    The case of single models has two curves: the first candidate, and at each epsilon the candidate
    with the smallest mean loss.
    """
    paid, losses = (
        np.array(
            [(each.mean, *each.mean_interval()) for each in results.levels(case, name, "outcome")]
        ).T
        for name in ("paid", "test_loss")
    )
    facts = results.cases[case].attributes
    if facts["method"] != "single":
        return {facts["method"]: (paid[0], losses)}
    table = losses.reshape(3, -1, len(facts["candidates"]))
    best = table[:, np.arange(table.shape[1]), table[0].argmin(axis=1)]
    levels = paid[0].reshape(table.shape[1:])[:, 0]
    return {"no_tuning": (levels, table[:, :, 0]), "oracle": (levels, best)}


def epsilon_at(curve: Curve, target: float) -> float | None:
    """Return the mean epsilon at which the mean loss first reaches a target, None if it does not.

    The epsilon is interpolated in its logarithm. It is the smallest of the curve if the loss of
    that epsilon is below the target.
    """
    epsilons, losses = curve[0], curve[1][0]
    reached = np.flatnonzero(losses <= target)
    if not reached.size or not reached[0]:
        return float(epsilons[0]) if reached.size else None
    low, high = reached[0] - 1, reached[0]
    part = (losses[low] - target) / (losses[low] - losses[high])
    return float(epsilons[low] ** (1 - part) * epsilons[high] ** part)
