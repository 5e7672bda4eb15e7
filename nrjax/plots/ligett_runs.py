"""What the figures of `ligett2017` read: a task's runs by method and accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray

from nrjax.plots.common import Style, mean_interval, mechanism_styles, unique, words
from nrjax.studies.bootstrap import interval, resampled_quantiles
from nrjax.studies.store import Store
from nrjax.studies.summary import quantile, total_epsilon
from nrjax.types import Status

BASE = "noise_reduction"
THEORY = "theory"
METHODS = (BASE, "doubling", THEORY, "brownian_above_threshold", "brownian_reduced")
"""In the order of their looks, whichever of them a run has."""


@dataclasses.dataclass(frozen=True)
class Runs:
    """The cases of one task and method, by rising alpha.

    Attributes:
        method: its name.
        style: its look, the same in every figure.
        facts: attributes of each case.
        outcomes: pass "outcome" of each case.
    """

    method: str
    style: Style
    facts: list[dict[str, Any]]
    outcomes: list[xarray.Dataset]

    @property
    def alpha(self) -> np.ndarray:
        """Requested excess risk of each case."""
        return np.array([facts["alpha"] for facts in self.facts])

    @property
    def label(self) -> str:
        """The method, and its delta if there is one."""
        delta = self.facts[0].get("delta")
        return words(self.method) + (f" (δ = {delta:g})" if delta else "")

    @property
    def partly(self) -> np.ndarray:
        """Which cases have trials that did not stop; bool."""
        return np.array([not self._stopped(one).all() for one in self.outcomes])

    @property
    def any_stopped(self) -> bool:
        """Whether any trial did."""
        return any(self._stopped(one).any() for one in self.outcomes)

    def stopped(self, variable: str) -> list[np.ndarray]:
        """A variable over the trials that stopped, by case."""
        return [one[variable].values[self._stopped(one)] for one in self.outcomes]

    def epsilons(self) -> list[np.ndarray]:
        """The total epsilon of all trials, infinite for those that did not stop, by case."""
        found = []
        for one in self.outcomes:
            epsilon = total_epsilon(one["epsilon"].values, one["status"].values)
            # Without any number nothing was released, hence nothing reached.
            found.append(np.full(one.sizes["trial"], np.inf) if epsilon is None else epsilon)
        return found

    @staticmethod
    def _stopped(outcome: xarray.Dataset) -> np.ndarray:
        return outcome["status"].values == Status.STOPPED


class Remembering(Store):
    """Reads each pass once: a run has hundreds of cases, and every figure needs them all."""

    def __init__(self, store: Store):
        super().__init__(store.folder, store.settings, list(store.cases.values()))
        self._known: dict[tuple[str, str], xarray.Dataset] = {}

    def read(self, case: str, name: str, *, partial: bool = False) -> xarray.Dataset:
        """As `Store.read`."""
        if partial:
            return super().read(case, name, partial=True)
        if (case, name) not in self._known:
            self._known[case, name] = super().read(case, name).load()
        return self._known[case, name]


def by_task(store: Store) -> list[list[Runs]]:
    """The runs of each task, methods in the order of `METHODS`."""
    cases = sorted(store.cases.values(), key=lambda case: case.attributes["alpha"])
    styles = mechanism_styles((*METHODS, *(case.attributes["method"] for case in cases)))
    found = []
    for task in unique(case.attributes["task"] for case in store.cases.values()):
        runs = []
        for method, style in styles.items():
            here = [
                case
                for case in cases
                if (case.attributes["task"], case.attributes["method"]) == (task, method)
            ]
            if here:
                outcomes = [store.read(case.name, "outcome") for case in here]
                facts = [case.attributes for case in here]
                runs.append(Runs(method, style, facts, outcomes))
        found.append(runs)
    return found


def tested(runs: Sequence[Runs]) -> list[Runs]:
    """Those that test their hypotheses."""
    return [one for one in runs if one.method != THEORY]


def compared(runs: Sequence[Runs]) -> bool:
    """Whether noise reduction and another method share an alpha."""
    alphas = {one.method: set(one.alpha) for one in runs}
    base = alphas.pop(BASE, set())
    return any(base & other for other in alphas.values())


def alphas(runs: Sequence[Runs]) -> np.ndarray:
    """All of them, rising."""
    return np.unique(np.concatenate([one.alpha for one in runs]))


def means(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Mean and ends of its interval, each of shape (len(samples),)."""
    return np.array([mean_interval(values) for values in samples]).T


def order_statistics(samples: Sequence[np.ndarray], percent: int) -> np.ndarray:
    """A quantile of each sample; NaN where it is empty."""
    return np.array([quantile(one, percent) if one.size else np.nan for one in samples])


def ratios(runs: Sequence[Runs]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Median epsilons over all trials in units of noise reduction's, by method.

    Returns:
        By method: alpha, shape (n,); ratio and ends of its 95 % interval, shape (3, n), from
        resampling the same trials for both. NaN where both are infinite, and in place of an
        interval where they are in a resample.
    """
    epsilons = {one.method: dict(zip(one.alpha, one.epsilons(), strict=True)) for one in runs}
    resampled = resampled_quantiles(
        {
            f"{name} {alpha}": values
            for name, of in epsilons.items()
            for alpha, values in of.items()
        },
        (50,),
    )
    base, found = epsilons[BASE], {}
    for name, of in epsilons.items():
        shared = [alpha for alpha in of if alpha in base]
        if name == BASE or not shared:
            continue
        values = np.empty((3, len(shared)))
        with np.errstate(invalid="ignore", divide="ignore"):  # two infinities have no ratio
            for number, alpha in enumerate(shared):
                one, other = (resampled[f"{which} {alpha}"][:, 0] for which in (name, BASE))
                values[0, number] = np.float64(quantile(of[alpha], 50)) / quantile(base[alpha], 50)
                values[1:, number] = interval(one / other) or (np.nan, np.nan)
        found[name] = np.array(shared), values
    return found


def title(runs: Sequence[Runs]) -> str:
    """Task, data, rows, trials, and what else was set."""
    facts = [one for each in runs for one in each.facts]

    def say(name: str) -> str:
        return " or ".join(unique(f"{one[name]:,}" for one in facts))

    unit = "trial" if say("trials") == "1" else "trials"

    data = facts[0]["data"]
    data = data if len(data) <= 24 else "…" + data[-23:]  # a user's own file
    perturbation = " or ".join(unique(one["perturbation"] for one in facts))
    constants = " or ".join(unique(one["constants"] for one in facts))
    return (
        f"{words(facts[0]['task'])} on {data}, {say('rows')} rows, {say('trials')} {unit}\n"
        f"{perturbation} perturbation, constants: {constants}"
    )
