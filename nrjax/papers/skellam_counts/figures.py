"""Figures of `skellam_counts`: the realised privacy loss at the stop, and along the path."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.papers._drawing import THIN, band, legend, quantiles
from nrjax.papers._shared import grouped
from nrjax.papers.skellam_counts.findings import median_deviation
from nrjax.study import drawing
from nrjax.study import figures as shared
from nrjax.study.drawing import Style, mechanism_styles, new_panels, short, words
from nrjax.study.layout import Case
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution

_LOSS = "realised privacy loss (nat)"
_NOISE = "standard deviation of the noise (counts)"

_LINES: Any = ((5, (0, (1, 1.5))), (50, "-"), (95, (0, (5, 2))), (99, (0, (6, 2, 1, 2))))
"""Quantiles along the path, and how each is drawn."""

_STOP: Any = {"color": "black", "linewidth": 0.8, "linestyle": (0, (4, 4))}
"""How the median stop is drawn."""

_ZERO: Any = {"color": "0.35", "linewidth": 0.8, "zorder": 1}

_LINEAR = 0.1
"""Within it the axis of losses is linear; beyond, logarithmic."""


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """What draws the figures of a run, by name.

    `realised_loss`: the loss where trials ended, by mechanism, a panel per neighbour; `loss_cdf`:
    the distribution functions of the same, with a band that holds all of each, 95 %;
    `loss_along_path`: its quantiles at each noise level of paths that were not stopped, beside the
    epsilon that is stated there, a panel per mechanism (columns) and neighbour (rows). And the
    standard ones.
    """
    own = (realised_loss, loss_cdf, loss_along_path)
    return {**{one.__name__: one for one in own}, **shared.standard(results)}


def _neighbours(results: Results) -> tuple[list[list[Case]], dict[str, Style]]:
    """The cases of each neighbour, and the look of each mechanism."""
    cases = results.cases.values()
    styles = mechanism_styles(case.attributes["mechanism"] for case in cases)
    return list(grouped(cases, "neighbour").values()), styles


def realised_loss(results: Results) -> Figure:
    """Distributions of the realised loss over all trials, with the median epsilon stated."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, len(neighbours) * (1.2 + 1.5 * len(styles)))
    figure, panels = new_panels(width, 1, len(neighbours), height=4.6)
    for axes, here in zip(panels[0], neighbours, strict=True):
        laws = [results.law(case.name, "realised_loss") for case in here]
        epsilons = [results.distribution(case.name) for case in here]
        stated = [np.nan if law is None else law.quantile(0.5) for law in epsilons]
        edges = np.linspace(*_limits(laws, stated), 71)
        labels = []
        for position, (case, law, epsilon) in enumerate(zip(here, laws, stated, strict=True)):
            mechanism = case.attributes["mechanism"]
            name, style = words(mechanism), styles[mechanism]
            drawing.draw_distribution(axes, position, law, edges, style, name, log=False)
            labels.append(f"{name}\nmedian {law.quantile(0.5):.2g}\n99 %: {law.quantile(0.99):.2g}")
            if np.isfinite(epsilon):
                look = {"color": "black", "markerfacecolor": "white", "zorder": 4}
                axes.plot([position], [epsilon], "D", **look)
        drawing.name_positions(axes, labels)
        axes.set_ylim(edges[0], edges[-1])
        axes.axhline(0.0, **_ZERO)
        drawing.draw_grid(axes, "y")
        axes.set_title(_title(here[0]), fontsize="medium")
    panels[0][0].set_ylabel(f"{_LOSS} at the stop")
    shapes = [
        Patch(facecolor=style.face, edgecolor=style.line, hatch=style.hatch, label=words(name))
        for name, style in styles.items()
    ]
    box = Patch(facecolor="white", edgecolor="black", label="quartiles and median")
    look: Any = {"color": "black", "marker": "D", "markerfacecolor": "white", "linestyle": ""}
    diamond = Line2D([], [], label="median stated ε", **look)
    legend(figure, [*shapes, box, drawing.INTERVALS, drawing.WHISKERS, diamond], 3)
    return figure


