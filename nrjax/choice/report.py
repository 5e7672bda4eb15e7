"""The result of `nrjax.choose`: rows of a table, and advice in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nrjax._base.fields import explain_fields
from nrjax._base.notions import Notion
from nrjax.choice import showing
from nrjax.choice.candidates import FIXED, PRIVATE
from nrjax.choice.racing import TIE, Verdict
from nrjax.study.formats import upper
from nrjax.study.release_error import Coverage


@explain_fields
class Row(NamedTuple):
    """One candidate in the table of a `Choice`.

    Attributes:
        name: name of the candidate.
        section: section of the table. Only candidates of one section are ranked.
        verdict: result of the race, such as "best"; "" for a release fixed in advance.
        met: fraction of the trials that met the target.
        met_interval: interval of that probability.
        median: median stopping epsilon, infinite if half of the trials did not stop.
        median_interval: interval of the median.
        high: 90 % quantile of the stopping epsilon.
        high_interval: interval of the 90 % quantile.
        cheaper: fraction of the trials in which the candidate is cheaper than the best of its
            section; NaN for the best one.
        coverage: error of the releases at the stop, for the best of a section; else None.
        notion: privacy notion of epsilon (`nrjax.guarantees.Notion`).
        trials: number of trials.
        is_open: whether the candidate may meet the target and cost less than the best of its
            section: the trials do not exclude it.
    """

    name: str
    section: str
    verdict: Verdict
    met: float
    met_interval: tuple[float, float]
    median: float
    median_interval: tuple[float, float]
    high: float
    high_interval: tuple[float, float]
    cheaper: float
    coverage: Coverage | None
    notion: str
    trials: int
    is_open: bool = False


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The answer to "what does my accuracy cost, and by which mechanism?", from `nrjax.choose`.

    `print(choice)` shows the advice and the table, and a notebook shows them as HTML. Each interval
    of the table holds at all rounds of the race.

    >>> def factory(error):
    ...     mechanism = nrjax.laplace(3.0, sensitivity=1.0)
    ...     score = nrjax.questions.largest_error
    ...     return {"laplace": mechanism.until(score, at_least=-error, data=(3.0,))}
    >>> question = nrjax.questions.custom(factory)
    >>> nrjax.choose(question, error=2.0, trials=256, progress=False).best
    'laplace'

    Attributes:
        question: the question in words.
        error: largest error, in the question's unit.
        confidence: least probability with which the error is met.
        best: name of the cheapest candidate that is known to meet the target, the simplest among
            practically equal ones, of the first section that has one; None if no candidate that
            tests its releases is known to meet the target. Its verdict is "best" if no other
            candidate is `open`, else "cheapest known".
        practically_equal: names of the candidates of that section whose cost differs from the
            best's by less than the indifference zone.
        missed: names of the candidates that miss the target, which are not ranked.
        table: a `Row` for each candidate.
        advice: the result in two sentences.
        results: trials of all candidates: an `nrjax.Results` if there is a folder, else an
            `nrjax.Outcomes` with the first 256 of each.
        relation: relation of the neighbours of every epsilon (`nrjax.Sensitivity`), or None.
        failures: a sentence for each candidate with trials that failed. Such trials count as
            trials that missed the error.
        tied: names of the candidates of the best's section that meet the target, where all trials
            do not tell which is cheaper: each costs more than the other, by more than the
            indifference zone, in at most 55 % of runs.
        open: names of the candidates of the best's section that may meet the target and cost less
            than the best. The trials exclude neither, or show that no candidate is cheaper than
            each other one in most runs.
        remarks: sentences on what the question does not offer.
    """

    question: str
    error: float
    confidence: float
    best: str | None
    practically_equal: tuple[str, ...]
    missed: tuple[str, ...]
    table: tuple[Row, ...]
    advice: str
    results: Any
    relation: str | None = None
    failures: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return showing.text(self)

    def _repr_html_(self) -> str:
        return showing.page(self)

    def __repr__(self) -> str:
        rivals = f", open={self.open!r}" if self.open else ""
        return f"Choice({self.question!r}, best={self.best!r}{rivals})"

    def plot(self) -> Any:
        """Return a matplotlib figure of the epsilons of the candidates that meet the target.

        Each candidate has a bar from the median to the 90 % quantile of its stopping epsilon.
        """
        from nrjax.choice.figure import figure  # matplotlib is slow to import

        return figure(self)


