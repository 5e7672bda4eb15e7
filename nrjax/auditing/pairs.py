"""The verdict on transcripts of two data sets, for mechanisms without a realised loss."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import jax
import numpy as np

from nrjax._base.keys import study_key
from nrjax._base.outcome import Status, describe_failures
from nrjax._base.validation import check, check_integer
from nrjax.auditing import events, planted
from nrjax.auditing.report import Audit
from nrjax.engine.interaction import Interaction
from nrjax.simulation import montecarlo

_CHUNK = 8192


def audit(first: Any, second: Any, stated: float, *, trials: int, level: float, seed: int) -> Audit:
    """Compare transcripts of an interaction, or a custom trial, on two data sets."""
    check_integer("trials", trials, 2)
    key, other = jax.random.split(study_key(seed))
    has_scale = isinstance(first, Interaction) and isinstance(second, Interaction)
    if has_scale:
        first, second = planted.with_scale(first), planted.with_scale(second)
    found = _transcripts(first, key, trials), _transcripts(second, other, trials)
    transcripts = found[0][:2], found[1][:2]
    failures = describe_failures(found[0][2] + found[1][2], " of both data sets")
    unknown = sum(int(np.sum(np.isnan(part[1]))) for part in found)
    no_numbers = f" {unknown:,} stated epsilons are NaN: they count as infinite." if unknown else ""
    width, other_width = (table.shape[1] for table, _ in transcripts)
    same, expected = width == other_width, f"of transcripts with {width} numbers"
    check(same, "neighbour", f"{other_width} numbers", expected, "Pad the smaller transcripts.")
    bets = events.compare(*transcripts, stated, 1 - level)
    enough = -math.log(1 - level)
    violated, most_trials = bets.log_wealth >= enough, max(2, int(planted.FRACTION * trials))

    def refutes(scale: float, start: int) -> bool:
        faulty = (planted.with_scale(each, scale) for each in (first, second))
        one, two = (
            _transcripts(each, part, most_trials, start)[:2]
            for each, part in zip(faulty, (key, other), strict=True)
        )
        return events.compare(one, two, stated, 1 - level, np.empty(0)).log_wealth >= enough

    return Audit(
        verdict="violated" if violated else "not enough trials",
        interval=(bets.bounds[-1][1] if bets.bounds else 0.0, math.inf),
        stated=stated,
        quantity="each constant epsilon",
        reason="event",
        worst=None,
        trials=trials,
        needed=bets.needed,
        level=level,
        remark=(
            f"Events with probabilities below about {bets.smallest:.2g} cannot be seen."
            f"{f' {failures}.' if failures else ''}{no_numbers}"
        ),
        refutable=planted.refutable_scale(refutes) if has_scale and not violated else None,
        bounds=bets.bounds,
    )


def _transcripts(
    trial: Any, key: Any, trials: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray, Counter[Status]]:
    """Return transcripts, shape (trials, columns), their epsilons, and the number per status.

    A custom trial has no statuses.
    """
    statuses: Counter[Status] = Counter()
    if isinstance(trial, Interaction):
        fields = ("step", "status", "release", "epsilon")
        part = montecarlo.outcomes(trial, _CHUNK, fields).run_all(key, trials, first)
        statuses.update(map(Status, part["status"].tolist()))
        columns = [part["step"] + 0.5 * (part["status"] == Status.STOPPED), part["release"]]
    else:
        fields = ("transcript", "epsilon")
        part = montecarlo.custom_trials(trial, _CHUNK, fields=fields).run_all(key, trials, first)
        columns = [part["transcript"]]
    table = np.concatenate([np.reshape(column, (trials, -1)) for column in columns], axis=1)
    return np.asarray(table, float), np.asarray(part["epsilon"], float), statuses
