"""What the figures of `ligett2017` read: a task's runs by method and accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.papers.ligett2017.findings import excess_risk
from nrjax.study.bootstrap import interval, resampled_quantiles
from nrjax.study.distribution import Distribution, Sample
from nrjax.study.drawing import Style, mean_with_ends, mechanism_styles, unique, words
from nrjax.study.store import Store
from nrjax.study.variables import (
    distribution_of,
    keeps_trials,
    kept_epsilon,
    status_counts,
    variable_of,
)
from nrjax.types import Status

if TYPE_CHECKING:
    import xarray

BASE = "noise_reduction"
THEORY = "theory"
METHODS = (BASE, "doubling", THEORY, "brownian_above_threshold", "brownian_reduced")
"""In the order of their looks, whichever of them a run has."""


_REMEMBERED = 10**7
"""Trials of all passes that are kept in memory; more of them are read again for each figure."""


@dataclasses.dataclass(frozen=True)
class Runs:
    """The cases of one task and method, by rising alpha.

    Attributes:
        method: its name.
        style: its look, the same in every figure.
        facts: attributes of each case.
        names: of the cases.
        store: that holds them.
    """

    method: str
    style: Style
    facts: list[dict[str, Any]]
    names: list[str]
    store: Store

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
    def trials(self) -> np.ndarray:
        """How many each case has."""
        return np.array([self.store.cases[name].passes["outcome"].trials for name in self.names])

    @property
    def partly(self) -> np.ndarray:
        """Which cases have trials that did not stop; bool."""
        return self._stopped() < self.trials

    @property
    def any_stopped(self) -> bool:
        """Whether any trial did."""
        return bool(self._stopped().any())

    @property
    def kept(self) -> bool:
        """Whether the trials of all cases are there, to be paired."""
        return all(keeps_trials(self.store, name) for name in self.names)

    def stopped(self, variable: str) -> list[Distribution]:
        """A variable over the trials that stopped, by case."""
        return [variable_of(self.store, name, f"stopped_{variable}") for name in self.names]

    def excess_risks(self) -> list[Distribution]:
        """The excess risk over the trials that stopped, by case."""
        return [excess_risk(self.store, name) for name in self.names]

    def epsilons(self) -> list[Distribution]:
        """The total epsilon of all trials, infinite for those that did not stop, by case."""
        found = [distribution_of(self.store, name) for name in self.names]
        # Without any number nothing was released, hence nothing reached.
        nothing = Sample(np.array([np.inf]))
        return [nothing if one is None else one for one in found]

    def kept_epsilons(self) -> list[np.ndarray]:
        """The same, trial by trial."""
        found = [kept_epsilon(self.store, name) for name in self.names]
        return [
            np.full(trials, np.inf) if one is None else one
            for one, trials in zip(found, self.trials, strict=True)
        ]

    def _stopped(self) -> np.ndarray:
        """Number of trials that stopped, by case."""
        counts = [status_counts(self.store, name) or {} for name in self.names]
        return np.array([found.get(Status.STOPPED, 0) for found in counts])


class Remembering(Store):
    """Reads each pass once: a run has hundreds of cases, and every figure needs them all."""

    def __init__(self, store: Store):
        super().__init__(store.folder, store.settings, list(store.cases.values()))
        self._known: dict[tuple[str, str], xarray.Dataset] = {}
        trials = sum(one.trials for case in store.cases.values() for one in case.passes.values())
        self._large = trials > _REMEMBERED

    def read(self, case: str, name: str, *, partial: bool = False) -> xarray.Dataset:
        """As `Store.read`."""
        if partial or self._large:
            return super().read(case, name, partial=partial)
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
                facts, names = [case.attributes for case in here], [case.name for case in here]
                runs.append(Runs(method, style, facts, names, store))
        found.append(runs)
    return found


def tested(runs: Sequence[Runs]) -> list[Runs]:
    """Those that test their hypotheses."""
    return [one for one in runs if one.method != THEORY]


def compared(runs: Sequence[Runs]) -> bool:
    """Whether noise reduction and another method share an alpha, and trials can be paired."""
    if not all(one.kept for one in runs):
        return False
    alphas = {one.method: set(one.alpha) for one in runs}
    base = alphas.pop(BASE, set())
    return any(base & other for other in alphas.values())


def alphas(runs: Sequence[Runs]) -> np.ndarray:
    """All of them, rising."""
    return np.unique(np.concatenate([one.alpha for one in runs]))


def means(samples: Sequence[Distribution]) -> np.ndarray:
    """Mean and ends of its interval, each of shape (len(samples),)."""
    return np.array([mean_with_ends(values) for values in samples]).T


def quantiles(samples: Sequence[Distribution], percent: float) -> np.ndarray:
    """A quantile and the ends of its exact interval; NaN where there are no values."""
    return np.array([(one.quantile(percent), *one.quantile_interval(percent)) for one in samples]).T


def ratios(runs: Sequence[Runs]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Median epsilons over all trials in units of noise reduction's, by method.

    Returns:
        By method: alpha, shape (n,); ratio and ends of its 95 % interval, shape (3, n), from
        resampling the same trials for both. NaN where both are infinite, and in place of an
        interval where they are in a resample.
    """
    epsilons = {one.method: dict(zip(one.alpha, one.kept_epsilons(), strict=True)) for one in runs}
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
                value, unit = (Sample(which[alpha]).quantile(50) for which in (of, base))
                values[0, number] = np.float64(value) / unit
                values[1:, number] = interval(one / other) or (np.nan, np.nan)
        found[name] = np.array(shared), values
    return found


def title(runs: Sequence[Runs]) -> str:
    """Task, data, rows, trials, and what else was set."""
    facts = [one for each in runs for one in each.facts]

    def say(values: Iterable[Any]) -> str:
        return " or ".join(unique(f"{value:,}" for value in values))

    rows, trials = say(one["rows"] for one in facts), say(n for one in runs for n in one.trials)
    unit = "trial" if trials == "1" else "trials"
    data = facts[0]["data"]
    data = data if len(data) <= 24 else "…" + data[-23:]  # a user's own file
    perturbation = " or ".join(unique(one["perturbation"] for one in facts))
    constants = " or ".join(unique(one["constants"] for one in facts))
    return (
        f"{words(facts[0]['task'])} on {data}, {rows} rows, {trials} {unit}\n"
        f"{perturbation} perturbation, constants: {constants}"
    )
