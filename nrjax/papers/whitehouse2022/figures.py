"""Figures of `whitehouse2022`: cost of a target loss, loss by epsilon, and boundaries."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from nrjax.papers._claims import group_by
from nrjax.papers.whitehouse2022.settings import OBJECTIVE
from nrjax.study import figures as shared
from nrjax.study import plotting
from nrjax.study.formats import humanise
from nrjax.study.plotting import EPSILON, STYLES, Style, ellipsis, log_scale
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase

_BOUNDARIES = {
    "linear": LinearBoundary,
    "mixture": MixtureBoundary,
    "one-sided mixture (not in the paper)": OneSidedMixtureBoundary,
}


def figures(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Return the function that draws each figure, by name.

    Figures 2, 3 and 4 of Whitehouse 2022 are `loss_against_epsilon`, `epsilon_distribution` (one of
    the standard figures) and `boundaries`, which a study of your own table does not have.
    `ridge_constants` compares losses under the paper's sensitivities with losses under the tight
    ones.
    """
    drawn = {**shared.standard(results), "loss_against_epsilon": loss_against_epsilon}
    if any(_other_curve(case) is not None for case in results.cases.values()):
        drawn["ridge_constants"] = ridge_constants
    if "tight_at" in results.about["settings"]:
        drawn["boundaries"] = boundaries
    return drawn


class _Curve(NamedTuple):
    """A curve of the loss at each epsilon: a case's pass, with its style and label."""

    case: StoredCase
    name: str
    style: Style
    label: str
    hollow: bool = False


def loss_against_epsilon(results: Results) -> Figure:
    """Draw the mean loss of a model released at each epsilon, with 95 % intervals."""
    styles = _styles(results)
    drawn = []
    for case in results.cases.values():
        if "curve" in case.passes:  # only one case per mechanism, as tests share the curve
            mechanism = case.attributes["mechanism"]
            drawn.append(_Curve(case, "curve", styles[mechanism], humanise(mechanism)))
    for case in results.cases.values():
        if OBJECTIVE in case.passes:
            drawn.append(_Curve(case, OBJECTIVE, styles[OBJECTIVE], "objective, one release", True))
    return _losses(results, drawn, 5.2, 5.0)


def ridge_constants(results: Results) -> Figure:
    """Draw the mean loss of ridge regression under the paper's and the tight sensitivities."""
    styles = _styles(results)
    drawn = []
    for case in results.cases.values():
        mechanism, other = case.attributes["mechanism"], _other_curve(case)
        if other is None:
            continue
        passes = {"curve": case.attributes["constants"], other: other.removeprefix("curve_")}
        for name, constants in passes.items():
            style, tight = styles[mechanism], constants == "tight"
            style = style._replace(dash=(0, (1, 1))) if tight else style
            drawn.append(_Curve(case, name, style, f"{humanise(mechanism)}, {constants}", tight))
    return _losses(results, drawn, 6.4, 5.6)


def _styles(results: Results) -> dict[str, Style]:
    names = [case.attributes["mechanism"] for case in results.cases.values()]
    return plotting.mechanism_styles([*names, OBJECTIVE])


def _other_curve(case: StoredCase) -> str | None:
    """Return the name of the pass with the constants that the case does not use, or None."""
    return next((name for name in case.passes if name.startswith("curve_")), None)


def _losses(results: Results, drawn: Sequence[_Curve], width: float, height: float) -> Figure:
    """Return a figure with a panel of curves per task."""
    tasks = group_by([curve.case for curve in drawn], "task")
    figure, panels = plotting.new_panels(width * len(tasks), 1, len(tasks), height=height)
    for axes, (task,) in zip(panels[0], tasks, strict=True):
        of_task = [curve for curve in drawn if curve.case.attributes["task"] == task]
        _draw_losses(axes, results, of_task)
    return figure


