"""Figures of `ligett2017`: the privacy cost, and the accuracy that trials reached."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nrjax.papers.ligett2017.curves import BASE, Curve, by_task, compared, ratios, tested, title
from nrjax.statistics.sample import Distribution
from nrjax.study import plotting
from nrjax.study.formats import humanise
from nrjax.study.plotting import (
    MEAN_EPSILON,
    STOPPING_EPSILON,
    STYLES,
    Style,
    axis_limits,
    draw_curve,
    log_scale,
)
from nrjax.study.results import Results

_ALPHA = "requested excess risk \N{GREEK SMALL LETTER ALPHA}"
_LARGEST_RISK = 1e6
_MEAN_EPSILON = "mean " + STOPPING_EPSILON
_RISKS = ("mean excess risk", "95 % quantile of excess risk", "largest excess risk")
_MEAN_BAND = "95 % interval of the mean"
_HOLLOW: Any = {"markerfacecolor": "white"}
_REFERENCE: Any = {"color": "0.35", "lw": 1.0, "linestyle": (0, (8, 3))}
_CLOSED_FORMS: Any = (
    ("theory_epsilon", "theory, closed form", {"color": "0.65", "lw": 4.0, "zorder": 1}),
    (
        "theory_epsilon_output",
        "the same, output perturbation",
        {"color": "0.8", "lw": 4.0, "linestyle": (0, (2, 1)), "zorder": 1},
    ),
)
"""Epsilons of the utility theorems: the case's label, the legend's text, the line style."""

_PARTS = (("test_epsilon", "testing", STYLES[1]), ("mechanism_epsilon", "hypothesis", STYLES[0]))
_NORMS: Any = (("norm_bound", "bound M", "-"), ("optimum_norm", "optimum", (0, (2, 2))))

Tasks = Sequence[Sequence[Curve]]


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Return the function that draws each figure, by name.

    `privacy_loss`, `accuracy`, `privacy_split` and `norms` follow figures 1 to 4 of Ligett 2017.
    `cheapest` draws the ratio of each method's median stopping epsilon to noise reduction's.
    `privacy_split` is left out if no method has a test, and `cheapest` if there are no two methods
    to compare.
    """
    tasks = by_task(results)
    drawn = {
        "privacy_loss": (privacy_loss, True),
        "accuracy": (accuracy, True),
        "privacy_split": (privacy_split, any(map(tested, tasks))),
        "norms": (norms, True),
        "cheapest": (cheapest, any(map(compared, tasks))),
    }
    return {name: draw for name, (draw, shown) in drawn.items() if shown}


def privacy_loss(results: Results) -> Figure:
    """Draw the mean stopping epsilon over all trials, and the risk factor exp(mean).

    The epsilon of a trial that did not stop counts as infinite. A triangle marks an infinite mean,
    and the median is drawn in its place. Risk factors are drawn up to a million.
    """
    tasks = by_task(results)
    figure, columns = _panels(tasks, 2, 4.0)
    infinite, closed = False, {}
    for (above, below), curves in zip(columns, tasks, strict=True):
        closed |= {label: look for label, _, look in _closed_forms(curves)}
        shown = _draw_epsilons(above, curves, np.asarray)
        infinite |= bool(np.isinf(shown).any())
        log_scale(above, "y", axis_limits([shown]))
        above.set_ylabel(_MEAN_EPSILON)
        # Epsilons above 200 are far outside the panel, and exp might overflow.
        risk = _draw_epsilons(below, curves, lambda epsilon: np.exp(np.minimum(epsilon, 200.0)))
        inside = risk[risk <= _LARGEST_RISK]
        beyond = (np.isfinite(risk) & (risk > _LARGEST_RISK)).any()
        log_scale(below, "y", (1.0, _LARGEST_RISK if beyond else axis_limits([inside])[1]))
        if not inside.size:
            plotting.annotate_center(below, "nothing up to a million")
        below.set_ylabel("risk factor exp(mean stopping ε)")
    lines = (Line2D([], [], label=label, **look) for label, look in closed.items())
    marks = [*lines, plotting.legend_patch(_MEAN_BAND)]
    if infinite:
        dotted = {"linestyle": ":", "lw": 1.0, **_HOLLOW}
        marks.append(_mark("mean infinite: not all trials stopped", "^"))
        marks.append(_mark("median, where the mean is infinite", "o", **dotted))
    _draw_legend(figure, tasks, marks)
    return figure


