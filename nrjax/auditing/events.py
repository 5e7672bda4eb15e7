"""Audits of mechanisms without a realised loss: bets on transcripts of two data sets.

Each pair of transcripts, one of each data set, is bet on with stakes that earlier pairs determine.
Every pair therefore counts twice: it is a bet itself, and it improves the later stakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.quantiles import order_statistics
from nrjax.statistics.betting import mixed_wealth

MOST_EDGES, _BINS = 32, 16
"""Numbers of values that a column may have without bins, and of its bins."""

EPSILONS = np.geomspace(0.01, 20.0, 256)
"""The constant epsilons that are bet against, in rising order, each 3 % above the last."""

_LARGEST = 300.0
"""The epsilon to which larger ones are cut, which no number of transcripts can refute."""

_TAIL = 2.0 ** -np.arange(4, 12)
_FRACTIONS = np.concatenate([np.arange(1, 10) / 10, _TAIL, 1 - _TAIL])
"""Fractions of the quantiles that separate bins of a score, fine where ratios are extreme."""

_FIRST, _GROWTH = 64, 1.2
"""Number of pairs before the first bet, and the factor of pairs between two choices of stakes."""

_MULTIPLES = np.array([0.5, 1.0, 2.0])
"""Multiples of the growth-optimal stakes among which the initial wealth is divided."""

_MOST = 0.95
"""Largest fraction of the wealth that a pair can lose."""

_PRIOR = 1.0
"""Number of imagined transcripts of each data set in each bin, so that few pairs bet little."""

_CLEAR = 3.0
"""Log wealth that suggests a violation. Honest mechanisms reach it with probability 0.05."""

Table = tuple[np.ndarray, np.ndarray]
"""Transcripts, shape (trials, columns), and their stated epsilons, shape (trials,)."""

Score = Callable[[np.ndarray], np.ndarray]


@explain_fields
class Bets(NamedTuple):
    """The outcome of bets on pairs of transcripts.

    Attributes:
        log_wealth: largest log wealth so far of the bets against the stated epsilons.
        needed: number of pairs with which the bets would refute the stated epsilons; None if the
            pairs so far do not suggest a violation.
        smallest: probability below which events remain unseen.
        bounds: pairs `(trials, bound)`, in the order of the trials: the lower bound of each
            constant epsilon that holds at the stated delta, after so many pairs.
    """

    log_wealth: float
    needed: int | None
    smallest: float
    bounds: tuple[tuple[int, float], ...]


def compare(
    first: Table, second: Table, delta: float, alpha: float, epsilons: np.ndarray = EPSILONS
) -> Bets:
    """Bet on pairs of transcripts against the stated epsilons, and against constant ones.

    Args:
        first: transcripts on the data.
        second: transcripts on the neighbour, as many.
        delta: stated delta.
        alpha: probability with which a true epsilon may be refuted, at any time.
        epsilons: constant epsilons for the lower bound, in rising order.
    """
    first, second = ((table, _finite(paid)) for table, paid in (first, second))
    trials, enough, scores = first[1].size, -math.log(alpha), 1 + (first[0].shape[1] > 1)
    stated = np.zeros((scores, _MULTIPLES.size, 1))
    constant = np.zeros((scores, _MULTIPLES.size, epsilons.size))
    highest, refuted, bounds = 0.0, np.zeros(epsilons.size, bool), []
    for start, end in _blocks(trials):
        sides = [(table[start:end], paid[start:end]) for table, paid in (first, second)]
        for number, score in enumerate(_scores(first[0][:start], second[0][:start])):
            bins = _Bins(score, first[0][:start], second[0][:start])
            pair = [bins.of(table) for table, _ in sides]
            least = min(float(np.min(paid[:start])) for _, paid in (first, second))
            paid = [own[:, None] for _, own in sides]
            stated[number] += _growth(bins.first, pair, paid, np.array([least]), delta)
            if epsilons.size:
                cells, counts = np.unique(np.stack(pair), axis=1, return_counts=True)
                rows = np.broadcast_to(epsilons, (counts.size, epsilons.size))
                own = _growth(bins.first, cells, (rows, rows), epsilons, delta, counts)
                constant[number] += own
        highest = max(highest, mixed_wealth(stated.ravel()))
        refuted |= _mixed(constant) >= enough
        known = int(np.argmin(np.append(refuted, False)))
        bounds.append((end, float(epsilons[known - 1]) if known else 0.0))
    needed = None
    if _CLEAR <= highest < enough:
        needed = math.ceil(trials * enough / highest)
    hits = enough / math.log1p(math.exp(-min(np.min(first[1]), np.min(second[1]))))
    return Bets(highest, needed, min(1.0, hits / trials), tuple(bounds))


def _finite(paid: np.ndarray) -> np.ndarray:
    """Return stated epsilons from 0 to the largest that can be refuted."""
    return np.clip(np.nan_to_num(paid, nan=_LARGEST), 0.0, _LARGEST)


def _blocks(trials: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number, plus 1, of pairs that are bet on with equal stakes."""
    start = min(_FIRST, trials)
    while start < trials:
        end = min(trials, math.ceil(_GROWTH * start))
        yield start, end
        start = end


