"""Trials whose private value is moved towards large losses, weighted back by a likelihood ratio.

Let `v = f(x) - f(x')`. A trial draws one of several tilts theta, moves the value by theta v, and
stops at the first release whose realised loss exceeds epsilon by more than a level. With masses
m_k and laws Q_k of the releases, its weight is `dP/dQ = 1/sum_k m_k dQ_k/dP` at the stop. That is a
martingale under P, so every stopping rule is allowed. The logarithm of `dQ_k/dP` is itself the
realised loss of another neighbour, so every process with a realised loss can be audited.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import Role, is_custom, key_for
from nrjax._base.outcome import Status
from nrjax._base.pytrees import Pytree
from nrjax._base.validation import concrete_or_none
from nrjax.auditing import planted
from nrjax.auditing.events import MOST_EDGES, bin_edges
from nrjax.engine.interaction import Interaction
from nrjax.engine.steps import TrialState, advance, assess, judge, start
from nrjax.stopping import PublicThreshold
from nrjax.types import Utility, last_time_of

_TILTS = 12
"""The number of tilts of Gaussian noise, without the tilt 0."""

_UNTILTED = 1 / 16
"""The fraction of trials of Gaussian noise without a tilt, which bounds every weight by 16."""

_BETWEEN = 4096
"""The number of times at which the weights of an adaptive schedule are bounded."""

_POWERS = np.array([0.0, 0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0])
"""The powers of the likelihood ratios of the alternatives to the stated law of the releases."""

_CAUTION = 4.0
"""Number of imagined trials, in each bin and tilt, that agree with the stated law."""

_ROUNDING = 8
"""Number of machine epsilons of its terms by which a realised loss may exceed epsilon."""


class Ended(NamedTuple):
    """A trial that was stopped at its first large loss.

    Attributes:
        excess: realised loss minus epsilon; -inf if the trial failed, or if it is NaN.
        loss: realised loss, rounded down; -inf if the trial failed, or if it is NaN.
        step: number of the last release.
        tilt: number of the tilt that was drawn.
        densities: log-density of the releases under each tilt, relative to the tilt drawn; 0 if
            the trial failed.
        place: last release minus the private value, along v; NaN if the trial failed, or is a
            custom one. It must depend on the release only: if rounding depends on the tilt, then
            bets on the tilt win.
    """

    excess: Array
    loss: Array
    step: Array
    tilt: Array
    densities: Array
    place: Array


class _Zero(Utility):
    """A utility that is always 0."""

    sensitivity = 0.0

    def evaluate(self, hypothesis: Any) -> Array:
        """Return 0."""
        return jnp.zeros((), hypothesis.dtype)


def without_stops(interaction: Interaction) -> Interaction:
    """Return the interaction with a score of 0 and a rule that never stops, without its shift.

    The interaction keeps its score and rule if its schedule pays for the rule.
    """
    if interaction.schedule.rule is not None:
        return dataclasses.replace(interaction, shift=None)
    never: Any = {"utility": _Zero(), "rule": PublicThreshold(jnp.inf)}
    return dataclasses.replace(interaction, shift=None, **never)


class Tilted(Pytree):
    """A custom trial that stops at the first loss above `epsilon + level`.

    Attributes:
        interaction: interaction from `without_stops`.
        shift: v = f(x) - f(x'), of the value's shape.
        along: v divided by a power of two, with entries below 1.
        tilts: tilts theta, shape (tilts,), the first of which is 0.
        log_masses: logarithms of the probabilities of the tilts.
        level: loss above epsilon at which trials stop.
    """

    interaction: Interaction
    shift: Array
    along: Array
    tilts: Array
    log_masses: Array
    level: Array

    def run(self, key: Array) -> Ended:
        """Run one trial."""
        tilt = jax.random.categorical(jax.random.fold_in(key, len(Role)), self.log_masses)
        theta, number = self.tilts[tilt], self.interaction.value.number
        trial = self.interaction.with_value(number + theta * self.shift)

        def look(carry: tuple[TrialState, Array]) -> tuple[TrialState, Array]:
            state, _ = carry
            judged = judge(trial, state, *assess(trial, state.step, state.process))
            excess = self._above(judged, theta, judged.epsilon)
            large = (excess > self.level) & (judged.status <= Status.EXHAUSTED)
            status = jnp.where(large, Status.STOPPED, judged.status).astype(jnp.int32)
            return advance(trial, judged._replace(status=status)), excess

        first = start(trial, key)
        below = jnp.full_like(first.epsilon, -jnp.inf)
        state, excess = jax.lax.while_loop(
            lambda carry: carry[0].status == Status.RUNNING, look, (first, below)
        )
        ended = state.status <= Status.EXHAUSTED
        others = (theta - self.tilts).reshape(-1, *(1 for _ in self.shift.shape)) * self.shift
        losses = jax.vmap(trial.process.privacy_loss, (None, 0))(state.process, others)
        excess, densities = jnp.where(ended, excess, below), jnp.where(ended, -losses, 0)
        place = jnp.where(ended, self._place(trial.process.value(state.process), theta), jnp.nan)
        loss = jnp.where(ended, self._above(state, theta, 0.0), below)
        return Ended(excess, loss, state.step, tilt.astype(jnp.int32), densities, place)

    def _place(self, noise: Array, theta: Array) -> Array:
        """Return the last release minus the private value, along v.

        It is a sum of products without a division, so it is exact for integers. The private value
        is left out, since its size would round a small move away.
        """
        return theta * jnp.sum(self.along * self.shift) + jnp.sum(self.along * noise)

    def _above(self, state: TrialState, theta: Array, epsilon: Any) -> Array:
        """Return the realised loss minus epsilon, rounded down."""
        process = self.interaction.process
        own = process.privacy_loss(state.process, theta * self.shift)
        other = process.privacy_loss(state.process, (theta + 1) * self.shift)
        size = jnp.abs(own) + jnp.abs(other) + epsilon
        rounding = _ROUNDING * float(jnp.finfo(size.dtype).eps) * jnp.where(size < jnp.inf, size, 0)
        excess = other - own - epsilon - rounding
        return jnp.where(jnp.isnan(excess), -jnp.inf, excess)  # impossible releases


class Reported(Pytree):
    """A custom trial that reports its own realised loss, without tilts.

    Attributes:
        trial: trial whose result has the fields `privacy_loss` and `epsilon`.
    """

    trial: Any

    @property
    def log_masses(self) -> Array:
        """The logarithm of the probability 1 of the only tilt."""
        return jnp.zeros(1)

    def run(self, key: Array) -> Ended:
        """Run one trial."""
        result = self.trial.run(key_for(self.trial, key))
        dtype = jnp.result_type(result.epsilon, 1.0)  # an epsilon may be an integer
        epsilon = jnp.asarray(result.epsilon, dtype)
        loss = jnp.asarray(result.privacy_loss, jnp.result_type(result.privacy_loss, 1.0))
        rounding = 4 * _ROUNDING * float(jnp.finfo(dtype).eps)
        excess = loss - epsilon - rounding * epsilon
        loss = loss - rounding * jnp.where(jnp.abs(loss) < jnp.inf, jnp.abs(loss), 0)
        excess, loss = (jnp.where(jnp.isnan(n), -jnp.inf, n) for n in (excess, loss))
        loss = loss.astype(excess.dtype)
        nothing = jnp.zeros(1, excess.dtype)
        return Ended(excess, loss, jnp.int32(-1), jnp.int32(0), nothing, nothing[0] * jnp.nan)


def tilted(interaction: Interaction, shift: Any) -> tuple[Tilted, float]:
    """Return the custom trial of a neighbour, and an upper bound of the weights of large losses."""
    interaction, dtype = without_stops(interaction), interaction.dtype
    square = float(np.sum(np.square(shift, dtype=float)))
    tilts, masses, most = np.array([0.0, -1.0, 1.0]), np.array([0.75, 0.125, 0.125]), 1.001 * 4 / 3
    if interaction.process.noise == "gaussian":
        tilts, masses, most = _gaussian(interaction, square)
    if planted.has_known_loss(interaction.process):
        interaction = planted.with_scale(interaction)
    shift = np.asarray(shift, dtype)
    along = np.ldexp(shift, -np.frexp(np.max(np.abs(shift)))[1])
    numbers = (shift, along, tilts, np.log(masses), 0.0)
    return Tilted(interaction, *(jnp.asarray(number, dtype) for number in numbers)), most


def _gaussian(interaction: Interaction, square: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return tilts and their masses for Gaussian noise and `square = |v|^2`, and the bound.

    Under the tilt theta the loss at time t is normal with mean `s/2 + theta s`, for `s = |v|^2/t`.
    The tilts span those at which this mean is epsilon at some time. For a loss above epsilon,
    `dQ_k/dP = exp(theta_k (loss - s/2) - theta_k^2 s/2)` is least at the loss epsilon.
    """
    schedule, guarantee = interaction.schedule, interaction.guarantee
    assert guarantee is not None
    # Of a custom wrapper it is not known that it returns the times of the schedule it wraps.
    if schedule.schedule is not None and not is_custom(schedule):
        schedule = schedule.schedule
    grid, last = concrete_or_none(schedule.times), last_time_of(schedule)
    first = np.asarray(schedule.init()[1])
    times = np.geomspace(first, first / 1e3 if last is None else np.min(last), _BETWEEN)
    fixed = grid is not None and grid.ndim == 1
    if fixed:
        times = np.asarray(grid)[: int(interaction.steps)]
    epsilon = np.asarray(guarantee.epsilon(jnp.asarray(times, interaction.dtype)), float)
    s = square / times.astype(float)
    means = np.maximum((epsilon - s / 2) / s, 0.5)
    means = means[np.isfinite(means)]
    tilts = np.append(0.0, np.geomspace(means.min(initial=1e9), means.max(initial=0.5), _TILTS))
    masses = np.append(_UNTILTED, np.full(_TILTS, (1 - _UNTILTED) / _TILTS))
    if not fixed:  # between two times, epsilon and s are bounded by those at the ends
        epsilon, s = epsilon[:-1], s[1:]
    ratios = tilts * (epsilon - s / 2)[:, None] - tilts**2 * s[:, None] / 2
    most = 1.001 * float(np.exp(-np.min(_log_sum(np.log(masses) + ratios))))
    known = fixed or last is not None
    largest = 1.001 / _UNTILTED
    return tilts, masses, min(most, largest) if known else largest


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of exponentials along the last axis."""
    largest = np.max(logs, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(logs - largest), axis=-1)) + largest[..., 0]


def log_weights(densities: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return the logarithms of the weights `dP/dQ`, from `Ended.densities`."""
    return densities[:, 0] - _log_sum(np.log(masses) + densities)


def law_bets(densities: np.ndarray, tilt: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return the log wealth of each bet that the releases do not have the stated law.

    If they have it, the tilt k that was drawn has the probability `m_k dQ_k/dQ` given the releases.
    Each bet is on other probabilities, in which the ratios are raised to a power. For Gaussian
    noise they are right if the variance is not t but t divided by the power.
    """
    wealths = []
    for power in np.append(_POWERS, 1.0):
        logs = np.log(masses) + power * densities
        drawn = np.take_along_axis(logs, tilt[:, None], axis=1)[:, 0]
        wealths.append(np.sum(drawn - _log_sum(logs)))
    return np.array(wealths[:-1]) - wealths[-1]


class TiltBets:
    """A bet against the stated noise distribution.

    The releases are put into bins. In each bin the bet predicts the tilt from how often it was
    drawn in earlier trials. If the stated distribution is right, no prediction gains.
    """

    def __init__(self, tilts: int):
        self._edges = np.empty(0)
        self._drawn = np.full((tilts, MOST_EDGES + 1), _CAUTION)
        self._expected = self._drawn.copy()

    def bet(self, ended: dict[str, np.ndarray], masses: np.ndarray) -> float:
        """Return the log wealth of the bet on more trials, and learn from them."""
        known = np.isfinite(ended["place"])
        place, tilt, densities = (ended[n][known] for n in ("place", "tilt", "densities"))
        if not place.size:
            return 0.0
        logs = np.log(masses) + densities
        logs -= _log_sum(logs)[:, None]
        if not self._edges.size:
            self._edges = bin_edges(place)
        bins, trials = np.searchsorted(self._edges, place, "right"), np.arange(place.size)
        corrected = logs + np.log(self._drawn / self._expected)[:, bins].T
        wealth = np.sum((corrected - logs)[trials, tilt] - _log_sum(corrected))
        np.add.at(self._drawn, (tilt, bins), 1)
        np.add.at(self._expected.T, bins, np.exp(logs))
        return float(wealth)