def accuracy(results: Results) -> Figure:
    """Draw the excess risk of the trials that stopped against the requested excess risk.

    The rows of panels show the mean and the 95 % quantile, both with 95 % intervals, and the
    maximum.
    """
    tasks = by_task(results)
    figure, columns = _panels(tasks, len(_RISKS), 3.3, log=True)
    for column, curves in zip(columns, tasks, strict=True):
        shown = [curves[0].alpha]
        for rank, curve in enumerate(curves):
            risk = curve.of_stopped("excess_risk")
            shown.append(_draw_means(column[0], curve, risk, curve.style, rank))
            for axes, q in zip(column[1:], (0.95, 1.0), strict=True):
                values = plotting.quantile_curve(risk, q)
                # A maximum has no finite interval, nor has a high quantile of few trials.
                values[1:, ~np.isfinite(values[1:]).all(axis=0)] = np.nan
                draw_curve(axes, curve.alpha, values, curve.style, rank, curve.stopped < 1)
                shown.append(values[0])
        values = np.concatenate(shown)
        # An excess risk of 0 is stored as a rounding error, which would stretch the axis.
        limits = axis_limits([values[values > 1e-4 * curves[0].alpha.min()]])
        for axes, label in zip(column, _RISKS, strict=True):
            axes.plot(limits, limits, zorder=1, **_REFERENCE)
            log_scale(axes, "y", limits)
            axes.set_ylabel(label)
            _annotate_none_stopped(axes, curves)
    marks = [
        Line2D([], [], label="requested", **_REFERENCE),
        plotting.legend_patch("95 % intervals"),
    ]
    _draw_legend(figure, tasks, [*marks, *_partial_marks(tasks)])
    return figure


def privacy_split(results: Results) -> Figure:
    """Draw the mean epsilons of tests and of hypotheses, over the trials that stopped.

    There is a panel per task (rows) and method (columns). The method `theory` has no test and no
    panel.
    """
    tasks = [curves for curves in map(tested, by_task(results)) if curves]
    methods = plotting.unique(curve.method for curves in tasks for curve in curves)
    figure, panels = plotting.new_panels(max(6.4, 3.6 * len(methods)), len(tasks), len(methods))
    for row, curves in zip(panels, tasks, strict=True):
        unused = dict(zip(methods, row, strict=True))
        shown = []
        for curve in curves:
            axes = unused.pop(curve.method)
            _alpha_axis(axes, curve.alpha)
            for rank, (variable, _, style) in enumerate(_PARTS):
                shown.append(_draw_means(axes, curve, curve.of_stopped(variable), style, rank))
            axes.set_ylabel(MEAN_EPSILON)
            axes.set_title(f"{title([curve])}\n{curve.label}", fontsize="small")
            _annotate_none_stopped(axes, [curve])
        for axes in row:
            if axes in unused.values():
                axes.set_axis_off()
            else:
                log_scale(axes, "y", axis_limits(shown))
    lines = [plotting.legend_line(label, style) for _, label, style in _PARTS]
    _draw_legend(figure, [], [*lines, plotting.legend_patch(_MEAN_BAND), *_partial_marks(tasks)])
    return figure


