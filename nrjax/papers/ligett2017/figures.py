"""Figures of `ligett2017`: what an accuracy costs, and whether it is kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nrjax.papers import _drawing as draw
from nrjax.papers.ligett2017.runs import BASE, Runs, by_task, compared, ratios, tested, title
from nrjax.study import drawing
from nrjax.study.drawing import EPSILON, STYLES, Style, axis_limits, say
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution

_ALPHA = "requested excess risk \N{GREEK SMALL LETTER ALPHA}"
_LARGEST_RISK = 1e6
_MEAN_EPSILON = "mean " + EPSILON
_RISKS = ("mean excess risk", "95 % quantile of excess risk", "largest excess risk")
_MEAN_BAND = "95 % interval of the mean"
_EMPTY: Any = {"markerfacecolor": "white"}
_REFERENCE: Any = {"color": "0.35", "lw": 1.0, "linestyle": (0, (8, 3))}
_CLOSED: Any = (
    ("theory_epsilon", "theory, closed form", {"color": "0.65", "lw": 4.0, "zorder": 1}),
    (
        "theory_epsilon_output",
        "the same, output perturbation",
        {"color": "0.8", "lw": 4.0, "linestyle": (0, (2, 1)), "zorder": 1},
    ),
)
"""What the utility theorems ask for: the fact, its label, and a wide line behind the others."""

_PARTS = (("test_epsilon", "testing", STYLES[1]), ("mechanism_epsilon", "hypothesis", STYLES[0]))
_NORMS: Any = (("norm_bound", "bound M", "-"), ("optimum_norm", "optimum", (0, (2, 2))))


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """What draws the figures of a run, by name.

    `privacy_loss`, `accuracy`, `privacy_split` and `norms`, after figures 1 to 4 of Ligett 2017;
    `cheapest`: the price of each method in units of noise reduction's. A figure that would have no
    panel is left out: the split of a run that has the theory approach only, and `cheapest` without
    noise reduction and another method for the same task and accuracy.
    """
    tasks = by_task(results)
    found = {"privacy_loss": privacy_loss, "accuracy": accuracy}
    if any(tested(runs) for runs in tasks):
        found["privacy_split"] = privacy_split
    found["norms"] = norms
    if any(compared(runs) for runs in tasks):
        found["cheapest"] = cheapest
    return found


def privacy_loss(results: Results) -> Figure:
    """The mean ex-post epsilon over all trials, and the risk factor that it stands for.

    Above: with 95 % intervals of the mean, and the closed forms of the utility theorems. A trial
    that did not stop counts as infinite; where that makes the mean infinite, a triangle says so and
    the median is drawn. Below: exp of the same, as the paper gives it, up to a million.
    """
    tasks = by_task(results)
    figure, columns = _panels(tasks, 2, 4.0)
    infinite, closed = False, {}
    for (above, below), runs in zip(columns, tasks, strict=True):
        closed |= {label: look for label, _, look in _closed_forms(runs)}
        seen = _draw_epsilons(above, runs, np.asarray)
        infinite |= bool(np.isinf(seen).any())
        draw.log_scale(above, "y", axis_limits([seen]))
        above.set_ylabel(_MEAN_EPSILON)
        # Cut far outside the panel, before floats end.
        risk = _draw_epsilons(below, runs, lambda epsilon: np.exp(np.minimum(epsilon, 200.0)))
        inside = risk[risk <= _LARGEST_RISK]
        leaves = (np.isfinite(risk) & (risk > _LARGEST_RISK)).any()
        draw.log_scale(below, "y", (1.0, _LARGEST_RISK if leaves else axis_limits([inside])[1]))
        if not inside.size:
            say(below, "nothing up to a million")
        below.set_ylabel("risk factor exp(mean ε)")
    lines = (Line2D([], [], label=label, **look) for label, look in closed.items())
    marks = [*lines, draw.band(_MEAN_BAND)]
    if infinite:
        dotted = {"linestyle": ":", "lw": 1.0, **_EMPTY}
        marks.append(_mark("mean infinite: not all trials stopped", "^"))
        marks.append(_mark("median, where the mean is infinite", "o", **dotted))
    _legend(figure, tasks, marks)
    return figure


def accuracy(results: Results) -> Figure:
    """The excess risk achieved by the trials that stopped, against the requested one.

    Rows: the mean and the 95 % quantile, each with its 95 % interval, and the maximum.
    """
    tasks = by_task(results)
    figure, columns = _panels(tasks, len(_RISKS), 3.3, log=True)
    for column, runs in zip(columns, tasks, strict=True):
        seen = [runs[0].alpha]
        for rank, one in enumerate(runs):
            risk = one.laws("excess_risk")
            seen.append(_draw_means(column[0], one, risk, one.style, rank))
            for axes, percent in zip(column[1:], (95, 100), strict=True):
                found = draw.quantiles(risk, percent / 100)
                # Trials bound no maximum, and few trials no quantile as high as this.
                found[1:, ~np.isfinite(found[1:]).all(axis=0)] = np.nan
                draw.draw_curve(axes, one.alpha, found, one.style, rank, one.stopped < 1)
                seen.append(found[0])
        values = np.concatenate(seen)
        # An excess of nothing is stored as rounding errors, which would take most of the axis.
        limits = axis_limits([values[values > 1e-4 * seen[0].min()]])
        for axes, what in zip(column, _RISKS, strict=True):
            axes.plot(limits, limits, zorder=1, **_REFERENCE)
            draw.log_scale(axes, "y", limits)
            axes.set_ylabel(what)
            _say_if_none_stopped(axes, runs)
    marks = [Line2D([], [], label="requested", **_REFERENCE), draw.band("95 % intervals")]
    _legend(figure, tasks, [*marks, *_partly(tasks)])
    return figure


def privacy_split(results: Results) -> Figure:
    """Mean ex-post epsilon of testing and of the hypotheses, over the trials that stopped.

    A panel per task (rows) and method (columns); the theory approach tests nothing.
    """
    tasks = [found for runs in by_task(results) if (found := tested(runs))]
    methods = drawing.unique(one.method for runs in tasks for one in runs)
    figure, panels = drawing.new_panels(max(6.4, 3.6 * len(methods)), len(tasks), len(methods))
    for row, runs in zip(panels, tasks, strict=True):
        panel = dict(zip(methods, row, strict=True))
        seen = []
        for one in runs:
            axes = panel.pop(one.method)
            draw.parameter_scale(axes, one.alpha)
            for rank, (variable, _, style) in enumerate(_PARTS):
                seen.append(_draw_means(axes, one, one.laws(variable), style, rank))
            axes.set(xlabel=_ALPHA, ylabel=_MEAN_EPSILON)
            axes.set_title(f"{title([one])}\n{one.label}", fontsize="small")
            _say_if_none_stopped(axes, [one])
        for axes in panel.values():
            axes.set_axis_off()
        for axes in set(row) - set(panel.values()):
            draw.log_scale(axes, "y", axis_limits(seen))
    lines = [_method(style, label) for _, label, style in _PARTS]
    _legend(figure, [], [*lines, draw.band(_MEAN_BAND), *_partly(tasks)])
    return figure


def norms(results: Results) -> Figure:
    """Mean l2 norm of the hypothesis over the trials that stopped, the optimum's, and the bound."""
    tasks = by_task(results)
    figure, columns = _panels(tasks, 1, 4.6)
    for (axes,), runs in zip(columns, tasks, strict=True):
        highest = [
            np.nanmax([0.0, *_draw_means(axes, one, one.laws("norm"), one.style, rank)])
            for rank, one in enumerate(runs)
        ]
        for name, _, dash in _NORMS:
            for value in drawing.unique(facts[name] for one in runs for facts in one.facts):
                axes.axhline(value, zorder=1, **{**_REFERENCE, "linestyle": dash})
                highest.append(value)
        axes.set(ylabel="mean l2 norm of the hypothesis", ylim=(0.0, 1.08 * max(highest)))
        axes.grid(True, axis="y", **draw.THIN)
        _say_if_none_stopped(axes, runs)
    lines = (
        Line2D([], [], label=label, **{**_REFERENCE, "linestyle": dash})
        for _, label, dash in _NORMS
    )
    _legend(figure, tasks, [*lines, draw.band(_MEAN_BAND), *_partly(tasks)])
    return figure


