"""Figures of `whitehouse2022`: what a target loss costs, and the loss at each epsilon."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.plots.boundaries import boundaries
from nrjax.plots.common import (
    EPSILON,
    Style,
    axis_limits,
    draw,
    draw_distribution,
    epsilon_scale,
    mean_interval,
    mechanism_styles,
    new_panels,
    unique,
    words,
)
from nrjax.studies.store import Case, Store
from nrjax.studies.summary import PERCENTS, quantile, total_epsilon


def plot_whitehouse(store: Store) -> list[Path]:
    """Draw what a finished run of `whitehouse2022` found, as PNG and SVG; returns the paths.

    `epsilon_distribution`: the ex-post epsilon of each mechanism, a panel per task (rows) and test
    (columns), after Whitehouse 2022, figure 3. `loss_against_epsilon`: the mean loss with
    pointwise 95 % intervals of the mean, a panel per task, after figure 2; drawn where a case has
    the pass "curve". `ridge_constants`: the same for the paper's and the tight sensitivities.
    `boundaries`: the privacy boundaries at the run's delta and their inverses, after figure 4.

    Raises:
        RuntimeError: the run is not finished.
        FileExistsError: a file in the way that nrjax has not written.
    """
    figures = {"epsilon_distribution": epsilon_distribution}
    if any("curve" in case.passes for case in store.cases.values()):
        figures["loss_against_epsilon"] = loss_against_epsilon
    if any(_other_curve(case) is not None for case in store.cases.values()):
        figures["ridge_constants"] = ridge_constants
    if "delta" in store.settings.get("settings", {}):
        figures["boundaries"] = boundaries
    return draw(store, figures)


def epsilon_distribution(store: Store) -> Figure:
    """Distributions of the ex-post epsilon over all trials; the share that did not stop is told."""
    cases = list(store.cases.values())
    styles = mechanism_styles(c.attributes["mechanism"] for c in cases)
    rows, columns = unique(map(_task, cases)), unique(c.attributes["test"] for c in cases)
    drawn = set()
    most = max(
        sum(_task(c) == row and c.attributes["test"] == column for c in cases)
        for row in rows
        for column in columns
    )
    width = max(5.0, len(columns) * (1.0 + 1.5 * most))
    figure, panels = new_panels(width, len(rows), len(columns))
    for axes_row, row in zip(panels, rows, strict=True):
        epsilons = {c.name: _epsilon(store, c) for c in cases if _task(c) == row}
        drawn |= {c.attributes["mechanism"] for c in cases if epsilons.get(c.name) is not None}
        limits = axis_limits(epsilon for epsilon in epsilons.values() if epsilon is not None)
        for axes, column in zip(axes_row, columns, strict=True):
            here = [c for c in cases if _task(c) == row and c.attributes["test"] == column]
            if not here:
                axes.set_axis_off()
                continue
            labels = [
                _draw_distribution(axes, position, case, epsilons[case.name], limits, styles)
                for position, case in enumerate(here)
            ]
            axes.set_xticks(range(len(here)), labels)
            axes.set_xlim(-0.6, len(here) - 0.4)
            epsilon_scale(axes, "y", limits)
            trials = " or ".join(unique(f"{c.passes['outcome'].trials:,}" for c in here))
            title = f"{_on(row)}\ntest: {words(column)}, {trials} trials"
            axes.set_title(title, fontsize="medium")
            if axes is axes_row[0]:
                axes.set_ylabel(EPSILON)
    shapes = [
        Patch(facecolor=s.face, edgecolor=s.line, hatch=s.hatch, label=f"{words(name)}, stopped")
        for name, s in styles.items()
        if name in drawn
    ]
    box = Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials")
    whiskers = Line2D([], [], color="black", label="5 % to 95 % of all trials (▲: to infinity)")
    figure.legend(
        handles=[*shapes, box, whiskers],
        loc="outside lower center",
        ncols=2 if width < 8 else 4,
        fontsize="small",
    )
    return figure


def loss_against_epsilon(store: Store) -> Figure:
    """Mean loss of stopping at each epsilon, with pointwise 95 % intervals of the mean."""
    cases = [case for case in store.cases.values() if "curve" in case.passes]
    styles = mechanism_styles(c.attributes["mechanism"] for c in store.cases.values())
    tasks = unique(map(_task, cases))
    figure, panels = new_panels(5.2 * len(tasks), 1, len(tasks), height=5.0)
    for axes, task in zip(panels[0], tasks, strict=True):
        here = [case for case in cases if _task(case) == task]
        # The curve does not depend on the test, so one case of each mechanism will do.
        mechanisms = {case.attributes["mechanism"]: case for case in reversed(here)}
        _draw_losses(
            axes,
            store,
            [
                _Curve(mechanisms[name], "curve", style, words(name))
                for name, style in styles.items()
                if name in mechanisms
            ],
        )
    return figure


def ridge_constants(store: Store) -> Figure:
    """The same for ridge regression under both sets of constants: what the tight ones gain."""
    cases = [case for case in store.cases.values() if _other_curve(case) is not None]
    styles = mechanism_styles(c.attributes["mechanism"] for c in store.cases.values())
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
                style = styles[mechanism]
                if constants == "tight":
                    style = style._replace(dash=(0, (1, 1)), marker="x")
                curves.append(_Curve(case, name, style, f"{words(mechanism)}, {constants}"))
        _draw_losses(axes, store, curves)
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


def _draw_losses(axes: Axes, store: Store, curves: Sequence[_Curve]) -> None:
    """Curves of one task, with its target and optimum."""
    seen = np.concatenate([_draw_curve(axes, store, curve) for curve in curves])
    case = curves[0].case
    for value, label, dash in (
        (case.attributes["target"], "target", (0, (8, 3))),
        (case.attributes["optimum"], "optimum without privacy", (0, (2, 2))),
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
        axes.set_yscale("log")
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


def _draw_distribution(
    axes: Axes,
    position: int,
    case: Case,
    epsilon: np.ndarray | None,
    limits: tuple[float, float],
    styles: dict[str, Style],
) -> str:
    """A histogram on its side with a box in it; returns the label below it."""
    mechanism = case.attributes["mechanism"]
    if epsilon is None:
        return f"{words(mechanism)}\nno guarantee:\nε not defined"
    marks = [quantile(epsilon, percent) for percent in PERCENTS]
    draw_distribution(axes, position, epsilon, np.geomspace(*limits, 61), marks, styles[mechanism])
    median = marks[2]
    amount = "∞" if np.isinf(median) else f"{median:.3g}"
    missing = 100 * float(np.mean(~np.isfinite(epsilon)))
    stopped = "all stopped" if missing == 0 else f"{missing:.3g} % did not stop"
    delta = case.attributes.get("delta")
    held = "" if delta is None else f"\nδ = {delta:g}"
    return f"{words(mechanism)}{held}\nmedian {amount}\n{stopped}"


def _draw_curve(axes: Axes, store: Store, drawn: _Curve) -> np.ndarray:
    """Mean loss and the band of its interval; returns the means."""
    curve, style = store.read(drawn.case.name, drawn.name), drawn.style
    loss = -curve["utility"].values
    epsilon, trials = curve["epsilon"].values, loss.shape[0]
    # Level by level: a million trials in double precision at once would be too much memory.
    mean, low, high = np.array([mean_interval(column) for column in loss.T]).T
    if trials > 1:
        axes.fill_between(epsilon, low, high, color=style.line, alpha=0.3, linewidth=0, zorder=2)
    axes.plot(
        epsilon,
        mean,
        color=style.line,
        linestyle=style.dash,
        marker=style.marker,
        markersize=4,
        markevery=max(1, epsilon.size // 12),
        label=drawn.label,
        zorder=3,
    )
    return mean


def _epsilon(store: Store, case: Case) -> np.ndarray | None:
    outcome = store.read(case.name, "outcome")
    return total_epsilon(outcome["epsilon"].values, outcome["status"].values)


def _task(case: Case) -> tuple[str, str]:
    return case.attributes["task"], case.attributes["data"]


def _on(task: tuple[str, str]) -> str:
    name = task[1] if len(task[1]) <= 24 else "…" + task[1][-23:]  # a user's own file
    return f"{words(task[0])} on {name}"
