"""Exact laws of the private stopping rules on fixed query values, in NumPy in float64.

From small to large scales the threshold noise has independent increments: for s < t, `Z_t = Z_s`
with probability `(s/t)^2`, else `Z_s + Lap(t)`. Let F_i(z) be the probability of a negative answer
at step i given threshold noise z. Then

    G_i(z) = P(only negative answers up to i | Z_i = z) = F_i(z) H_i(z),
    H_i(z) = r^2 G_{i-1}(z) + (1 - r^2) (G_{i-1} * Lap(t_{i-1}))(z),  r = t_i / t_{i-1},  H_1 = 1,

P(stop at n) is the integral of `(1 - F_n) H_n` against the density of Lap(t_n), and P(no stop up to
n) that of `G_n`. For exponential noise r replaces `r^2`, and the mean of `G_{i-1}(z +
Exp(t_{i-1}))` the convolution. All functions are smooth between the query values, so Gauss-Legendre
panels that end there are exact up to rounding. All terms are positive, so that small probabilities
have the same relative precision.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from nrjax.stopping import first_yes

POINTS = 16
TAIL = 40  # threshold noise beyond 40 of its largest scales is omitted (e^-40)


def survival(x, noise="laplace"):
    """Return P(X > x) of standard noise ("taken away", a fault, is minus exponential noise)."""
    if noise == "exponential":
        return np.exp(-np.maximum(x, 0))
    if noise == "taken away":
        return -np.expm1(np.minimum(x, 0))
    half = 0.5 * np.exp(-np.abs(x))  # does not cancel
    return np.where(x > 0, half, 1 - half)


@lru_cache
def _rule():
    """Return Gauss-Legendre points, weights, and the matrix of integrals from -1 to a point."""
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    degrees = np.arange(POINTS)
    values = np.polynomial.legendre.legvander(points, POINTS)
    # The integral of P_n from -1 is (P_{n+1} - P_{n-1}) / (2n + 1); that of P_0 is P_1 + P_0.
    below = np.concatenate([-values[:, :1], values[:, : POINTS - 1]], axis=1)
    integrals = (values[:, 1:] - below) / (2 * degrees + 1)
    to_coefficients = (values[:, :POINTS] * weights[:, None]).T * (degrees + 0.5)[:, None]
    return points, weights, integrals @ to_coefficients


def _panels(kinks, width, reach):
    """Return edges at the kinks and `reach` beyond, with panels no wider than `width`."""
    marks = np.unique(np.concatenate([kinks, [kinks.min() - reach, kinks.max() + reach]]))
    counts = np.maximum(np.ceil(np.diff(marks) / width).astype(int), 1)
    parts = [
        np.linspace(low, high, count, endpoint=False)
        for low, high, count in zip(marks[:-1], marks[1:], counts, strict=True)
    ]
    return np.concatenate([*parts, marks[-1:]])


def _from_the_left(values, edges, nodes, scale):
    """Integrate values(y) exp(-(x - y) / scale) / (2 scale) dy up to each node x."""
    _, weights, running = _rule()
    half = np.diff(edges)[:, None] / 2
    within = running * half[..., None] * np.exp((nodes[:, None] - nodes[..., None]) / scale)
    whole = weights * half * np.exp((nodes - edges[1:, None]) / scale)
    totals = np.einsum("bpj,pj->bp", values, whole) / (2 * scale)
    # Panels before this one; beyond the first edge the values are constant.
    carried = np.exp(np.minimum(edges[1:] - edges[:-1, None], 0) / scale) * np.tri(
        len(totals[0]), k=-1
    )
    start = totals @ carried.T + 0.5 * values[:, :1, 0] * np.exp((edges[0] - edges[:-1]) / scale)
    local = np.einsum("bpj,pkj->bpk", values, within) / (2 * scale)
    return local + start[..., None] * np.exp((edges[:-1, None] - nodes) / scale)


def _convolve(values, edges, nodes, scale, two_sided):
    """Return the mean of the values at each node plus independent noise of this scale."""
    mirrored = _from_the_left(values[:, ::-1, ::-1], -edges[::-1], -nodes[::-1, ::-1], scale)
    right = mirrored[:, ::-1, ::-1]
    return right + _from_the_left(values, edges, nodes, scale) if two_sided else 2 * right


def stopping_law(
    utilities,
    epsilons,
    sensitivity=1.0,
    thresholds=0.0,
    *,
    factors=(2.0, 4.0),
    noise="laplace",
    fresh=False,
    fine=1,
):
    """Return the probabilities of stopping at each step, and of no stop up to each.

    Args:
        utilities: query values, shape (..., steps).
        epsilons: a number (AboveThreshold), or one for each step, rising (the reduced rule).
        sensitivity: Delta.
        thresholds: a number or one for each step.
        factors: the scales of threshold and query noise, as multiples of `sensitivity / epsilon`:
            `1/s` and `2/(1 - s)` for a share s, half of the latter for monotone utilities.
        noise: "laplace", "exponential", or "taken away" (exponential query noise subtracted).
        fresh: plants the fault of new threshold noise at each step.
        fine: factor by which panels are narrower, to estimate the error; tails are longer too.

    Returns:
        `stop` and `none`, each of shape (..., steps), to about 1e-12 of themselves.
    """
    utilities = np.asarray(utilities, float)
    gaps = (utilities - thresholds).reshape(-1, utilities.shape[-1])
    epsilons = np.broadcast_to(np.asarray(epsilons, float), gaps.shape[1:])
    assert np.all(np.diff(epsilons) >= 0)
    times, scales = (factor * sensitivity / epsilons for factor in factors)
    reach = (0.75 + 0.25 * fine) * TAIL * max(times[0], scales[0] / 2)
    edges = _panels(np.append(gaps, 0.0), min(times[-1], scales[-1]) / fine, reach)
    points, weights, _ = _rule()
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + points)
    two_sided = noise == "laplace"
    noes_before, stop, none = np.ones((1, *nodes.shape)), [], []
    for i, (time, scale) in enumerate(zip(times, scales, strict=True)):
        if i and time < times[i - 1] and not fresh:
            stay = (time / times[i - 1]) ** (2 if two_sided else 1)
            moved = _convolve(noes_before, edges, nodes, times[i - 1], two_sided)
            noes_before = stay * noes_before + (1 - stay) * moved
        density = weights * half * np.exp(-np.abs(nodes) / time) / (2 * time)
        density = density if two_sided else 2 * density * (nodes > 0)
        above = (nodes - gaps[:, i, None, None]) / scale
        yes = survival(above, noise)
        stop.append(np.sum(density * yes * noes_before, axis=(1, 2)))
        noes_before = noes_before * (survival(-above) if two_sided else 1 - yes)
        none.append(np.sum(density * noes_before, axis=(1, 2)))
        if fresh:  # the past is a factor, not a function of the present noise
            noes_before = none[-1][:, None, None]
    shape = utilities.shape
    return np.stack(stop, 1).reshape(shape), np.stack(none, 1).reshape(shape)


def law_options(rule):
    """Return the options of `stopping_law` for a private rule."""
    factors = 1 / rule.share, (1 if rule.monotone else 2) / (1 - rule.share)
    return {"factors": factors, "noise": rule.noise}


def first_yes_counts(key, rule, epsilons, utilities, trials):
    """Count first positive answers by step (last column: none), per row of `utilities`."""
    dtype, steps = jnp.result_type(float), utilities.shape[-1]
    rule = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), rule)
    keys = jax.random.split(key, trials)
    found = _first_yes(rule, keys, utilities.astype(dtype), epsilons.astype(dtype))
    return np.stack([np.bincount(row, minlength=steps + 1) for row in np.asarray(found)])


@jax.jit
def _first_yes(rule, keys, utilities, epsilons):
    def step(key, values):
        found = first_yes(key, rule, values, epsilons)
        return jnp.where(found.stopped, found.step, len(epsilons))

    return jax.vmap(lambda values: jax.vmap(lambda key: step(key, values))(keys))(utilities)
