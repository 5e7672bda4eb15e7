"""What the figures of `ligett2017` read: a task's runs by method and accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from nrjax.papers._drawing import short
from nrjax.papers._shared import grouped
from nrjax.papers.ligett2017.settings import METHODS
from nrjax.study.bootstrap import interval
from nrjax.study.distribution import Distribution, Sample
from nrjax.study.drawing import Style, mechanism_styles, words
from nrjax.study.layout import Case
from nrjax.study.results import Results
from nrjax.types import Status

BASE = METHODS[0]
"""Noise reduction, whose cost is the unit of the others'."""

THEORY = "theory"


@dataclasses.dataclass(frozen=True)
class Runs:
    """The cases of one task and method, by rising alpha; the style is the same in every figure."""

    method: str
    style: Style
    cases: list[Case]
    results: Results

    @property
    def facts(self) -> list[dict[str, Any]]:
        """Attributes of each case."""
        return [case.attributes for case in self.cases]

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
    def stopped(self) -> np.ndarray:
        """Share of the trials that stopped, by case."""
        counts = [self.results.statuses(case.name) or {} for case in self.cases]
        return np.array([one.get(Status.STOPPED, 0) for one in counts]) / self.results.trials

    def laws(self, variable: str) -> list[Distribution]:
        """A variable over the trials that stopped, by case."""
        return [self.results.law(case.name, f"stopped_{variable}") for case in self.cases]

    def epsilons(self) -> list[Distribution]:
        """The total epsilon of all trials, infinite for those that did not stop, by case."""
        found = [self.results.distribution(case.name) for case in self.cases]
        # Without any number nothing was released, hence nothing reached.
        nothing = Sample(np.array([np.inf]))
        return [nothing if one is None else one for one in found]


def by_task(results: Results) -> list[list[Runs]]:
    """The runs of each task, methods in the order of `METHODS`."""
    cases = sorted(results.cases.values(), key=lambda case: case.attributes["alpha"])
    styles = mechanism_styles((*METHODS, *(case.attributes["method"] for case in cases)))
    here = grouped(cases, "task", "method")
    return [
        [
            Runs(method, style, here[task, method], results)
            for method, style in styles.items()
            if (task, method) in here
        ]
        for (task,) in grouped(results.cases.values(), "task")
    ]


def tested(runs: Sequence[Runs]) -> list[Runs]:
    """Those that test their hypotheses."""
    return [one for one in runs if one.method != THEORY]


def compared(runs: Sequence[Runs]) -> bool:
    """Whether noise reduction and another method share an alpha, and trials can be paired."""
    if not all(one.results.keeps_trials(case.name) for one in runs for case in one.cases):
        return False
    accuracies = {one.method: set(one.alpha) for one in runs}
    base = accuracies.pop(BASE, set())
    return any(base & other for other in accuracies.values())


def alphas(runs: Sequence[Runs]) -> np.ndarray:
    """All of them, rising."""
    return np.unique(np.concatenate([one.alpha for one in runs]))


def ratios(runs: Sequence[Runs]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Median epsilons over all trials in units of noise reduction's, by method.

    Returns:
        By method: alpha, shape (n,); ratio and ends of its 95 % interval, shape (3, n), from
        resampling the same trials for both. NaN where both are infinite, and in place of an
        interval where they are in a resample.
    """
    cases = {one.method: dict(zip(one.alpha, one.cases, strict=True)) for one in runs}
    results, base, found = runs[0].results, cases.pop(BASE), {}
    for method, of_method in cases.items():
        shared = [alpha for alpha in of_method if alpha in base]
        values = np.empty((3, len(shared)))
        with np.errstate(invalid="ignore", divide="ignore"):  # two infinities have no ratio
            for number, alpha in enumerate(shared):
                pair = of_method[alpha].name, base[alpha].name
                laws = map(results.distribution, pair)
                value, unit = (np.inf if law is None else law.quantile(50) for law in laws)
                values[0, number] = np.float64(value) / unit
                one, other = map(results.resampled, pair)
                ends = None
                if one is not None and other is not None:
                    ends = interval(one[:, 1] / other[:, 1])
                values[1:, number] = ends or (np.nan, np.nan)
        if shared:
            found[method] = np.array(shared), values
    return found


def title(runs: Sequence[Runs]) -> str:
    """Task, data, rows, trials, and what else was set: the cases of a task have it in common."""
    facts, trials = runs[0].facts[0], runs[0].results.trials
    unit = "trial" if trials == 1 else "trials"
    return (
        f"{words(facts['task'])} on {short(facts['data'])}, {facts['rows']:,} rows, {trials:,} "
        f"{unit}\n{facts['perturbation']} perturbation, constants: {facts['constants']}"
    )
