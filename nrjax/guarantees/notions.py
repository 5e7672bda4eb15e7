"""What an epsilon and a delta say: the words for it in guarantees, filters, reports and figures."""

from typing import Any

import numpy as np

from nrjax._validation import concrete_or_none

NOTIONS = {
    "pure": "a realised loss never exceeds epsilon",
    "probabilistic": "a realised loss exceeds epsilon with probability at most delta",
    "hockey-stick": "P(S) <= int_S exp(epsilon) dP' + delta for every set S of transcripts, while "
    "a realised loss may exceed epsilon more often than with probability delta",
    "(epsilon, delta)-DP": "P(S) <= exp(epsilon) P'(S) + delta for every set S of transcripts",
}
"""What `notion` may be, and what it says; the last is of filters, whose epsilon is a constant."""


def notion_of(guarantee: Any) -> str | None:
    """The notion of a guarantee; of one whose delta is 0 it is "pure". None without a guarantee."""
    if guarantee is None:
        return None
    delta = concrete_or_none(guarantee.delta)
    return "pure" if delta is not None and not np.any(delta) else guarantee.notion


def unlike(*notions: str | None) -> bool:
    """Whether there are two notions among these; None is not one."""
    return len(set(notions) - {None}) > 1
