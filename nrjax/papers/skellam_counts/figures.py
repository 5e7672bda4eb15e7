"""Figures of `skellam_counts`: the realised privacy loss at the stop, and along the path."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.papers.skellam_counts.findings import median_deviation
from nrjax.study import figures as shared
from nrjax.study.distribution import Distribution
from nrjax.study.drawing import (
    BAND,
    INTERVALS,
    Style,
    draw_distribution,
    draw_function_axes,
    draw_steps,
    epsilon_scale,
    mechanism_styles,
    new_panels,
    unique,
    words,
)
from nrjax.study.layout import Case
from nrjax.study.results import Results

_LOSS = "realised privacy loss (nat)"
_NOISE = "standard deviation of the noise (counts)"

_LINES: Any = ((5, (0, (1, 1.5))), (50, "-"), (95, (0, (5, 2))), (99, (0, (6, 2, 1, 2))))
"""Quantiles along the path, and how each is drawn."""

_STOP: Any = (0, (4, 4))
"""How the median stop is drawn."""

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
    own = {
        "realised_loss": realised_loss,
        "loss_cdf": loss_cdf,
        "loss_along_path": loss_along_path,
    }
    return {**own, **shared.standard(results)}


def realised_loss(results: Results) -> Figure:
    """Distributions of the realised loss over all trials, with the median epsilon stated."""
    cases = list(results.cases.values())
    neighbours = unique(map(_neighbour, cases))
    styles = mechanism_styles(case.attributes["mechanism"] for case in cases)
    width = max(5.5, len(neighbours) * (1.2 + 1.5 * len(styles)))
    figure, panels = new_panels(width, 1, len(neighbours), height=4.6)
    for axes, neighbour in zip(panels[0], neighbours, strict=True):
        here = [case for case in cases if _neighbour(case) == neighbour]
        values = {case.name: results.law(case.name, "realised_loss") for case in here}
        stated = {case.name: _median_epsilon(results, case) for case in here}
        limits = _limits(values.values(), [e for e in stated.values() if e is not None])
        edges = np.linspace(*limits, 71)
        for position, case in enumerate(here):
            style = styles[case.attributes["mechanism"]]
            name = words(case.attributes["mechanism"])
            draw_distribution(axes, position, values[case.name], edges, style, name, log=False)
            epsilon = stated[case.name]
            if epsilon is not None and np.isfinite(epsilon):
                axes.plot(
                    [position], [epsilon], "D", color="black", markerfacecolor="white", zorder=4
                )
        axes.set_xticks(range(len(here)), [_label(case, values[case.name]) for case in here])
        axes.set_xlim(-0.6, len(here) - 0.4)
        axes.set_ylim(edges[0], edges[-1])
        axes.axhline(0.0, color="0.35", linewidth=0.8, zorder=1)
        axes.grid(True, axis="y", color="0.85", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_title(_title(here[0]), fontsize="medium")
        if axes is panels[0][0]:
            axes.set_ylabel(f"{_LOSS} at the stop")
    shapes = [
        Patch(facecolor=style.face, edgecolor=style.line, hatch=style.hatch, label=words(name))
        for name, style in styles.items()
    ]
    box = Patch(facecolor="white", edgecolor="black", label="quartiles and median")
    whiskers = Line2D([], [], color="black", label="5 % to 95 % (▲: to infinity)")
    diamond = Line2D(
        [],
        [],
        color="black",
        marker="D",
        markerfacecolor="white",
        linestyle="",
        label="median stated ε",
    )
    figure.legend(
        handles=[*shapes, box, INTERVALS, whiskers, diamond],
        loc="outside lower center",
        ncols=3,
        fontsize="small",
    )
    return figure


def loss_cdf(results: Results) -> Figure:
    """Share of the trials whose realised loss is at most so much, with its 95 % band."""
    cases = list(results.cases.values())
    neighbours = unique(map(_neighbour, cases))
    styles = mechanism_styles(case.attributes["mechanism"] for case in cases)
    width = max(5.5, 0.6 + 4.4 * len(neighbours))
    figure, panels = new_panels(width, 1, len(neighbours), height=4.4)
    handles = {}
    for axes, neighbour in zip(panels[0], neighbours, strict=True):
        here = [case for case in cases if _neighbour(case) == neighbour]
        values = {
            case.attributes["mechanism"]: results.law(case.name, "realised_loss") for case in here
        }
        axes.set_xlim(*_limits(values.values(), []))
        for name, loss in values.items():
            draw_steps(axes, loss, styles[name], words(name))
        handles |= {line.get_label(): line for line in axes.get_lines()}
        draw_function_axes(axes)
        axes.axvline(0.0, color="0.35", linewidth=0.8, zorder=1)
        axes.set_xlabel(f"{_LOSS} at the stop")
        axes.set_title(_title(here[0]), fontsize="medium")
    panels[0][0].set_ylabel("trials that lost at most that (%)")
    figure.legend(
        handles=[*handles.values(), BAND], loc="outside lower center", ncols=2, fontsize="small"
    )
    return figure


def _limits(values: Iterable[Distribution], others: Sequence[float]) -> tuple[float, float]:
    """Of an axis with room for all that is finite."""
    seen = np.concatenate([*(one.points() for one in values), others])
    seen = seen[np.isfinite(seen)]
    low, high = (seen.min(), seen.max()) if seen.size else (-1.0, 1.0)
    room = 0.05 * max(high - low, 1e-6)
    return float(low - room), float(high + room)


def loss_along_path(results: Results) -> Figure:
    """Quantiles of the realised loss at each noise level, and the epsilon stated there."""
    cases = list(results.cases.values())
    neighbours = unique(map(_neighbour, cases))
    styles = mechanism_styles(case.attributes["mechanism"] for case in cases)
    width = max(5.5, 1.0 + 3.6 * len(styles))
    figure, panels = new_panels(width, len(neighbours), len(styles), height=4.2)
    for row, neighbour in zip(panels, neighbours, strict=True):
        here = [case for case in cases if _neighbour(case) == neighbour]
        for axes, case in zip(row, here, strict=True):
            _draw_quantiles(axes, results, case, styles[case.attributes["mechanism"]])
        lowest, highest = (np.array([axes.get_ylim() for axes in row]).T[i] for i in (0, 1))
        for axes in row:
            axes.set_ylim(lowest.min(), highest.max())
        row[0].set_ylabel(_LOSS)
    quantiles = [
        Line2D([], [], color="0.2", linestyle=dash, label=f"{percent} % quantile")
        for percent, dash in _LINES
    ]
    band = Patch(color="0.2", alpha=0.25, linewidth=0, label="95 % intervals")
    stated = Line2D([], [], color="0.6", linewidth=3.5, label="stated ε, where one is")
    stop = Line2D([], [], color="black", linewidth=0.8, linestyle=_STOP, label="median stop")
    figure.legend(
        handles=[*quantiles, band, stated, stop],
        loc="outside lower center",
        ncols=4 if len(styles) > 1 else 2,
        fontsize="small",
        handlelength=4,
    )
    return figure


def _draw_quantiles(axes: Axes, results: Results, case: Case, style: Style) -> None:
    """Quantiles, the bands of their intervals, and what is stated."""
    along = case.passes["curve"].coordinates
    deviation = np.array(along["deviation"].values)
    found = results.levels(case.name, "privacy_loss_along")
    for percent, dash in _LINES:
        values = [(one.quantile(percent), *one.quantile_interval(percent)) for one in found]
        value, low, high = np.array(values).T
        low, high = (np.where(np.isfinite(end), end, np.nan) for end in (low, high))
        axes.fill_between(deviation, low, high, color=style.line, alpha=0.25, linewidth=0)
        axes.plot(deviation, value, color=style.line, linestyle=dash)
    if "epsilon" in along:
        # Wide and behind: the quantiles of Laplace noise reach it.
        stated = along["epsilon"].values
        axes.plot(deviation, stated, color="0.6", linewidth=3.5, zorder=1)
    stop = median_deviation(results, case.name)
    axes.axvline(stop, color="black", linewidth=0.8, linestyle=_STOP)
    axes.axhline(0.0, color="0.35", linewidth=0.8, zorder=1)
    epsilon_scale(axes, "x", (deviation.min(), deviation.max()))
    axes.invert_xaxis()  # the way a path goes
    axes.set_yscale("symlog", linthresh=_LINEAR)
    axes.grid(True, axis="y", color="0.85", linewidth=0.6)
    axes.set_xlabel(_NOISE)
    axes.set_title(f"{words(case.attributes['mechanism'])}, {_title(case)}", fontsize="medium")


def _median_epsilon(results: Results, case: Case) -> float | None:
    """Median of what is stated; None without a guarantee."""
    epsilon = results.distribution(case.name)
    return None if epsilon is None else epsilon.quantile(50)


def _neighbour(case: Case) -> str:
    return case.attributes["neighbour"]


def _title(case: Case) -> str:
    facts = case.attributes
    name = facts["data"] if len(facts["data"]) <= 24 else "…" + facts["data"][-23:]
    return (
        f"counts on {name}, {case.passes['outcome'].trials:,} trials\nneighbour: {_neighbour(case)}"
    )


def _label(case: Case, loss: Distribution) -> str:
    """What stands below a distribution."""
    median, extreme = loss.quantile(50), loss.quantile(99)
    return f"{words(case.attributes['mechanism'])}\nmedian {median:.2g}\n99 %: {extreme:.2g}"
