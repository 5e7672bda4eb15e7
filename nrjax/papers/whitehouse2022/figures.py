"""Figures of `whitehouse2022`: what a target loss costs, and the loss at each epsilon."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nrjax.papers.whitehouse2022.boundaries import boundaries
from nrjax.study import figures as shared
from nrjax.study.drawing import (
    EPSILON,
    Style,
    epsilon_scale,
    mean_with_ends,
    mechanism_styles,
    new_panels,
    unique,
    words,
)
from nrjax.study.layout import Case
from nrjax.study.results import Results


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


def loss_against_epsilon(results: Results) -> Figure:
    """Mean loss of stopping at each epsilon, with pointwise 95 % intervals of the mean."""
    cases = [case for case in results.cases.values() if "curve" in case.passes]
    styles = mechanism_styles(c.attributes["mechanism"] for c in results.cases.values())
    tasks = unique(map(_task, cases))
    figure, panels = new_panels(5.2 * len(tasks), 1, len(tasks), height=5.0)
    for axes, task in zip(panels[0], tasks, strict=True):
        here = [case for case in cases if _task(case) == task]
        # The curve does not depend on the test, so one case of each mechanism will do.
        mechanisms = {case.attributes["mechanism"]: case for case in reversed(here)}
        _draw_losses(
            axes,
            results,
            [
                _Curve(mechanisms[name], "curve", style, words(name))
                for name, style in styles.items()
                if name in mechanisms
            ],
        )
    return figure


def ridge_constants(results: Results) -> Figure:
    """The same for ridge regression under both sets of constants: what the tight ones gain."""
    cases = [case for case in results.cases.values() if _other_curve(case) is not None]
    styles = mechanism_styles(c.attributes["mechanism"] for c in results.cases.values())
    tasks = unique(map(_task, cases))
    figure, panels = new_panels(6.4 * len(tasks), 1, len(tasks), height=5.6)
    for axes, task in zip(panels[0], tasks, strict=True):
        curves = []
        for case in cases:
            if _task(case) != task:
                continue
            mechanism, other = case.attributes["mechanism"], _other_curve(case)
            assert other is not None
            for name, constants in (
                ("curve", case.attributes["constants"]),
                (other, other.removeprefix("curve_")),
            ):
                style, tight = styles[mechanism], constants == "tight"
                style = style._replace(dash=(0, (1, 1))) if tight else style
                label = f"{words(mechanism)}, {constants}"
                curves.append(_Curve(case, name, style, label, hollow=tight))
        _draw_losses(axes, results, curves)
    return figure


def _other_curve(case: Case) -> str | None:
    """The pass that measures the loss with the constants that the case does not use."""
    return next((name for name in case.passes if name.startswith("curve_")), None)


class _Curve(NamedTuple):
    """A pass that measured the loss at each epsilon, and how to draw it."""

    case: Case
    name: str
    style: Style
    label: str
    hollow: bool = False
    """Whether its markers are."""


def _draw_losses(axes: Axes, results: Results, curves: Sequence[_Curve]) -> None:
    """Curves of one task, with its target and optimum."""
    seen = np.concatenate([_draw_curve(axes, results, curve) for curve in curves])
    case = curves[0].case
    lines = [case.attributes[name] for name in ("target", "optimum")]
    for value, label, dash in zip(
        lines, ("target", "optimum without privacy"), ((0, (8, 3)), (0, (2, 2))), strict=True
    ):
        if value is not None:
            axes.axhline(
                value,
                color="0.35",
                linestyle=dash,
                lw=1,
                label=f"{label}: {value:.4g}",
                zorder=1,
            )
    seen = seen[np.isfinite(seen)]
    if seen.size and seen.min() > 0 and seen.max() > 10 * seen.min():
        shown = np.append(seen, [line for line in lines if line is not None and line > 0])
        epsilon_scale(axes, "y", (shown.min() / 1.2, shown.max() * 1.2))
    layouts = [curve.case.passes[curve.name] for curve in curves]
    epsilons = np.concatenate([layout.coordinates["epsilon"].values for layout in layouts])
    epsilon_scale(axes, "x", (epsilons.min() / 1.1, epsilons.max() * 1.1))
    axes.set_xlabel(EPSILON)
    axes.set_ylabel("mean regularised loss")
    trials = " or ".join(unique(f"{layout.trials:,}" for layout in layouts))
    axes.set_title(f"{_on(_task(case))}, {trials} trials", fontsize="medium")
    axes.legend(  # below: curves leave no corner free
        fontsize="small",
        title="mean and 95 % interval",
        title_fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=2,
    )


def _draw_curve(axes: Axes, results: Results, drawn: _Curve) -> np.ndarray:
    """Mean loss and the band of its interval; returns the means."""
    layout, style = drawn.case.passes[drawn.name], drawn.style
    epsilon = np.array(layout.coordinates["epsilon"].values)
    found = results.levels(drawn.case.name, "utility", drawn.name)
    # The loss is minus the utility.
    mean, high, low = -np.array([mean_with_ends(one) for one in found]).T
    if layout.trials > 1:
        axes.fill_between(epsilon, low, high, color=style.line, alpha=0.3, linewidth=0, zorder=2)
    axes.plot(
        epsilon,
        mean,
        color=style.line,
        linestyle=style.dash,
        marker=style.marker,
        markersize=4.5 if drawn.hollow else 4,
        markerfacecolor="white" if drawn.hollow else style.line,
        markevery=max(1, epsilon.size // 12),
        label=drawn.label,
        zorder=3,
    )
    return mean


def _task(case: Case) -> tuple[str, str]:
    return case.attributes["task"], case.attributes["data"]


def _on(task: tuple[str, str]) -> str:
    name = task[1] if len(task[1]) <= 24 else "…" + task[1][-23:]  # a user's own file
    return f"{words(task[0])} on {name}"