def norms(results: Results) -> Figure:
    """Draw the mean l2 norm of the hypothesis over the trials that stopped."""
    tasks = by_task(results)
    figure, columns = _panels(tasks, 1, 4.6)
    for (axes,), curves in zip(columns, tasks, strict=True):
        highest = 0.0
        for rank, curve in enumerate(curves):
            mean = _draw_means(axes, curve, curve.of_stopped("norm"), curve.style, rank)
            highest = np.nanmax([highest, *mean])
        for name, _, dash in _NORMS:
            for value in plotting.unique(value for curve in curves for value in curve.labels(name)):
                axes.axhline(value, zorder=1, **{**_REFERENCE, "linestyle": dash})
                highest = max(highest, value)
        axes.set(ylabel="mean l2 norm of the hypothesis", ylim=(0.0, 1.08 * highest))
        axes.grid(True, axis="y", **plotting.THIN)
        _annotate_none_stopped(axes, curves)
    lines = (
        Line2D([], [], label=label, **{**_REFERENCE, "linestyle": dash})
        for _, label, dash in _NORMS
    )
    marks = [*lines, plotting.legend_patch(_MEAN_BAND), *_partial_marks(tasks)]
    _draw_legend(figure, tasks, marks)
    return figure


def cheapest(results: Results) -> Figure:
    """Draw the ratio of each method's median stopping epsilon to noise reduction's.

    Medians are over all trials. The pointwise 95 % intervals are paired: the methods share their
    random numbers.
    """
    tasks = [curves for curves in by_task(results) if compared(curves)]
    figure, columns = _panels(tasks, 1, 4.6)
    ends = set()
    for (axes,), curves in zip(columns, tasks, strict=True):
        ends |= _draw_ratios(axes, curves)
        axes.set_ylabel("median stopping ε, ratio to noise reduction")
    unit = Line2D([], [], label=humanise(BASE), **_REFERENCE)
    marks = [unit, plotting.legend_patch("95 % interval, paired")]
    if np.inf in ends:
        marks.append(_mark("infinite: most trials did not stop", "^"))
    if 0.0 in ends:
        marks.append(_mark("0: noise reduction's is infinite", "v"))
    _draw_legend(figure, [curves[1:] for curves in tasks], marks)
    return figure


