"""When a run that adds trials looks at its results: after 1000, 2000, 4000, ... trials."""

from typing import Any

from nrjax._validation import check

FIRST = 1000
"""Trials at the first look; each look is at twice as many as the one before."""

LOOKS = tuple(FIRST * 2**k for k in range(23))
"""The numbers of trials to look at, rising; trials are numbered below 2^32."""

MOST = {"trials": FIRST * 2**10, "summary": FIRST * 2**20}
"""Trials at the most, unless asked otherwise, by what is kept of them."""

SUMMARY_CHUNKS = (2_000, 128_000, 1_024_000)
"""Trials that are folded into one row, where summaries are kept: the fewest, the fewest of a run
of unknown length, and the most. All are 1000 x 2^k."""


def check_looks(settings: Any) -> None:
    """What must hold of settings that ask for an `until_se`.

    Raises:
        ValueError: more trials are asked for than are allowed.
    """
    if settings.until_se is None:
        right = "left out without until_se, which it bounds; else give trials"
        check(settings.most_trials is None, "most_trials", settings.most_trials, right)
        return
    begin = first_look(settings)
    right = f"at least {begin}, the first look (1000 x 2^k trials, and no fewer than trials)"
    check(most_trials(settings) >= begin, "most_trials", most_trials(settings), right)


def first_look(settings: Any) -> int:
    """With how many trials a run begins: the least 1000 x 2^k that are no fewer than `trials`."""
    return next(look for look in LOOKS if look >= min(settings.trials, LOOKS[-1]))


def most_trials(settings: Any) -> int:
    """With how many trials a run ends, whatever it has reached."""
    return MOST[settings.keep] if settings.most_trials is None else settings.most_trials


def chunk_size(settings: Any) -> int | None:
    """Return the trials between two writes to a store: `chunk`, if that is given.

    None if all trials are kept: files are written after some seconds or bytes. Folded trials need a
    fixed number, which may be more than there are trials, since more may be added later.
    """
    if settings.chunk is not None or settings.keep == "trials":
        return settings.chunk
    few, unknown, many = SUMMARY_CHUNKS
    least = few if settings.until_se is None else unknown
    wanted = 1000 << max(settings.trials // 16_000, 1).bit_length()
    return min(many, max(least, wanted))
