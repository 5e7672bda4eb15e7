"""The privacy notions of guarantees and filters: the meaning of an epsilon and a delta."""

from typing import Any

import numpy as np

from nrjax._base.validation import concrete_or_none

NOTIONS = {
    "pure": "a realised loss never exceeds epsilon",
    "probabilistic": "a realised loss exceeds epsilon with probability at most delta",
    "hockey-stick": "P(S) <= int_S exp(epsilon) dP' + delta for every set S of transcripts, while "
    "a realised loss may exceed epsilon more often than with probability delta",
    "(epsilon, delta)-DP": "P(S) <= exp(epsilon) P'(S) + delta for every set S of transcripts",
}
"""The meaning of each privacy notion, by its name.

The last notion applies to filters, whose epsilon is a constant.
"""


PUBLIC_TEST = "Public test: epsilon does not cover the decision to stop"
"""The words of every report on cases whose rule reads the score without noise."""


def notion_of(guarantee: Any) -> str | None:
    """Return the notion of a guarantee, or None if there is no guarantee.

    The notion is "pure" if the guarantee has a concrete delta of 0.
    """
    if guarantee is None:
        return None
    delta = concrete_or_none(guarantee.delta)
    return "pure" if delta is not None and not np.any(delta) else guarantee.notion


def notions_differ(*notions: str | None) -> bool:
    """Return whether the arguments contain two different notions, ignoring None."""
    return len(set(notions) - {None}) > 1
