"""The figure of `tuning`: mean test loss by the epsilon that was paid."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrjax.papers._claims import group_by
from nrjax.papers.tuning.curves import curves
from nrjax.study import plotting
from nrjax.study.formats import humanise
from nrjax.study.plotting import Style, ellipsis
from nrjax.study.results import Results

_ENDS = {
    "no_tuning": Style("0.8", "", "0.45", "-", "x"),
    "oracle": Style("0.8", "", "black", (0, (4, 1)), "*"),
}
"""Styles of what the methods are compared with."""

_ZERO: Any = {"color": "0.35", "linewidth": 1, "linestyle": (0, (2, 2)), "zorder": 1}


def loss(results: Results) -> Figure:
    """Draw the mean test loss against the mean epsilon, a panel per task and a curve per method."""
    tasks = group_by(results.cases.values(), "task")
    drawn = {
        task: {name: curve for case in cases for name, curve in curves(results, case.name).items()}
        for task, cases in tasks.items()
    }
    names = plotting.unique(name for each in drawn.values() for name in each)
    styles = plotting.mechanism_styles(name for name in names if name not in _ENDS)
    styles = {name: _ENDS[name] if name in _ENDS else styles[name] for name in names}
    width = max(6.0, 0.8 + 4.6 * len(tasks))
    figure, panels = plotting.new_panels(width, 1, len(tasks), height=4.4)
    for axes, (task, methods) in zip(panels[0], drawn.items(), strict=True):
        facts = tasks[task][0].attributes
        plotting.log_scale(axes, "x", plotting.axis_limits(each[0] for each in methods.values()))
        for rank, (name, (epsilon, losses)) in enumerate(methods.items()):
            order = np.argsort(epsilon)
            plotting.draw_curve(axes, epsilon[order], losses[:, order], styles[name], rank)
        # Models with much noise are worse than the zero model, which is where the panel ends.
        zero, least = facts["zero_loss"], min(each[1][0].min() for each in methods.values())
        axes.set_ylim(least - 0.05 * (zero - least), zero + 0.05 * (zero - least))
        axes.axhline(zero, **_ZERO)
        axes.set(xlabel="mean ε that was paid (nat)")
        axes.set_title(f"{task[0]} on {ellipsis(facts['data'])}", fontsize="medium")
        plotting.draw_grid(axes, "y")
    panels[0][0].set_ylabel("mean clipped loss on the test rows")
    handles: list[Any] = [
        plotting.legend_line(humanise(name), style) for name, style in styles.items()
    ]
    handles.append(plotting.legend_line("zero model", **(_ZERO | {"marker": ""})))
    handles.append(plotting.legend_patch("95 % interval of the mean loss"))
    plotting.legend_below(figure, handles, 4)
    return figure
