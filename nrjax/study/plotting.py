"""The styles, panels, scales, curves and legends that all figures use.

The styles of mechanisms differ in lightness, hatch, line and marker as well as in colour, so that
figures are legible in grey.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.statistics.sample import Distribution
from nrjax.study.rendering import ShownFigure

EPSILON = "ex-post ε (nat)"
STOPPING_EPSILON = "stopping ε (nat)"
MEAN_EPSILON = "mean ε of the trials that stopped (nat)"
_MAX_MARKERS = 12  # about the largest number of markers on a curve
_INNER_QUANTILES = (0.05, 0.95)  # quantiles that a linear axis must include
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

THIN: Any = {"color": "0.85", "linewidth": 0.6}
"""The line options of a grid."""


class Style(NamedTuple):
    """The colours, hatch, line and marker of one mechanism in every figure."""

    face: str
    hatch: str
    line: str
    dash: Any
    marker: str


# Adjacent styles differ in grey too, and black boxes stand out from every face colour.
STYLES = (
    Style("#7ba6cc", "", "#12456e", "-", "o"),
    Style("#fbe3c5", "////", "#b5651d", (0, (5, 2)), "s"),
    Style("#8fbf9b", "....", "#2e6b3f", (0, (1, 1.5)), "^"),
    Style("#ece6f2", "xxxx", "#7d5a9b", (0, (6, 2, 1, 2)), "D"),
    Style("#8cc3cc", "\\\\\\\\", "#2fa3b8", (0, (4, 1.5, 1, 1.5, 1, 1.5)), "P"),
)


def mechanism_styles(mechanisms: Iterable[str]) -> dict[str, Style]:
    """Return the style of each mechanism by name. Up to 25 mechanisms have different styles."""

    def style(i: int) -> Style:
        colours, shape = STYLES[i % len(STYLES)], STYLES[(i + i // len(STYLES)) % len(STYLES)]
        return shape._replace(face=colours.face, line=colours.line)

    return {name: style(i) for i, name in enumerate(unique(mechanisms))}


def new_panels(width: float, rows: int, columns: int, height: float = 3.8) -> tuple[Figure, Any]:
    """Return a figure of `width` inches, and its panels as an array of shape (rows, columns).

    `height` is the height of each row, in inches.
    """
    figure = ShownFigure(figsize=(width, height * rows), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
    return figure, figure.subplots(rows, columns, squeeze=False)


def axis_limits(values: Iterable[np.ndarray]) -> tuple[float, float]:
    """Return axis limits around all finite positive values: 1, 2 or 5 times powers of ten."""
    numbers = np.concatenate([np.empty(0), *values])
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not numbers.size:
        return 0.1, 10.0
    low, high = _ticks(0, 0.97 * numbers.min())[-1], _ticks(1.03 * numbers.max(), np.inf)[0]
    return float(low), float(high)


def _ticks(low: float, high: float) -> np.ndarray:
    ticks = np.outer(10.0 ** np.arange(-12, 13), [1, 2, 5]).ravel()
    return ticks[(ticks >= low) & (ticks <= high)]


def log_scale(
    axes: Axes, which: Literal["x", "y"], limits: tuple[float, float] | None = None
) -> None:
    """Make an axis logarithmic, with a grid.

    If the limits span at most three decades, ticks are 1, 2 and 5 times powers of ten, as plain
    numbers. Otherwise they are powers of ten.
    """
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if limits is not None:
        axes.set(**{f"{which}lim": limits})
    if limits is not None and limits[1] / limits[0] <= 1.001e3:
        ticks = _ticks(limits[0] * 0.999, limits[1] * 1.001)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    else:  # no mathtext: its first use takes half a second
        axis.set_major_formatter(
            lambda tick, _: f"10{f'{np.log10(tick):.0f}'.translate(_SUPERSCRIPTS)}"
        )
    axis.set_ticks([], minor=True)
    draw_grid(axes, which)


def linear_scale(
    axes: Axes, distributions: Sequence[Distribution], required: Iterable[float]
) -> float:
    """Set a linear x-axis that shows most values of each distribution.

    The axis includes the central 90 % of every distribution, up to half of this range more on
    either side, and all `required` positions.

    Returns:
        The largest fraction of a distribution's values that lie outside the axis.
    """
    ends = np.array([values.points()[[0, -1]] for values in distributions])
    inner = np.array([[values.quantile(q) for q in _INNER_QUANTILES] for values in distributions])
    inner = inner.clip(ends.min(), ends.max())
    beyond = np.ptp(inner) / 2 or np.inf
    low = min([max(ends.min(), inner.min() - beyond), *required])
    high = max([min(ends.max(), inner.max() + beyond), *required])
    margin = 0.03 * (high - low) or 0.5
    low, high = low - margin, high + margin
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=5)
    bounds = [-np.inf, np.nextafter(low, -np.inf), high, np.finfo(np.float64).max]
    return max(
        float(values.histogram(bounds)[[0, 2]].sum()) / values.trials for values in distributions
    )


def draw_grid(axes: Axes, which: Literal["both", "x", "y"] = "both") -> None:
    """Draw pale grid lines behind the content of a panel."""
    axes.grid(True, axis=which, **THIN)
    axes.set_axisbelow(True)


def name_positions(axes: Axes, labels: Sequence[str]) -> None:
    """Set labels at the positions 0, 1, 2, ... of the x-axis."""
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def lines_below(panel: Axes) -> int:
    """Return the largest number of text lines in a label of a panel's x-axis."""
    texts = [panel.get_xlabel(), *(label.get_text() for label in panel.get_xticklabels())]
    return 1 + max(text.count("\n") for text in texts)


