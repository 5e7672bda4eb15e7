"""The privacy boundaries of the Brownian mechanism, and the times that they buy."""

from typing import Any

import jax
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from nrjax.study.drawing import EPSILON, STYLES, axis_limits, epsilon_scale, new_panels
from nrjax.study.results import Results

_FAMILIES = (
    ("linear", LinearBoundary),
    ("mixture", MixtureBoundary),
    ("one-sided mixture (not in the paper)", OneSidedMixtureBoundary),
)


@jax.jit  # one program: step by step it would be a hundred
def _curves(made: list[Any], epsilon: Array, ratios: Array) -> tuple[Array, list[Array]]:
    """Times at these ratios to the last of the times at which epsilon is reached; the epsilons."""
    # Of all curves the mixture boundary's is furthest above sqrt(t), and so the last to get there.
    mixture = next(one for one in made if type(one) is MixtureBoundary)
    times = ratios * mixture.time(epsilon)
    return times, [one.epsilon(times) for one in made]


def boundaries(results: Results) -> Figure:
    """Whitehouse 2022, figure 4, for l2-sensitivity 1.

    All are tight at the run's `tight_at` (0.5 in the paper), and at its delta. Left: ex-post
    epsilon of stopping at a time (noise variance). Right: the inverse, the variance that a level of
    epsilon needs.
    """
    settings = results.store.settings["settings"]
    tight_at, delta = settings["tight_at"], settings["delta"]
    with jax.enable_x64(True):
        made = [family.tight_at_epsilon(tight_at, 1.0, delta) for _, family in _FAMILIES]
        times, epsilons = jax.device_get(_curves(made, tight_at, np.geomspace(1 / 30, 30, 400)))
    curves = [(label, epsilon) for (label, _), epsilon in zip(_FAMILIES, epsilons, strict=True)]
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
    left.axhline(tight_at, color="0.35", lw=1, linestyle=(0, (2, 2)), zorder=1)
    left.set_title(f"boundaries, tight at ε = {tight_at:g}, δ = {delta:g}", fontsize="medium")
    right.set(yscale="log", ylabel="noise variance needed (squared l2-sensitivity)")
    right.set_xlabel(EPSILON)
    epsilon_scale(right, "x", limits)
    right.grid(True, which="major", color="0.85", linewidth=0.6)
    right.axvline(tight_at, color="0.35", lw=1, linestyle=(0, (2, 2)), zorder=1)
    right.set_title("their inverses", fontsize="medium")
    left.grid(True, which="major", color="0.85", linewidth=0.6)
    left.legend(fontsize="small")
    return figure
