"""The function `nrjax.audit`, which checks by simulation whether a stated guarantee holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from nrjax._base.keys import abstract_key
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion, notion_of
from nrjax._base.validation import check, check_integer, check_number, concrete_or_none
from nrjax._base.value import check_array
from nrjax.auditing import losses, pairs
from nrjax.auditing.report import Audit
from nrjax.auditing.tilted import Reported, tilted
from nrjax.engine.interaction import MADE_BY, Interaction
from nrjax.engine.steps import check_single
from nrjax.types import NoiseProcess, overrides

_LOSSES, _PAIRS = 16_384, 40_000
"""The default largest numbers of trials, of realised losses and of transcripts."""

_PRIVATE = (
    "The cost of the private test is not audited: pass the interaction on the neighbouring data."
)
_PUBLIC = (
    "The decision to stop is not audited. It costs no privacy only if the score, with its `data`, "
    "is public."
)


@neutral_config()
def audit(
    interaction: Any,
    neighbour: Any = None,
    delta: float | None = None,
    trials: int | None = None,
    level: float = 0.99,
    seed: int = 0,
) -> Audit:
    """Check by simulation whether the stated epsilon and delta hold for a pair of neighbours.

    Use it for your own processes, guarantees and rules. It can refute a guarantee, and certify an
    upper bound for one pair of neighbours and one schedule. It proves nothing about other pairs.

        >>> def score(release):
        ...     return -jnp.abs(release - 120.0)
        >>> mechanism = nrjax.brownian(120.0, sensitivity=1.0, delta=1e-6)
        >>> interaction = mechanism.until(score, at_least=-2.0, levels=(0.1, 3.0, 10))
        >>> nrjax.audit(interaction).verdict, nrjax.audit(interaction, neighbour=1.5).verdict
        ('holds', 'violated')

    If the process has a realised loss, the audited number is the probability that the loss exceeds
    epsilon; under a hockey-stick delta it is the mean of `(1 - exp(epsilon - loss))_+`. Trials stop
    at the first loss above epsilon. For this pair no rule that sees releases only is worse, so the
    interaction's own rule and utility are left out. If its score reads private data, pass the
    interaction on the neighbouring data. Values are moved towards large losses and weighted back
    (`nrjax.auditing.tilted`). The audit also tests whether the releases have the distribution
    that the realised loss assumes. That test finds gross faults only: "holds" states the largest
    multiple of the process's noise that would have been refuted (`Audit.refutable`), such as 0.95
    for Gaussian noise. More trials find smaller faults. The verdicts hold at any time (betting;
    Waudby-Smith and Ramdas 2024). Under a hockey-stick delta, trials stop at a loss that other
    trials choose. That rule need not be the worst, so "holds" then means this rule.

    Otherwise, or if `neighbour` is an interaction with other parts, such as a score of other data
    or a private rule, each pair of transcripts is bet on, with stakes on events that earlier pairs
    determine. Transcripts are the last step, whether the rule accepted, and the last release. The
    verdict is then never "holds", since unseen events may be worse.

    Next to the verdict, `Audit.epsilon` is a lower bound of each constant epsilon that holds at
    delta. `Audit.plot` draws the bound against the trials.

    Args:
        interaction: interaction with a guarantee. Or a custom trial with a method `run(key)` whose
            result has the fields `epsilon` and `privacy_loss`, or `epsilon` and `transcript` (a
            vector).
        neighbour: shift `f(x) - f(x')`; or the interaction, or custom trial, on the neighbouring
            data. By default the interaction's `shift`, or else the sensitivity in the first
            coordinate, rounded down to an integer if the noise is integer-valued.
        delta: delta to audit the stated epsilon at; by default the guarantee's.
        trials: largest number of trials, by default 16,384; of transcripts, 40,000. An audit ends
            when losses refute the guarantee. "Holds" takes all trials, and at least 16,384.
        level: probability with which each verdict is right.
        seed: seed of all trials.

    Raises:
        ValueError: there is no guarantee or no neighbour, a neighbour of integers is not an
            integer shift, a custom trial has no delta, or an argument is out of range. Or every
            trial failed, for example since the last time is below the process's `smallest_time`:
            the trials of an audit rarely stop before it.
    """
    check_number("level", level, lambda n: (n > 0) & (n < 1), "in (0, 1)")
    if delta is not None:
        fits, expected = lambda n: (n >= 0) & (n < 1), "at least 0 and below 1"
        delta = check_number("delta", delta, fits, expected)
    count = None if trials is None else check_integer("trials", trials, 1)
    options: Any = {"level": level, "seed": seed}
    if not isinstance(interaction, Interaction):
        return _audit_custom(interaction, neighbour, delta, count, options)
    check_single("interaction", interaction)
    guarantee: Any = interaction.guarantee
    check(guarantee is not None, "guarantee", None, "given, since it states what is audited")
    stated = float(np.min(np.asarray(guarantee.delta) if delta is None else delta))
    notion: Any = notion_of(guarantee)
    notion = notion.at_delta(stated)
    lossy = overrides(interaction.process, NoiseProcess, "privacy_loss")
    other = neighbour if isinstance(neighbour, Interaction) else None
    if other is None or (lossy and _only_moved(interaction, other)):
        shift = _shift(interaction, neighbour)
        if lossy:
            trial, most = tilted(interaction, shift)
            remark = _PUBLIC if jax.tree.leaves(interaction.utility) else ""
            remark = remark if interaction.rule.sensitivity is None else _PRIVATE
            options |= {"trials": count or _LOSSES, "remark": remark}
            return losses.audit(trial, notion, stated, most, **options)
        other = _moved(interaction, shift)
    return pairs.audit(interaction, other, stated, trials=count or _PAIRS, **options)


def _audit_custom(
    trial: Any, neighbour: Any, delta: float | None, trials: int | None, options: Any
) -> Audit:
    """Audit a custom trial, by its realised losses or by its transcripts."""
    ok, hint = callable(getattr(trial, "run", None)), MADE_BY
    check(ok, "interaction", trial, "a nrjax.Interaction, or a custom trial", hint)
    check(delta is not None, "delta", None, "given for a custom trial, 0 if it is pure")
    assert delta is not None
    names = getattr(jax.eval_shape(trial.run, abstract_key()), "_fields", ())
    known = {"epsilon", "transcript"} if neighbour is not None else {"epsilon", "privacy_loss"}
    expected = f"a NamedTuple with {sorted(known)}"
    hint = "Losses need no neighbour, and transcripts need the custom trial on its data."
    check(known <= set(names), "result of run", list(names), expected, hint)
    if neighbour is not None:
        return pairs.audit(trial, neighbour, delta, trials=trials or _PAIRS, **options)
    notion = Notion.PURE.at_delta(delta)
    trials = trials or _LOSSES
    return losses.audit(Reported(trial), notion, delta, 1.0, trials=trials, remark="", **options)


def _moved(interaction: Interaction, shift: np.ndarray) -> Interaction:
    """Return the interaction on a neighbour, whose value is smaller by the shift."""
    kind, fixed = type(interaction.process).__name__, depends_on_value(interaction)
    expected = f"the interaction on the neighbouring data, since {kind} depends on them"
    check(not fixed, "neighbour", shift, expected)
    return dataclasses.replace(interaction, value=interaction.value.whole() - shift)


def depends_on_value(interaction: Interaction) -> bool:
    """Return whether the process is made for one private value, such as `counts.KeyNoise`."""
    return interaction.process.private_value is not None


def _only_moved(interaction: Interaction, neighbour: Interaction) -> bool:
    """Return whether a neighbour differs in the value only, under a public rule."""
    names = ("process", "guarantee", "schedule", "utility", "rule")
    same = all(getattr(interaction, name) == getattr(neighbour, name) for name in names)
    return same and interaction.rule.sensitivity is None


def _shift(interaction: Interaction, neighbour: Any) -> np.ndarray:
    """Return f(x) - f(x') as an array that is not 0."""
    shape = interaction.value.number.shape
    if isinstance(neighbour, Interaction):
        shift = np.asarray(interaction.value.whole(), float) - neighbour.value.whole()
    elif neighbour is not None:
        shift = check_array("neighbour", neighbour, shape)
    elif interaction.shift is not None:
        shift = interaction.shift
    else:
        guarantee: Any = interaction.guarantee
        sensitivity = concrete_or_none(guarantee.sensitivity)
        hint = "Pass neighbour=f(x) - f(x'), or the interaction on the neighbouring data."
        check(sensitivity is not None, "neighbour", None, "given if no sensitivity is stated", hint)
        shift = np.zeros(shape)
        shift.flat[0] = np.max(np.asarray(sensitivity))
        if interaction.process.integral:
            shift = np.floor(shift)  # integers change by integers
            expected = "at least 1 for integers, since no value changes by less"
            check(np.any(shift != 0), "sensitivity", sensitivity, expected)
    shift = np.asarray(shift)
    if interaction.process.integral:
        expected = f"integers, as {type(interaction.process).__name__} is integer-valued"
        check(shift == np.round(shift), "neighbour", neighbour, expected)
    check(np.any(shift != 0), "neighbour", neighbour, "different from the data")
    return shift
