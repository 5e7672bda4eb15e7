"""Figures of `skellam_counts`: realised privacy losses of trials, and by noise level."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.papers._claims import group_by
from nrjax.papers.skellam_counts.settings import median_deviation
from nrjax.statistics.sample import Distribution
from nrjax.study import distribution_plots, plotting
from nrjax.study import figures as shared
from nrjax.study.formats import humanise
from nrjax.study.plotting import Style, ellipsis
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase

_LOSS = "realised privacy loss (nat)"
_NOISE = "standard deviation of the noise (counts)"

_LINES: Any = {5: (0, (1, 1.5)), 50: "-", 95: (0, (5, 2)), 99: (0, (6, 2, 1, 2))}
"""By per cent: the dash pattern of a quantile's curve."""

_STOP: Any = {"color": "black", "linewidth": 0.8, "linestyle": (0, (4, 4))}
"""The line style that marks the noise level at which the median trial ends."""

_ZERO: Any = {"color": "0.35", "linewidth": 0.8, "zorder": 1}

_LINEAR = 0.1  # the axis of losses is linear up to this loss, then logarithmic


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Return the function that draws each figure, by name.

    In addition to the standard figures, `realised_loss` and `loss_cdf` show losses at the end of
    the trials, in a panel per neighbour. `loss_along_path` shows losses and the stated epsilon at
    each noise level of trials that never stop, by mechanism (columns) and neighbour (rows).
    """
    drawn = (realised_loss, loss_cdf, loss_along_path)
    return {**{draw.__name__: draw for draw in drawn}, **shared.standard(results)}


def _neighbours(results: Results) -> tuple[list[list[StoredCase]], dict[str, Style]]:
    """Return the cases grouped by neighbour, and the style of each mechanism."""
    cases = results.cases.values()
    styles = plotting.mechanism_styles(case.attributes["mechanism"] for case in cases)
    return list(group_by(cases, "neighbour").values()), styles


def realised_loss(results: Results) -> Figure:
    """Draw distributions of the realised privacy loss, and median stopping epsilons."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, len(neighbours) * (1.2 + 1.5 * len(styles)))
    figure, panels = plotting.new_panels(width, 1, len(neighbours), height=4.6)
    for axes, cases in zip(panels[0], neighbours, strict=True):
        losses = [results.distribution_of(case.name, "realised_loss") for case in cases]
        epsilons = [results.distribution(case.name) for case in cases]
        stated = [np.nan if values is None else values.quantile(0.5) for values in epsilons]
        edges = np.linspace(*_limits(losses, stated), 71)
        labels = []
        for position, (case, loss, epsilon) in enumerate(zip(cases, losses, stated, strict=True)):
            mechanism = case.attributes["mechanism"]
            name, style = humanise(mechanism), styles[mechanism]
            distribution_plots.draw_distribution(
                axes, position, loss, edges, style, name, log=False
            )
            median, tail = loss.quantile([0.5, 0.99])
            labels.append(f"{name}\nmedian {median:.2g}\n99 %: {tail:.2g}")
            if np.isfinite(epsilon):
                look = {"color": "black", "markerfacecolor": "white", "zorder": 4}
                axes.plot([position], [epsilon], "D", **look)
        plotting.name_positions(axes, labels)
        axes.set_ylim(edges[0], edges[-1])
        axes.axhline(0.0, **_ZERO)
        plotting.draw_grid(axes, "y")
        axes.set_title(_title(cases[0]), fontsize="medium")
    panels[0][0].set_ylabel(f"{_LOSS} at the stop")
    shapes = [
        Patch(facecolor=style.face, edgecolor=style.line, hatch=style.hatch, label=humanise(name))
        for name, style in styles.items()
    ]
    box = Patch(facecolor="white", edgecolor="black", label="quartiles and median")
    look: Any = {"color": "black", "marker": "D", "markerfacecolor": "white", "linestyle": ""}
    diamond = Line2D([], [], label="median stopping ε", **look)
    plotting.legend_below(
        figure,
        [*shapes, box, distribution_plots.INTERVALS, distribution_plots.WHISKERS, diamond],
        3,
    )
    return figure