def _mixed(logs: np.ndarray) -> np.ndarray:
    """Return the log of the mean wealth over the scores and multiples, for each epsilon."""
    count = logs.shape[0] * logs.shape[1]
    return np.logaddexp.reduce(logs.reshape(count, -1), axis=0) - math.log(count)


class _Bins:
    """Bins of a score, with the posterior probability of the first data set in each.

    Attributes:
        first: probability that a transcript of the bin is one of the first data set, if both data
            sets have as many transcripts.
    """

    def __init__(self, score: Score, first: np.ndarray, second: np.ndarray):
        one, other = score(first), score(second)
        both = np.concatenate([one, other])
        self._score, self._edges = score, np.unique(both)
        if self._edges.size > MOST_EDGES:
            self._edges = np.unique(order_statistics(both, _FRACTIONS))
        counts = [
            np.bincount(self._place(part), minlength=MOST_EDGES + 1) + _PRIOR
            for part in (one, other)
        ]
        self.first = counts[0] / (counts[0] + counts[1])

    def of(self, table: np.ndarray) -> np.ndarray:
        """Return the bin of each transcript."""
        return self._place(self._score(table))

    def _place(self, scores: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._edges, scores, "right")


def _growth(
    first: np.ndarray,
    pair: Sequence[np.ndarray] | np.ndarray,
    paid: Sequence[np.ndarray],
    least: np.ndarray,
    delta: float,
    counts: Any = 1,
) -> np.ndarray:
    """Return the growth of the log wealth of each multiple of the stakes, for each epsilon.

    Args:
        first: probability of the first data set in each bin.
        pair: bin of each transcript of the first data set, and of the second, shape (pairs,).
        paid: epsilons of the same transcripts, shape (pairs, epsilons) each.
        least: smallest epsilon that is bet on, shape (epsilons,).
        delta: stated delta.
        counts: number of occurrences of each pair.
    """
    heads = (first, 1 - first)  # probabilities of the data set that should have the event
    ratios = [_stakes(head[:, None], least, delta) for head in heads]
    most = sum(np.max(np.exp(least) * stake, axis=0) for stake in ratios)
    free = delta * sum(np.max(stake, axis=0) for stake in ratios)
    gain = -free * np.ones_like(paid[0])
    for side, (bins, epsilon) in enumerate(zip(pair, paid, strict=True)):
        own, other = (
            np.where(epsilon >= least, _stakes(head[bins, None], epsilon, delta), 0.0)
            for head in (heads[side], heads[1 - side])
        )
        gain = gain + own - np.exp(epsilon) * other
    factors = np.minimum(_MULTIPLES[:, None], _MOST / np.maximum(most + free, 1e-300))
    logs = np.log1p(factors[:, None] * gain)
    return np.sum(logs * np.reshape(counts, (-1, 1)), axis=1)


def _stakes(head: np.ndarray, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """Return the stake on a transcript, 0 if its ratio of probabilities is below exp(epsilon).

    At delta = 0 it is the growth-optimal stake of rare events. Otherwise it is constant over the
    event of all larger ratios, whose excess probability delta bounds.
    """
    fair = 1 / (1 + np.exp(-epsilon))
    if delta:
        return np.where(head > fair, 0.5 * np.exp(-epsilon), 0.0)
    return np.maximum(head / fair - 1, 0.0)


def _scores(first: np.ndarray, second: np.ndarray) -> list[Score]:
    """Return the scores of transcripts, from past ones: all columns, and the first only."""
    scores = [_log_ratio(first, second)]
    if first.shape[1] > 1:
        head = _log_ratio(first[:, :1], second[:, :1])
        scores.append(lambda table: head(table[:, :1]))
    return scores


def _log_ratio(first: np.ndarray, second: np.ndarray) -> Score:
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
