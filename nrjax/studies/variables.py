"""The variables of a case of a finished run, each as the distribution of its values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nrjax.studies.distribution import Distribution, Sample
from nrjax.studies.store import Store
from nrjax.types import Status

Compute = Callable[[Mapping[str, Any]], np.ndarray]
"""A variable from the arrays of a pass, by name; shape (trials, ...) or, of some trials, fewer."""


def total_epsilon(epsilon: np.ndarray, status: np.ndarray) -> np.ndarray | None:
    """The ex-post epsilon of each trial, infinite where it did not stop.

    A trial that never reached its goal has not bought it at any finite price, whatever its last
    release cost. None where no trial has an epsilon: the mechanism has no guarantee. A NaN beside
    numbers states no bound, so it counts as infinite.
    """
    if np.isnan(epsilon).all():
        return None
    return np.where((status == Status.STOPPED) & ~np.isnan(epsilon), epsilon, np.inf)


def keeps_trials(store: Store, case: str, name: str = "outcome") -> bool:
    """Whether a pass of a case holds its trials, rather than what they were folded into."""
    return store.cases[case].passes[name].axis == "trial"


def distribution_of(
    store: Store,
    case: str,
    variable: str = "epsilon",
    compute: Compute | None = None,
    name: str = "outcome",
) -> Distribution | None:
    """The distribution of a variable over the trials of a case.

    Args:
        store: of a finished run.
        case: its name.
        variable: `epsilon` is the total over all trials, infinite for one that did not stop
            (`total_epsilon`); `privacy_loss` is over the trials that have one; `stopped_` before a
            name is over the trials that stopped; any other name of the pass is over all trials.
        compute: makes the variable from the arrays of the pass, where trials were kept; where they
            were folded, it was so before, under the same name.
        name: of the pass.

    Returns:
        None where the variable is not defined: an epsilon without a guarantee.

    Raises:
        RuntimeError: the run is not finished.
    """
    if not keeps_trials(store, case, name):
        from nrjax.studies import sketched

        return sketched.distribution_of(store, case, variable, name)
    outcome = store.read(case, name)
    if compute is not None:
        return Sample(compute(_Arrays(outcome)))
    stopped, plain = variable.startswith("stopped_"), variable.removeprefix("stopped_")
    if plain == "epsilon":
        if "status" not in outcome:
            return None
        values = total_epsilon(outcome["epsilon"].values, outcome["status"].values)
        if values is None:
            return None
    else:
        values = outcome[plain].values
    if stopped:
        values = values[outcome["status"].values == Status.STOPPED]
    return Sample(values[~np.isnan(values)] if variable == "privacy_loss" else values)


def variable_of(
    store: Store,
    case: str,
    variable: str,
    compute: Compute | None = None,
    name: str = "outcome",
) -> Distribution:
    """As `distribution_of`, of a variable that every case has."""
    found = distribution_of(store, case, variable, compute, name)
    assert found is not None
    return found


def kept_epsilon(store: Store, case: str) -> np.ndarray | None:
    """`total_epsilon` of the trials of a case in their order, to pair them with another case's.

    None without an epsilon, and where the trials were folded.
    """
    if not keeps_trials(store, case):
        return None
    outcome = store.read(case, "outcome")
    if "status" not in outcome:
        return None
    return total_epsilon(outcome["epsilon"].values, outcome["status"].values)


def kept_epsilons(store: Store) -> dict[str, np.ndarray]:
    """`kept_epsilon` of each case that has one."""
    found = {name: kept_epsilon(store, name) for name in store.cases}
    return {name: epsilon for name, epsilon in found.items() if epsilon is not None}


def levels_of(
    store: Store,
    case: str,
    variable: str,
    compute: Compute | None = None,
    name: str = "curve",
) -> list[Distribution]:
    """As `distribution_of`, at each level of a pass that was never stopped."""
    if not keeps_trials(store, case, name):
        from nrjax.studies import sketched

        return sketched.levels_of(store, case, variable, name)
    arrays = _Arrays(store.read(case, name))
    values = arrays[variable] if compute is None else compute(arrays)
    return [Sample(column) for column in values.T]


def status_counts(store: Store, case: str) -> dict[Status, int] | None:
    """How many trials ended in each way that occurred; None for sessions, which just end."""
    if not keeps_trials(store, case):
        from nrjax.studies import sketched

        return sketched.status_counts(store, case)
    outcome = store.read(case, "outcome")
    if "status" not in outcome:
        return None
    counts = np.bincount(outcome["status"].values, minlength=len(Status))
    return {one: int(counts[one]) for one in Status if counts[one]}


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays of a pass, each read when it is asked for."""

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __getitem__(self, name: str) -> np.ndarray:
        return self._dataset[name].values

    def __iter__(self):
        return iter(self._dataset)

    def __len__(self) -> int:
        return len(self._dataset)
