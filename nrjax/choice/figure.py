"""The figure of a `Choice`: the epsilons of each candidate that meets the target."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from nrjax.choice.racing import Verdict
from nrjax.study import plotting


def figure(choice: Any) -> Figure:
    """Return the figure of a choice, with a row per candidate that is not missed."""
    rows = [row for row in choice.table if row.verdict != Verdict.MISSED]
    drawn, axes = plotting.new_panels(8.0, 1, 1, height=1.6 + 0.32 * len(rows))
    panel = axes[0, 0]
    sections = list(dict.fromkeys(row.section for row in rows))
    styles = plotting.mechanism_styles(sections)
    for place, row in enumerate(rows):
        style = styles[row.section]
        bar: Any = {"color": style.line, "markersize": 8, "linewidth": 2.5}
        panel.plot([row.median, row.high], [place, place], **bar)
        panel.plot(row.median, place, marker=style.marker, **bar)
        panel.plot(row.high, place, marker="|", **bar)
    panel.set_yticks(range(len(rows)), [row.name for row in rows])
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_xlabel(f"{plotting.EPSILON}, from the median (mark) to the 90 % quantile")
    panel.set_title(f"{choice.question}: error at most {choice.error:.4g}", fontsize="medium")
    plotting.draw_grid(panel, "x")
    handles = [plotting.legend_line(name, styles[name], linestyle="-") for name in sections]
    plotting.legend_below(drawn, handles, columns=1)
    return drawn