def _panels(
    tasks: Tasks, rows: int, height: float, *, log: bool = False
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its panels, a column per task with a title and x-axes."""
    figure, panels = plotting.new_panels(
        max(6.4, 5.2 * len(tasks)), rows, len(tasks), height=height
    )
    for column, curves in zip(panels.T, tasks, strict=True):
        for axes in column:
            _alpha_axis(axes, curves[0].alpha, log=log)
        column[0].set_title(title(curves), fontsize="medium")
    return figure, panels.T


def _alpha_axis(axes: Axes, alpha: np.ndarray, *, log: bool = False) -> None:
    """Set up an x-axis for alpha, logarithmic if requested or if it spans two decades."""
    low, high = float(alpha.min()), float(alpha.max())
    if log or high > 100 * low:
        log_scale(axes, "x", (low / 1.15, high * 1.15))
    else:
        margin = 0.03 * (high - low) if high > low else 0.5 * low
        axes.set_xlim(low - margin, high + margin)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(True, axis="x", **plotting.THIN)
    if alpha.size <= 5:
        axes.set_xticks(alpha, [f"{value:g}" for value in alpha])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(_ALPHA)


def _draw_means(
    axes: Axes, curve: Curve, values: Sequence[Distribution], style: Style, rank: int
) -> np.ndarray:
    """Draw and return means by alpha. Markers are empty if some trials did not stop."""
    means = plotting.mean_curve(values)
    draw_curve(axes, curve.alpha, means, style, rank, curve.stopped < 1)
    return means[0]


def _draw_epsilons(axes: Axes, curves: Sequence[Curve], scale: Callable[..., Any]) -> np.ndarray:
    """Draw and return mean epsilons (medians if infinite) and the theorems' epsilons."""
    shown, alpha = [], curves[0].alpha
    for _, epsilon, look in _closed_forms(curves):
        single = {"marker": "_", "markersize": 24, "markeredgewidth": 4} if alpha.size == 1 else {}
        axes.plot(alpha, scale(epsilon), **look, **single)
        shown.append(scale(epsilon))
    for rank, curve in enumerate(curves):
        values = plotting.mean_curve(curve.epsilons())
        infinite = np.isinf(values[0])
        mean = np.where(infinite, np.inf, scale(values[0]))
        scaled = np.stack([mean, *scale(values[1:])])
        draw_curve(axes, alpha, scaled, curve.style, rank)
        # The line of medians extends to the nearest finite mean on both sides.
        padded = np.pad(infinite, 1)
        near = padded[:-2] | infinite | padded[2:]
        median = plotting.quantile_curve(curve.epsilons(), 0.5)[0]
        median = np.where(np.isfinite(median) & near, scale(median), np.nan)
        axes.plot(alpha, median, color=curve.style.line, linestyle=":", lw=1.0, zorder=3)
        medians = np.where(infinite, median, np.nan)
        plotting.draw_markers(axes, alpha, medians, curve.style, rank, hollow=True)
        shown += [mean, median]
    return np.concatenate(shown)


def _draw_ratios(axes: Axes, curves: Sequence[Curve]) -> set[float]:
    """Draw ratios with 95 % intervals. Return which of 0 and infinity occur, as a set."""
    drawn, alpha = ratios(curves), curves[0].alpha
    limits = axis_limits([np.ones(1), *(values.ravel() for values in drawn)])
    for rank, (curve, (ratio, low, high)) in enumerate(zip(curves[1:], drawn, strict=True)):
        # Infinite ends of intervals are cut outside the panel. A ratio of 0 is marked at its edge.
        ends = np.maximum(low, limits[0] / 9), np.minimum(high, limits[1] * 9)
        values = np.stack([np.where(ratio == 0, -np.inf, ratio), *ends])
        draw_curve(axes, alpha, values, curve.style, rank)
    axes.axhline(1.0, zorder=1, **_REFERENCE)
    log_scale(axes, "y", limits)
    shown = np.concatenate([values[0] for values in drawn])
    if np.isnan(shown).all():
        plotting.annotate_center(axes, "all medians are infinite")
    return {end for end in (0.0, np.inf) if (shown == end).any()}


def _closed_forms(curves: Sequence[Curve]) -> list[tuple[str, np.ndarray, Any]]:
    """Return the legend's text, epsilons and line style of each distinct theorem."""
    forms = []
    for name, label, look in _CLOSED_FORMS:
        epsilon = np.array(curves[0].labels(name), float)  # None is NaN
        repeated = any(np.array_equal(epsilon, other) for _, other, _ in forms)
        if not np.isnan(epsilon).any() and not repeated:
            forms.append((label, epsilon, look))
    return forms


def _annotate_none_stopped(axes: Axes, curves: Sequence[Curve]) -> None:
    if not any(curve.stopped.any() for curve in curves):
        plotting.annotate_center(axes, "no trial stopped")


def _mark(label: str, marker: str, **look: Any) -> Line2D:
    return plotting.legend_line(label, color="0.3", marker=marker, **look)


def _partial_marks(tasks: Tasks) -> list[Line2D]:
    """Return a list with the legend's entry for empty markers, if there are any."""
    shown = any((curve.stopped < 1).any() for curves in tasks for curve in curves)
    label = "some trials did not stop (left out)"
    return [_mark(label, "o", **_HOLLOW)] if shown else []


def _draw_legend(figure: Figure, tasks: Tasks, marks: Sequence[Any]) -> None:
    """Draw a legend with the methods of `tasks` and the entries `marks`."""
    methods = {curve.method: curve for curves in tasks for curve in curves}.values()
    lines = [plotting.legend_line(curve.label, curve.style) for curve in methods]
    width = figure.get_figwidth()
    columns = 2 if width < 8 else 3 if width < 12 else 4
    note = {"title": "ε that has a δ: probabilistic", "title_fontsize": "small"}
    options = note if any("δ" in curve.label for curve in methods) else {}
    plotting.legend_below(figure, [*lines, *marks], columns, handlelength=3.4, **options)
