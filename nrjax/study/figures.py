"""The standard figures of a study: one function each, of results or of outcomes in memory.

Without `axes` a figure with a panel for each group of cases is made: by the labels `task` and
`data` (rows) and `test` (columns), where cases have these, else one panel. With `axes` the given
cases are drawn there.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from nrjax.study import drawing
from nrjax.study.report import AT_FIRST_STEP
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution

_POINTS = 4000
"""Trials that are drawn as points; more of them would be a blot."""

_TOLD = (50, 90, 95)
"""Per cent of the trials for which an epsilon is written."""

_BOXES = (
    Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials"),
    drawing.INTERVALS,
    drawing.WHISKERS,
)
"""What stands in a legend for the boxes of `draw_distribution`."""

_PARTS = (
    Patch(facecolor="0.7", edgecolor="0.2", label="releases"),
    Patch(facecolor="white", edgecolor="0.2", hatch="//", label="test"),
)


def standard(results: Results) -> dict[str, Callable[[Results], Figure]]:
    """Those that these results have something to show in, by name."""
    judged = [name for name in results if results.statuses(name) is not None]
    kept = [name for name in judged if results.keeps_trials(name)]
    paid = any(results.distribution(name) is not None for name in judged)
    goals = any(results.goal(name) is not None for name in judged)
    pairs = any(len(cases) > 1 for cases in _groups(results, kept).values())
    losses = any(_has_loss(results, name) for name in kept)
    shown = {
        "epsilon_distribution": (epsilon_distribution, paid),
        "epsilon_cdf": (epsilon_cdf, paid),
        "epsilon_split": (epsilon_split, paid),
        "utility_at_stop": (utility_at_stop, goals),
        "last_step": (last_step, len(judged) > 0),
        "paired_differences": (paired_differences, pairs),
        "loss_against_stated": (loss_against_stated, losses),
        "quantities": (quantities, len(judged) < len(results)),
    }
    return {name: draw for name, (draw, some) in shown.items() if some}


_ROWS = {"task": "{}", "data": "on {}", "neighbour": "({})"}
"""Labels that have rows of panels of their own, and how a title says them."""
_UNDEFINED = "\nno guarantee:\nε not defined"


def _groups(results: Results, names: Iterable[str]) -> dict[tuple[Any, Any], list[str]]:
    """Cases of each panel by row and column, row by row; some may be empty."""
    places = {}
    for name in names:
        labels = results.cases[name].attributes
        row = tuple((key, labels[key]) for key in _ROWS if key in labels)
        places[name] = row, labels.get("test")
    sides = (drawing.unique(place[i] for place in places.values()) for i in (0, 1))
    grid = itertools.product(*sides)
    return {key: [name for name, place in places.items() if place == key] for key in grid}


def _by_group(*handles: Any) -> Callable[[Callable[..., None]], Callable[..., Figure]]:
    """Makes a figure of what draws one panel; `handles` stand in its legend, too."""

    def figure_of(draw: Callable[..., None]) -> Callable[..., Figure]:
        def drawn(
            results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
        ) -> Figure:
            names = results if cases is None else cases
            names = [name for name in names if results.statuses(name) is not None]
            if axes is not None:
                draw(axes, results, names)
                return axes.get_figure(root=True) or Figure()
            groups = _groups(results, names)
            columns = len(drawing.unique(column for _, column in groups))
            width = columns * (1.2 + 1.5 * max(map(len, groups.values())))
            figure, grid = drawing.new_panels(max(5.5, width), len(groups) // columns, columns)
            for number, (panel, place) in enumerate(zip(grid.ravel(), groups, strict=True)):
                if not groups[place]:
                    panel.set_axis_off()
                    continue
                draw(panel, results, groups[place])
                panel.set_title(_title(results, *place), fontsize="medium")
                if number % columns:
                    panel.set_ylabel("")
            _legend(figure, grid.ravel(), handles)
            lines = max(drawing.lines_below(panel) for panel in grid.ravel())
            figure.set_figheight(len(grid) * (3.8 + 0.18 * max(0, lines - 3)))
            return figure

        drawn.__doc__ = draw.__doc__
        return drawn

    return figure_of


def _title(results: Results, row: tuple[tuple[str, Any], ...], test: str | None) -> str:
    parts = []
    for key, label in row:  # the name of a file as it is
        name = drawing.short(str(label))
        parts.append(_ROWS[key].format(name if key == "data" else drawing.words(name)))
    study = drawing.short(results.about.get("study", ""))
    first = " ".join(parts).removeprefix("on ") or study
    second = [] if test is None else [f"test: {drawing.words(test)}"]
    return "\n".join([first, ", ".join([*second, f"{results.trials:,} trials"])]).lstrip()


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


def _look(results: Results, case: str) -> tuple[drawing.Style, str]:
    """Style and name of a case in a panel: those of its mechanism, where it has one.

    A hockey-stick epsilon is called that everywhere, for it says another thing of losses.
    """
    kinds = {
        one: str(about.attributes.get("mechanism", one)) for one, about in results.cases.items()
    }
    other = results.cases[case].attributes.get("notion") == "hockey-stick"
    name = drawing.words(kinds[case]) + (" (hockey-stick)" if other else "")
    return drawing.mechanism_styles(kinds.values())[kinds[case]], name


def _limits(results: Results, case: str) -> tuple[float, float]:
    """Of the axis of epsilons: the same for all panels of a row."""
    groups = _groups(results, results)
    own = next(row for (row, _), cases in groups.items() if case in cases)
    names = [name for (row, _), cases in groups.items() if row == own for name in cases]
    laws = [results.distribution(name) for name in names if results.statuses(name) is not None]
    return drawing.axis_limits(law.points() for law in laws if law is not None)


def _draw_laws(
    axes: Axes,
    results: Results,
    laws: Mapping[str, Distribution | None],
    suffix: str = "",
    marks: Iterable[float] = (),
) -> str:
    """Draw distribution functions by case on a linear scale, and return what its label must add."""
    seen = {name: law for name, law in laws.items() if law is not None and law.points().size}
    if not seen:
        return ""
    outside = drawing.linear_scale(axes, list(seen.values()), marks)
    for case, law in seen.items():
        style, name = _look(results, case)
        drawing.draw_steps(axes, law, style, name + suffix)
    return f"\n(not shown: up to {100 * outside:.2g} % of a case's trials)" if outside else ""


@_by_group(*_BOXES)
def epsilon_distribution(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """The stopping epsilon of each case: histogram, quartiles and their exact intervals."""
    limits, labels, some = _limits(results, cases[0]), [], False
    for position, case in enumerate(cases):
        law, (style, name) = results.distribution(case), _look(results, case)
        if law is None:
            labels.append(name + _UNDEFINED)
            continue
        some |= law.finite > 0
        edges = drawing.fitting_edges(law, limits)
        drawing.draw_distribution(axes, position, law, edges, style, f"{name}, stopped")
        facts = results.cases[case].attributes
        held = "" if facts.get("delta") is None else f"\nδ = {facts['delta']:g}"
        if held and facts.get("notion") not in (None, "hockey-stick"):  # which the name says
            held += f"\n{facts['notion']}"
        amounts = [f"{percent} %: {law.quantile(percent / 100):.3g}" for percent in _TOLD]
        told = "\n".join(amounts).replace("50 %:", "median").replace("inf", "∞")
        missed = (
            "all stopped" if law.finite == 1 else f"{100 * (1 - law.finite):.3g} % did not stop"
        )
        first = law.finite * (1 - results.law(case, "stopped_step").fraction_above(0))
        if first >= AT_FIRST_STEP:
            level, look = law.points()[0], {"color": "black", "linestyle": ":", "lw": 1.5}
            ends = position - 0.48, position + 0.48
            axes.hlines(level, *ends, label="first level, where 5 % or more stopped", **look)
            missed += f"\nfirst level: {100 * first:.3g} %"
        labels.append(f"{name}{held}\n{told}\n{missed}")
    drawing.name_positions(axes, labels)
    drawing.epsilon_scale(axes, "y", limits)
    axes.set_ylabel(drawing.EPSILON)
    if not some:
        drawing.say(axes, "no trial stopped")


@_by_group(drawing.BAND)
def epsilon_cdf(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Share of all trials that paid at most so much, with the 95 % band of the whole function."""
    drawing.epsilon_scale(axes, "x", _limits(results, cases[0]))
    laws = {case: law for case in cases if (law := results.distribution(case)) is not None}
    for case, law in laws.items():
        drawing.draw_steps(axes, law, *_look(results, case))
    share = "trials that stopped at ε or less (%)"
    drawing.draw_function_axes(axes, xlabel=drawing.EPSILON, ylabel=share)
    axes.set_yticks([0, 25, 50, 75, 90, 95, 100])
    axes.tick_params(axis="y", labelsize="small")
    if not any(law.finite > 0 for law in laws.values()):
        drawing.say(axes, "no trial stopped")


