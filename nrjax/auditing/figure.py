"""The figure of an `Audit`: the lower bound of epsilon against the number of trials."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrjax.study import plotting


def figure(audit: Any) -> Figure:
    """Return the figure of an audit: the lower bound of epsilon after each number of trials."""
    drawn, axes = plotting.new_panels(6.0, 1, 1)
    panel, style = axes[0, 0], plotting.STYLES[0]
    trials, bounds = np.reshape(audit.bounds, (-1, 2)).T
    panel.plot(trials, bounds, drawstyle="steps-post", color=style.line, linewidth=2.0)
    if trials.size:
        panel.set_xscale("log")
        panel.plot(trials[-1], bounds[-1], style.marker, color=style.line, markersize=8)
    else:
        plotting.annotate_center(panel, "no bound is known")
    panel.set_ylim(bottom=0.0)
    panel.set_xlabel("trials per data set")
    panel.set_ylabel(f"lower bound of ε at δ = {audit.stated:.4g} (nat)")
    panel.set_title(f"{audit.verdict}, level {audit.level:.4g}", fontsize="medium")
    plotting.draw_grid(panel)
    return drawn