def loss_cdf(results: Results) -> Figure:
    """Share of the trials whose realised loss is at most so much, with its 95 % band."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, 0.6 + 4.4 * len(neighbours))
    figure, panels = new_panels(width, 1, len(neighbours), height=4.4)
    handles = {}
    for axes, here in zip(panels[0], neighbours, strict=True):
        laws = {
            case.attributes["mechanism"]: results.law(case.name, "realised_loss") for case in here
        }
        axes.set_xlim(*_limits(laws.values(), []))
        for name, law in laws.items():
            drawing.draw_steps(axes, law, styles[name], words(name))
        handles |= {line.get_label(): line for line in axes.get_lines()}
        drawing.draw_function_axes(axes)
        axes.axvline(0.0, **_ZERO)
        axes.set_xlabel(f"{_LOSS} at the stop")
        axes.set_title(_title(here[0]), fontsize="medium")
    panels[0][0].set_ylabel("trials that lost at most that (%)")
    legend(figure, [*handles.values(), drawing.BAND], 2)
    return figure


def _limits(laws: Iterable[Distribution], others: Sequence[float]) -> tuple[float, float]:
    """Of an axis with room for all that is finite."""
    seen = np.concatenate([*(law.points() for law in laws), others])
    seen = seen[np.isfinite(seen)]
    low, high = (seen.min(), seen.max()) if seen.size else (-1.0, 1.0)
    room = 0.05 * max(high - low, 1e-6)
    return float(low - room), float(high + room)


def loss_along_path(results: Results) -> Figure:
    """Quantiles of the realised loss at each noise level, and the epsilon stated there."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, 1.0 + 3.8 * len(styles))
    figure, panels = new_panels(width, len(neighbours), len(styles), height=4.2)
    for row, here in zip(panels, neighbours, strict=True):
        for axes, case in zip(row, here, strict=True):
            _draw_quantiles(axes, results, case, styles[case.attributes["mechanism"]])
        lowest, highest = np.array([axes.get_ylim() for axes in row]).T
        for axes in row:
            axes.set_ylim(lowest.min(), highest.max())
        row[0].set_ylabel(_LOSS)
    lines = (
        Line2D([], [], color="0.2", linestyle=dash, label=f"{percent} % quantile")
        for percent, dash in _LINES
    )
    stated = Line2D([], [], color="0.6", linewidth=3.5, label="stated ε, where one is")
    stop = Line2D([], [], label="median stop", **_STOP)
    handles = [*lines, band("95 % intervals", color="0.2"), stated, stop]
    legend(figure, handles, 4 if len(styles) > 1 else 2, handlelength=4)
    return figure


def _draw_quantiles(axes: Axes, results: Results, case: Case, style: Style) -> None:
    """Quantiles, the bands of their intervals, and what is stated."""
    along = case.passes["curve"].coordinates
    deviation = np.array(along["deviation"].values)
    found = results.levels(case.name, "privacy_loss_along")
    for percent, dash in _LINES:
        value, low, high = quantiles(found, percent / 100)
        low, high = (np.where(np.isfinite(end), end, np.nan) for end in (low, high))
        axes.fill_between(deviation, low, high, color=style.line, alpha=0.25, linewidth=0)
        axes.plot(deviation, value, color=style.line, linestyle=dash)
    if "epsilon" in along:
        # Wide and behind: the quantiles of Laplace noise reach it.
        stated = along["epsilon"].values
        axes.plot(deviation, stated, color="0.6", linewidth=3.5, zorder=1)
    axes.axvline(median_deviation(results, case.name), **_STOP)
    axes.axhline(0.0, **_ZERO)
    drawing.epsilon_scale(axes, "x", (deviation.min(), deviation.max()))
    axes.invert_xaxis()  # the way a path goes
    axes.set_yscale("symlog", linthresh=_LINEAR)
    axes.grid(True, axis="y", **THIN)
    axes.set_xlabel(_NOISE)
    axes.set_title(f"{words(case.attributes['mechanism'])}\n{_title(case)}", fontsize="medium")


def _title(case: Case) -> str:
    facts, trials = case.attributes, case.passes["outcome"].trials
    return f"counts on {short(facts['data'])}\n{trials:,} trials, neighbour: {facts['neighbour']}"
