"""Figures of `whitehouse2022`: what a target loss costs, the loss at each epsilon, boundaries."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from nrjax.papers._drawing import means
from nrjax.papers._shared import grouped
from nrjax.study import drawing
from nrjax.study import figures as shared
from nrjax.study.drawing import EPSILON, STYLES, Style, epsilon_scale, powers_scale, short, words
from nrjax.study.layout import Case
from nrjax.study.results import Results

_BOUNDARIES = {
    "linear": LinearBoundary,
    "mixture": MixtureBoundary,
    "one-sided mixture (not in the paper)": OneSidedMixtureBoundary,
}


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """What draws the figures of a run, by name.

    The standard ones (`epsilon_distribution` is after Whitehouse 2022, figure 3);
    `loss_against_epsilon`, the mean loss with pointwise 95 % intervals of the mean, a panel per
    task, after figure 2; `ridge_constants`, the same for the paper's and the tight sensitivities;
    `boundaries`, the privacy boundaries, tight where the run's is, and their inverses, after
    figure 4.
    """
    found = {**shared.standard(results), "loss_against_epsilon": loss_against_epsilon}
    if any(_other_curve(case) is not None for case in results.cases.values()):
        found["ridge_constants"] = ridge_constants
    return {**found, "boundaries": boundaries}


class _Curve(NamedTuple):
    """A pass that measured the loss at each epsilon, and how to draw it."""

    case: Case
    name: str
    style: Style
    label: str
    hollow: bool = False
    """Whether its markers are."""


def loss_against_epsilon(results: Results) -> Figure:
    """Mean loss of stopping at each epsilon, with pointwise 95 % intervals of the mean."""
    styles = _styles(results)
    curves = []
    for case in results.cases.values():
        if "curve" in case.passes:  # one case of each mechanism: the test plays no part
            mechanism = case.attributes["mechanism"]
            curves.append(_Curve(case, "curve", styles[mechanism], words(mechanism)))
    return _losses(results, curves, 5.2, 5.0)


def ridge_constants(results: Results) -> Figure:
    """The same for ridge regression under both sets of constants: what the tight ones gain."""
    styles = _styles(results)
    curves = []
    for case in results.cases.values():
        mechanism, other = case.attributes["mechanism"], _other_curve(case)
        if other is None:
            continue
        own = case.attributes["constants"]
        for name, constants in (("curve", own), (other, other.removeprefix("curve_"))):
            style, tight = styles[mechanism], constants == "tight"
            style = style._replace(dash=(0, (1, 1))) if tight else style
            label = f"{words(mechanism)}, {constants}"
            curves.append(_Curve(case, name, style, label, hollow=tight))
    return _losses(results, curves, 6.4, 5.6)


def _styles(results: Results) -> dict[str, Style]:
    return drawing.mechanism_styles(case.attributes["mechanism"] for case in results.cases.values())


def _other_curve(case: Case) -> str | None:
    """The pass that measures the loss with the constants that the case does not use."""
    return next((name for name in case.passes if name.startswith("curve_")), None)


def _losses(results: Results, curves: Sequence[_Curve], width: float, height: float) -> Figure:
    """A panel for each task."""
    tasks = grouped([curve.case for curve in curves], "task")
    figure, panels = drawing.new_panels(width * len(tasks), 1, len(tasks), height=height)
    for axes, (task,) in zip(panels[0], tasks, strict=True):
        here = [curve for curve in curves if curve.case.attributes["task"] == task]
        _draw_losses(axes, results, here)
    return figure


def _draw_losses(axes: Axes, results: Results, curves: Sequence[_Curve]) -> None:
    """Curves of one task, with its target and optimum."""
    seen = np.concatenate([_draw_curve(axes, results, curve) for curve in curves])
    facts, look = curves[0].case.attributes, {"color": "0.35", "lw": 1, "zorder": 1}
    lines = [facts["target"], facts["optimum"]]
    names = (("target", (0, (8, 3))), ("optimum without privacy", (0, (2, 2))))
    for value, (label, dash) in zip(lines, names, strict=True):
        axes.axhline(value, linestyle=dash, label=f"{label}: {value:.4g}", **look)
    seen = seen[np.isfinite(seen)]
    if seen.size and seen.min() > 0 and seen.max() > 10 * seen.min():
        shown = np.append(seen, [line for line in lines if line > 0])
        epsilon_scale(axes, "y", (shown.min() / 1.2, shown.max() * 1.2))
    layouts = [curve.case.passes[curve.name] for curve in curves]
    levels = np.concatenate([layout.coordinates["epsilon"].values for layout in layouts])
    epsilon_scale(axes, "x", (levels.min() / 1.1, levels.max() * 1.1))
    axes.set(xlabel=EPSILON, ylabel="mean regularised loss")
    trials = " or ".join(drawing.unique(f"{layout.trials:,}" for layout in layouts))
    task = f"{words(facts['task'])} on {short(facts['data'])}"
    axes.set_title(f"{task}, {trials} trials", fontsize="medium")
    # Below: curves leave no corner free.
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}
    text = "mean and 95 % interval"
    if "curve_within" in facts:  # of each trial's loss
        text += f"; losses within {facts['curve_within']:.2g}"
    axes.legend(title=text, title_fontsize="small", fontsize="small", **place)


def _draw_curve(axes: Axes, results: Results, drawn: _Curve) -> np.ndarray:
    """Mean loss and the band of its interval; returns the means."""
    layout, style = drawn.case.passes[drawn.name], drawn.style
    epsilon = np.array(layout.coordinates["epsilon"].values)
    found = results.levels(drawn.case.name, "utility", drawn.name)
    # The loss is minus the utility.
    mean, high, low = -means(found)
    if layout.trials > 1:
        axes.fill_between(epsilon, low, high, color=style.line, alpha=0.3, linewidth=0, zorder=2)
    face, size = ("white", 4.5) if drawn.hollow else (style.line, 4)
    marks = {"marker": style.marker, "markerfacecolor": face, "markersize": size}
    look: Any = {"color": style.line, "linestyle": style.dash, "label": drawn.label, "zorder": 3}
    axes.plot(epsilon, mean, markevery=max(1, epsilon.size // 12), **look, **marks)
    return mean


@jax.jit  # one program: step by step it would be a hundred
def _curves(made: list[Any], epsilon: Array, ratios: Array) -> tuple[Array, list[Array]]:
    """Times at these ratios to the last of the times at which epsilon is reached; the epsilons."""
    # Of all curves the mixture boundary's is furthest above sqrt(t), and so the last to get there.
    mixture = next(one for one in made if type(one) is MixtureBoundary)
    times = ratios * mixture.time(epsilon)
    return times, [one.epsilon(times) for one in made]


def boundaries(results: Results) -> Figure:
    """Whitehouse 2022, figure 4, for l2-sensitivity 1.

    All are tight at the run's `tight_at` (0.5 in the paper), and at its delta. Left: ex-post
    epsilon of stopping at a time (noise variance). Right: the inverse, the variance that a level of
    epsilon needs.
    """
    settings = results.about["settings"]
    tight_at, delta = settings["tight_at"], settings["delta"]
    with jax.enable_x64(True):
        made = [kind.tight_at_epsilon(tight_at, 1.0, delta) for kind in _BOUNDARIES.values()]
        times, epsilons = jax.device_get(_curves(made, tight_at, np.geomspace(1 / 30, 30, 400)))
    figure, ((left, right),) = drawing.new_panels(10.4, 1, 2, height=4.4)
    for label, epsilon, style in zip(_BOUNDARIES, epsilons, STYLES, strict=False):
        look = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
        for axes, x, y in ((left, times, epsilon), (right, epsilon, times)):
            axes.plot(x, y, markersize=4, markevery=40, label=label, **look)
    limits, at = drawing.axis_limits(epsilons), {"color": "0.35", "lw": 1, "zorder": 1}
    powers_scale(left, "x")
    left.set(xlabel="time t: noise variance in units of the squared l2-sensitivity")
    left.set_ylabel(EPSILON)
    epsilon_scale(left, "y", limits)
    left.axhline(tight_at, linestyle=(0, (2, 2)), **at)
    left.set_title(f"boundaries, tight at ε = {tight_at:g}, δ = {delta:g}", fontsize="medium")
    powers_scale(right, "y")
    right.set(ylabel="noise variance needed (squared l2-sensitivity)")
    right.set_xlabel(EPSILON)
    epsilon_scale(right, "x", limits)
    right.axvline(tight_at, linestyle=(0, (2, 2)), **at)
    right.set_title("their inverses", fontsize="medium")
    for axes in (left, right):
        drawing.draw_grid(axes)
    left.legend(fontsize="small", title="probabilistic", title_fontsize="small")
    return figure
