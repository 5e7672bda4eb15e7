"""Functions that draw one distribution, as a histogram or as a distribution function."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from nrjax.statistics.sample import Distribution
from nrjax.study.plotting import Style, draw_grid

_BINS = 60  # number of bins of a histogram
_MAX_LEVELS = 1000  # distinct values; if there are more, bins are evenly spaced


def fitting_edges(values: Distribution, limits: tuple[float, float]) -> np.ndarray:
    """Return edges of histogram bins that suit the values, for a logarithmic axis.

    If there are few distinct values, such as the levels of a grid, most edges are one of these
    values. With evenly spaced edges, bins that hold more levels than others would look like spikes.
    """
    edges = np.geomspace(*limits, _BINS + 1)
    points = values.points(_MAX_LEVELS + 1)
    levels = points[(points > limits[0]) & (points < limits[1])]
    if levels.size < 2 or points.size > min(_MAX_LEVELS, values.trials // 4):
        return edges
    # A value at an edge is in the bin below it. The first bin is as wide as the second.
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
    """Draw an upright, mirrored histogram with a box plot at one position of the x-axis.

    The histogram is at most 0.8 wide, in proportion to the fraction of finite values. The box shows
    the quartiles and the median, and the whiskers the 5 % and 95 % quantiles. Bars to the right of
    the box are exact 95 % intervals of the quartiles and the median. An arrow at the last edge
    means that the 95 % quantile is infinite.

    Args:
        axes: panel to draw into.
        position: centre of the histogram on the x-axis.
        values: distribution to draw.
        edges: edges of the histogram's bins on the y-axis.
        style: colours and hatch.
        label: legend entry of the histogram.
        log: whether the y-axis is logarithmic.
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
    # `Axes.bxp` would import pyplot, because it reads all settings of matplotlib.
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
    """Draw an interval as an upright bar, with a cap at each end that lies within the panel."""
    low, high = np.clip(ends, edges[0], edges[-1])
    if low < high or low == ends[0]:  # otherwise the interval lies outside the panel
        axes.vlines(x, low, high, color="black", lw=1.1, zorder=4)
        caps = [end for end in ends if edges[0] <= end <= edges[-1]]
        axes.hlines(caps, x - 0.025, x + 0.025, color="black", lw=1.1, zorder=4)


_BAR: Any = {"color": "black", "linestyle": "none", "marker": "|", "markersize": 9}
INTERVALS = Line2D([], [], label="95 % intervals of the quartiles", **_BAR)
"""The legend entry of the interval bars of `draw_distribution`."""
WHISKERS = Line2D([], [], color="black", lw=1, label="5 % to 95 % of all trials (▲: to infinity)")
"""The legend entry of the whiskers of `draw_distribution`."""


def draw_steps(axes: Axes, values: Distribution, style: Style, label: str) -> None:
    """Draw a distribution function with its 95 % band (DKW), in per cent of all trials.

    Set the scale and limits of the x-axis before the call. If some values are infinite, the
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
    """Set up the axes of a distribution function in per cent. `labels` go to `Axes.set`."""
    axes.set(ylim=(0, 100), yticks=[0, 25, 50, 75, 100], **labels)
    draw_grid(axes)


BAND = Patch(color="0.2", alpha=0.25, linewidth=0, label="simultaneous 95 % band (DKW)")
"""The legend entry of the band of `draw_steps`."""
