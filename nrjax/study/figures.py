"""The standard figures of a study, drawn by one function of a `Frame` per figure.

A figure has one panel per group of cases. Cases with equal labels `task`, `data` and `neighbour`
share a row of panels; cases with an equal label `test` share a column.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from nrjax._base.notions import Notion
from nrjax._base.outcome import Status
from nrjax.statistics.sample import Distribution
from nrjax.study import distribution_plots, plotting
from nrjax.study.compare import compare_cases, met
from nrjax.study.distribution_plots import draw_function_axes
from nrjax.study.formats import humanise
from nrjax.study.frame import Frame
from nrjax.study.report import AT_FIRST_STEP

_MAX_POINTS = 4000  # largest number of trials per case in a scatter plot
_LABELLED_PERCENTS = (50, 90, 95)  # quantiles of the stopping epsilon to print below each case
_UNDEFINED = "\nno guarantee:\nε not defined"
_ROW_TITLES = {"task": "{}", "data": "on {}", "neighbour": "({})"}
"""The labels of a case that choose its row of panels, with the format of each in titles."""

_BOXES = (
    Patch(facecolor="white", edgecolor="black", label="quartiles and median of all trials"),
    distribution_plots.INTERVALS,
    distribution_plots.WHISKERS,
)
"""The legend entries of the elements that `draw_distribution` draws."""

_LARGEST = float(np.finfo(np.float64).max)

_LONG = 20
"""Number of characters of a test in a title that leave no room for the trials in its line."""

_RELEASES = Patch(facecolor="0.7", edgecolor="0.2", label="releases")

_Draw = Callable[[Axes, Frame, Sequence[str]], None]


def standard(frame: Frame) -> dict[str, Callable[[Any], Figure]]:
    """Return the functions of all figures that have something to show for a frame, by name."""
    interactions = _interactions(frame)
    kept = [name for name in interactions if frame.keeps_trials(name)]
    shown = {
        epsilon_distribution: any(frame.distribution(name) for name in interactions),
        epsilon_cdf: any(frame.distribution(name) for name in interactions),
        epsilon_split: any(frame.distribution(name) for name in interactions),
        utility_at_stop: any(frame.goal(name) is not None for name in interactions),
        last_step: len(interactions) > 0,
        paired_differences: any(len(cases) > 1 for cases in _groups(frame, kept).values()),
        loss_against_stated: any(_has_loss(frame, name) for name in kept),
        quantities: len(interactions) < len(frame),
    }
    return {draw.__name__: draw for draw, shows in shown.items() if shows}


def _interactions(frame: Frame) -> list[str]:
    """Return the names of the cases that are interactions, not custom trials."""
    return [name for name in frame if frame.statuses(name) is not None]


def _groups(frame: Frame, names: Iterable[str]) -> dict[tuple[Any, Any], list[str]]:
    """Return the names of the cases in each panel, by row and column. A panel may be empty."""
    places = {}
    for name in names:
        labels = frame.cases[name].attributes
        row = tuple((key, labels[key]) for key in _ROW_TITLES if key in labels)
        places[name] = row, labels.get("test")
    sides = (plotting.unique(place[i] for place in places.values()) for i in (0, 1))
    grid = itertools.product(*sides)
    return {key: [name for name, place in places.items() if place == key] for key in grid}


def _by_group(*handles: Any) -> Callable[[_Draw], Callable[[Frame], Figure]]:
    """Return a decorator that turns a function for one panel into a function for a figure."""

    def figure_of(draw: _Draw) -> Callable[[Frame], Figure]:
        def drawn(frame: Frame) -> Figure:
            groups = _groups(frame, _interactions(frame))
            columns = len(plotting.unique(column for _, column in groups))
            width = columns * (1.2 + 1.5 * max(map(len, groups.values())))
            figure, grid = plotting.new_panels(max(5.5, width), len(groups) // columns, columns)
            for number, (panel, place) in enumerate(zip(grid.ravel(), groups, strict=True)):
                if not groups[place]:
                    panel.set_axis_off()
                    continue
                draw(panel, frame, groups[place])
                panel.set_title(_title(frame, *place), fontsize="medium")
                if number % columns:
                    panel.set_ylabel("")
            _legend(figure, grid.ravel(), handles)
            lines = max(plotting.lines_below(panel) for panel in grid.ravel())
            figure.set_figheight(len(grid) * (3.8 + 0.18 * max(0, lines - 3)))
            return figure

        drawn.__doc__, drawn.__name__ = draw.__doc__, draw.__name__
        return drawn

    return figure_of


def _title(frame: Frame, row: tuple[tuple[str, Any], ...], test: str | None) -> str:
    parts = []
    for key, label in row:
        name = plotting.ellipsis(str(label))
        parts.append(_ROW_TITLES[key].format(name if key == "data" else humanise(name)))
    study = plotting.ellipsis(frame.about.get("study", ""))
    first = " ".join(parts).removeprefix("on ") or study
    second = [] if test is None else [f"test: {humanise(test)}"]
    between = ",\n" if len("".join(second)) > _LONG else ", "
    return "\n".join([first, between.join([*second, f"{frame.trials:,} trials"])]).lstrip()


def _legend(figure: Figure, panels: Iterable[Axes], handles: Iterable[Any]) -> None:
    """Add a legend with each distinct label of the panels once, followed by `handles`."""
    by_label: dict[str, Any] = {}
    for panel in panels:
        shapes, labels = panel.get_legend_handles_labels()
        by_label |= dict(zip(labels, shapes, strict=True))
    entries = [*by_label.values(), *handles]
    if entries:
        width = figure.get_figwidth()
        columns = min(2 if width < 8 else 3 if width < 12 else 5, len(entries))
        plotting.legend_below(figure, entries, columns)


def _style_and_name(frame: Frame, case: str) -> tuple[plotting.Style, str]:
    """Return the style and the name of a case, by its label `mechanism` if it has one.

    The name of a case with a hockey-stick epsilon includes "hockey-stick", because such an epsilon
    has a different meaning from an epsilon of the other notions.
    """
    mechanisms = {
        name: str(each.attributes.get("mechanism", name)) for name, each in frame.cases.items()
    }
    hockey_stick = frame.cases[case].attributes.get("notion") == Notion.HOCKEY_STICK
    name = humanise(mechanisms[case]) + (" (hockey-stick)" if hockey_stick else "")
    return plotting.mechanism_styles(mechanisms.values())[mechanisms[case]], name


def _row_of(frame: Frame, case: str) -> list[str]:
    """Return the cases in all panels of the row of a case."""
    groups = _groups(frame, _interactions(frame))
    row_of_case = next(row for (row, _), cases in groups.items() if case in cases)
    return [name for (row, _), cases in groups.items() if row == row_of_case for name in cases]


def _limits(frame: Frame, case: str) -> tuple[float, float]:
    """Return the limits of the axis of epsilons, which are equal for all panels of a row."""
    epsilons = [frame.distribution(name) for name in _row_of(frame, case)]
    return plotting.axis_limits(epsilon.points() for epsilon in epsilons if epsilon is not None)


def _draw_functions(
    axes: Axes,
    frame: Frame,
    distributions: Mapping[str, Distribution | None],
    suffix: str = "",
    required: Iterable[float] = (),
) -> str:
    """Draw the distribution function of each case, and return a note on values off the axis."""
    shown = {name: d for name, d in distributions.items() if d is not None and d.points().size}
    if not shown:
        return ""
    outside = plotting.linear_scale(axes, list(shown.values()), required)
    for case, values in shown.items():
        style, name = _style_and_name(frame, case)
        distribution_plots.draw_steps(axes, values, style, name + suffix)
    return f"\n(not shown: up to {100 * outside:.2g} % of a case's trials)" if outside else ""


@_by_group(*_BOXES)
def epsilon_distribution(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw a histogram of each case's stopping epsilon, with quartiles and their intervals."""
    limits, labels, any_stopped = _limits(frame, cases[0]), [], False
    for position, case in enumerate(cases):
        epsilon, (style, name) = frame.distribution(case), _style_and_name(frame, case)
        if epsilon is None:
            labels.append(name + _UNDEFINED)
            continue
        any_stopped |= epsilon.finite > 0
        edges = distribution_plots.fitting_edges(epsilon, limits)
        label = f"{name}, stopped"
        distribution_plots.draw_distribution(axes, position, epsilon, edges, style, label)
        facts = frame.cases[case].attributes
        promise = "" if facts.get("delta") is None else f"\nδ = {facts['delta']:g}"
        # The name of a case with a hockey-stick epsilon includes the notion already.
        if promise and facts.get("notion") not in (None, Notion.HOCKEY_STICK):
            promise += f"\n{facts['notion']}"
        amounts = [f"{p} %: {epsilon.quantile(p / 100):.3g}" for p in _LABELLED_PERCENTS]
        quantiles = "\n".join(amounts).replace("50 %:", "median").replace("inf", "∞")
        missed = 100 * (1 - epsilon.finite)
        ends = "all stopped" if epsilon.finite == 1 else f"{missed:.3g} % did not stop"
        later = frame.distribution_of(case, "stopped_step").fraction_above(0)
        first = epsilon.finite * (1 - later)
        if first >= AT_FIRST_STEP:
            level, line = epsilon.points()[0], {"color": "black", "linestyle": ":", "lw": 1.5}
            sides = position - 0.48, position + 0.48
            axes.hlines(level, *sides, label="first level, where 5 % or more stopped", **line)
            ends += f"\nfirst level: {100 * first:.3g} %"
        labels.append(f"{name}{promise}\n{quantiles}\n{ends}")
    plotting.name_positions(axes, labels)
    plotting.log_scale(axes, "y", limits)
    axes.set_ylabel(plotting.STOPPING_EPSILON)
    if not any_stopped:
        plotting.annotate_center(axes, "no trial stopped")


