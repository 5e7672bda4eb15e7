"""The standard figures of a study: one function each, of results or of outcomes in memory.

Without `axes` a figure with a panel for each group of cases is made: by the labels `task` and
`data` (rows) and `test` (columns), where cases have these, else one panel. With `axes` the given
cases are drawn there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nrjax.study.distribution import Distribution
from nrjax.study.drawing import (
    BAND,
    EPSILON,
    INTERVALS,
    STYLES,
    Style,
    axis_limits,
    draw_distribution,
    draw_function_axes,
    draw_steps,
    epsilon_scale,
    fitting_edges,
    new_panels,
    say,
    unique,
    words,
)
from nrjax.study.results import Results

_POINTS = 4000
"""Trials that are drawn as points; more of them would be a blot."""

Draw = Callable[[Axes, Results, Sequence[str], Mapping[str, Style]], None]


def standard(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Those that these results have something to show in, by name."""
    found: dict[str, Callable[[Results], Figure]] = {}
    names = list(results)
    judged = [name for name in names if results.statuses(name) is not None]
    if any(results.distribution(name) is not None for name in judged):
        found |= {"epsilon_distribution": epsilon_distribution, "epsilon_cdf": epsilon_cdf}
        found["epsilon_split"] = epsilon_split
    if any(results.goal(name) is not None for name in judged):
        found["utility_at_stop"] = utility_at_stop
    if judged:
        found["releases"] = releases
    kept = [name for name in judged if results.keeps_trials(name)]
    if any(len(group.cases) > 1 for group in _groups(results, kept)):
        found["paired_differences"] = paired_differences
    if any(_has_loss(results, name) for name in kept):
        found["loss_against_stated"] = loss_against_stated
    if len(judged) < len(names):
        found["quantities"] = quantities
    return found


