"""Figures of `rogers2023`: true counts, results returned, precision, and budget spent."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nrjax.papers._claims import group_by
from nrjax.papers.rogers2023.settings import GROUP, data_name
from nrjax.study import plotting
from nrjax.study.formats import humanise
from nrjax.study.plotting import STYLES, Style, ellipsis
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase

_FILLS: Any = {"unified": "full", "gaussian": "none", "renyi": "bottom"}
"""By filter: the fill of its markers. Methods differ in colour, line and marker."""

_FILTERS = {"unified": "unified", "gaussian": "Gaussian", "renyi": "Rényi"}

_COLUMNS = 3
"""Largest number of panels per row."""

_BAND = (0.05, 0.95)  # a band is drawn between these quantiles of the trials

Groups = Sequence[Sequence[StoredCase]]
"""Groups of cases. The cases of a group differ only in method and filter."""


class _Look(NamedTuple):
    """The name, style and marker fill of a method under a filter."""

    title: str
    style: Style
    fill: Any

    @property
    def fill_options(self) -> dict[str, Any]:
        return {"fillstyle": self.fill, "markerfacecoloralt": "white"}

    @property
    def marker(self) -> dict[str, Any]:
        look = {"color": self.style.line, "marker": self.style.marker, "markersize": 5}
        return {**look, "linestyle": "", **self.fill_options}


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Return the function that draws each figure, by name."""
    del results
    return {"counts": counts, "returned": returned, "budget": budget}


def counts(results: Results) -> Figure:
    """Draw the true counts by rank, and the counts expected under a Zipf distribution."""
    facts = {case.attributes["dataset"]: case.attributes for case in results.cases.values()}
    groups = group_by(facts.values(), "data")
    figure, panels = _panels(groups, 1.0, 4.6, 3.8)
    for axes, ((name,), datasets) in zip(panels.flat, groups.items(), strict=False):
        for number, labels in enumerate(datasets):
            stored = results.about["counts"][labels["dataset"]]
            _draw_counts(axes, labels, stored, STYLES[number % len(STYLES)])
        axes.set(xscale="log", yscale="log", ylabel=f"{datasets[0]['unit']} of an item")
        axes.set_title(f"{name}: {datasets[0]['items']:,} items", fontsize="medium")
        sampled = datasets[0]["samples"] is not None
        axes.set_xlabel("element, by falling probability" if sampled else "rank")
        plotting.draw_grid(axes)
        if sampled:
            axes.plot([], [], color="black", linewidth=0.9, label="expected by the law")
        axes.legend(fontsize="small", loc="lower left")
    return figure


def _draw_counts(
    axes: Axes, labels: Mapping[str, Any], stored: Mapping[str, Any], style: Style
) -> None:
    """Draw counts as points, by falling expectation (Zipf samples) or falling count."""
    values = np.array(stored["counts"], float)
    sampled = stored["expected"] is not None
    order = np.argsort(-np.array(stored["expected"] if sampled else values), kind="stable")
    values, rank = values[order], np.arange(1, values.size + 1)
    positive = values > 0  # the axis is logarithmic
    missing = int(values.size - positive.sum())
    note = f", {missing} of count 0 not shown" if missing else ""
    total = f"{labels['total']:,} {'samples' if sampled else 'in all'}{note}"
    look: Any = {"color": style.line, "marker": style.marker, "fillstyle": "none", "label": total}
    look |= {"linestyle": "", "markersize": 3, "markeredgewidth": 0.6}
    axes.plot(rank[positive], values[positive], **look)
    if sampled:
        axes.plot(rank, np.sort(stored["expected"])[::-1], color="black", linewidth=0.9)


