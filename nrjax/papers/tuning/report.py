"""The report of `tuning`: the epsilon that each method pays for a test loss."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nrjax.papers._claims import data_remarks, group_by
from nrjax.papers.tuning.curves import curves, epsilon_at
from nrjax.papers.tuning.settings import FIXED
from nrjax.study import precision
from nrjax.study.formats import humanise, json_safe, number
from nrjax.study.report import Report
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results


class TuningReporting(Reporting):
    """The report of epsilons at equal test losses, by method."""

    case_facts = ("task", "method", "data", "trials")

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the function that draws each figure, by name."""
        from nrjax.papers.tuning.figures import loss  # matplotlib is slow to import

        return {"loss": loss}

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """Return the curves of a case.

        Returns:
            `curves`, by name: mean `epsilon` and mean `loss` at each level, with its 95 %
            `interval`, and `epsilon_at`, the epsilon at each of the `targets`. `mean_runs` is the
            mean number of runs at each level, for this report only.
        """
        drawn, targets = curves(results, case), results.cases[case].attributes["targets"]
        runs = [values.mean for values in results.levels(case, "runs", "outcome")]
        entries = {
            name: {
                "epsilon": curve[0].tolist(),
                "loss": curve[1][0].tolist(),
                "interval": json_safe(curve[1][1:].T.tolist()),
                "epsilon_at": [epsilon_at(curve, target) for target in targets],
            }
            for name, curve in drawn.items()
        }
        return {"curves": entries, "mean_runs": runs}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return a table of the epsilon that each method pays at equal test losses."""
        cases, gains = summary["cases"], results.about["settings"]["gain"]
        rows = []
        for case in cases:
            runs = np.mean(case["mean_runs"])
            for name, curve in case["curves"].items():
                cells = [_cell(curve, each) for each in curve["epsilon_at"]]
                rows.append((f"{case['task']} {humanise(name)}", *cells, f"{runs:.1f}"))
        remarks = (*_remarks(cases, gains), *precision.remarks(results))
        title = f"{summary['study']}: mean epsilon at equal mean test losses"
        headings = ("method", *(f"{100 * gain:g} % of the gain" for gain in gains), "runs")
        return Report(title, headings, tuple(rows), remarks)


def _cell(curve: Mapping[str, Any], epsilon: float | None) -> str:
    """Return an epsilon as text, "-" if no level of the method reaches the loss."""
    if epsilon is None:
        return "-"
    return ("at most " if epsilon == curve["epsilon"][0] else "") + f"{epsilon:.3g}"


def _remarks(cases: Sequence[Mapping[str, Any]], gains: Sequence[float]) -> list[str]:
    lines = []
    for (task,), (case, *_) in group_by(cases, "task").items():
        targets = ", ".join(map(number, case["targets"]))
        lines.append(
            f"{task} on {case['data']}: {case['rows']:,} rows, a third each to train, score and "
            f"measure; {len(case['candidates'])} candidates ({case['candidates'][0]} without "
            f"tuning). Test losses at the {len(gains)} fractions of the gain: {targets}; zero "
            f"model {number(case['zero_loss'])}. Losses are clipped per row."
        )
    return [
        *lines,
        *data_remarks(cases),
        f"Epsilon is pure. It is fixed in advance for {', '.join(map(humanise, FIXED[1:]))}, no "
        "tuning and the oracle, which therefore need to know the epsilon that a loss takes. The "
        "other methods get a target loss. Their epsilon is the mean of what they paid, failures "
        "included.",
        "The oracle knows the candidate of the smallest mean loss, and pays for one release. "
        "Choosing among many noisy models also chooses favourable noise, so a method can do better "
        "than the oracle.",
        "Runs: mean number of runs over the levels, which only a simulation may report. It is not "
        "part of what epsilon covers.",
    ]
