"""What the figures of `ligett2017` read: a task's runs by method and accuracy."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nrjax.study.bootstrap import interval
from nrjax.study.distribution import Distribution, Sample
from nrjax.study.drawing import Style, mean_with_ends, mechanism_styles, unique, words
from nrjax.study.results import Results
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
        names: of the cases.
        results: that hold them.
    """

    method: str
    style: Style
    facts: list[dict[str, Any]]
    names: list[str]
    results: Results

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
        return np.full(len(self.names), self.results.trials)

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
        return all(self.results.keeps_trials(name) for name in self.names)

    def stopped(self, variable: str) -> list[Distribution]:
        """A variable over the trials that stopped, by case."""
        return [self.results.law(name, f"stopped_{variable}") for name in self.names]

    def excess_risks(self) -> list[Distribution]:
        """The excess risk over the trials that stopped, by case."""
        return [self.results.law(name, "stopped_excess_risk") for name in self.names]

    def epsilons(self) -> list[Distribution]:
        """The total epsilon of all trials, infinite for those that did not stop, by case."""
        found = [self.results.distribution(name) for name in self.names]
        # Without any number nothing was released, hence nothing reached.
        nothing = Sample(np.array([np.inf]))
        return [nothing if one is None else one for one in found]

    def _stopped(self) -> np.ndarray:
        """Number of trials that stopped, by case."""
        counts = [self.results.statuses(name) or {} for name in self.names]
        return np.array([found.get(Status.STOPPED, 0) for found in counts])


def by_task(results: Results) -> list[list[Runs]]:
    """The runs of each task, methods in the order of `METHODS`."""
    cases = sorted(results.cases.values(), key=lambda case: case.attributes["alpha"])
    styles = mechanism_styles((*METHODS, *(case.attributes["method"] for case in cases)))
    found = []
    for task in unique(case.attributes["task"] for case in results.cases.values()):
        runs = []
        for method, style in styles.items():
            here = [
                case
                for case in cases
                if (case.attributes["task"], case.attributes["method"]) == (task, method)
            ]
            if here:
                facts, names = [case.attributes for case in here], [case.name for case in here]
                runs.append(Runs(method, style, facts, names, results))
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
    names = {one.method: dict(zip(one.alpha, one.names, strict=True)) for one in runs}
    results, base, found = runs[0].results, names[BASE], {}
    for method, of_method in names.items():
        shared = [alpha for alpha in of_method if alpha in base]
        if method == BASE or not shared:
            continue
        values = np.empty((3, len(shared)))
        with np.errstate(invalid="ignore", divide="ignore"):  # two infinities have no ratio
            for number, alpha in enumerate(shared):
                pair = of_method[alpha], base[alpha]
                one, other = map(results.resampled, pair)
                laws = map(results.distribution, pair)
                value, unit = (np.inf if law is None else law.quantile(50) for law in laws)
                values[0, number] = np.float64(value) / unit
                ends = None
                if one is not None and other is not None:
                    ends = interval(one[:, 1] / other[:, 1])
                values[1:, number] = ends or (np.nan, np.nan)
        found[method] = np.array(shared), values
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