def cheapest(results: Results) -> Figure:
    """Median ex-post epsilon over all trials, in units of noise reduction's.

    With pointwise 95 % intervals from a bootstrap that resamples the same trials for both.
    """
    tasks = [runs for runs in by_task(results) if compared(runs)]
    figure, columns = _panels(tasks, 1, 4.6)
    out = set()
    for (axes,), runs in zip(columns, tasks, strict=True):
        out |= _draw_ratios(axes, runs)
        axes.set_ylabel("median ε, ratio to noise reduction")
    unit = Line2D([], [], label=drawing.words(BASE), **_REFERENCE)
    marks = [unit, draw.band("95 % interval, paired bootstrap")]
    if np.inf in out:
        marks.append(_mark("infinite: most trials did not stop", "^"))
    if 0.0 in out:
        marks.append(_mark("0: noise reduction's is infinite", "v"))
    _legend(figure, [[one for one in runs if one.method != BASE] for runs in tasks], marks)
    return figure


def _panels(
    tasks: Sequence[Sequence[Runs]], rows: int, height: float, *, log: bool = False
) -> tuple[Figure, Any]:
    """A column of panels for each task, with the scale and the words that all have."""
    figure, panels = drawing.new_panels(max(6.4, 5.2 * len(tasks)), rows, len(tasks), height=height)
    for column, runs in zip(panels.T, tasks, strict=True):
        for axes in column:
            draw.parameter_scale(axes, runs[0].alpha, log=log)
            axes.set_xlabel(_ALPHA)
        column[0].set_title(title(runs), fontsize="medium")
    return figure, panels.T


def _draw_means(
    axes: Axes, one: Runs, laws: Sequence[Distribution], style: Style, rank: int
) -> np.ndarray:
    """Means with their band, empty markers where some trials did not stop; returns the means."""
    found = draw.means(laws)
    draw.draw_curve(axes, one.alpha, found, style, rank, one.stopped < 1)
    return found[0]