def _draw_losses(axes: Axes, results: Results, drawn: Sequence[_Curve]) -> None:
    """Draw the curves of one task, with lines at its target and optimum."""
    passes = [curve.case.passes[curve.name] for curve in drawn]
    levels = [np.array(each.coordinates["epsilon"].values) for each in passes]
    every = np.concatenate(levels)
    log_scale(axes, "x", (every.min() / 1.1, every.max() * 1.1))
    losses = []
    for rank, (curve, epsilon) in enumerate(zip(drawn, levels, strict=True)):
        utilities = results.levels(curve.case.name, "utility", curve.name)
        loss = -plotting.mean_curve(utilities)[[0, 2, 1]]  # the loss is minus the utility
        plotting.draw_curve(axes, epsilon, loss, curve.style, rank, curve.hollow)
        fill = {"markerfacecolor": "white"} if curve.hollow else {}
        axes.add_line(plotting.legend_line(curve.label, curve.style, **fill))
        losses.append(loss[0])
    facts, look = drawn[0].case.attributes, {"color": "0.35", "lw": 1, "zorder": 1}
    lines = {"target": (0, (8, 3)), "optimum": (0, (2, 2))}
    for name, dash in lines.items():
        label = f"{'optimum without privacy' if name == 'optimum' else name}: {facts[name]:.4g}"
        axes.axhline(facts[name], linestyle=dash, label=label, **look)
    shown = np.concatenate(losses)
    shown = shown[np.isfinite(shown)]
    if shown.size and shown.min() > 0 and shown.max() > 10 * shown.min():
        shown = np.append(shown, [facts[name] for name in lines if facts[name] > 0])
        log_scale(axes, "y", (shown.min() / 1.2, shown.max() * 1.2))
    axes.set(xlabel=EPSILON, ylabel="mean regularised loss")
    trials = " or ".join(plotting.unique(f"{each.trials:,}" for each in passes))
    task = f"{humanise(facts['task'])} on {ellipsis(facts['data'])}"
    axes.set_title(f"{task}, {trials} trials", fontsize="medium")
    # The legend is below the panel, as curves leave no corner free.
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}
    text = "mean and 95 % interval"
    if "curve_within" in facts:  # a bound on the error of each trial's loss
        text += f"; losses within {facts['curve_within']:.2g}"
    axes.legend(title=text, title_fontsize="small", fontsize="small", **place)


@jax.jit  # one compiled program instead of a hundred
def _evaluate(drawn: list[Any], epsilon: Array, ratios: Array) -> tuple[Array, list[Array]]:
    """Return times around a boundary's crossing of `epsilon`, and all boundaries' epsilons."""
    # The mixture boundary is furthest above sqrt(t), so it is the last to reach `epsilon`.
    mixture = next(boundary for boundary in drawn if type(boundary) is MixtureBoundary)
    times = ratios * mixture.time(epsilon)
    return times, [boundary.epsilon(times) for boundary in drawn]


def boundaries(results: Results) -> Figure:
    """Draw the privacy boundaries for l2-sensitivity 1 (Whitehouse 2022, figure 4).

    All boundaries have the run's delta and are tight at the run's `tight_at` (0.5 in the paper).
    The left panel shows the ex-post epsilon of stopping at a time (noise variance). The right panel
    shows the inverse: the noise variance that an epsilon needs.
    """
    settings = results.about["settings"]
    tight_at, delta = settings["tight_at"], settings["delta"]
    with jax.enable_x64(True):
        drawn = [kind.tight_at_epsilon(tight_at, 1.0, delta) for kind in _BOUNDARIES.values()]
        times, epsilons = jax.device_get(_evaluate(drawn, tight_at, np.geomspace(1 / 30, 30, 400)))
    figure, ((left, right),) = plotting.new_panels(10.4, 1, 2, height=4.4)
    for label, epsilon, style in zip(_BOUNDARIES, epsilons, STYLES, strict=False):
        look = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
        for axes, x, y in ((left, times, epsilon), (right, epsilon, times)):
            axes.plot(x, y, markersize=4, markevery=40, label=label, **look)
    limits, at = plotting.axis_limits(epsilons), {"color": "0.35", "lw": 1, "zorder": 1}
    log_scale(left, "x")
    left.set(xlabel="time t: noise variance in units of the squared l2-sensitivity")
    left.set_ylabel(EPSILON)
    log_scale(left, "y", limits)
    left.axhline(tight_at, linestyle=(0, (2, 2)), **at)
    left.set_title(f"boundaries, tight at ε = {tight_at:g}, δ = {delta:g}", fontsize="medium")
    log_scale(right, "y")
    right.set(ylabel="noise variance needed (squared l2-sensitivity)")
    right.set_xlabel(EPSILON)
    log_scale(right, "x", limits)
    right.axvline(tight_at, linestyle=(0, (2, 2)), **at)
    right.set_title("their inverses", fontsize="medium")
    for axes in (left, right):
        plotting.draw_grid(axes)
    left.legend(fontsize="small", title="probabilistic", title_fontsize="small")
    return figure
