"""The result of an audit."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from typing import Any, NamedTuple

from nrjax._base.fields import explain_fields
from nrjax.study.formats import lower, upper

COLUMNS = 88
"""The largest number of columns of the text of an audit."""


@explain_fields
class Worst(NamedTuple):
    """The trial with the largest loss above epsilon.

    Attributes:
        trial: number of the trial.
        step: number of its last release, from 0; -1 for a custom trial.
        seed: seed of the audit.
        excess: realised loss minus epsilon, rounded down.
    """

    trial: int
    step: int
    seed: int
    excess: float


def _rounded_down(number: float) -> float:
    """Return a number of four digits that is no larger than a nonnegative number."""
    if number <= 0 or number == math.inf:
        return number
    unit = 10.0 ** (math.floor(math.log10(number)) - 3)
    return max(0.0, (math.ceil(number / unit) - 1) * unit)


@dataclasses.dataclass(frozen=True)
class Audit:
    """The verdict of `nrjax.audit`, and its evidence. Print it for a few sentences.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> interaction = nrjax.laplace(120.0, sensitivity=1.0).until(score, at_least=-2.0)
        >>> nrjax.audit(interaction, neighbour=2.0).verdict  # further away than stated
        'violated'

    Attributes:
        verdict: "violated", "not enough trials", or "holds": the audited number is below 1.1 times
            `stated`, or below 0.001 for a pure guarantee.
        interval: lower and upper bound of the audited number. Each holds with probability `level`,
            whenever the audit ends. For transcripts `(epsilon, inf)`.
        stated: delta that the number must not exceed, 0 for a pure guarantee.
        quantity: audited number in words.
        reason: reason for the verdict: "mean" (of the audited number), "loss" (a loss above the
            epsilon of a pure guarantee, which is a proof), "distribution" (the releases do not have
            the one that the realised loss assumes), "event" (bets on events of transcripts), or
            "" without a verdict.
        worst: trial with the largest loss above epsilon, None if there was none.
        trials: number of trials, per data set.
        needed: about how many trials would decide; None if decided, or if no estimate exists.
        level: probability with which the verdict is right.
        remark: what was not audited.
        refutable: largest multiple of the audited process's own noise, in hundredths, that was
            refuted in each of three runs of other trials, three quarters as many. If that noise is
            itself below the stated scale, and this was not seen, the multiple is of that noise. 0
            if none was refuted. None if the guarantee is violated, if too few losses decide
            nothing, or for a custom trial or noise.
        bounds: pairs `(trials, bound)` in rising order: `epsilon` after so many trials. Empty if
            the releases do not have the distribution that the realised loss assumes.
    """

    verdict: str
    interval: tuple[float, float]
    stated: float
    quantity: str
    reason: str
    worst: Worst | None
    trials: int
    needed: int | None
    level: float
    remark: str = ""
    refutable: float | None = None
    bounds: tuple[tuple[int, float], ...] = ()

    def __str__(self) -> str:
        low, high = lower(self.interval[0]), upper(self.interval[1])
        after = f"and {self.stated:.4g} is stated ({self.trials:,} trials, level {self.level:.4g})."
        worst: Any = self.worst
        if self.reason == "distribution":
            text = f"Violated: the releases do not have the distribution of the loss, {after}"
        elif self.reason == "loss":
            text = f"Violated: a loss is {worst.excess:.3g} above epsilon, which never may be."
        elif self.reason == "event":
            refuted = "are" if self.verdict == "violated" else "are not"
            start = "Violated" if self.verdict == "violated" else "Not enough trials"
            text = (
                f"{start}: the stated epsilons {refuted} refuted at delta {self.stated:.4g} "
                f"({self.trials:,} trials, level {self.level:.4g})."
            )
        elif self.verdict == "violated":
            text = f"Violated: {self.quantity} is at least {low}, {after}"
        elif self.verdict == "holds":
            text = f"Holds: {self.quantity} is at most {high}, {after}"
            if self.interval[1] > self.stated > 0:
                over = upper(100 * (self.interval[1] / self.stated - 1), 2)
                text += (
                    f" This bound is {over} % above the stated delta, and up to 10 % is "
                    "tolerated: the guarantee is not refuted."
                )
        else:
            text = f"Not enough trials: {self.quantity} is between {low} and {high}, {after}"
        if self.needed is not None:
            text += f" About {self.needed:,} trials would do."
        if isinstance(worst, Worst) and self.verdict == "violated":
            where = f", at step {worst.step}" if worst.step >= 0 else ""
            text += (
                f" The largest loss above epsilon is that of trial {worst.trial}{where}, which an "
                f"audit with seed={worst.seed} meets again."
            )
        sentences = " ".join(filter(None, (text, self._bound, self._power, self.remark)))
        return textwrap.fill(sentences, COLUMNS, break_on_hyphens=False, break_long_words=False)

    @property
    def epsilon(self) -> float:
        """The lower bound of each constant epsilon that holds at the stated delta.

        It holds with probability `level`, whenever the audit ends. From losses it assumes that the
        realised loss is exact. It is 0 if nothing is known. The stated epsilon of a stopped trial
        may be smaller, since it depends on the stop.
        """
        return self.bounds[-1][1] if self.bounds else 0.0

    def plot(self) -> Any:
        """Return a matplotlib figure of the lower bound of epsilon against the trials."""
        from nrjax.auditing.figure import figure  # matplotlib is slow to import

        return figure(self)

    @property
    def _bound(self) -> str:
        """A sentence on the constant epsilons that are refuted."""
        if not self.bounds:
            return ""
        known = _rounded_down(self.epsilon)
        return (
            f"One epsilon for all runs, at delta {self.stated:.4g}, cannot be below {known:.4g}, "
            "which is no safe value."
        )

    @property
    def _power(self) -> str:
        """A sentence on the noise that would have been refuted."""
        if self.refutable:
            return (
                f"The same mechanism with {self.refutable:g} of its noise was refuted in each of "
                "three runs."
            )
        if self.refutable == 0:
            return "The same mechanism with less of its noise would not be refuted."
        if self.verdict == "holds":
            return "It is unknown which faults of the noise would be refuted."
        return ""