def mean_curve(
    distributions: Sequence[Distribution], band: tuple[float, float] | None = None
) -> np.ndarray:
    """Return the means of n distributions with a band around them, shape (3, n).

    The rows are means, lower ends and upper ends. The ends are the 95 % interval of the mean, or
    the quantiles of the two fractions in `band`.
    """
    return np.array(
        [
            (values.mean, *(values.mean_interval() if band is None else values.quantile(band)))
            for values in distributions
        ]
    ).T


def quantile_curve(distributions: Sequence[Distribution], q: float) -> np.ndarray:
    """Return a quantile of n distributions with exact 95 % intervals, shape (3, n).

    The rows are quantiles, lower ends and upper ends.
    """
    return np.array(
        [(values.quantile(q), *values.quantile_interval(q)) for values in distributions]
    ).T


def draw_curve(
    axes: Axes,
    x: np.ndarray,
    curve: np.ndarray,
    style: Style,
    rank: int = 0,
    hollow: bool | np.ndarray = False,
    **marker: Any,
) -> None:
    """Draw a curve with a band around it.

    The curve and the band have gaps at NaN and infinite values. A point without finite neighbours
    has an upright bar in place of a band. A triangle at the upper edge of the panel marks infinity,
    one at the lower edge minus infinity. Set the scale of the x-axis before the call.

    Args:
        axes: panel to draw into.
        x: position of each point on the x-axis, shape (n,), rising.
        curve: values, lower and upper ends of the band, shape (3, n), as `mean_curve` and
            `quantile_curve` return them. Ends may be NaN.
        style: colour, line and marker; an empty `marker` draws no markers.
        rank: number of the curve in its panel. It shifts markers and triangles, so that they do
            not coincide for equal curves.
        hollow: whether markers are hollow, for all points or for each point, shape (n,).
        **marker: Matplotlib options of the markers, such as `fillstyle`.
    """
    y, low, high = np.where(np.isfinite(curve), curve, np.nan)
    axes.fill_between(x, low, high, color=style.line, alpha=0.25, linewidth=0, zorder=2)
    single = _without_neighbours(low + high)
    axes.vlines(x[single], low[single], high[single], color=style.line, lw=1.2, zorder=3)
    axes.plot(x, y, color=style.line, linestyle=style.dash, lw=1.6, zorder=3)
    draw_markers(axes, x, np.where(hollow, np.nan, y), style, rank, **marker)
    draw_markers(axes, x, np.where(hollow, y, np.nan), style, rank, hollow=True, **marker)
    for infinite, edge, shape in ((np.inf, 1 - 0.04 * rank, "^"), (-np.inf, 0.04 * rank, "v")):
        there = x[curve[0] == infinite]
        if there.size:  # the layout cannot place an empty line
            line: Any = {"color": style.line, "marker": shape, "markersize": 5, "zorder": 5}
            line |= {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(there, np.full(there.size, edge), linestyle="none", **line)


def draw_markers(
    axes: Axes,
    x: np.ndarray,
    y: np.ndarray,
    style: Style,
    rank: int = 0,
    *,
    hollow: bool = False,
    **marker: Any,
) -> None:
    """Mark about a dozen evenly spaced points of a curve, and every isolated point.

    Arguments are as for `draw_curve`, with the values `y` of shape (n,).
    """
    place = np.log(x) if axes.get_xscale() == "log" else x
    place = (place - place[0]) / max(place[-1] - place[0], 1e-12)
    finite = np.flatnonzero(np.isfinite(y))
    _, first = np.unique(np.floor(_MAX_MARKERS * place[finite] + 0.2 * rank), return_index=True)
    marked = np.union1d(finite[first], np.flatnonzero(_without_neighbours(y)))
    line: Any = {"color": style.line, "marker": style.marker, "markersize": 5, "zorder": 4}
    line |= {"markerfacecolor": "white" if hollow else style.line, **marker}
    axes.plot(x[marked], y[marked], linestyle="none", **line)


def _without_neighbours(y: np.ndarray) -> np.ndarray:
    """Return a mask of the finite points without a finite neighbour, shape (n,)."""
    finite = np.pad(np.isfinite(y), 1)
    return finite[1:-1] & ~finite[:-2] & ~finite[2:]


def legend_line(label: str, style: Style | None = None, **look: Any) -> Line2D:
    """Return the legend entry of a curve: its style, changed by the line options in `look`."""
    curve: Any = {"linestyle": "none", "markersize": 5}
    if style is not None:
        curve |= {"color": style.line, "linestyle": style.dash, "marker": style.marker, "lw": 1.6}
    return Line2D([], [], label=label, **(curve | look))


def legend_patch(label: str, color: str = "0.3") -> Patch:
    """Return the legend entry of a band."""
    return Patch(color=color, alpha=0.25, linewidth=0, label=label)


def legend_below(figure: Figure, handles: Iterable[Any], columns: int, **options: Any) -> None:
    """Place a legend below all panels of a figure."""
    place = "outside lower center"
    figure.legend(handles=list(handles), loc=place, ncols=columns, fontsize="small", **options)


def annotate_center(axes: Axes, text: str) -> None:
    """Write a text in the middle of a panel."""
    look: Any = {"ha": "center", "va": "center", "color": "0.3"}
    paper = {"facecolor": "white", "edgecolor": "none"}
    axes.text(0.5, 0.5, text, transform=axes.transAxes, bbox=paper, **look)


def unique(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values in order of first appearance."""
    return list(dict.fromkeys(values))


def ellipsis(name: str) -> str:
    """Return a name, or an ellipsis and its last 23 characters if it has more than 24."""
    return name if len(name) <= 24 else "…" + name[-23:]