def returned(results: Results) -> Figure:
    """Draw means and standard deviations of the results returned and their precision."""
    groups = _groups(results)
    looks, ticks = _looks(groups[0]), _ticks(groups)
    longest = max(len(line) for tick in ticks for line in tick.split("\n"))
    width = max(0.4 + 0.2 * len(looks), 0.2 + 0.1 * longest)
    figure, panels = plotting.new_panels(max(6.0, 1.2 + width * len(groups)), 2, 1, height=3.0)
    above, below = panels[:, 0]
    step = min(0.22, 0.8 / len(looks))
    for place, cases in enumerate(groups):
        for number, (case, look) in enumerate(zip(cases, looks, strict=True)):
            x = place + step * (number - (len(looks) - 1) / 2)
            bar: Any = {"capsize": 3, "elinewidth": 1.2, **look.marker}
            for axes, name in ((above, "returned"), (below, "precision")):
                values = results.distribution_of(case.name, name)
                axes.errorbar([x], [values.mean], yerr=[values.std], **bar)
                axes.vlines(x, *values.mean_interval(), color="black", lw=2.5, zorder=4)
    for axes in (above, below):
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.set_xticks(range(len(groups)), ticks)
        for edge in np.arange(len(groups) - 1) + 0.5:
            axes.axvline(edge, color="0.85", linewidth=0.6)
        plotting.draw_grid(axes, "y")
    above.set_ylabel("results returned")
    above.set_ylim(bottom=0)
    alphas = plotting.unique(case.attributes["alpha"] for cases in groups for case in cases)
    errors = " or ".join(f"{alpha:g}" for alpha in alphas)
    below.axhline(1.0, color="0.35", linewidth=0.8, zorder=1)
    below.set_ylabel(f"precision: share of results\nwithin {errors} of the truth")
    only_zipf = plotting.unique(cases[0].attributes["data"] for cases in groups) == ["zipf"]
    start = "; e²: squared privacy parameter of a release" if _several_starts(groups) else ""
    below.set_xlabel(("samples of the Zipf law" if only_zipf else "data") + start)
    handles = [plotting.legend_line(look.title, **look.marker) for look in looks]
    handles.append(Line2D([], [], color="0.2", marker="_", label="mean ± standard deviation"))
    handles.append(Line2D([], [], color="black", lw=2.5, label="95 % interval of the mean"))
    plotting.legend_below(figure, handles, 3)
    return figure


def budget(results: Results) -> Figure:
    """Draw the mean number of results returned against the fraction of the budget spent."""
    groups = _groups(results)
    looks = _looks(groups[0])
    figure, panels = _panels(groups, 1.2, 3.9, 3.5)
    for axes, cases in zip(panels.flat, groups, strict=False):
        axes.set_xlim(0, 1)
        for rank, (case, look) in enumerate(zip(cases, looks, strict=True)):
            spent = np.array([0.0, *case.passes["outcome"].coordinates["share"].values])
            levels = results.levels(case.name, "returned_by", "outcome")
            values = np.pad(plotting.mean_curve(levels, _BAND), ((0, 0), (1, 0)))  # 0 at first
            plotting.draw_curve(axes, spent, values, look.style, rank, **look.fill_options)
        axes.set_ylim(bottom=0)
        axes.set_title(_title(groups, cases[0]), fontsize="medium")
        axes.set_xlabel("share of the budget spent")
        plotting.draw_grid(axes)
    for row in panels:
        row[0].set_ylabel("mean results returned by then")
    lines = (plotting.legend_line(look.title, look.style, **look.fill_options) for look in looks)
    handles = [*lines, plotting.legend_patch("5 % to 95 % of the trials")]
    plotting.legend_below(figure, handles, min(3, 1 + panels.shape[1]))
    return figure


def _groups(results: Results) -> list[list[StoredCase]]:
    return list(group_by(results.cases.values(), *GROUP).values())


def _looks(cases: Sequence[StoredCase]) -> list[_Look]:
    """Return the name, style and marker fill of each case of a group."""
    kinds = [(case.attributes["method"], case.attributes["filter"]) for case in cases]
    styles = plotting.mechanism_styles(method for method, _ in kinds)
    one_filter = len({name for _, name in kinds}) == 1
    return [
        _Look(
            humanise(method) + ("" if one_filter else f", {_FILTERS[name]} filter"),
            styles[method],
            _FILLS[name],
        )
        for method, name in kinds
    ]


def _panels(groups: Any, margin: float, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Return a figure and its panels, one per group."""
    columns = min(len(groups), _COLUMNS)
    rows = -(-len(groups) // columns)
    figure, panels = plotting.new_panels(margin + width * columns, rows, columns, height=height)
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    return figure, panels


def _several_starts(groups: Groups) -> bool:
    """Return whether groups of the same data differ in their smallest privacy parameter."""
    return len(plotting.unique(cases[0].attributes["dataset"] for cases in groups)) < len(groups)


def _ticks(groups: Groups) -> list[str]:
    facts = [cases[0].attributes for cases in groups]
    zipf = all(labels["data"] == "zipf" for labels in facts)
    names = [f"{each['samples']:,}" if zipf else ellipsis(data_name(each)) for each in facts]
    if not _several_starts(groups):
        return names
    starts = [f"e² from {labels['smallest']:g}" for labels in facts]
    return [f"{name}\n{start}" for name, start in zip(names, starts, strict=True)]


def _title(groups: Groups, case: StoredCase) -> str:
    facts = case.attributes
    size = "" if facts["samples"] is None else " samples"
    start = f", e² from {facts['smallest']:g}" if _several_starts(groups) else ""
    privacy = f"budget: ε = {facts['epsilon']:g}, δ = {facts['delta']:g}"
    return f"{ellipsis(data_name(facts))}{size}{start}\n{privacy}"
