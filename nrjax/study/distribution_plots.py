"""Drawing of one distribution: a histogram with a box plot, or a distribution function."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from nrjax.study.plotting import Style, draw_grid
from nrjax.study.statistics import Distribution

_BINS = 60  # of a histogram
_MAX_LEVELS = 1000  # distinct values; more are drawn as a continuum


def fitting_edges(values: Distribution, limits: tuple[float, float]) -> np.ndarray:
    """Return histogram edges that fit the values, for a logarithmic axis with these limits.

    If the values are few distinct levels, such as those of a grid, each edge is a level, so that
    the histogram has no spikes from bins that happen to hold more levels than others.
    """
    edges = np.geomspace(*limits, _BINS + 1)
    points = values.points(_MAX_LEVELS + 1)
    levels = points[(points > limits[0]) & (points < limits[1])]
    if levels.size < 2 or points.size > min(_MAX_LEVELS, values.trials // 4):
        return edges
    # A value at an edge is in the bin below it; the first bin is as wide as the next level's.
    first = max(limits[0], levels[0] * (levels[0] / levels[1]))
    near = levels[np.clip(np.searchsorted(levels, edges[1:-1], side="right") - 1, 0, None)]
    near = near[np.append(True, np.diff(np.log(near)) > 0.4 * np.log(edges[1] / edges[0]))]
    return np.unique([limits[0], first, *near, levels[-1], limits[1]])


def draw_distribution(
    axes: Axes,
    position: float,
    values: Distribution,
    edges: np.ndarray,
    style: Style,
    label: str,
    *,
    log: bool = True,
) -> None:
    """Draw a mirrored upright histogram with a box plot, at one position of the x-axis.

    The histogram is 0.8 wide, and its area is the fraction of finite values. The box has the
    quartiles and the median, the whiskers reach from 5 % to 95 %, and bars to the right of the box
    are exact 95 % intervals of the three quartiles. Quantiles above the last
    edge become an arrow there. `edges` are those of the bins on the y-axis, logarithmic if `log`.
    """
    density = values.histogram(edges) / np.diff(np.log(edges) if log else edges)
    half = np.repeat(0.4 * density / max(density.max(), 1e-300) * values.finite, 2)
    fill: Any = {"facecolor": style.face, "edgecolor": style.line, "hatch": style.hatch}
    sides = position - half, position + half
    y = np.repeat(edges, 2)[1:-1]
    axes.fill_betweenx(y, *sides, where=half > 0, linewidth=0.5, label=label, **fill)
    top = edges[-1]
    quantiles = {percent: values.quantile(percent / 100) for percent in (5, 25, 50, 75, 95)}
    for percent in (25, 50, 75):
        _draw_interval(axes, position + 0.12, values.quantile_interval(percent / 100), edges)
    # `Axes.bxp` would import pyplot, since it reads all of matplotlib's settings.
    at = {percent: min(value, top) for percent, value in quantiles.items()}
    line: Any = {"color": "black", "linewidth": 1.0, "zorder": 3}
    axes.vlines([position] * 2, [at[5], at[75]], [at[25], at[95]], **line)
    axes.hlines([at[5], at[95]], position - 0.035, position + 0.035, **line)
    box: Any = {"facecolor": "white", "edgecolor": "black", "linewidth": 1.0, "zorder": 3}
    axes.add_patch(Rectangle((position - 0.07, at[25]), 0.14, at[75] - at[25], **box))
    axes.hlines(at[50], position - 0.07, position + 0.07, **(line | {"linewidth": 2.0}))
    if not np.isfinite(quantiles[95]):
        axes.plot([position], [top], "k^", markersize=8, clip_on=False, zorder=4)


def _draw_interval(axes: Axes, x: float, ends: tuple[float, float], edges: np.ndarray) -> None:
    """Draw an upright bar, with a cap at each end that lies within the panel."""
    low, high = np.clip(ends, edges[0], edges[-1])
    if low < high or low == ends[0]:  # else the interval is outside
        axes.vlines(x, low, high, color="black", lw=1.1, zorder=4)
        caps = [end for end in ends if edges[0] <= end <= edges[-1]]
        axes.hlines(caps, x - 0.025, x + 0.025, color="black", lw=1.1, zorder=4)


_BAR: Any = {"color": "black", "linestyle": "none", "marker": "|", "markersize": 9}
INTERVALS = Line2D([], [], label="95 % intervals of the quartiles", **_BAR)
"""Legend entry of the bars of `draw_distribution`."""
WHISKERS = Line2D([], [], color="black", lw=1, label="5 % to 95 % of all trials (▲: to infinity)")
"""Legend entry of the whiskers of `draw_distribution`."""


def draw_steps(axes: Axes, values: Distribution, style: Style, label: str) -> None:
    """Draw a distribution function with its 95 % band (DKW), in per cent of all trials.

    Set the scale and limits of the x-axis before. Infinite values are the part by which the
    function stays below 100 %.
    """
    low, high = axes.get_xlim()
    x = values.points(2000)
    x = np.concatenate([[low], x[(x > low) & (x < high)], [high]])
    fraction, half = values.below(x), values.band()
    band = np.clip([fraction - half, fraction + half], 0, 1)
    axes.fill_between(x, *(100 * band), step="post", color=style.line, alpha=0.25, linewidth=0)
    every = max(1, x.size // 8)
    line: Any = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
    line |= {"markevery": (min(every // 2, x.size - 1), every), "markersize": 4}
    axes.plot(x, 100 * fraction, drawstyle="steps-post", label=label, **line)


def draw_function_axes(axes: Axes, **labels: str) -> None:
    """Set the y-axis of a distribution function in per cent, and `labels` by `Axes.set`."""
    axes.set(ylim=(0, 100), yticks=[0, 25, 50, 75, 100], **labels)
    draw_grid(axes)


BAND = Patch(color="0.2", alpha=0.25, linewidth=0, label="simultaneous 95 % band (DKW)")
"""Legend entry of the band of `draw_steps`."""
