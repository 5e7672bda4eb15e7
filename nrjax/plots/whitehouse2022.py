"""Figures of `whitehouse2022`: what a target loss costs, and the loss at each epsilon."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.plots.boundaries import boundaries
from nrjax.plots.common import (
    BAND,
    EPSILON,
    INTERVALS,
    Style,
    axis_limits,
    draw,
    draw_distribution,
    draw_function_axes,
    draw_steps,
    epsilon_scale,
    mean_with_ends,
    mechanism_styles,
    new_panels,
    say,
    unique,
    words,
)
from nrjax.studies.distribution import Distribution
from nrjax.studies.store import Case, Store
from nrjax.studies.variables import distribution_of, levels_of


def plot_whitehouse(store: Store) -> list[Path]:
    """Draw what a finished run of `whitehouse2022` found, as PNG and SVG; returns the paths.

    `epsilon_distribution`: the ex-post epsilon of each mechanism, a panel per task (rows) and test
    (columns), after Whitehouse 2022, figure 3. `epsilon_cdf`: the distribution functions of the
    same, with a band that holds all of each, 95 %. `loss_against_epsilon`: the mean loss with
    pointwise 95 % intervals of the mean, a panel per task, after figure 2; drawn where a case has
    the pass "curve". `ridge_constants`: the same for the paper's and the tight sensitivities.
    `boundaries`: the privacy boundaries, tight where the run's is, and their inverses, after
    figure 4.

    Raises:
        RuntimeError: the run is not finished.
        FileExistsError: a file in the way that nrjax has not written.
    """
    figures = {"epsilon_distribution": epsilon_distribution, "epsilon_cdf": epsilon_cdf}
    if any("curve" in case.passes for case in store.cases.values()):
        figures["loss_against_epsilon"] = loss_against_epsilon
    if any(_other_curve(case) is not None for case in store.cases.values()):
        figures["ridge_constants"] = ridge_constants
    if {"delta", "tight_at"} <= set(store.settings.get("settings", {})):
        figures["boundaries"] = boundaries
    return draw(store, figures)


def epsilon_distribution(store: Store) -> Figure:
    """Distributions of the ex-post epsilon over all trials; the share that did not stop is told."""
    cases = list(store.cases.values())
    styles = mechanism_styles(c.attributes["mechanism"] for c in cases)
    drawn, most = set(), max(len(panel.cases) for panel in _places(cases))
    width = max(5.5, len(unique(map(_test, cases))) * (1.0 + 1.5 * most))
    figure, panels = _task_panels(store, width)
    for axes, panel in panels:
        labels = []
        for position, case in enumerate(panel.cases):
            epsilon = panel.epsilons[case.name]
            if epsilon is not None:
                drawn.add(case.attributes["mechanism"])
                edges = np.geomspace(*panel.limits, 61)
                look = styles[case.attributes["mechanism"]]
                draw_distribution(axes, position, epsilon, edges, look)
            labels.append(_label(case, epsilon))
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlim(-0.6, len(labels) - 0.4)
        epsilon_scale(axes, "y", panel.limits)
        _say_if_none_stopped(axes, panel)
        axes.set_title(panel.title, fontsize="medium")
        if panel.first:
            axes.set_ylabel(EPSILON)
    shapes = [
        Patch(facecolor=s.face, edgecolor=s.line, hatch=s.hatch, label=f"{words(name)}, stopped")
        for name, s in styles.items()
        if name in drawn
    ]
    box = Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials")
    whiskers = Line2D([], [], color="black", label="5 % to 95 % of all trials (▲: to infinity)")
    figure.legend(
        handles=[*shapes, box, INTERVALS, whiskers],
        loc="outside lower center",
        ncols=2 if width < 8 else 3 if width < 12 else 5,
        fontsize="small",
    )
    return figure


def epsilon_cdf(store: Store) -> Figure:
    """Share of all trials that paid at most so much, with the 95 % band of the whole function."""
    cases = list(store.cases.values())
    styles = mechanism_styles(c.attributes["mechanism"] for c in cases)
    width = max(5.5, 0.6 + 4.0 * len(unique(map(_test, cases))))
    figure, panels = _task_panels(store, width)
    handles = {}
    for axes, panel in panels:
        epsilon_scale(axes, "x", panel.limits)
        for case in panel.cases:
            epsilon, name = panel.epsilons[case.name], case.attributes["mechanism"]
            if epsilon is not None:
                draw_steps(axes, epsilon, styles[name], words(name))
        handles |= {line.get_label(): line for line in axes.get_lines()}
        draw_function_axes(axes)
        _say_if_none_stopped(axes, panel)
        axes.set_xlabel(EPSILON)
        axes.set_title(panel.title, fontsize="medium")
        if panel.first:
            axes.set_ylabel("trials that paid at most ε (%)")
    figure.legend(
        handles=[*handles.values(), BAND], loc="outside lower center", ncols=3, fontsize="small"
    )
    return figure


class _Panel(NamedTuple):
    """A task under a test."""

    cases: list[Case]
    epsilons: dict[str, Distribution | None]
    """Of all cases of the task."""
    limits: tuple[float, float]
    """Of the axis of epsilons, for all panels of the task."""
    title: str
    first: bool
    """Whether it is the leftmost of its row."""


def _say_if_none_stopped(axes: Axes, panel: _Panel) -> None:
    found = [panel.epsilons[case.name] for case in panel.cases]
    if not any(one is None or one.finite for one in found):
        say(axes, "no trial stopped")


class _Place(NamedTuple):
    """Where a panel is, and what it shows."""

    row: tuple[str, str]
    column: str
    cases: list[Case]


def _places(cases: Sequence[Case]) -> list[_Place]:
    """A place for each task (rows) and test (columns), empty ones included."""
    return [
        _Place(row, column, [c for c in cases if (_task(c), _test(c)) == (row, column)])
        for row in unique(map(_task, cases))
        for column in unique(map(_test, cases))
    ]


def _task_panels(store: Store, width: float) -> tuple[Figure, Iterator[tuple[Axes, _Panel]]]:
    """A figure with a panel for each task and test, and what is to be drawn there."""
    cases = list(store.cases.values())
    places, columns = _places(cases), len(unique(map(_test, cases)))
    figure, grid = new_panels(width, len(places) // columns, columns)

    def panels() -> Iterator[tuple[Axes, _Panel]]:
        epsilons, limits = {}, (0.1, 10.0)
        for number, (axes, place) in enumerate(zip(grid.ravel(), places, strict=True)):
            if number % columns == 0:  # one task at a time is in memory
                names = [case.name for case in cases if _task(case) == place.row]
                epsilons = {name: distribution_of(store, name) for name in names}
                limits = axis_limits(one.points() for one in epsilons.values() if one is not None)
            if not place.cases:
                axes.set_axis_off()
                continue
            trials = " or ".join(unique(f"{c.passes['outcome'].trials:,}" for c in place.cases))
            title = f"{_on(place.row)}\ntest: {words(place.column)}, {trials} trials"
            yield axes, _Panel(place.cases, epsilons, limits, title, number % columns == 0)

    return figure, panels()


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
                style, tight = styles[mechanism], constants == "tight"
                style = style._replace(dash=(0, (1, 1))) if tight else style
                label = f"{words(mechanism)}, {constants}"
                curves.append(_Curve(case, name, style, label, hollow=tight))
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
    hollow: bool = False
    """Whether its markers are."""


def _draw_losses(axes: Axes, store: Store, curves: Sequence[_Curve]) -> None:
    """Curves of one task, with its target and optimum."""
    seen = np.concatenate([_draw_curve(axes, store, curve) for curve in curves])
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


def _label(case: Case, epsilon: Distribution | None) -> str:
    """What stands below a distribution."""
    mechanism = case.attributes["mechanism"]
    if epsilon is None:
        return f"{words(mechanism)}\nno guarantee:\nε not defined"
    median = epsilon.quantile(50)
    amount = "∞" if np.isinf(median) else f"{median:.3g}"
    missing = 100 * (1 - epsilon.finite)
    stopped = "all stopped" if epsilon.finite == 1 else f"{missing:.3g} % did not stop"
    delta = case.attributes.get("delta")
    held = "" if delta is None else f"\nδ = {delta:g}"
    return f"{words(mechanism)}{held}\nmedian {amount}\n{stopped}"


def _draw_curve(axes: Axes, store: Store, drawn: _Curve) -> np.ndarray:
    """Mean loss and the band of its interval; returns the means."""
    layout, style = drawn.case.passes[drawn.name], drawn.style
    epsilon = np.array(layout.coordinates["epsilon"].values)
    found = levels_of(store, drawn.case.name, "utility", name=drawn.name)
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


def _test(case: Case) -> str:
    return case.attributes["test"]


def _on(task: tuple[str, str]) -> str:
    name = task[1] if len(task[1]) <= 24 else "…" + task[1][-23:]  # a user's own file
    return f"{words(task[0])} on {name}"
