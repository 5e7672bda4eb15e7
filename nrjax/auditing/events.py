"""Audits of mechanisms without a realised loss: counts of an event on two data sets.

The event is chosen on one half of the transcripts and tested on the other half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.quantiles import order_statistics
from nrjax.statistics.intervals import binomial_interval

MOST_EDGES, _BINS, _THRESHOLDS = 32, 16, 64
"""Numbers of values that a column may have without bins, of its bins, and of events tried."""

_CLEAR = 3.0
"""Standard errors by which the chosen event suggests a violation. By chance some reach 2."""

_LARGEST = 300.0
"""The epsilon to which larger ones are cut, which no number of transcripts can refute."""


@explain_fields
class Event(NamedTuple):
    """A set of transcripts, and how often it happens on two data sets.

    Attributes:
        epsilon: largest stated epsilon of the transcripts of the event.
        low: lower bound of `P(event) - exp(epsilon) P'(event)`, where P may be either law.
        high: upper bound of the same difference.
        needed: number of transcripts with which the event would show a violation; None if the
            half on which it was chosen does not suggest one.
        smallest: probability below which events remain unseen.
        least_epsilon: lower bound of each constant epsilon with which `P(event) - exp(epsilon)
            P'(event)` is at most the stated delta.
    """

    epsilon: float
    low: float
    high: float
    needed: int | None
    smallest: float
    least_epsilon: float


def compare(
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    delta: float,
    alpha: float,
) -> Event:
    """Choose an event on the first half of all transcripts, and count it in the second half.

    Args:
        first: transcripts on the data, shape (trials, columns), and their epsilons, (trials,).
        second: transcripts on the neighbour, as many.
        delta: stated delta.
        alpha: probability with which the bounds of the event may fail.
    """
    half = first[1].size // 2
    ratio = _log_ratio(first[0][:half], second[0][:half])
    pairs = [
        (ratio(table), np.minimum(np.nan_to_num(paid, nan=_LARGEST), _LARGEST))
        for table, paid in (first, second)
    ]
    sides = [[(sign * score - paid, paid) for score, paid in pairs[::sign]] for sign in (1, -1)]
    choices = [_choose(side[0], side[1], half, delta) for side in sides]
    swapped = choices[1][0] > choices[0][0]
    advantage, least, epsilon = choices[swapped]
    counts = [
        int(np.sum((score[half:] >= least) & (paid[half:] <= epsilon)))
        for score, paid in sides[swapped]
    ]
    size, factor = first[1].size - half, math.exp(epsilon)
    (low, high), (few, many) = (binomial_interval(n, size, 1 - alpha) for n in counts)
    needed = None
    if advantage >= _CLEAR:  # as the distance of both bounds is twice that of one tail
        ratio_needed = 2 * math.sqrt(-2 * math.log(alpha)) / advantage
        needed = math.ceil(first[1].size * max(1.5, ratio_needed) ** 2)
    smallest = min(1.0, -math.log(alpha / 2) / size)
    least = max(0.0, math.log(max(low - delta, 1e-300) / many))
    return Event(epsilon, low - factor * many, high - factor * few, needed, smallest, least)


def _log_ratio(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scores transcripts by an estimate of their log-ratio.

    The other columns are taken as independent, given the first one.
    """
    both = np.concatenate([first, second])
    edges = [bin_edges(column) for column in both.T]

    def bins(table: np.ndarray) -> list[np.ndarray]:
        pairs = zip(edges, table.T, strict=True)
        head, *rest = (np.searchsorted(edge, column, "right") for edge, column in pairs)
        return [head, *(head * (MOST_EDGES + 1) + column for column in rest)]

    def ratios(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        counts = [np.bincount(part, minlength=(MOST_EDGES + 1) ** 2) + 0.5 for part in (one, other)]
        return np.log(counts[0] / counts[1])

    head, *rest = map(ratios, bins(first), bins(second))

    def score(table: np.ndarray) -> np.ndarray:
        own, *others = bins(table)
        parts = [ratio[column] - head[own] for ratio, column in zip(rest, others, strict=True)]
        return head[own] + sum(parts)

    return score


def bin_edges(column: np.ndarray) -> np.ndarray:
    """Return the rising edges of at most `MOST_EDGES + 1` bins of a column."""
    values = np.unique(column)
    if values.size <= MOST_EDGES:
        return values
    return np.unique(order_statistics(column, np.arange(1, _BINS) / _BINS))


def _choose(own: Any, other: Any, half: int, delta: float) -> tuple[float, float, float]:
    """Return the best event `score >= c`: its advantage in standard errors, c, and its epsilon."""
    best = (-math.inf, math.inf, 0.0)
    for least in np.unique(np.quantile(own[0][:half], np.linspace(0, 1, _THRESHOLDS))):
        inside = [score[:half] >= least for score, _ in (own, other)]
        epsilon = float(np.max(own[1][:half], initial=0.0, where=inside[0]))
        p, q = (float(np.mean(part)) for part in inside)
        factor = math.exp(epsilon)
        error = math.sqrt((p + factor**2 * (q + 1 / half)) / half)
        best = max(best, ((p - factor * q - delta) / error, float(least), epsilon))
    return best
