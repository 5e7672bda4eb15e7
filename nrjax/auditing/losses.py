"""The verdict on realised losses: bets on weighted violations, until one side is shown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax import Array

from nrjax._base.keys import study_key
from nrjax._base.notions import Notion
from nrjax._base.validation import check
from nrjax.auditing import planted
from nrjax.auditing.report import Audit, Worst
from nrjax.auditing.tilted import TiltBets, law_bets, log_weights
from nrjax.simulation import montecarlo
from nrjax.statistics import betting

_SLACK = 1.1
"""The multiple of the stated delta that the audited number must be shown to be below."""

_RARE = 1e-3
"""The probability that a loss above the epsilon of a pure guarantee must be shown to be below."""

_CHUNK = 1024
"""Largest number of trials between two verdicts."""

_LEAST = 16_384
"""Least number of trials for "holds", so that a wrong distribution shows.

Gaussian noise of 0.95 times the stated scale was said to hold in 2 of 3 audits with 4,096.
"""

_LEAST_VALUE = 1e-250
"""Weighted violations below this count as 0, since bets divide by fractions of their mean."""

_PRECISION = 1e-3
"""Relative precision of the lower bound of epsilon, which is rounded down."""

_LARGEST = 700.0
"""Largest lower bound of epsilon at a positive delta, whose exponential fits float64."""

_LEVELS, _PILOT, _PILOT_FIRST = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0), 512, 2**31
"""Levels of the stop of a hockey-stick audit, and trials, which no verdict uses, to choose one."""

_SHARE = 0.9
"""The fraction of alpha for bets on the audited number. The rest is for its distribution."""

_MORE = math.log(_SHARE / (1 - _SHARE))
"""The log wealth that bets on the distribution need in addition."""

_RUNS = "able to run to its last time: every trial failed"
_ENDS = "End the schedule where the noise is exact: see smallest_time and status of its process."

_CHOSEN = "The trials stop at the best of several losses."


class Losses:
    """The trials of an audit so far.

    Attributes:
        values: weighted violations, with mean P(loss > epsilon), or the hockey-stick excess.
        excess: realised losses minus epsilon, rounded down.
        loss: realised losses, rounded down.
        weights: likelihood ratios dP/dQ of the trials.
        step: number of the last release.
        law: log wealth of each bet against the distribution that the realised loss assumes.
    """

    def __init__(self, trial: Any, hockey_stick: bool):
        self._program = montecarlo.custom_trials(trial, _CHUNK)
        self._hockey_stick = hockey_stick
        self._masses = np.exp(np.asarray(trial.log_masses, float))
        self.values, self.excess, self.step = np.empty(0), np.empty(0), np.empty(0, int)
        self.loss, self.weights = np.empty(0), np.empty(0)
        self.law, self._places = np.zeros(1), TiltBets(self._masses.size)

    def run(self, key: Array, trials: int, first: int) -> Losses:
        """Add at most `_CHUNK` trials, and return the object."""
        part = self._program.run(key, trials, first)
        excess, densities = (np.asarray(part[name], float) for name in ("excess", "densities"))
        size = -np.expm1(-np.maximum(excess, 0)) if self._hockey_stick else excess > 0
        weights = np.exp(log_weights(densities, self._masses))
        values = np.where(size > 0, weights * size, 0)
        self.values = np.append(self.values, np.where(values > _LEAST_VALUE, values, 0))
        self.excess, self.step = np.append(self.excess, excess), np.append(self.step, part["step"])
        self.loss = np.append(self.loss, np.asarray(part["loss"], float))
        self.weights = np.append(self.weights, weights)
        ended: Any = dict(part, densities=densities)
        bets = law_bets(densities, part["tilt"], self._masses)
        self.law = self.law + np.append(bets, self._places.bet(ended, self._masses))
        return self

    def bound(self, delta: float, alpha: float, known: float) -> float:
        """Return a lower bound of each constant epsilon that holds at delta.

        At delta 0 it is the largest loss. Otherwise bets refute smaller epsilons, since the mean of
        `(1 - exp(epsilon - loss))_+` is at most delta if epsilon holds.

        Args:
            delta: delta of the bound.
            alpha: probability with which the bound may fail at any number of trials.
            known: bound after fewer trials.
        """
        most = float(np.max(self.loss, initial=known))
        if not delta or most <= known:
            return most

        def refuted(epsilon: float) -> bool:
            sizes = -np.expm1(-np.maximum(self.loss - epsilon, 0.0))
            values = np.where(sizes > 0, self.weights * sizes, 0.0)
            values = np.where(values > _LEAST_VALUE, values, 0.0)
            return betting.log_wealth(values, delta) >= -math.log(alpha)

        if known >= _LARGEST or not refuted(known):
            return known
        low, high = known, min(most, _LARGEST)
        while high - low > _PRECISION * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if refuted(middle) else (low, middle)
        return low

    def worst(self, seed: int) -> Worst | None:
        """Return the trial with the largest loss above epsilon, None if there is none."""
        trial = int(np.argmax(self.excess))
        excess = float(self.excess[trial])
        return Worst(trial, int(self.step[trial]), seed, excess) if excess > 0 else None


def audit(
    trial: Any,
    notion: Notion,
    stated: float,
    most: float,
    *,
    trials: int,
    level: float,
    seed: int,
    remark: str,
) -> Audit:
    """Run trials until a verdict is reached.

    Args:
        trial: from `nrjax.auditing.tilted`.
        notion: privacy notion of the stated epsilon.
        stated: stated delta; 0 if the notion is pure.
        most: upper bound of the weights of violations.
        trials: largest number of trials.
        level: probability with which the verdict is right.
        seed: seed of the trials.
        remark: sentence to add to the report.
    """
    key, alpha, hockey_stick = study_key(seed), _SHARE * (1 - level), not notion.bounds_losses
    low, high = (stated, _SLACK * stated) if stated else (_RARE, _RARE)
    if hockey_stick:
        trial, remark = _with_level(trial, key), f"{_CHOSEN} {remark}".rstrip()
    losses, enough, verdict, reason = Losses(trial, hockey_stick), -math.log(alpha), "", ""
    bounds: list[tuple[int, float]] = []
    for first in range(0, trials, _CHUNK):
        losses.run(key, min(_CHUNK, trials - first), first)
        known = bounds[-1][1] if bounds else 0.0
        bounds.append((losses.values.size, losses.bound(stated, 1 - level, known)))
        verdict, reason = _verdict(losses, stated, high, most, enough, trials)
        if verdict:
            break
    check(np.any(losses.excess > -np.inf), "interaction", trial, _RUNS, _ENDS)
    remark = " ".join(filter(None, (_uncounted(losses.excess), remark)))
    needed = refutable = None
    if not verdict:
        needed = max(_LEAST, betting.trials_to_decide(losses.values, low, high, most, alpha))
    elif verdict == "holds" and _has_scale(trial):
        most_trials = int(planted.FRACTION * losses.values.size)

        def refutes(scale: float, start: int) -> bool:
            faulty = planted.with_scale(trial.interaction, scale)
            other = Losses(dataclasses.replace(trial, interaction=faulty), hockey_stick)
            for first in range(0, most_trials, _CHUNK):
                other.run(key, min(_CHUNK, most_trials - first), start + first)
                if _verdict(other, stated, high, most, enough, trials)[0] == "violated":
                    return True
            return False

        refutable = planted.refutable_scale(refutes)
    return Audit(
        verdict=verdict or "not enough trials",
        interval=betting.interval(losses.values, most, alpha),
        stated=stated,
        quantity=_QUANTITIES[hockey_stick],
        reason=reason,
        worst=losses.worst(seed),
        trials=losses.values.size,
        needed=needed,
        level=level,
        remark=remark,
        refutable=refutable,
        bounds=() if reason == "distribution" else tuple(bounds),
    )


def _has_scale(trial: Any) -> bool:
    """Return whether noise of another scale than stated can be planted into a trial."""
    interaction = getattr(trial, "interaction", None)
    return interaction is not None and isinstance(interaction.process, planted.Scaled)


def _uncounted(excess: np.ndarray) -> str:
    """Return a sentence on the trials that cannot show a violation, "" if there are none."""
    count = int(np.sum(excess == -np.inf))
    text = (
        f"{count:,} of {excess.size:,} trials failed, reported NaN, or stated an infinite epsilon"
    )
    return f"{text}: they count as trials without a violation." if count else ""


_QUANTITIES = {
    False: "the probability that the realised loss exceeds epsilon",
    True: "the mean of (1 - exp(epsilon - loss))+",
}


def _verdict(
    losses: Losses, stated: float, high: float, most: float, enough: float, trials: int
) -> tuple[str, str]:
    """Return the verdict, or "" if there is none yet, and its reason.

    "Holds" takes all trials, since each makes smaller faults of the distribution show.
    """
    if losses.worst(0) is not None:
        if not stated:
            return "violated", "loss"
        if betting.log_wealth(losses.values, stated) >= enough:
            return "violated", "mean"
    if betting.mixed_wealth(losses.law) >= enough + _MORE or np.max(losses.values) > most:
        return "violated", "distribution"
    below = losses.values.size >= max(_LEAST, trials)
    below = below and betting.log_wealth_below(losses.values, high, most) >= enough
    return ("holds", "mean") if below else ("", "")


def _with_level(trial: Any, key: Array) -> Any:
    """Return the trial with the level of the stop at which a hockey-stick excess is largest."""
    choices = [
        dataclasses.replace(trial, level=np.asarray(level, trial.shift.dtype)) for level in _LEVELS
    ]
    means = [Losses(one, True).run(key, _PILOT, _PILOT_FIRST).values.mean() for one in choices]
    return choices[int(np.argmax(means))]
