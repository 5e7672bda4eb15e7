"""Figures of `rogers2023`: the counts, results returned and their precision, and the budget."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nrjax.papers._drawing import key, legend
from nrjax.papers._shared import grouped
from nrjax.papers.rogers2023.findings import GROUP, label
from nrjax.study import drawing
from nrjax.study.drawing import STYLES, Style, new_panels, unique, words
from nrjax.study.layout import Case
from nrjax.study.results import Results

_FILLS: Any = {"unified": "full", "gaussian": "none", "renyi": "bottom"}
"""How the markers of a filter are filled; methods differ in colour, line and shape."""

_FILTERS = {"unified": "unified", "gaussian": "Gaussian", "renyi": "Rényi"}

_COLUMNS = 3
"""Most panels beside each other."""

_LONGEST = 20
"""Most letters of the name of data."""

_BAND = (5, 95)
"""Per cent of the trials between the ends of a band."""

Groups = Sequence[Sequence[Case]]


class _Look(NamedTuple):
    """How a method under a filter is drawn."""

    title: str
    style: Style
    fill: Any

    @property
    def marker(self) -> dict[str, Any]:
        own = {"color": self.style.line, "marker": self.style.marker, "fillstyle": self.fill}
        return {**own, "markerfacecoloralt": "white", "markersize": 5}


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """What draws the figures of a run, by name."""
    del results
    return {"counts": counts, "returned": returned, "budget": budget}


def counts(results: Results) -> Figure:
    """The counts by rank, a panel for each data; lines are what the Zipf law expects."""
    facts = {case.attributes["dataset"]: case.attributes for case in results.cases.values()}
    found = grouped(facts.values(), "data")
    figure, panels = _panels(found, 1.0, 4.6, 3.8)
    for axes, ((name,), here) in zip(panels.flat, found.items(), strict=False):
        for number, one in enumerate(here):
            held = results.about["counts"][one["dataset"]]
            _draw_counts(axes, one, held, STYLES[number % len(STYLES)])
        axes.set(xscale="log", yscale="log", ylabel=f"{here[0]['unit']} of an item")
        axes.set_title(f"{name}: {here[0]['items']:,} items", fontsize="medium")
        law = here[0]["samples"] is not None
        axes.set_xlabel("element, by falling probability" if law else "rank")
        drawing.draw_grid(axes)
        if law:
            axes.plot([], [], color="black", linewidth=0.9, label="expected by the law")
        axes.legend(fontsize="small", loc="lower left")
    return figure


def _draw_counts(
    axes: Axes, facts: Mapping[str, Any], held: Mapping[str, Any], style: Style
) -> None:
    """Points for the counts; in the order of the law, or falling."""
    values = np.array(held["counts"], float)
    law = held["expected"] is not None
    values = values[np.argsort(-np.array(held["expected"] if law else values), kind="stable")]
    rank = np.arange(1, values.size + 1)
    seen = values > 0  # the axis is logarithmic
    missing = int(values.size - seen.sum())
    note = f", {missing} of count 0 not shown" if missing else ""
    total = f"{facts['total']:,} {'samples' if law else 'in all'}{note}"
    look: Any = {"color": style.line, "marker": style.marker, "fillstyle": "none", "label": total}
    axes.plot(rank[seen], values[seen], linestyle="", markersize=3, markeredgewidth=0.6, **look)
    if law:
        axes.plot(rank, np.sort(held["expected"])[::-1], color="black", linewidth=0.9)


def returned(results: Results) -> Figure:
    """Results returned and precision: mean with its interval, standard deviation of the trials."""
    found = _groups(results)
    looks, ticks = _looks(found[0]), _ticks(found)
    longest = max(len(line) for tick in ticks for line in tick.split("\n"))
    each = max(0.4 + 0.2 * len(looks), 0.2 + 0.09 * longest)
    figure, panels = new_panels(max(6.0, 1.2 + each * len(found)), 2, 1, height=3.0)
    above, below = panels[:, 0]
    apart = min(0.22, 0.8 / len(looks))
    for place, here in enumerate(found):
        for number, (case, look) in enumerate(zip(here, looks, strict=True)):
            x = place + apart * (number - (len(looks) - 1) / 2)
            bar: Any = {"capsize": 3, "elinewidth": 1.2, "linestyle": "", **look.marker}
            for axes, name in ((above, "returned"), (below, "precision")):
                values = results.law(case.name, name)
                axes.errorbar([x], [values.mean], yerr=[values.std], **bar)
                axes.vlines(x, *values.mean_interval(), color="black", lw=2.5, zorder=4)
    for axes in (above, below):
        axes.set_xlim(-0.5, len(found) - 0.5)
        axes.set_xticks(range(len(found)), ticks)
        for edge in np.arange(len(found) - 1) + 0.5:
            axes.axvline(edge, color="0.85", linewidth=0.6)
        drawing.draw_grid(axes, "y")
    above.set_ylabel("results returned")
    above.set_ylim(bottom=0)
    alphas = unique(case.attributes["alpha"] for here in found for case in here)
    shares = " or ".join(f"{alpha:g}" for alpha in alphas)
    below.axhline(1.0, color="0.35", linewidth=0.8, zorder=1)
    below.set_ylabel(f"precision: share of results\nwithin {shares} of the truth")
    only = unique(here[0].attributes["data"] for here in found)
    data = "samples of the Zipf law" if only == ["zipf"] else "data"
    begin = "; e²: squared privacy parameter of a release" if _several(found) else ""
    below.set_xlabel(data + begin)
    handles = [key(look.title, **look.marker) for look in looks]
    handles.append(Line2D([], [], color="0.2", marker="_", label="mean ± standard deviation"))
    handles.append(Line2D([], [], color="black", lw=2.5, label="95 % interval of the mean"))
    legend(figure, handles, 3)
    return figure


def budget(results: Results) -> Figure:
    """Results returned by the time that a share of the budget was spent: mean and 5 to 95 %."""
    found = _groups(results)
    looks = _looks(found[0])
    figure, panels = _panels(found, 1.2, 3.9, 3.5)
    for axes, here in zip(panels.flat, found, strict=False):
        for case, look in zip(here, looks, strict=True):
            _draw_budget(axes, results, case, look)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_title(_title(found, here[0]), fontsize="medium")
        axes.set_xlabel("share of the budget spent")
        drawing.draw_grid(axes)
    for row in panels:
        row[0].set_ylabel("mean results returned by then")
    handles = [key(look.title, linestyle=look.style.dash, **look.marker) for look in looks]
    low, high = _BAND
    share = f"{low} % to {high} % of the trials"
    handles.append(Line2D([], [], color="0.7", linewidth=6, label=share))
    legend(figure, handles, min(3, 1 + panels.shape[1]))
    return figure


def _draw_budget(axes: Axes, results: Results, case: Case, look: _Look) -> None:
    shares = [0.0, *case.passes["outcome"].coordinates["share"].values]
    found = results.levels(case.name, "returned_by", "outcome")
    low, high = ([0.0, *(one.quantile(percent / 100) for one in found)] for percent in _BAND)
    axes.fill_between(shares, low, high, color=look.style.line, alpha=0.2, linewidth=0)
    mean = [0.0, *(one.mean for one in found)]
    every = max(1, len(shares) // 8)
    axes.plot(shares, mean, linestyle=look.style.dash, markevery=every, **look.marker)


def _groups(results: Results) -> list[list[Case]]:
    """Each has the same methods and filters, in one order."""
    return list(grouped(results.cases.values(), *GROUP).values())


def _looks(here: Sequence[Case]) -> list[_Look]:
    """Of the cases of a group."""
    kinds = [(case.attributes["method"], case.attributes["filter"]) for case in here]
    styles = drawing.mechanism_styles(method for method, _ in kinds)
    one_filter = len({name for _, name in kinds}) == 1
    return [
        _Look(
            words(method) + ("" if one_filter else f", {_FILTERS[name]} filter"),
            styles[method],
            _FILLS[name],
        )
        for method, name in kinds
    ]


def _panels(found: Any, margin: float, width: float, height: float) -> tuple[Figure, Any]:
    """A panel for each, a few beside each other; those that are left over are taken away."""
    columns = min(len(found), _COLUMNS)
    rows = -(-len(found) // columns)
    figure, panels = new_panels(margin + width * columns, rows, columns, height=height)
    for axes in panels.flat[len(found) :]:
        axes.remove()
    return figure, panels


def _several(found: Groups) -> bool:
    """Whether groups differ in their smallest privacy parameter."""
    return len(unique(here[0].attributes["dataset"] for here in found)) < len(found)


def _ticks(found: Groups) -> list[str]:
    facts = [here[0].attributes for here in found]
    zipf = all(one["data"] == "zipf" for one in facts)
    names = [f"{one['samples']:,}" if zipf else _short(label(one)) for one in facts]
    if not _several(found):
        return names
    return [f"{name}\ne² from {one['smallest']:g}" for name, one in zip(names, facts, strict=True)]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _title(found: Groups, case: Case) -> str:
    facts = case.attributes
    size = "" if facts["samples"] is None else " samples"
    begin = f", e² from {facts['smallest']:g}" if _several(found) else ""
    promise = f"budget: ε = {facts['epsilon']:g}, δ = {facts['delta']:g}"
    return f"{_short(label(facts))}{size}{begin}\n{promise}"
