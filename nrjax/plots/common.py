"""What all figures share: how mechanisms look, scales of epsilon, and saving.

Drawn with matplotlib's objects and its Agg canvas: no global state, nothing from the user's style,
the same bytes each time. Mechanisms differ in lightness, hatch, line and marker, not in hue alone.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from nrjax.studies.store import Store

EPSILON = "ex-post ε (nat)"


class Style(NamedTuple):
    """How one mechanism looks in every figure."""

    face: str
    hatch: str
    line: str
    dash: Any
    marker: str


# Neighbours differ in grey too; no face is so dark that the black boxes would drown in it.
STYLES = (
    Style("#7ba6cc", "", "#12456e", "-", "o"),
    Style("#fbe3c5", "////", "#b5651d", (0, (5, 2)), "s"),
    Style("#8fbf9b", "....", "#2e6b3f", (0, (1, 1.5)), "^"),
    Style("#ece6f2", "xxxx", "#7d5a9b", (0, (6, 2, 1, 2)), "D"),
    Style("#8cc3cc", "\\\\\\\\", "#2fa3b8", (0, (4, 1.5, 1, 1.5, 1, 1.5)), "P"),
)


def draw(store: Store, figures: Mapping[str, Callable[[Store], Figure]]) -> list[Path]:
    """Draw each figure of a finished run and save it as PNG and SVG; returns the paths."""
    with matplotlib.style.context(["default", {"svg.hashsalt": "nrjax", "hatch.linewidth": 0.6}]):
        made = {name: make(store) for name, make in figures.items()}
        return [path for name, figure in made.items() for path in save(store, name, figure)]


def axis_limits(epsilons: Iterable[np.ndarray]) -> tuple[float, float]:
    """Numbers 1, 2 or 5 times a power of ten that enclose all that is finite and positive."""
    finite = [epsilon[np.isfinite(epsilon) & (epsilon > 0)] for epsilon in epsilons]
    values = np.concatenate(finite) if finite else np.empty(0)
    if not values.size:
        return 0.1, 10.0
    ticks = np.outer(10.0 ** np.arange(-12, 13), [1, 2, 5]).ravel()
    low = ticks[ticks <= 0.97 * values.min()][-1]
    return float(low), float(ticks[ticks >= 1.03 * values.max()][0])


def epsilon_scale(axes: Axes, which: str, limits: tuple[float, float]) -> None:
    """Logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    ticks = np.outer(10.0 ** np.arange(-12, 13), [1, 2, 5]).ravel()
    ticks = ticks[(ticks >= limits[0] * 0.999) & (ticks <= limits[1] * 1.001)]
    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    axis.grid(True, color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)


def new_panels(width: float, rows: int, columns: int, height: float = 3.8) -> tuple[Figure, Any]:
    """A figure, and its panels as an array of shape (rows, columns); sizes in inches."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_distribution(
    axes: Axes,
    position: float,
    values: np.ndarray,
    edges: np.ndarray,
    marks: Sequence[float],
    style: Style,
) -> None:
    """A histogram on its side, mirrored, with a box in it.

    Args:
        axes: where; its y-axis is that of the values.
        position: on the x-axis, 0.8 wide.
        values: shape (n,), infinite ones included.
        edges: of the histogram's bins, rising.
        marks: 5 %, 25 %, 50 %, 75 % and 95 % of the values, for whiskers, box and median; a 95 %
            above the last edge becomes an arrow there.
        style: the mechanism's.
    """
    finite = np.isfinite(values)
    counts, _ = np.histogram(values[finite], edges)
    # Areas are shares of all trials: where few are finite, little is drawn.
    half = np.repeat(0.4 * counts / max(counts.max(), 1) * finite.mean(), 2)
    axes.fill_betweenx(
        np.repeat(edges, 2)[1:-1],
        position - half,
        position + half,
        where=half > 0,
        facecolor=style.face,
        edgecolor=style.line,
        hatch=style.hatch,
        linewidth=0.5,
    )
    top = edges[-1]
    names = ("whislo", "q1", "med", "q3", "whishi")
    axes.bxp(
        [{name: min(mark, top) for name, mark in zip(names, marks, strict=True)}],
        positions=[position],
        widths=0.14,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": "white", "edgecolor": "black", "linewidth": 1.0},
        medianprops={"color": "black", "linewidth": 2.0},
        zorder=3,
    )
    if not np.isfinite(marks[-1]):
        axes.plot([position], [top], "k^", markersize=8, clip_on=False, zorder=4)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """The mean of shape (n,) and the ends of its 95 % interval (Student's t).

    NaN where undefined: the ends of one value or of an infinite mean, everything without values.
    """
    if not values.size:
        return np.nan, np.nan, np.nan
    mean = float(values.mean(dtype=np.float64))
    if values.size == 1 or not np.isfinite(mean):
        return mean, np.nan, np.nan
    spread = values.std(ddof=1, dtype=np.float64)
    half = stdtrit(values.size - 1, 0.975) * spread / np.sqrt(values.size)
    return mean, float(mean - half), float(mean + half)


def save(store: Store, name: str, figure: Figure) -> list[Path]:
    """Write a figure as PNG and SVG."""
    paths = []
    # Without dates and versions, so that redrawing changes nothing.
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        data = io.BytesIO()
        figure.savefig(data, format=suffix, dpi=150, metadata=metadata)
        paths.append(store.write_figure(f"{name}.{suffix}", data.getvalue()))
    return paths


def mechanism_styles(mechanisms: Iterable[str]) -> dict[str, Style]:
    """A look for each mechanism, in the order in which they come."""
    names = unique(mechanisms)
    return {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}


def unique(values: Iterable[Any]) -> list[Any]:
    """In the order in which they first come."""
    return list(dict.fromkeys(values))


def words(name: str) -> str:
    """A name as one would write it."""
    return name.replace("_", " ").replace("-", " ")