def epsilon_distribution(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """The stopping epsilon of each case: histogram, quartiles and their exact intervals."""
    return _drawn(_draw_epsilons, results, axes, cases, _BOXES)


def epsilon_cdf(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Share of all trials that paid at most so much, with the 95 % band of the whole function."""
    return _drawn(_draw_functions, results, axes, cases, [BAND])


def utility_at_stop(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """The utility of the trials that stopped, against the goal."""
    return _drawn(_draw_utilities, results, axes, cases, [BAND])


def releases(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """How many releases it took: share of the trials that ended within so many."""
    return _drawn(_draw_releases, results, axes, cases, [BAND])


def epsilon_split(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """What releases and test cost the trials that stopped, on average, one on the other."""
    parts = [Patch(facecolor="0.7", edgecolor="0.2", label="releases")]
    parts.append(Patch(facecolor="white", edgecolor="0.2", hatch="//", label="test"))
    return _drawn(_draw_split, results, axes, cases, parts)


def paired_differences(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Stopping epsilon of each case minus the first one's in its panel, trial by trial."""
    return _drawn(_draw_differences, results, axes, cases, [BAND])


def loss_against_stated(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Realised privacy loss of the releases against the epsilon that was stated for them."""
    return _drawn(_draw_losses, results, axes, cases, [])


def quantities(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Of sessions: the distribution function of each number that was kept, a panel each."""
    names = list(results) if cases is None else list(cases)
    scalars = {name: _scalars(results, name) for name in names if results.statuses(name) is None}
    kept = unique(quantity for some in scalars.values() for quantity in some)
    styles = _styles(results)
    if axes is None:
        figure, grid = new_panels(max(5.5, 4.2 * len(kept)), 1, len(kept))
        panels: list[Axes] = list(grid[0])
    else:
        figure, panels = axes.get_figure(root=True) or Figure(), [axes]
    for panel, quantity in zip(panels, kept, strict=False):
        here = [case for case, some in scalars.items() if quantity in some]
        _draw_laws(panel, _laws(results, here, quantity, styles))
        panel.set(xlabel=words(quantity), ylabel="trials at or below (%)")
        draw_function_axes(panel)
    if axes is None:
        _legend(figure, panels, [BAND])
    return figure


class _Group(NamedTuple):
    """Cases of one panel."""

    row: tuple[Any, ...]
    column: Any
    cases: list[str]


def _groups(results: Results, names: Sequence[str]) -> list[_Group]:
    """Row by row, empty panels included."""

    def row(name: str) -> tuple[Any, ...]:
        labels = results.cases[name].attributes
        return tuple(labels[key] for key in ("task", "data") if key in labels)

    def column(name: str) -> Any:
        return results.cases[name].attributes.get("test")

    return [
        _Group(one, other, [name for name in names if (row(name), column(name)) == (one, other)])
        for one in unique(map(row, names))
        for other in unique(map(column, names))
    ]


def _styles(results: Results) -> dict[str, Style]:
    """A look for each case: cases of one mechanism look alike."""
    kinds = {name: case.attributes.get("mechanism", name) for name, case in results.cases.items()}
    looks = {kind: STYLES[i % len(STYLES)] for i, kind in enumerate(unique(kinds.values()))}
    return {name: looks[kind] for name, kind in kinds.items()}


def _name(results: Results, case: str) -> str:
    """What a case is called in a panel: no more than tells it apart there."""
    return words(str(results.cases[case].attributes.get("mechanism", case)))


def _drawn(
    draw: Draw,
    results: Results,
    axes: Axes | None,
    cases: Sequence[str] | None,
    handles: Sequence[Any],
) -> Figure:
    """On the given axes; else a figure with a panel for each group of cases."""
    names = list(results) if cases is None else list(cases)
    names = [name for name in names if results.statuses(name) is not None]
    styles = _styles(results)
    if axes is not None:
        draw(axes, results, names, styles)
        return axes.get_figure(root=True) or Figure()
    groups = _groups(results, names)
    columns = len(unique(group.column for group in groups))
    most = max(len(group.cases) for group in groups)
    figure, grid = new_panels(
        max(5.5, columns * (1.2 + 1.5 * most)), len(groups) // columns, columns
    )
    for number, (panel, group) in enumerate(zip(grid.ravel(), groups, strict=True)):
        if not group.cases:
            panel.set_axis_off()
            continue
        draw(panel, results, group.cases, styles)
        panel.set_title(_title(results, group), fontsize="medium")
        if number % columns:
            panel.set_ylabel("")
    _legend(figure, list(grid.ravel()), handles)
    return figure


def _title(results: Results, group: _Group) -> str:
    parts = [words(str(one)) if len(str(one)) <= 24 else "…" + str(one)[-23:] for one in group.row]
    first = [" on ".join(parts)] if parts else []
    test = [] if group.column is None else [f"test: {words(group.column)}"]
    lines = [*first, ", ".join([*test, f"{results.trials:,} trials"])]
    return "\n".join(lines)


def _legend(figure: Figure, panels: Sequence[Axes], handles: Sequence[Any]) -> None:
    """What the panels show, each once, and what goes with it."""
    found: dict[str, Any] = {}
    for panel in panels:
        shapes, names = panel.get_legend_handles_labels()
        found |= dict(zip(names, shapes, strict=True))
    every = [*found.values(), *handles]
    if every:
        width = figure.get_figwidth()
        columns = 2 if width < 8 else 3 if width < 12 else 5
        figure.legend(
            handles=every,
            loc="outside lower center",
            ncols=min(columns, len(every)),
            fontsize="small",
        )


_BOXES = [
    Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials"),
    INTERVALS,
    Line2D([], [], color="black", label="5 % to 95 % of all trials (▲: to infinity)"),
]
"""What stands in a legend for the boxes of `draw_distribution`."""


def _limits(results: Results, case: str) -> tuple[float, float]:
    """Of the axis of epsilons: the same for all panels of a row."""
    rows = _groups(results, list(results))
    own = next(group.row for group in rows if case in group.cases)
    names = [name for group in rows if group.row == own for name in group.cases]
    laws = [results.distribution(name) for name in names if results.statuses(name) is not None]
    return axis_limits(law.points() for law in laws if law is not None)


def _draw_epsilons(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    limits, labels, some = _limits(results, cases[0]), [], False
    for position, name in enumerate(cases):
        law = results.distribution(name)
        if law is not None:
            some |= law.finite > 0
            label = f"{_name(results, name)}, stopped"
            draw_distribution(axes, position, law, fitting_edges(law, limits), styles[name], label)
        labels.append(_below(results, name, law))
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    epsilon_scale(axes, "y", limits)
    axes.set_ylabel(EPSILON)
    if not some:
        say(axes, "no trial stopped")


def _below(results: Results, case: str, law: Distribution | None) -> str:
    """What stands below a distribution."""
    name = _name(results, case)
    if law is None:
        return f"{name}\nno guarantee:\nε not defined"
    median = law.quantile(50)
    amount = "∞" if np.isinf(median) else f"{median:.3g}"
    missing = 100 * (1 - law.finite)
    stopped = "all stopped" if law.finite == 1 else f"{missing:.3g} % did not stop"
    delta = results.cases[case].attributes.get("delta")
    held = "" if delta is None else f"\nδ = {delta:g}"
    return f"{name}{held}\nmedian {amount}\n{stopped}"


def _draw_functions(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    epsilon_scale(axes, "x", _limits(results, cases[0]))
    some = False
    for name in cases:
        law = results.distribution(name)
        if law is not None:
            some |= law.finite > 0
            draw_steps(axes, law, styles[name], _name(results, name))
    draw_function_axes(axes)
    axes.set(xlabel=EPSILON, ylabel="trials that paid at most ε (%)")
    if not some:
        say(axes, "no trial stopped")


def _draw_laws(axes: Axes, laws: Sequence[tuple[Distribution | None, Style, str]]) -> None:
    """Distribution functions on a linear scale that has room for all of them; with their labels."""
    seen = [(law, style, name) for law, style, name in laws if law is not None]
    seen = [one for one in seen if one[0].points().size]
    if not seen:
        return
    points = np.concatenate([law.points()[[0, -1]] for law, _, _ in seen])
    low, high = float(points.min()), float(points.max())
    room = 0.03 * (high - low) or 0.5
    axes.set_xlim(low - room, high + room)
    for law, style, name in seen:
        draw_steps(axes, law, style, name)


def _laws(
    results: Results, cases: Sequence[str], quantity: str, styles: Mapping[str, Style]
) -> list[tuple[Distribution | None, Style, str]]:
    """Of a quantity, for `_draw_laws`."""
    return [
        (results.distribution(name, quantity), styles[name], _name(results, name)) for name in cases
    ]


def _draw_utilities(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    met, shown = [], []
    for name in cases:
        goal, shortfall = results.goal(name), results.distribution(name, "shortfall")
        if goal is None or shortfall is None or not shortfall.trials:
            continue
        shown.append(name)
        share = 100 * (1 - shortfall.fraction_above(0))
        met.append(f"{_name(results, name)}: {share:.3g} % of the stopped met it")
        axes.axvline(goal, color="0.35", lw=1, linestyle=(0, (8, 3)), zorder=1, label="goal")
    _draw_laws(axes, _laws(results, shown, "stopped_utility", styles))
    goals = [goal for name in shown if (goal := results.goal(name)) is not None]
    if goals:
        low, high = axes.get_xlim()
        room = 0.03 * (high - low)
        axes.set_xlim(min(low, min(goals) - room), max(high, max(goals) + room))
    draw_function_axes(axes)
    axes.set(xlabel="utility at the stop", ylabel="stopped trials at or below (%)")
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    text: Any = {"fontsize": "x-small", "ha": "right", "color": "0.2", "bbox": paper, "zorder": 5}
    axes.text(0.98, 0.03, "\n".join(met), transform=axes.transAxes, **text)


def _draw_releases(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    _draw_laws(axes, _laws(results, cases, "step", styles))
    draw_function_axes(axes)
    axes.set(xlabel="number of the last step, from 0", ylabel="trials that ended by then (%)")


def _draw_split(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    labels, highest = [], 0.0
    for position, name in enumerate(cases):
        parts = [
            results.distribution(name, f"stopped_{one}_epsilon") for one in ("mechanism", "test")
        ]
        labels.append(_name(results, name))
        if None in parts or not all(law is not None and law.trials for law in parts):
            continue
        releases, test = (law.mean if law is not None else np.nan for law in parts)
        highest = max(highest, releases + test)
        style = styles[name]
        look: Any = {"width": 0.6, "edgecolor": style.line}
        axes.bar(position, releases, color=style.face, **look)
        axes.bar(position, test, bottom=releases, color="white", hatch="//", **look)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    if highest:
        axes.set_ylim(0, 1.08 * highest)
    axes.set_ylabel("mean ε of the trials that stopped (nat)")
    axes.grid(True, axis="y", color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_differences(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    kept = [name for name in cases if results.keeps_trials(name)]
    kept = [name for name in kept if results.distribution(name) is not None]
    laws = []
    for name in kept[1:]:
        label = f"{_name(results, name)} minus {_name(results, kept[0])}"
        laws.append((results.compare(name, kept[0]).difference, styles[name], label))
    _draw_laws(axes, laws)
    if len(kept) < 2:
        say(axes, "nothing to compare")
    else:
        axes.axvline(0, color="0.35", lw=1, zorder=1)
    draw_function_axes(axes)
    axes.set(xlabel="difference of ε, by trial (nat)", ylabel="trials at or below (%)")


def _has_loss(results: Results, case: str) -> bool:
    loss = results.distribution(case, "privacy_loss")
    return loss is not None and loss.trials > 0 and results.distribution(case) is not None


def _draw_losses(
    axes: Axes, results: Results, cases: Sequence[str], styles: Mapping[str, Style]
) -> None:
    seen = []
    for name in cases:
        if not results.keeps_trials(name) or not _has_loss(results, name):
            continue
        stated, loss = (results.values(name, one) for one in ("mechanism_epsilon", "privacy_loss"))
        assert stated is not None
        assert loss is not None
        here = np.isfinite(stated) & np.isfinite(loss)
        stated, loss = stated[here][:_POINTS], loss[here][:_POINTS]
        seen.append(stated)
        style = styles[name]
        look: Any = {"linestyle": "none", "marker": style.marker, "color": style.line}
        axes.plot(stated, loss, markersize=2.5, alpha=0.5, label=_name(results, name), **look)
    if not any(one.size for one in seen):
        return say(axes, "no realised loss")
    most = max(one.max() for one in seen if one.size)
    axes.plot([0, most], [0, most], color="0.35", lw=1, label="loss = stated ε")
    axes.set(xlabel="stated ε of the releases (nat)", ylabel="realised loss (nat)")
    axes.grid(True, color="0.85", linewidth=0.6)


def _scalars(results: Results, case: str) -> list[str]:
    """Quantities of one number a trial."""
    if results.keeps_trials(case):
        return [str(name) for name, one in results[case].items() if one.ndim == 1]
    return [name for name, one in results.folds(case).items() if one.fold.dim is None]
