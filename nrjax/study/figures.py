"""The standard figures of a study: one function each, of results or of outcomes in memory.

Without `axes` a figure with a panel for each group of cases is made: by the labels `task` and
`data` (rows) and `test` (columns), where cases have these, else one panel. With `axes` the given
cases are drawn there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Style,
    axis_limits,
    draw_distribution,
    draw_function_axes,
    draw_grid,
    draw_steps,
    epsilon_scale,
    fitting_edges,
    mechanism_styles,
    name_positions,
    new_panels,
    say,
    unique,
    words,
)
from nrjax.study.results import Results

_POINTS = 4000
"""Trials that are drawn as points; more of them would be a blot."""

_BOXES = (
    Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials"),
    INTERVALS,
    Line2D([], [], color="black", label="5 % to 95 % of all trials (▲: to infinity)"),
)
"""What stands in a legend for the boxes of `draw_distribution`."""

_PARTS = (
    Patch(facecolor="0.7", edgecolor="0.2", label="releases"),
    Patch(facecolor="white", edgecolor="0.2", hatch="//", label="test"),
)


Draw = Callable[..., Figure]
"""A figure of `results`, and `axes` and `cases`, or all of them."""


def standard(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Those that these results have something to show in, by name."""
    judged = [name for name in results if results.statuses(name) is not None]
    kept = [name for name in judged if results.keeps_trials(name)]
    paid = any(results.distribution(name) is not None for name in judged)
    goals = any(results.goal(name) is not None for name in judged)
    pairs = any(len(group.cases) > 1 for group in _groups(results, kept))
    losses = any(_has_loss(results, name) for name in kept)
    shown: dict[str, tuple[Draw, bool]] = {
        "epsilon_distribution": (epsilon_distribution, paid),
        "epsilon_cdf": (epsilon_cdf, paid),
        "epsilon_split": (epsilon_split, paid),
        "utility_at_stop": (utility_at_stop, goals),
        "releases": (releases, len(judged) > 0),
        "paired_differences": (paired_differences, pairs),
        "loss_against_stated": (loss_against_stated, losses),
        "quantities": (quantities, len(judged) < len(results)),
    }
    return {name: draw for name, (draw, some) in shown.items() if some}


class _Group(NamedTuple):
    """Cases of one panel."""

    row: tuple[Any, ...]
    column: Any
    cases: list[str]


def _groups(results: Results, names: Sequence[str]) -> list[_Group]:
    """Row by row, empty panels included."""
    labels = {name: results.cases[name].attributes for name in names}
    rows = {
        name: tuple(of[key] for key in ("task", "data") if key in of) for name, of in labels.items()
    }
    columns = {name: of.get("test") for name, of in labels.items()}
    return [
        _Group(
            row, column, [name for name in names if (rows[name], columns[name]) == (row, column)]
        )
        for row in unique(rows.values())
        for column in unique(columns.values())
    ]


