"""What all figures share: how mechanisms look, scales of epsilon, and saving.

Drawn with matplotlib's objects and its Agg canvas: no global state, nothing from the user's style,
the same bytes each time. Mechanisms differ in lightness, hatch, line and marker, not in hue alone.
"""

import base64
import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from PIL import Image

from nrjax.study.folder import FIGURES, write_document
from nrjax.study.statistics import Distribution
from nrjax.study.store import Store

EPSILON = "ex-post ε (nat)"

_BINS, _LEVELS = 60, 1000
"""Bins of a histogram; and the most numbers that are levels rather than a continuum."""


_MOST = (0.05, 0.95)
"""Quantiles between which a linear axis must reach."""


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


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_LOOK: Any = ["default", {"svg.hashsalt": "nrjax", "hatch.linewidth": 0.6}]


class ShownFigure(Figure):
    """A figure that a notebook shows without pyplot, which no kernel need import for it."""

    def _repr_png_(self) -> bytes:
        return _png(self)


class Figures(dict[str, Figure]):
    """A dictionary of figures by name, which a notebook shows one below the other."""

    def _repr_html_(self) -> str:
        shown = []
        for name, figure in self.items():
            data = base64.b64encode(_png(figure)).decode()
            picture = f'<img alt="{html.escape(name)}" src="data:image/png;base64,{data}">'
            shown.append(f"<p><b>{html.escape(name)}</b><br>{picture}</p>")
        return "".join(shown)


def _png(figure: Figure) -> bytes:
    """Return a figure as a PNG file, without a change of the figure."""
    data = io.BytesIO()
    with matplotlib.style.context(_LOOK):
        figure.savefig(data, format="png")
    return data.getvalue()


def made(results: Any, figures: Mapping[str, Callable[[Any], Figure]]) -> Figures:
    """Draw each figure, untouched by the user's style; by name."""
    with matplotlib.style.context(_LOOK):
        return Figures({name: make(results) for name, make in figures.items()})


def axis_limits(epsilons: Iterable[np.ndarray]) -> tuple[float, float]:
    """Numbers 1, 2 or 5 times a power of ten that enclose all that is finite and positive."""
    values = np.concatenate([np.empty(0), *epsilons])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return 0.1, 10.0
    low, high = _ticks(0, 0.97 * values.min())[-1], _ticks(1.03 * values.max(), np.inf)[0]
    return float(low), float(high)


def _ticks(low: float, high: float) -> np.ndarray:
    ticks = np.outer(10.0 ** np.arange(-12, 13), [1, 2, 5]).ravel()
    return ticks[(ticks >= low) & (ticks <= high)]


def epsilon_scale(axes: Axes, which: Any, limits: tuple[float, float]) -> None:
    """Logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    ticks = _ticks(limits[0] * 0.999, limits[1] * 1.001)
    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    draw_grid(axes, which)


def linear_scale(axes: Axes, laws: Sequence[Distribution], marks: Iterable[float]) -> float:
    """Give an x-axis room for these marks and for most values of each distribution.

    Values that are farther from those than half of what they span are left out. Returns the largest
    fraction of a distribution's values that is.
    """
    ends = np.array([law.points()[[0, -1]] for law in laws])
    most = np.array([[law.quantile(fraction) for fraction in _MOST] for law in laws])
    most = most.clip(ends.min(), ends.max())
    far = np.ptp(most) / 2 or np.inf
    low = min([max(ends.min(), most.min() - far), *marks])
    high = max([min(ends.max(), most.max() + far), *marks])
    room = 0.03 * (high - low) or 0.5
    low, high = low - room, high + room
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=5)
    bounds = [-np.inf, np.nextafter(low, -np.inf), high, np.finfo(np.float64).max]
    return max(float(law.histogram(bounds)[[0, 2]].sum()) / law.trials for law in laws)


def powers_scale(axes: Axes, which: Any) -> None:
    """Logarithmic, with powers of ten, not by mathtext, which takes half a second to begin."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda tick, _: f"10{f'{np.log10(tick):.0f}'.translate(_RAISED)}")
    axis.set_ticks([], minor=True)