@_by_group(drawing.BAND)
def utility_at_stop(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """The utility of the trials that stopped, against the goal."""
    shares, goals = [], {}
    for case in cases:
        goal = results.goal(case)
        if goal is None or not (shortfall := results.law(case, "shortfall")).trials:
            continue
        goals[case], met = goal, 100 * (1 - shortfall.fraction_above(0))
        shares.append(f"{met:.3g} % of {_look(results, case)[1]}")
        axes.axvline(goal, color="0.35", lw=1, linestyle=(0, (8, 3)), zorder=1, label="goal")
    laws = {case: results.law(case, "stopped_utility") for case in goals}
    beyond = _draw_laws(axes, results, laws, marks=goals.values())
    said = [", ".join(shares[at : at + 3]) for at in range(0, len(shares), 3)]
    below = "\ngoal met by " + ",\n".join(said) if said else ""
    label = "utility at the stop" + beyond + below
    drawing.draw_function_axes(axes, xlabel=label, ylabel="stopped trials at or below (%)")


@_by_group(drawing.BAND)
def last_step(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """The number of each trial's last step: share of the trials that ended by then."""
    beyond = _draw_laws(axes, results, {case: results.law(case, "step") for case in cases})
    step = "number of the last step, from 0" + beyond
    drawing.draw_function_axes(axes, xlabel=step, ylabel="trials that ended by then (%)")


@_by_group(*_PARTS)
def epsilon_split(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """What releases and test cost the trials that stopped, on average, one on the other."""
    highest, labels = 0.0, []
    for position, case in enumerate(cases):
        style, name = _look(results, case)
        parts = "stopped_mechanism_epsilon", "stopped_test_epsilon"
        laws = [results.distribution(case, part) for part in parts]
        means = [law.mean for law in laws if law is not None and law.trials]
        if len(means) == 2:
            highest = max(highest, sum(means))
            look: Any = {"width": 0.6, "edgecolor": style.line}
            axes.bar(position, means[0], color=style.face, **look)
            axes.bar(position, means[1], bottom=means[0], color="white", hatch="//", **look)
        labels.append(name if results.distribution(case) is not None else name + _UNDEFINED)
    drawing.name_positions(axes, labels)
    if highest:
        axes.set_ylim(0, 1.08 * highest)
    else:
        drawing.say(axes, "no trial stopped")
    axes.set_ylabel("mean ε of the trials that stopped (nat)")
    drawing.draw_grid(axes, "y")


@_by_group(drawing.BAND)
def paired_differences(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Stopping epsilon of each case minus the first one's in its panel, trial by trial."""
    kept = [case for case in cases if results.keeps_trials(case)]
    kept = [case for case in kept if results.distribution(case) is not None]
    apart = {case: results.compare(case, kept[0]).difference for case in kept[1:]}
    difference = "difference of ε, by trial (nat)"
    if apart:
        first = _look(results, kept[0])[1]
        difference += f"\nbelow 0: less than {first} paid in the same trial"
        difference += _draw_laws(axes, results, apart, f" minus {first}", [0.0])
        axes.axvline(0, color="0.35", lw=1, zorder=1)
    else:
        drawing.say(axes, "nothing to compare")
    drawing.draw_function_axes(axes, xlabel=difference, ylabel="trials at or below (%)")


def _has_loss(results: Results, case: str) -> bool:
    loss = results.distribution(case, "privacy_loss")
    return loss is not None and loss.trials > 0 and results.distribution(case) is not None


@_by_group()
def loss_against_stated(axes: Axes, results: Results, cases: Sequence[str]) -> None:
    """Realised privacy loss of the releases against the epsilon that was stated for them."""
    most = -np.inf
    for case in cases:
        if not results.keeps_trials(case) or not _has_loss(results, case):
            continue
        both = [results.values(case, one) for one in ("mechanism_epsilon", "privacy_loss")]
        pairs = np.stack([one for one in both if one is not None])
        pairs = pairs[:, np.isfinite(pairs).all(axis=0)][:, :_POINTS]
        most, (style, name) = pairs[0].max(initial=most), _look(results, case)
        look: Any = {"linestyle": "none", "marker": style.marker, "color": style.line}
        axes.plot(*pairs, markersize=2.5, alpha=0.5, label=name, **look)
    if most == -np.inf:
        return drawing.say(axes, "no realised loss")
    axes.plot([0, most], [0, most], color="0.35", lw=1, label="loss = stated ε")
    axes.set(xlabel="stated ε of the releases (nat)", ylabel="realised loss (nat)")
    drawing.draw_grid(axes)


def quantities(
    results: Results, axes: Axes | None = None, cases: Sequence[str] | None = None
) -> Figure:
    """Of sessions: the distribution function of each number that was kept, a panel each."""
    names = results if cases is None else cases
    scalars = {case: _scalars(results, case) for case in names if results.statuses(case) is None}
    kept = drawing.unique(quantity for some in scalars.values() for quantity in some)
    if axes is None:
        figure, grid = drawing.new_panels(max(5.5, 4.2 * len(kept)), 1, len(kept))
        panels: list[Axes] = list(grid[0])
    else:
        figure, panels = axes.get_figure(root=True) or Figure(), [axes]
    for panel, quantity in zip(panels, kept, strict=False):
        here = [case for case, some in scalars.items() if quantity in some]
        number = drawing.words(quantity)
        number += _draw_laws(panel, results, {case: results.law(case, quantity) for case in here})
        panel.set_title(_title(results, (), None), fontsize="medium")
        drawing.draw_function_axes(panel, xlabel=number, ylabel="trials at or below (%)")
    if axes is None:
        _legend(figure, panels, [drawing.BAND])
    return figure


def _scalars(results: Results, case: str) -> list[str]:
    """Quantities of one number a trial."""
    if results.keeps_trials(case):
        kept = results.cases[case].passes["outcome"].variables
        return [name for name, one in kept.items() if not one.dims]
    return [name for name, one in results.folds(case).items() if one.dim is None]
