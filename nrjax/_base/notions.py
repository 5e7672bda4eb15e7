"""The privacy notions: the meaning of an epsilon and a delta, and the rules by which they combine.

Each rule is stated in `docs/explanation/notions.md` and proved in `docs/proofs/hockey-stick.md`.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, NoReturn

import numpy as np

from nrjax._base.validation import check, check_choice, concrete_or_none


class Notion(enum.StrEnum):
    """The privacy notion of an epsilon and a delta.

    Each member is a string: `Notion.PURE == "pure"`, and `Notion("pure")` returns the member.
    Compare epsilons of one notion only.

        >>> notion = nrjax.guarantees.Notion("hockey-stick")
        >>> notion == "hockey-stick", notion.bounds_losses, notion.survives_post_processing
        (True, False, True)
        >>> nrjax.guarantees.Notion.combine("pure", notion)
        'hockey-stick'

    Attributes:
        bounds_losses: whether a realised loss exceeds epsilon with probability at most delta.
        survives_post_processing: whether a function of a release has the same epsilon and delta, if
            the stated epsilon is still published with the function's result.
        meaning: the promise in words, as in reports.

    Raises:
        ValueError: no notion has the name.
    """

    PURE = "pure"
    PROBABILISTIC = "probabilistic"
    HOCKEY_STICK = "hockey-stick"
    DIFFERENTIAL_PRIVACY = "(epsilon, delta)-DP"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        check_choice("notion", value, tuple(cls))
        raise AssertionError(value)

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def bounds_losses(self) -> bool:
        """Whether a realised loss exceeds epsilon with probability at most delta."""
        return _RULES[self].bounds_losses

    @property
    def survives_post_processing(self) -> bool:
        """Whether a function that keeps the announced epsilon has the same epsilon and delta."""
        return _RULES[self].survives_post_processing

    @property
    def meaning(self) -> str:
        """The promise in words, as in reports."""
        return _RULES[self].meaning

    def implies(self, other: str) -> bool:
        """Return whether an epsilon of this notion has the other notion too, with equal delta.

        Epsilon may be ex post, so that only `DIFFERENTIAL_PRIVACY` implies itself.
        """
        return Notion(other) in _RULES[self].implied

    def at_delta(self, delta: Any) -> Notion:
        """Return the notion of an epsilon of this notion that is stated with `delta`.

        A delta of 0 makes every notion pure. A delta that is positive or traced makes a pure notion
        probabilistic.
        """
        number = concrete_or_none(delta)
        if number is not None and not np.any(number):
            return Notion.PURE
        return Notion.PROBABILISTIC if self is Notion.PURE else self

    @classmethod
    def combine(cls, *notions: str) -> Notion:
        """Return the strongest notion that all notions imply.

        If several mechanisms run on the same data, the sum of their epsilons has this notion, at
        the sum of their deltas. The private tests of `nrjax.stopping` are pure.

        Raises:
            ValueError: no notion is given, or a name is unknown.
        """
        check(len(notions) > 0, "notions", notions, "at least one notion")
        strongest_first = _RULES[cls(notions[0])].implied
        return next(n for n in strongest_first if all(cls(notion).implies(n) for notion in notions))


class _Rule(NamedTuple):
    """The properties of a notion. `implied` has the strongest notion first."""

    bounds_losses: bool
    survives_post_processing: bool
    implied: tuple[Notion, ...]
    meaning: str


_RULES = {
    Notion.PURE: _Rule(
        bounds_losses=True,
        survives_post_processing=True,
        implied=(Notion.PURE, Notion.PROBABILISTIC, Notion.HOCKEY_STICK),
        meaning="no run loses more privacy than its epsilon",
    ),
    Notion.PROBABILISTIC: _Rule(
        bounds_losses=True,
        survives_post_processing=False,
        implied=(Notion.PROBABILISTIC, Notion.HOCKEY_STICK),
        meaning="a run loses more privacy than its epsilon with probability at most delta",
    ),
    Notion.HOCKEY_STICK: _Rule(
        bounds_losses=False,
        survives_post_processing=True,
        implied=(Notion.HOCKEY_STICK,),
        meaning="P(S) <= int_S exp(epsilon) dP' + delta for every set S of transcripts. "
        "Runs may lose more privacy than their epsilon more often than with probability delta",
    ),
    # With a constant epsilon it is hockey-stick, and with an ex-post epsilon it is not defined.
    Notion.DIFFERENTIAL_PRIVACY: _Rule(
        bounds_losses=False,
        survives_post_processing=True,
        implied=(Notion.DIFFERENTIAL_PRIVACY, Notion.HOCKEY_STICK),
        meaning="P(S) <= exp(epsilon) P'(S) + delta for every set S of transcripts",
    ),
}


def notion_of(guarantee: Any) -> Notion | None:
    """Return the notion of a guarantee, or None if there is no guarantee.

    Raises:
        ValueError: the guarantee states an unknown notion.
    """
    return None if guarantee is None else Notion(guarantee.notion).at_delta(guarantee.delta)


def notions_differ(*notions: str | None) -> bool:
    """Return whether the arguments contain two different notions, ignoring None."""
    return len(set(notions) - {None}) > 1


def notions_comparable(*notions: str | None) -> bool:
    """Return whether the smaller of two epsilons is the stronger promise.

    That is so if all notions are equal, or all bound the realised loss. None is ignored, and the
    name of a custom notion, which an older store may hold, equals only itself.
    """
    bounding = [notion for notion in Notion if notion.bounds_losses]
    return not notions_differ(*notions) or set(notions) - {None} <= set(bounding)
