"""Curves of the figures of `ligett2017`: the cases of one task and method each."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nrjax._base.outcome import Status
from nrjax.papers._claims import group_by
from nrjax.papers.ligett2017.settings import METHODS
from nrjax.statistics.sample import Distribution, Sample
from nrjax.study import plotting
from nrjax.study.compare import interval_of
from nrjax.study.formats import humanise
from nrjax.study.plotting import Style
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase

BASE = METHODS[0]  # noise reduction, by whose cost the other methods' costs are divided


class Curve(NamedTuple):
    """A curve of a figure: the cases of one task and method, in rising order of alpha.

    Attributes:
        method: name of the method.
        style: colour, line and marker of the method in every figure.
        cases: one case per alpha.
        alpha: requested excess risk of each case, shape (n,).
        stopped: fraction of each case's trials that stopped, shape (n,).
        results: the results that hold the cases.
    """

    method: str
    style: Style
    cases: list[StoredCase]
    alpha: np.ndarray
    stopped: np.ndarray
    results: Results

    @property
    def label(self) -> str:
        """The legend's text: the method, and its delta if it has one."""
        delta = self.cases[0].attributes.get("delta")
        return humanise(self.method) + (f" (δ = {delta:g})" if delta else "")

    def of_stopped(self, variable: str) -> list[Distribution]:
        """Return, for each case, a variable's distribution over the trials that stopped."""
        return [
            self.results.distribution_of(case.name, f"stopped_{variable}") for case in self.cases
        ]

    def epsilons(self) -> list[Distribution]:
        """Return, for each case, the distribution of the stopping epsilon over all trials."""
        epsilons = [self.results.distribution(case.name) for case in self.cases]
        # A case without epsilons released nothing, so none of its trials stopped.
        nothing = Sample(np.array([np.inf]))
        return [nothing if values is None else values for values in epsilons]

    def labels(self, name: str) -> list[object]:
        """Return the label `name` of each case."""
        return [case.attributes.get(name) for case in self.cases]


def by_task(results: Results) -> list[list[Curve]]:
    """Return a list of curves per task. All curves of a task have the same alphas."""
    cases = sorted(results.cases.values(), key=lambda case: case.attributes["alpha"])
    styles = plotting.mechanism_styles((*METHODS, *(case.attributes["method"] for case in cases)))
    groups = group_by(cases, "task", "method")

    def curve(task: str, method: str) -> Curve:
        group = groups[task, method]
        statuses = [results.statuses(case.name) or {} for case in group]
        stopped = [counts.get(Status.STOPPED, 0) / results.trials for counts in statuses]
        alpha = np.array([case.attributes["alpha"] for case in group])
        return Curve(method, styles[method], group, alpha, np.array(stopped), results)

    tasks = group_by(results.cases.values(), "task")
    return [[curve(task, name) for name in styles if (task, name) in groups] for (task,) in tasks]


def tested(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves of methods that test the excess risk, which `theory` does not."""
    return [curve for curve in curves if curve.method != "theory"]


def compared(curves: Sequence[Curve]) -> bool:
    """Return whether noise reduction can be compared with other methods, trial by trial."""
    kept = all(curve.results.keeps_trials(case.name) for curve in curves for case in curve.cases)
    return kept and curves[0].method == BASE and len(curves) > 1


def ratios(curves: Sequence[Curve]) -> list[np.ndarray]:
    """Return the ratio of each other method's median stopping epsilon to noise reduction's.

    Returns:
        An array per method, shape (3, alphas): the ratio and both ends of its paired 95 % interval.
        A ratio is NaN if both medians are infinite. Its ends are NaN if both may be infinite.
    """
    base, *others = curves
    units = np.array([epsilon.quantile(0.5) for epsilon in base.epsilons()])
    ratios_of_others = []
    for curve in others:
        values = np.full((3, units.size), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):  # two infinities have no ratio
            values[0] = np.array([epsilon.quantile(0.5) for epsilon in curve.epsilons()]) / units
            for number, pair in enumerate(zip(curve.cases, base.cases, strict=True)):
                names = (case.name for case in pair)
                values[1:, number] = interval_of(base.results, *names, of="ratio") or np.nan
        ratios_of_others.append(values)
    return ratios_of_others


def title(curves: Sequence[Curve]) -> str:
    """Return a panel's title: the task, data, trials and settings that its curves share."""
    facts, trials = curves[0].cases[0].attributes, curves[0].results.trials
    unit = "trial" if trials == 1 else "trials"
    data = f"{humanise(facts['task'])} on {plotting.ellipsis(facts['data'])}"
    return (
        f"{data}, {facts['rows']:,} rows, {trials:,} {unit}\n"
        f"{facts['perturbation']} perturbation, constants: {facts['constants']}"
    )
