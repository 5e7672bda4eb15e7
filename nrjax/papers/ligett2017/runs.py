"""What the figures of `ligett2017` read: a task's runs by method and accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from nrjax.papers._shared import grouped
from nrjax.papers.ligett2017.settings import METHODS
from nrjax.study.bootstrap import interval
from nrjax.study.drawing import Style, mechanism_styles, short, words
from nrjax.study.layout import Case
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution, Sample
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
    """The runs of each task, methods in the order of `METHODS`; all at the same alphas."""
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
    """Whether there is noise reduction and another method, and trials can be paired."""
    kept = all(one.results.keeps_trials(case.name) for one in runs for case in one.cases)
    return kept and runs[0].method == BASE and len(runs) > 1


def ratios(runs: Sequence[Runs]) -> list[np.ndarray]:
    """Median epsilons over all trials in units of noise reduction's, of each of the other methods.

    Returns:
        Ratio and ends of its 95 % interval, shape (3, alphas), from resampling the same trials for
        both. NaN where both are infinite, and in place of an interval where they are in a resample.
    """
    found, base = [], runs[0]
    medians = [np.array([law.quantile(0.5) for law in one.epsilons()]) for one in runs]
    with np.errstate(invalid="ignore", divide="ignore"):  # two infinities have no ratio
        for one, median in zip(runs[1:], medians[1:], strict=True):
            values = np.full((3, median.size), np.nan)
            values[0] = median / medians[0]
            for number, pair in enumerate(zip(one.cases, base.cases, strict=True)):
                drawn, unit = (base.results.resampled(case.name) for case in pair)
                ends = None
                if drawn is not None and unit is not None:
                    ends = interval(drawn[:, 1] / unit[:, 1])
                values[1:, number] = ends or (np.nan, np.nan)
            found.append(values)
    return found


def title(runs: Sequence[Runs]) -> str:
    """Task, data, rows, trials, and what else was set: the cases of a task have it in common."""
    facts, trials = runs[0].facts[0], runs[0].results.trials
    unit = "trial" if trials == 1 else "trials"
    return (
        f"{words(facts['task'])} on {short(facts['data'])}, {facts['rows']:,} rows, {trials:,} "
        f"{unit}\n{facts['perturbation']} perturbation, constants: {facts['constants']}"
    )
