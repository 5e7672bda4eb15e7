"""The privacy boundaries of the Brownian mechanism, and the times that they buy."""

import jax
import numpy as np
from matplotlib.figure import Figure

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from nrjax.plots.common import EPSILON, STYLES, axis_limits, epsilon_scale, new_panels
from nrjax.studies.store import Store

_TIGHT_AT = 0.5
"""Epsilon at which all are tight, as in the paper."""

_FAMILIES = (
    ("linear", LinearBoundary),
    ("mixture", MixtureBoundary),
    ("one-sided mixture (not in the paper)", OneSidedMixtureBoundary),
)


def boundaries(store: Store) -> Figure:
    """Whitehouse 2022, figure 4, at the delta of the run and for l2-sensitivity 1.

    Left: ex-post epsilon of stopping at a time (noise variance). Right: the inverse, the variance
    that a level of epsilon needs.
    """
    delta = store.settings["settings"]["delta"]
    with jax.enable_x64(True):
        made = [
            (label, family.tight_at_epsilon(_TIGHT_AT, 1.0, delta)) for label, family in _FAMILIES
        ]
        tight = max(float(np.asarray(one.time(_TIGHT_AT))) for _, one in made)
        times = np.geomspace(tight / 30, tight * 30, 400)
        curves = [(label, np.asarray(one.epsilon(times), float)) for label, one in made]
    figure, (panels,) = new_panels(10.4, 1, 2, height=4.4)
    for (label, epsilon), style in zip(curves, STYLES, strict=False):
        look = {"color": style.line, "linestyle": style.dash, "marker": style.marker}
        for axes, x, y in ((panels[0], times, epsilon), (panels[1], epsilon, times)):
            axes.plot(x, y, markersize=4, markevery=40, label=label, **look)
    limits = axis_limits(epsilon for _, epsilon in curves)
    left, right = panels
    left.set(xscale="log", xlabel="time t: noise variance in units of the squared l2-sensitivity")
    left.set_ylabel(EPSILON)
    epsilon_scale(left, "y", limits)
    left.axhline(_TIGHT_AT, color="0.35", lw=1, linestyle=(0, (2, 2)), zorder=1)
    left.set_title(f"boundaries, tight at ε = {_TIGHT_AT}, δ = {delta:g}", fontsize="medium")
    right.set(yscale="log", ylabel="noise variance needed (squared l2-sensitivity)")
    right.set_xlabel(EPSILON)
    epsilon_scale(right, "x", limits)
    right.grid(True, which="major", color="0.85", linewidth=0.6)
    right.axvline(_TIGHT_AT, color="0.35", lw=1, linestyle=(0, (2, 2)), zorder=1)
    right.set_title("their inverses", fontsize="medium")
    left.grid(True, which="major", color="0.85", linewidth=0.6)
    left.legend(fontsize="small")
    return figure