def loss_cdf(results: Results) -> Figure:
    """Draw distribution functions of the realised privacy loss, with 95 % bands."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, 0.6 + 4.4 * len(neighbours))
    figure, panels = plotting.new_panels(width, 1, len(neighbours), height=4.4)
    handles = {}
    for axes, cases in zip(panels[0], neighbours, strict=True):
        losses = {
            case.attributes["mechanism"]: results.distribution_of(case.name, "realised_loss")
            for case in cases
        }
        axes.set_xlim(*_limits(losses.values(), []))
        for name, loss in losses.items():
            distribution_plots.draw_steps(axes, loss, styles[name], humanise(name))
        handles |= {line.get_label(): line for line in axes.get_lines()}
        distribution_plots.draw_function_axes(axes)
        axes.axvline(0.0, **_ZERO)
        axes.set_xlabel(f"{_LOSS} at the stop")
        axes.set_title(_title(cases[0]), fontsize="medium")
    panels[0][0].set_ylabel("trials that lost at most that (%)")
    plotting.legend_below(figure, [*handles.values(), distribution_plots.BAND], 2)
    return figure


def _limits(losses: Iterable[Distribution], others: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis for all finite values of `losses` and `others`."""
    values = np.concatenate([*(loss.points() for loss in losses), others])
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (-1.0, 1.0)
    margin = 0.05 * max(high - low, 1e-6)
    return float(low - margin), float(high + margin)


def loss_along_path(results: Results) -> Figure:
    """Draw quantiles of the realised loss, and the stated epsilon, at each noise level."""
    neighbours, styles = _neighbours(results)
    width = max(5.5, 1.0 + 3.8 * len(styles))
    figure, panels = plotting.new_panels(width, len(neighbours), len(styles), height=4.2)
    for row, cases in zip(panels, neighbours, strict=True):
        for axes, case in zip(row, cases, strict=True):
            _draw_quantiles(axes, results, case, styles[case.attributes["mechanism"]])
        lowest, highest = np.array([axes.get_ylim() for axes in row]).T
        for axes in row:
            axes.set_ylim(lowest.min(), highest.max())
        row[0].set_ylabel(_LOSS)
    lines = (
        Line2D([], [], color="0.2", linestyle=dash, label=f"{percent} % quantile")
        for percent, dash in _LINES.items()
    )
    stated = Line2D([], [], color="0.6", linewidth=3.5, label="stated ε, where one is")
    stop = Line2D([], [], label="median stop", **_STOP)
    handles = [*lines, plotting.legend_patch("95 % intervals", color="0.2"), stated, stop]
    plotting.legend_below(figure, handles, 4 if len(styles) > 1 else 2, handlelength=4)
    return figure


def _draw_quantiles(axes: Axes, results: Results, case: StoredCase, style: Style) -> None:
    """Draw one panel: quantiles of the loss with 95 % bands, and the stated epsilon."""
    along = case.passes["curve"].coordinates
    deviation = np.array(along["deviation"].values)
    plotting.log_scale(axes, "x", (deviation.min(), deviation.max()))
    axes.invert_xaxis()  # noise falls from left to right
    levels = results.levels(case.name, "privacy_loss_along")
    for percent, dash in _LINES.items():
        values = plotting.quantile_curve(levels, percent / 100)
        plotting.draw_curve(axes, deviation, values, style._replace(dash=dash, marker=""))
    if "epsilon" in along:
        # A wide line behind the quantiles, which can reach it with Laplace noise.
        stated = along["epsilon"].values
        axes.plot(deviation, stated, color="0.6", linewidth=3.5, zorder=1)
    axes.axvline(median_deviation(results, case.name), **_STOP)
    axes.axhline(0.0, **_ZERO)
    axes.set_yscale("symlog", linthresh=_LINEAR)
    axes.grid(True, axis="y", **plotting.THIN)
    axes.set_xlabel(_NOISE)
    axes.set_title(f"{humanise(case.attributes['mechanism'])}\n{_title(case)}", fontsize="medium")


def _title(case: StoredCase) -> str:
    facts, trials = case.attributes, case.passes["outcome"].trials
    return (
        f"counts on {ellipsis(facts['data'])}\n{trials:,} trials, neighbour: {facts['neighbour']}"
    )
