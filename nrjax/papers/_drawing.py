"""What the papers' figures share: curves over a parameter, keys of legends, scales and grids."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.study.drawing import Style, draw_grid, epsilon_scale, powers_scale
from nrjax.study.statistics import Distribution

_MARKS = 12

THIN: Any = {"color": "0.85", "linewidth": 0.6}
"""Lines of a grid that is not behind all else."""


def draw_curve(
    axes: Axes, x: np.ndarray, found: np.ndarray, style: Style, rank: int, hollow: Any = False
) -> None:
    """A line through the finite values, broken where there is none, and the band of their ends.

    Args:
        axes: where.
        x: shape (n,), rising.
        found: values and both ends of their intervals, shape (3, n).
        style: the curve's.
        rank: its number among the panel's, so that equal curves do not mark the same points.
        hollow: shape (n,), bool: whose markers are empty.
    """
    y, low, high = found
    axes.fill_between(x, low, high, color=style.line, alpha=0.25, linewidth=0, zorder=2)
    single = np.isfinite(low) & np.isfinite(high) & _alone(low + high)  # which have no band
    axes.vlines(x[single], low[single], high[single], color=style.line, lw=1.2, zorder=3)
    y = np.where(np.isfinite(y), y, np.nan)
    axes.plot(x, y, color=style.line, linestyle=style.dash, lw=1.6, zorder=3)
    draw_markers(axes, x, np.where(hollow, np.nan, y), style, rank, filled=True)
    draw_markers(axes, x, np.where(hollow, y, np.nan), style, rank, filled=False)


def draw_markers(
    axes: Axes, x: np.ndarray, y: np.ndarray, style: Style, rank: int, *, filled: bool
) -> None:
    """About a dozen points, evenly spread, and all without a neighbour, which no line would show.

    Takes the scale that the x-axis has by now: call `parameter_scale` before.
    """
    place = np.log(x) if axes.get_xscale() == "log" else x
    place = (place - place[0]) / max(place[-1] - place[0], 1e-12)
    there = np.flatnonzero(np.isfinite(y))
    _, first = np.unique(np.floor(_MARKS * place[there] + 0.2 * rank), return_index=True)
    shown = np.union1d(there[first], np.flatnonzero(_alone(y)))
    look = {"color": style.line, "marker": style.marker, "zorder": 4}
    face = style.line if filled else "white"
    axes.plot(x[shown], y[shown], linestyle="none", markersize=5, markerfacecolor=face, **look)


def draw_infinite(axes: Axes, x: np.ndarray, style: Style, row: int, *, above: bool = True) -> int:
    """Triangles at the upper edge (or the lower one); returns the row for the next curve."""
    if not x.size:  # an empty line that may leave the panel upsets the layout
        return row
    y = np.full(x.size, 1 - 0.04 * row if above else 0.04 * row)
    look = {"color": style.line, "marker": "^" if above else "v", "markersize": 5, "zorder": 5}
    edge = axes.get_xaxis_transform()
    axes.plot(x, y, linestyle="none", transform=edge, clip_on=False, **look)
    return row + 1


def means(laws: Sequence[Distribution]) -> np.ndarray:
    """Mean and ends of its interval, shape (3, len(laws))."""
    return np.array([(law.mean, *law.mean_interval()) for law in laws]).T


def quantiles(laws: Sequence[Distribution], q: float) -> np.ndarray:
    """A quantile and the ends of its exact interval; NaN where there are no values."""
    return np.array([(law.quantile(q), *law.quantile_interval(q)) for law in laws]).T


def _alone(y: np.ndarray) -> np.ndarray:
    """Which points are finite without a finite neighbour; shape (n,), bool."""
    finite = np.concatenate([[False], np.isfinite(y), [False]])
    return finite[1:-1] & ~finite[:-2] & ~finite[2:]


def log_scale(axes: Axes, which: Literal["x", "y"], limits: tuple[float, float]) -> None:
    """Plain numbers at 1, 2 and 5 where there is room for them, else powers of ten."""
    if limits[1] / limits[0] <= 1.001e3:
        epsilon_scale(axes, which, limits)
        return
    powers_scale(axes, which)
    axes.set(**{f"{which}lim": limits})
    draw_grid(axes, which)


def parameter_scale(axes: Axes, values: np.ndarray, *, log: bool = False) -> None:
    """The x-axis of a positive parameter, shape (n,): logarithmic if asked or if it spans much."""
    low, high = float(values.min()), float(values.max())
    if log or high > 100 * low:
        log_scale(axes, "x", (low / 1.15, high * 1.15))
    else:
        room = 0.03 * (high - low) if high > low else 0.5 * low
        axes.set_xlim(low - room, high + room)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(True, axis="x", **THIN)
    if values.size <= 5:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)


def key(label: str, **look: Any) -> Line2D:
    """What stands in a legend for a line or a marker; no line unless `linestyle` is given."""
    return Line2D([], [], label=label, **{"linestyle": "none", "markersize": 5} | look)


def band(label: str, color: str = "0.3") -> Patch:
    """The same for a band."""
    return Patch(color=color, alpha=0.25, linewidth=0, label=label)


def legend(figure: Figure, handles: Sequence[Any], columns: int, **options: Any) -> None:
    """Below the panels."""
    place = "outside lower center"
    figure.legend(handles=list(handles), loc=place, ncols=columns, fontsize="small", **options)