@_by_group(distribution_plots.BAND)
def epsilon_cdf(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw the distribution function of each case's stopping epsilon over all trials."""
    plotting.log_scale(axes, "x", _limits(frame, cases[0]))
    epsilons = {name: epsilon for name in cases if (epsilon := frame.distribution(name))}
    for case, epsilon in epsilons.items():
        distribution_plots.draw_steps(axes, epsilon, *_style_and_name(frame, case))
    fraction = "trials that stopped at ε or less (%)"
    draw_function_axes(axes, xlabel=plotting.STOPPING_EPSILON, ylabel=fraction)
    axes.set_yticks([0, 25, 50, 75, 90, 95, 100])
    axes.tick_params(axis="y", labelsize="small")
    if not any(epsilon.finite > 0 for epsilon in epsilons.values()):
        plotting.annotate_center(axes, "no trial stopped")


@_by_group(distribution_plots.BAND)
def utility_at_stop(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw the distribution function of the utility of stopped trials, and mark the goal."""
    fractions, goals = [], {}
    for case in cases:
        goal = frame.goal(case)
        if goal is None or not frame.distribution_of(case, "shortfall").trials:
            continue
        goals[case], reached = goal, 100 * (met(frame, case) or 0.0)
        fractions.append(f"{reached:.3g} % of {_style_and_name(frame, case)[1]}")
        axes.axvline(goal, color="0.35", lw=1, linestyle=(0, (8, 3)), zorder=1, label="goal")
    utilities = {case: frame.distribution_of(case, "stopped_utility") for case in goals}
    beyond = _draw_functions(axes, frame, utilities, required=goals.values())
    lines = [", ".join(fractions[at : at + 2]) for at in range(0, len(fractions), 2)]
    label = "utility at the stop" + beyond
    label += "\ngoal met, of all trials:\n" + ",\n".join(lines) if lines else ""
    draw_function_axes(axes, xlabel=label, ylabel="stopped trials at or below (%)")


@_by_group(distribution_plots.BAND)
def last_step(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw the distribution function of the number of each trial's last step."""
    steps = {case: frame.distribution_of(case, "step") for case in cases}
    label = "number of the last step, from 0" + _draw_functions(axes, frame, steps)
    draw_function_axes(axes, xlabel=label, ylabel="trials that ended by then (%)")


def _means_of_parts(frame: Frame, case: str) -> list[float]:
    """Return the mean epsilon of releases and of the test over stopped trials, [] without any."""
    parts = "stopped_mechanism_epsilon", "stopped_test_epsilon"
    costs = [frame.distribution(case, part) for part in parts]
    means = [cost.mean for cost in costs if cost is not None and cost.trials]
    return means if len(means) == len(parts) else []


def _count_of_stopped(frame: Frame, case: str) -> str:
    counts = frame.statuses(case) or {}
    return f"\n{counts.get(Status.STOPPED, 0):,} of {sum(counts.values()):,}\nstopped"


@_by_group(_RELEASES)
def epsilon_split(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw stacked bars of the mean epsilon of releases and of the test, over stopped trials."""
    labels, any_stopped = [], False
    for position, case in enumerate(cases):
        style, name = _style_and_name(frame, case)
        epsilon, means = frame.distribution(case), _means_of_parts(frame, case)
        if means:
            any_stopped = True
            bar: Any = {"width": 0.6, "edgecolor": style.line}
            axes.bar(position, means[0], color=style.face, **bar)
            bar |= {"color": "white", "hatch": "//"}
            axes.bar(position, means[1], bottom=means[0], **bar)
            if means[1]:  # a grey entry of the legend, as for the releases
                axes.bar(position, 0, **bar | {"edgecolor": "0.2", "label": "test"})
        few = "" if epsilon is None or epsilon.finite in (0, 1) else _count_of_stopped(frame, case)
        labels.append(name + (few if epsilon is not None else _UNDEFINED))
    plotting.name_positions(axes, labels)
    highest = max(sum(_means_of_parts(frame, case)) for case in _row_of(frame, cases[0]))
    if highest:  # all panels of a row have one scale
        axes.set_ylim(0, 1.08 * highest)
    if not any_stopped:
        plotting.annotate_center(axes, "no trial stopped")
    axes.set_ylabel(plotting.MEAN_EPSILON)
    plotting.draw_grid(axes, "y")


@_by_group(distribution_plots.BAND)
def paired_differences(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Draw each trial's difference in stopping epsilon: the case minus the panel's first case."""
    kept = [case for case in cases if frame.keeps_trials(case) and frame.distribution(case)]
    differences = {
        case: compare_cases(frame, case, kept[0], "stopping_epsilon").difference
        for case in kept[1:]
    }
    # A trial of which a case did not stop has no finite difference.
    differences = {
        case: each
        for case, each in differences.items()
        if each is not None and 2 * each.histogram([-_LARGEST, _LARGEST]).sum() >= frame.trials
    }
    label = "difference of stopping ε per trial (nat)"
    if len(kept) > 1 and len(differences) < len(kept) - 1:
        left_out = [_style_and_name(frame, name)[1] for name in kept[1:] if name not in differences]
        label += f"\nnot shown: {', '.join(left_out)} (in most trials a case did not stop)"
    if differences:
        first = _style_and_name(frame, kept[0])[1]
        label += f"\nbelow 0: less than {first} paid in the same trial"
        label += _draw_functions(axes, frame, differences, f" minus {first}", [0.0])
        axes.axvline(0, color="0.35", lw=1, zorder=1)
    else:
        text = "most trials did not stop" if len(kept) > 1 else "nothing to compare"
        plotting.annotate_center(axes, text)
    draw_function_axes(axes, xlabel=label, ylabel="trials at or below (%)")


def _has_loss(frame: Frame, case: str) -> bool:
    loss = frame.distribution(case, "privacy_loss")
    return loss is not None and loss.trials > 0 and frame.distribution(case) is not None


@_by_group()
def loss_against_stated(axes: Axes, frame: Frame, cases: Sequence[str]) -> None:
    """Plot the realised privacy loss of the releases against the stated epsilon, per trial."""
    highest = -np.inf
    for case in cases:
        if not frame.keeps_trials(case) or not _has_loss(frame, case):
            continue
        names = "mechanism_epsilon", "privacy_loss"
        pairs = np.stack([frame.values(case, name) for name in names])
        pairs = pairs[:, np.isfinite(pairs).all(axis=0)][:, :_MAX_POINTS]
        highest, (style, name) = pairs[0].max(initial=highest), _style_and_name(frame, case)
        points: Any = {"linestyle": "none", "marker": style.marker, "color": style.line}
        axes.plot(*pairs, markersize=2.5, alpha=0.5, label=name, **points)
    if highest == -np.inf:
        return plotting.annotate_center(axes, "no realised loss")
    axes.plot([0, highest], [0, highest], color="0.35", lw=1, label="loss = stated ε")
    axes.set(xlabel="stated ε of the releases (nat)", ylabel="realised loss (nat)")
    plotting.draw_grid(axes)


def quantities(frame: Frame) -> Figure:
    """Draw the distribution function of each number that custom trials return, one per panel."""
    scalars = {case: frame.scalars(case) for case in frame if frame.statuses(case) is None}
    shown = plotting.unique(quantity for each in scalars.values() for quantity in each)
    figure, (panels,) = plotting.new_panels(max(5.5, 4.2 * len(shown)), 1, len(shown))
    for panel, quantity in zip(panels, shown, strict=True):
        having = [case for case, each in scalars.items() if quantity in each]
        values = {case: frame.distribution_of(case, quantity) for case in having}
        label = humanise(quantity) + _draw_functions(panel, frame, values)
        panel.set_title(_title(frame, (), None), fontsize="medium")
        draw_function_axes(panel, xlabel=label, ylabel="trials at or below (%)")
    _legend(figure, panels, [distribution_plots.BAND])
    return figure