def _by_group(*handles: Any) -> Callable[[Callable[[Axes, Results, Sequence[str]], None]], Draw]:
    """Makes a figure of what draws one panel; `handles` stand in its legend, too."""

    def figure_of(draw: Callable[[Axes, Results, Sequence[str]], None]) -> Draw:
        def drawn(
            results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
        ) -> Figure:
            names = results if cases is None else cases
            names = [name for name in names if results.statuses(name) is not None]
            if axes is not None:
                draw(axes, results, names)
                return axes.get_figure(root=True) or Figure()
            groups = _groups(results, names)
            columns = len(unique(group.column for group in groups))
            width = columns * (1.2 + 1.5 * max(len(group.cases) for group in groups))
            figure, grid = new_panels(max(5.5, width), len(groups) // columns, columns)
            for number, (panel, group) in enumerate(zip(grid.ravel(), groups, strict=True)):
                if not group.cases:
                    panel.set_axis_off()
                    continue
                draw(panel, results, group.cases)
                panel.set_title(_title(results, group), fontsize="medium")
                if number % columns:
                    panel.set_ylabel("")
            _legend(figure, grid.ravel(), handles)
            return figure

        drawn.__doc__ = draw.__doc__
        return drawn

    return figure_of


def _title(results: Results, group: _Group) -> str:
    parts = [words(str(one)) if len(str(one)) <= 24 else "…" + str(one)[-23:] for one in group.row]
    first = [" on ".join(parts)] if parts else []
    test = [] if group.column is None else [f"test: {words(group.column)}"]
    return "\n".join([*first, ", ".join([*test, f"{results.trials:,} trials"])])


def _legend(figure: Figure, panels: Iterable[Axes], handles: Iterable[Any]) -> None:
    """What the panels show, each once, and what goes with it."""
    found: dict[str, Any] = {}
    for panel in panels:
        shapes, names = panel.get_legend_handles_labels()
        found |= dict(zip(names, shapes, strict=True))
    every = [*found.values(), *handles]
    if every:
        width = figure.get_figwidth()
        columns = min(2 if width < 8 else 3 if width < 12 else 5, len(every))
        figure.legend(handles=every, loc="outside lower center", ncols=columns, fontsize="small")


def _kind(results: Results, case: str) -> Any:
    return results.cases[case].attributes.get("mechanism", case)


def _style(results: Results, case: str) -> Style:
    """Cases of one mechanism look alike."""
    return mechanism_styles(_kind(results, one) for one in results)[_kind(results, case)]


def _name(results: Results, case: str) -> str:
    """What a case is called in a panel: no more than tells it apart there."""
    return words(str(_kind(results, case)))


def _limits(results: Results, case: str) -> tuple[float, float]:
    """Of the axis of epsilons: the same for all panels of a row."""
    rows = _groups(results, list(results))
    own = next(group.row for group in rows if case in group.cases)
    names = [name for group in rows if group.row == own for name in group.cases]
    laws = [results.distribution(name) for name in names if results.statuses(name) is not None]
    return axis_limits(law.points() for law in laws if law is not None)


@_by_group(*_BOXES)
def epsilon_distribution(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """The stopping epsilon of each case: histogram, quartiles and their exact intervals."""
    limits, labels, some = _limits(results, cases[0]), [], False
    for position, name in enumerate(cases):
        law, style = results.distribution(name), _style(results, name)
        if law is not None:
            some |= law.finite > 0
            label = f"{_name(results, name)}, stopped"
            draw_distribution(axes, position, law, fitting_edges(law, limits), style, label)
        labels.append(_below(results, name, law))
    name_positions(axes, labels)
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
    stopped = "all stopped" if law.finite == 1 else f"{100 * (1 - law.finite):.3g} % did not stop"
    delta = results.cases[case].attributes.get("delta")
    held = "" if delta is None else f"\nδ = {delta:g}"
    return f"{name}{held}\nmedian {amount}\n{stopped}"


@_by_group(BAND)
def epsilon_cdf(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Share of all trials that paid at most so much, with the 95 % band of the whole function."""
    epsilon_scale(axes, "x", _limits(results, cases[0]))
    laws = {name: law for name in cases if (law := results.distribution(name)) is not None}
    for name, law in laws.items():
        draw_steps(axes, law, _style(results, name), _name(results, name))
    draw_function_axes(axes, xlabel=EPSILON, ylabel="trials that paid at most ε (%)")
    if not any(law.finite > 0 for law in laws.values()):
        say(axes, "no trial stopped")


def _draw_laws(
    axes: Axes, results: Results, laws: Mapping[str, Distribution | None], suffix: str = ""
) -> None:
    """Distribution functions by case, on a linear scale that has room for all of them."""
    seen = {name: law for name, law in laws.items() if law is not None and law.points().size}
    if seen:
        ends = np.concatenate([law.points()[[0, -1]] for law in seen.values()])
        low, high = float(ends.min()), float(ends.max())
        room = 0.03 * (high - low) or 0.5
        axes.set_xlim(low - room, high + room)
    for name, law in seen.items():
        draw_steps(axes, law, _style(results, name), _name(results, name) + suffix)


@_by_group(BAND)
def utility_at_stop(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """The utility of the trials that stopped, against the goal."""
    met, goals = [], {}
    for name in cases:
        goal = results.goal(name)
        shortfall = None if goal is None else results.law(name, "shortfall")
        if goal is not None and shortfall is not None and shortfall.trials:
            goals[name], share = goal, 100 * (1 - shortfall.fraction_above(0))
            met.append(f"{_name(results, name)}: {share:.3g} % of the stopped met it")
            axes.axvline(goal, color="0.35", lw=1, linestyle=(0, (8, 3)), zorder=1, label="goal")
    _draw_laws(axes, results, {name: results.law(name, "stopped_utility") for name in goals})
    if goals:
        low, high = axes.get_xlim()
        room = 0.03 * (high - low)
        ends = min(goals.values()) - room, max(goals.values()) + room
        axes.set_xlim(min(low, ends[0]), max(high, ends[1]))
    draw_function_axes(axes, xlabel="utility at the stop", ylabel="stopped trials at or below (%)")
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    text: Any = {"fontsize": "x-small", "ha": "right", "color": "0.2", "bbox": paper, "zorder": 5}
    axes.text(0.98, 0.03, "\n".join(met), transform=axes.transAxes, **text)


@_by_group(BAND)
def releases(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """How many releases it took: share of the trials that ended within so many."""
    _draw_laws(axes, results, {name: results.law(name, "step") for name in cases})
    labels = {
        "xlabel": "number of the last step, from 0",
        "ylabel": "trials that ended by then (%)",
    }
    draw_function_axes(axes, **labels)


@_by_group(*_PARTS)
def epsilon_split(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """What releases and test cost the trials that stopped, on average, one on the other."""
    highest = 0.0
    for position, name in enumerate(cases):
        laws = [
            results.distribution(name, f"stopped_{one}_epsilon") for one in ("mechanism", "test")
        ]
        means = [law.mean for law in laws if law is not None and law.trials]
        if len(means) == 2:
            highest, style = max(highest, sum(means)), _style(results, name)
            look: Any = {"width": 0.6, "edgecolor": style.line}
            axes.bar(position, means[0], color=style.face, **look)
            axes.bar(position, means[1], bottom=means[0], color="white", hatch="//", **look)
    name_positions(axes, [_name(results, name) for name in cases])
    if highest:
        axes.set_ylim(0, 1.08 * highest)
    axes.set_ylabel("mean ε of the trials that stopped (nat)")
    draw_grid(axes, "y")


@_by_group(BAND)
def paired_differences(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Stopping epsilon of each case minus the first one's in its panel, trial by trial."""
    kept = [name for name in cases if results.keeps_trials(name)]
    kept = [name for name in kept if results.distribution(name) is not None]
    apart = {name: results.compare(name, kept[0]).difference for name in kept[1:]}
    if apart:
        _draw_laws(axes, results, apart, f" minus {_name(results, kept[0])}")
        axes.axvline(0, color="0.35", lw=1, zorder=1)
    else:
        say(axes, "nothing to compare")
    difference = "difference of ε, by trial (nat)"
    draw_function_axes(axes, xlabel=difference, ylabel="trials at or below (%)")


def _has_loss(results: Results, case: str) -> bool:
    loss = results.distribution(case, "privacy_loss")
    return loss is not None and loss.trials > 0 and results.distribution(case) is not None


@_by_group()
def loss_against_stated(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Realised privacy loss of the releases against the epsilon that was stated for them."""
    most = -np.inf
    for name in cases:
        if not results.keeps_trials(name) or not _has_loss(results, name):
            continue
        both = [results.values(name, one) for one in ("mechanism_epsilon", "privacy_loss")]
        pairs = np.stack([one for one in both if one is not None])
        pairs = pairs[:, np.isfinite(pairs).all(axis=0)][:, :_POINTS]
        most, style = pairs[0].max(initial=most), _style(results, name)
        look: Any = {"linestyle": "none", "marker": style.marker, "color": style.line}
        axes.plot(*pairs, markersize=2.5, alpha=0.5, label=_name(results, name), **look)
    if most == -np.inf:
        return say(axes, "no realised loss")
    axes.plot([0, most], [0, most], color="0.35", lw=1, label="loss = stated ε")
    axes.set(xlabel="stated ε of the releases (nat)", ylabel="realised loss (nat)")
    draw_grid(axes)


def quantities(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Of sessions: the distribution function of each number that was kept, a panel each."""
    names = results if cases is None else cases
    scalars = {name: _scalars(results, name) for name in names if results.statuses(name) is None}
    kept = unique(quantity for some in scalars.values() for quantity in some)
    if axes is None:
        figure, grid = new_panels(max(5.5, 4.2 * len(kept)), 1, len(kept))
        panels: list[Axes] = list(grid[0])
    else:
        figure, panels = axes.get_figure(root=True) or Figure(), [axes]
    for panel, quantity in zip(panels, kept, strict=False):
        here = [case for case, some in scalars.items() if quantity in some]
        _draw_laws(panel, results, {name: results.law(name, quantity) for name in here})
        draw_function_axes(panel, xlabel=words(quantity), ylabel="trials at or below (%)")
    if axes is None:
        _legend(figure, panels, [BAND])
    return figure


def _scalars(results: Results, case: str) -> list[str]:
    """Quantities of one number a trial."""
    if results.keeps_trials(case):
        return [str(name) for name, one in results[case].items() if one.ndim == 1]
    return [name for name, one in results.folds(case).items() if one.fold.dim is None]