_FREE = "If stopping costs nothing, that is if the score reads no private data"


def advice(rows: Sequence[Row], best: Row | None, reachable: str, confidence: float) -> str:
    """Return the result in a few sentences.

    Args:
        rows: the rows of the table.
        best: the best row, or None.
        reachable: sentence on the error that can be reached, if `best` is None.
        confidence: least probability with which the error is met.
    """
    others = [
        row
        for row in rows
        if row.section.startswith((FIXED, PRIVATE))
        and Notion(row.notion).bounds_losses
        and (row.verdict.leads or row.verdict == Verdict.FIXED)
    ]
    if best is None:
        return _without_best(rows, others, reachable, confidence)
    is_private = best.section.startswith(PRIVATE)
    if best.verdict == Verdict.LEADER:
        first = f"{best.name} is the cheapest known to meet the error"
        first = first if is_private else f"{_FREE}, {first}"
    else:
        case = "Take" if is_private else f"{_FREE}, take"
        first = f"{case} {best.name}"
    first += f": its median epsilon is {upper(best.median, 3)}, and 90 % of runs cost at most "
    first = " ".join([f"{first}{upper(best.high, 3)}.", *_rivals(rows, best)])
    if is_private:
        return f"{first} This epsilon covers the decision to stop."
    if not others:
        return f"{first} This epsilon does not cover the decision to stop."
    other = min(others, key=lambda row: row.median)
    fixed = ", which needs no test" if other.section.startswith(FIXED) else ""
    cost = "it costs an epsilon of" if fixed else "its median epsilon is"
    covering = (
        f"If the score reads private data, take {other.name}{fixed}: {cost} "
        f"{upper(other.median, 3)}, which covers the decision to stop."
    )
    return " ".join([covering, *_rivals(rows, other), first])


def _without_best(
    rows: Sequence[Row], fixed: Sequence[Row], reachable: str, confidence: float
) -> str:
    """Return the result if no candidate with a test is known to meet the error.

    `fixed` are the releases at an epsilon known in advance that meet it.
    """
    which = " that tests its releases" if any(r.verdict == Verdict.FIXED for r in rows) else ""
    known = "is known to meet" if any(r.verdict == Verdict.UNDECIDED for r in rows) else "meets"
    missed = f"No candidate{which} {known} the error in {confidence:.0%} of runs."
    if not fixed:
        return f"{missed} {reachable}"
    other = min(fixed, key=lambda row: row.median)
    return (
        f"{missed} Take {other.name}, which needs no test: its epsilon is {upper(other.median, 3)}."
    )


def _rivals(rows: Sequence[Row], best: Row) -> Iterator[str]:
    """Generate a sentence each on the candidates that are tied with the best, open, or cheaper."""
    rivals = [row for row in rows if row.section == best.section]
    tied = [row.name for row in rivals if row.verdict == Verdict.TIED]
    if tied:
        yield (
            f"Tied with it: {', '.join(tied)}. Each costs more than the other in at most "
            f"{0.5 + TIE:.0%} of runs."
        )
    shares = {row.name: f"{row.median / best.median:.0%}" for row in rivals if row.is_open}
    cheaper = [row.name for row in rivals if row.is_open and row.verdict == Verdict.CHEAPER]
    undecided = [name for name in shares if name not in cheaper]
    if undecided:
        named = ", ".join(f"{name} may meet it at {shares[name]}" for name in undecided)
        yield f"{named} of this median: more trials may decide."
    if cheaper:
        named = ", ".join(f"{name} (at {shares[name]} of this median)" for name in cheaper)
        yield f"Cheaper in most runs: {named}. None is cheaper than each other one in most runs."