def _draw_epsilons(axes: Axes, runs: Sequence[Runs], scale: Callable[..., Any]) -> np.ndarray:
    """Means or, where they are infinite, medians, and the closed forms; returns all that is drawn.

    An infinite mean is returned as such, and drawn as a triangle.
    """
    seen, row, alpha = [], 0, runs[0].alpha
    for _, epsilon, look in _closed_forms(runs):
        single = {"marker": "_", "markersize": 24, "markeredgewidth": 4} if alpha.size == 1 else {}
        axes.plot(alpha, scale(epsilon), **look, **single)
        seen.append(scale(epsilon))
    for rank, one in enumerate(runs):
        mean, low, high = draw.means(one.epsilons())
        infinite = np.isinf(mean)
        shown = np.where(infinite, np.inf, scale(mean))
        found = np.stack([shown, scale(low), scale(high)])
        draw.draw_curve(axes, alpha, found, one.style, rank, infinite)
        # Medians go on to the next finite mean, so that the eye can follow.
        median, _, _ = draw.quantiles(one.epsilons(), 0.5)
        padded = np.pad(infinite, 1)
        near = padded[:-2] | infinite | padded[2:]
        median = np.where(np.isfinite(median) & near, scale(median), np.nan)
        axes.plot(alpha, median, color=one.style.line, linestyle=":", lw=1.0, zorder=3)
        medians = np.where(infinite, median, np.nan)
        draw.draw_markers(axes, alpha, medians, one.style, rank, filled=False)
        row = draw.draw_infinite(axes, alpha[infinite], one.style, row)
        seen += [shown, median]
    return np.concatenate(seen)


def _draw_ratios(axes: Axes, runs: Sequence[Runs]) -> set[float]:
    """Ratios of medians with their intervals; returns 0 and infinity if they are among them."""
    found, alpha = ratios(runs), runs[0].alpha
    limits = axis_limits([np.ones(1), *(values.ravel() for values in found)])
    top = bottom = 0
    for rank, (one, (ratio, low, high)) in enumerate(zip(runs[1:], found, strict=True), 1):
        # An infinite end leaves the panel.
        ends = np.maximum(low, limits[0] / 9), np.minimum(high, limits[1] * 9)
        shown = np.stack([np.where(ratio > 0, ratio, np.nan), *ends])
        draw.draw_curve(axes, alpha, shown, one.style, rank)
        top = draw.draw_infinite(axes, alpha[np.isposinf(ratio)], one.style, top)
        bottom = draw.draw_infinite(axes, alpha[ratio == 0], one.style, bottom, above=False)
    axes.axhline(1.0, zorder=1, **_REFERENCE)
    draw.log_scale(axes, "y", limits)
    seen = np.concatenate([values[0] for values in found])
    if np.isnan(seen).all():
        say(axes, "all medians are infinite")
    return {end for end in (0.0, np.inf) if (seen == end).any()}


def _closed_forms(runs: Sequence[Runs]) -> list[tuple[str, np.ndarray, Any]]:
    """Label, epsilon at each alpha and look of what the utility theorems ask for."""
    found = []
    for name, label, look in _CLOSED:
        epsilon = np.array([facts.get(name) for facts in runs[0].facts], float)  # None is NaN
        known = not np.isnan(epsilon).any()
        if known and not any(np.array_equal(epsilon, other) for _, other, _ in found):
            found.append((label, epsilon, look))
    return found


def _say_if_none_stopped(axes: Axes, runs: Sequence[Runs]) -> None:
    if not any(one.stopped.any() for one in runs):
        say(axes, "no trial stopped")


def _method(style: Style, label: str) -> Line2D:
    """What stands in a legend for a curve."""
    return draw.key(label, color=style.line, linestyle=style.dash, marker=style.marker, lw=1.6)


def _mark(label: str, marker: str, **look: Any) -> Line2D:
    """The same for a marker of any method, such as an empty one (`_EMPTY`)."""
    return draw.key(label, color="0.3", marker=marker, **look)


def _partly(tasks: Sequence[Sequence[Runs]]) -> list[Line2D]:
    """What explains empty markers, where there are some."""
    some = any((one.stopped < 1).any() for runs in tasks for one in runs)
    return [_mark("not all trials stopped; of those that did", "o", **_EMPTY)] if some else []


def _legend(figure: Figure, tasks: Sequence[Sequence[Runs]], marks: Sequence[Any]) -> None:
    """The methods of these tasks, and what else is drawn, as wide as the panels are."""
    lines = {one.method: _method(one.style, one.label) for runs in tasks for one in runs}
    width = figure.get_figwidth()
    columns = 2 if width < 8 else 3 if width < 12 else 4
    boundary = any("δ" in one.label for runs in tasks for one in runs)
    note = {"title": "ε that has a δ: probabilistic", "title_fontsize": "small"}
    options = note if boundary else {}
    draw.legend(figure, [*lines.values(), *marks], columns, handlelength=3.4, **options)