def draw_grid(axes: Axes, which: Literal["both", "x", "y"] = "both") -> None:
    """Pale lines behind all else."""
    axes.grid(True, axis=which, color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)


def name_positions(axes: Axes, labels: Sequence[str]) -> None:
    """An x-axis of as many things side by side."""
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def lines_below(panel: Axes) -> int:
    """How many lines of text the x-axis of a panel has, or the most of one of its labels."""
    texts = [panel.get_xlabel(), *(label.get_text() for label in panel.get_xticklabels())]
    return 1 + max(text.count("\n") for text in texts)


def new_panels(width: float, rows: int, columns: int, height: float = 3.8) -> tuple[Figure, Any]:
    """A figure, and its panels as an array of shape (rows, columns); sizes in inches."""
    figure = ShownFigure(figsize=(width, height * rows), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
    return figure, figure.subplots(rows, columns, squeeze=False)


def fitting_edges(values: Distribution, limits: tuple[float, float]) -> np.ndarray:
    """Edges of bins between these limits that fit the values, for logarithmic axes.

    Where few numbers occur, such as a grid's levels, each edge is one of these: bins as wide as the
    number of levels in them, so that no spikes are drawn that are not there.
    """
    edges = np.geomspace(*limits, _BINS + 1)
    points = values.points(_LEVELS + 1)
    levels = points[(points > limits[0]) & (points < limits[1])]
    if levels.size < 2 or points.size > min(_LEVELS, values.trials // 4):
        return edges
    # A value at an edge is in the bin below it; the first has one as wide as the next level's.
    begin = max(limits[0], levels[0] * (levels[0] / levels[1]))
    near = levels[np.clip(np.searchsorted(levels, edges[1:-1], side="right") - 1, 0, None)]
    near = near[np.append(True, np.diff(np.log(near)) > 0.4 * np.log(edges[1] / edges[0]))]
    return np.unique([limits[0], begin, *near, levels[-1], limits[1]])


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
    """A histogram on its side, mirrored, 0.8 wide around a position on the x-axis, with a box.

    The box has the quartiles and the median, the whiskers go from 5 % to 95 %; beside the box are
    exact 95 % intervals of its three marks. What is above the last edge is an arrow there. `log`
    says whether the y-axis, that of the values, is logarithmic.
    """
    density = values.histogram(edges) / np.diff(np.log(edges) if log else edges)
    # Areas are shares of all trials: where few are finite, little is drawn.
    half = np.repeat(0.4 * density / max(density.max(), 1e-300) * values.finite, 2)
    look: Any = {"facecolor": style.face, "edgecolor": style.line, "hatch": style.hatch}
    ends = position - half, position + half
    y = np.repeat(edges, 2)[1:-1]
    axes.fill_betweenx(y, *ends, where=half > 0, linewidth=0.5, label=label, **look)
    top = edges[-1]
    marks = {percent: values.quantile(percent / 100) for percent in (5, 25, 50, 75, 95)}
    for percent in (25, 50, 75):
        _draw_interval(axes, position + 0.12, values.quantile_interval(percent / 100), edges)
    # Not by `Axes.bxp`, which looks at all of matplotlib's settings, and so imports pyplot.
    at = {name: min(mark, top) for name, mark in marks.items()}
    line: Any = {"color": "black", "linewidth": 1.0, "zorder": 3}
    axes.vlines([position] * 2, [at[5], at[75]], [at[25], at[95]], **line)
    axes.hlines([at[5], at[95]], position - 0.035, position + 0.035, **line)
    box: Any = {"facecolor": "white", "edgecolor": "black", "linewidth": 1.0, "zorder": 3}
    axes.add_patch(Rectangle((position - 0.07, at[25]), 0.14, at[75] - at[25], **box))
    axes.hlines(at[50], position - 0.07, position + 0.07, **(line | {"linewidth": 2.0}))
    if not np.isfinite(marks[95]):
        axes.plot([position], [top], "k^", markersize=8, clip_on=False, zorder=4)


def _draw_interval(axes: Axes, x: float, ends: tuple[float, float], edges: np.ndarray) -> None:
    """An upright bar with ends, without an end where it leaves the panel."""
    low, high = np.clip(ends, edges[0], edges[-1])
    if low < high or low == ends[0]:  # else it is outside
        axes.vlines(x, low, high, color="black", lw=1.1, zorder=4)
        shown = [end for end in ends if edges[0] <= end <= edges[-1]]
        axes.hlines(shown, x - 0.025, x + 0.025, color="black", lw=1.1, zorder=4)


_BAR: Any = {"color": "black", "linestyle": "none", "marker": "|", "markersize": 9}
INTERVALS = Line2D([], [], label="95 % intervals of the quartiles", **_BAR)
"""What stands in a legend for the bars of `draw_distribution`."""
WHISKERS = Line2D([], [], color="black", lw=1, label="5 % to 95 % of all trials (▲: to infinity)")
"""The same for its whiskers."""


def draw_steps(axes: Axes, values: Distribution, style: Style, label: str) -> None:
    """The distribution function with its 95 % band (DKW), in per cent of all trials.

    The x-axis, that of the values, must have its scale and limits. Infinite values are what the
    function lacks of 100 % at the end.
    """
    low, high = axes.get_xlim()
    x = values.points(2000)
    x = np.concatenate([[low], x[(x > low) & (x < high)], [high]])
    share, half = values.below(x), values.band()
    band = np.clip([share - half, share + half], 0, 1)
    axes.fill_between(x, *(100 * band), step="post", color=style.line, alpha=0.25, linewidth=0)
    every = max(1, x.size // 8)
    look: Any = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
    look |= {"markevery": (min(every // 2, x.size - 1), every), "markersize": 4}
    axes.plot(x, 100 * share, drawstyle="steps-post", label=label, **look)


def draw_function_axes(axes: Axes, **labels: str) -> None:
    """The y-axis of a distribution function, in per cent of all trials; and `Axes.set`."""
    axes.set(ylim=(0, 100), yticks=[0, 25, 50, 75, 100], **labels)
    draw_grid(axes)


BAND = Patch(color="0.2", alpha=0.25, linewidth=0, label="simultaneous 95 % band (DKW)")
"""What stands in a legend for the band of `draw_steps`."""


def say(axes: Axes, text: str) -> None:
    """Words in the middle of a panel, in place of what it has nothing of."""
    look: Any = {"ha": "center", "va": "center", "color": "0.3"}
    paper = {"facecolor": "white", "edgecolor": "none"}
    axes.text(0.5, 0.5, text, transform=axes.transAxes, bbox=paper, **look)


def save(store: Store, name: str, figure: Figure) -> None:
    """Write a figure as PNG and SVG."""
    with matplotlib.style.context(_LOOK):  # ticks are made where they are laid out
        figure.set_dpi(150)
        canvas = FigureCanvasAgg(figure)
        engine = figure.get_layout_engine()
        if engine is not None:  # laid out once: else each format is, and drawn twice
            engine.execute(figure)
            figure.set_layout_engine(None)
        canvas.draw()  # by what laid it out, which knows by now how large each text is
        png, svg = io.BytesIO(), io.BytesIO()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
        image.convert("RGB").save(png, format="png", dpi=(150, 150), compress_level=3)
        # Without dates and versions, so that redrawing changes nothing.
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        for suffix, data in (("png", png), ("svg", svg)):
            write_document(store.folder, f"{FIGURES}/{name}.{suffix}", data.getvalue())


def mechanism_styles(mechanisms: Iterable[str]) -> dict[str, Style]:
    """A look for each mechanism, in the order in which they come; 25 of them differ."""

    def style(i: int) -> Style:
        colours, other = STYLES[i % len(STYLES)], STYLES[(i + i // len(STYLES)) % len(STYLES)]
        return other._replace(face=colours.face, line=colours.line)

    return {name: style(i) for i, name in enumerate(unique(mechanisms))}


def unique(values: Iterable[Any]) -> list[Any]:
    """In the order in which they first come."""
    return list(dict.fromkeys(values))


def short(name: str) -> str:
    """Return a name, or the end of one that is too long for a title, such as a file's."""
    return name if len(name) <= 24 else "…" + name[-23:]


def words(name: str) -> str:
    """A name as one would write it."""
    return name.replace("_", " ").replace("-", " ")
