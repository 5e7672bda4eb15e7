"""The report of a regression on your own table: what covers the decision to stop comes first."""

from collections.abc import Mapping
from typing import Any

from nrjax.guarantees.notions import PUBLIC_TEST
from nrjax.papers import _scores
from nrjax.papers._claims import Cases
from nrjax.papers.whitehouse2022.report import ClaimReporting
from nrjax.study.answers import answer
from nrjax.study.formats import percent, upper
from nrjax.study.report import AT_FIRST_STEP, Report
from nrjax.study.results import Results

_GRID_FROM_ROWS = (
    "The largest epsilon of the grid was computed from your rows, and with it every level, which "
    "epsilon does not cover. For a release, state --highest-epsilon and --target-loss."
)

_OF_PUBLIC = (
    f"{PUBLIC_TEST} ({{cases}}). The test reads the loss on your rows, so that these epsilons are "
    "too small for a release."
)
_TARGET_FROM_ROWS = (
    "All epsilons below are for a target loss that is public, which it is not here: it was "
    "computed from your rows. Give one by --target-loss."
)
_DISTANCE = (
    "The noise of one release follows from the distance of the target loss to the best loss, which "
    "epsilon does not cover either. For a release, choose this distance without looking at the "
    "data."
)
_NAMES = (
    "A case is named by its task, its mechanism and its test. `public` is a test that compares the "
    "loss on your rows itself. `above_threshold` and `reduced_above_threshold` add noise to this "
    "comparison: of one scale, or of a scale that falls from level to level."
)
_COVERED = "For an epsilon that covers the stop: --test reduced_above_threshold."


class OwnReporting(ClaimReporting):
    """The report of a regression on your table: stopping epsilons, and scores of the models."""

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """Return quantiles of the scores of the models that stopped, for a summary."""
        return _scores.measure(results, case)

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return the report of `whitehouse2022`, with the scores of the models."""
        table, cases = super().report(results, summary), summary["cases"]
        public, title = [case["case"] for case in cases if case["test"] == "public"], table.title
        if len(public) == len(cases):
            public = ["all cases"]
            title += ", without the cost of the decision to stop"
        remarks = [
            *_scores.sentences(cases[0]),
            *(sentence for case in cases for sentence in _scores.released(case)),
            "Scores of the last models are medians over the runs that stopped, with the middle "
            "90 %. They leave the penalty out. They read private rows: if you release a "
            "model, epsilon does not cover its scores.",
            *(f"Warning: {text}" for text in cases[0].get("doubts", ())),
            *_first_levels(cases),
        ]
        first = [_covering(case) for case in cases if case["test"] != "public"]
        if public:
            first.append(_OF_PUBLIC.format(cases=", ".join(public)))
            first += [] if len(first) > 1 else [_COVERED]
        if cases[0].get("grid_from_rows"):
            table = table._replace(uncovered=(*table.uncovered, _GRID_FROM_ROWS))
        once = cases[0].get("one_release")
        if once is not None:
            first.append(_noise_of(once))
            table = table._replace(uncovered=(*table.uncovered, _DISTANCE))
            first.append(_NAMES)
        stated = answer(summary, None if once is None else (once["epsilon"], _once(once)))
        if "target_fraction" in cases[0]:
            stated = f"{_TARGET_FROM_ROWS} {stated}"
        return table._replace(
            title=title,
            remarks=(*first, *table.remarks, *remarks),
            answer=stated,
        )


def _covering(case: Mapping[str, Any]) -> str:
    """Return a sentence on the epsilon of a private test, which covers the decision to stop."""
    half = f"half of the runs pay at most {upper(case['stopping_epsilon']['q50'])}"
    covered = "It covers the releases and the decision to stop, if the target is public."
    return f"{case['case']}: {half}. {covered}"


def _once(release: Mapping[str, Any]) -> str:
    """Return a sentence on the cost of one release, as `bounded_release` finds it."""
    notion = "probabilistic" if release["noise"] == "brownian" else "pure"
    return (
        f"One release without a test costs a {notion} epsilon of {upper(release['epsilon'])} (it "
        "has no row in the table). It is good enough with a probability of at least "
        f"{100 * release['confidence']:g} %, and there is no decision to stop."
    )


def _noise_of(release: Mapping[str, Any]) -> str:
    """Return a sentence on the noise of one release."""
    level = "variance" if release["noise"] == "brownian" else "scale"
    kind = "Gaussian" if release["noise"] == "brownian" else "spherical Laplace"
    often = (
        ". Its epsilon may be exceeded with the probability of --delta"
        if kind == "Gaussian"
        else ""
    )
    return (
        f"One release without a test: the optimum plus {kind} noise of {level} "
        f"{release['time']:.3g}, from a bound on how fast the loss rises{often}."
    )


def _first_levels(cases: Cases) -> list[str]:
    """Return a warning on each private test at whose first level many trials stopped."""
    ways = {
        "above_threshold": "Lower --lowest-epsilon to see what they need.",
        "reduced_above_threshold": "Its test starts where it is accurate enough: a higher "
        "--target-fraction or a lower --confidence lets it start lower.",
    }
    return [
        f"Warning: {percent(first)} of the runs of {case['case']} stopped at the first level of "
        f"its schedule. {ways[case['test']]}"
        for case in cases
        if (first := case["stopped_at_first_step"]) >= AT_FIRST_STEP and case["test"] in ways
    ]
