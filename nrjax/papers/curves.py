"""Curves over a parameter: lines, bands, and marks for what is infinite or told in part only."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.study.drawing import Style, epsilon_scale

_MARKS = 12


def draw_curve(
    axes: Axes, x: np.ndarray, y: np.ndarray, style: Style, rank: int, hollow: np.ndarray
) -> None:
    """A line through the finite points, broken where there is none.

    Args:
        axes: where.
        x: shape (n,), rising.
        y: shape (n,).
        style: the curve's.
        rank: its number among the panel's, so that equal curves do not mark the same points.
        hollow: shape (n,), bool: whose markers are empty.
    """
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
    shown = np.union1d(there[first], np.flatnonzero(alone(y)))
    axes.plot(
        x[shown],
        y[shown],
        color=style.line,
        linestyle="none",
        marker=style.marker,
        markersize=5,
        markerfacecolor=style.line if filled else "white",
        zorder=4,
    )


def draw_band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, style: Style) -> None:
    """What lies between two curves; a bar where a point has no neighbour."""
    axes.fill_between(x, low, high, color=style.line, alpha=0.25, linewidth=0, zorder=2)
    single = np.isfinite(low) & np.isfinite(high) & alone(low + high)
    axes.vlines(x[single], low[single], high[single], color=style.line, lw=1.2, zorder=3)


def draw_infinite(axes: Axes, x: np.ndarray, style: Style, row: int, *, above: bool = True) -> int:
    """Triangles at the upper edge (or the lower one); returns the row for the next curve."""
    if not x.size:  # an empty line that may leave the panel upsets the layout
        return row
    away = 0.04 * row
    axes.plot(
        x,
        np.full(x.size, 1 - away if above else away),
        color=style.line,
        linestyle="none",
        marker="^" if above else "v",
        markersize=5,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        zorder=5,
    )
    return row + 1


def alone(y: np.ndarray) -> np.ndarray:
    """Which points are finite without a finite neighbour; shape (n,), bool."""
    finite = np.concatenate([[False], np.isfinite(y), [False]])
    return finite[1:-1] & ~finite[:-2] & ~finite[2:]


def beside(mask: np.ndarray) -> np.ndarray:
    """The points of a mask and their neighbours; shape (n,), bool."""
    padded = np.concatenate([[False], mask, [False]])
    return padded[1:-1] | padded[:-2] | padded[2:]


def log_scale(axes: Axes, which: str, limits: tuple[float, float]) -> None:
    """Plain numbers at 1, 2 and 5 where there is room for them, else powers of ten."""
    if limits[1] / limits[0] <= 1.001e3:
        epsilon_scale(axes, which, limits)
        return
    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.grid(True, color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)


def parameter_scale(axes: Axes, values: np.ndarray, *, log: bool = False) -> None:
    """The x-axis of a positive parameter, shape (n,): logarithmic if asked or if it spans much."""
    low, high = float(values.min()), float(values.max())
    if log or high > 100 * low:
        log_scale(axes, "x", (low / 1.15, high * 1.15))
    else:
        room = 0.03 * (high - low) if high > low else 0.5 * low
        axes.set_xlim(low - room, high + room)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(True, axis="x", color="0.85", linewidth=0.6)
    if values.size <= 5:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)


def method_line(style: Style, label: str) -> Line2D:
    """What stands in a legend for a curve."""
    look: dict[str, Any] = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
    return Line2D([], [], lw=1.6, markersize=5, label=label, **look)


def empty_marker(label: str, linestyle: Any = "none", **look: Any) -> Line2D:
    """The same for an empty marker."""
    look = {"color": "0.3", "marker": "o", "markersize": 5, "markerfacecolor": "white"} | look
    return Line2D([], [], linestyle=linestyle, label=label, **look)


def triangle(label: str, *, above: bool = True) -> Line2D:
    """The same for the triangles at an edge."""
    return Line2D(
        [],
        [],
        color="0.3",
        linestyle="none",
        marker="^" if above else "v",
        markersize=5,
        label=label,
    )


def band(label: str) -> Patch:
    """The same for a band."""
    return Patch(color="0.3", alpha=0.25, linewidth=0, label=label)


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Below the panels, as wide as they are."""
    columns = 2 if figure.get_figwidth() < 8 else 3 if figure.get_figwidth() < 12 else 4
    figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=columns,
        fontsize="small",
        handlelength=3.4,
    )
