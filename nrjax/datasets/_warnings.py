"""Warnings about columns that may mean something else than their bounds or their kind.

A warning has names of columns, numbers of rows and stated bounds, and no value of the data.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from nrjax.datasets._cells import as_date, is_numeric

_LARGEST_SHARE = 0.05
"""Largest fraction of rows that lie outside of what was stated without a warning."""

_NARROW = 0.001
"""Least fraction of a range's width that values fill without a warning."""

_LEAST_ROWS_OF_AN_ID = 10

_MOST_CLASSES = 10
"""Largest number of different whole numbers in a target that may be classes."""

_MOST_SPELLINGS = 200
"""Largest number of unlisted values that are compared with the categories letter by letter."""

_NUMBER_LIKE = re.compile(r"[-+(<>~]*[$€£]?\s*\d[\d.,' ]*\s*[%$€£)]?")
"""A pattern for text that a person reads as a number, such as 1,000 or 5 %."""


def outside_range(
    name: str, ends: Sequence[str], below: int, above: int, values: np.ndarray
) -> tuple[str, ...]:
    """Return a warning if many values lie outside a range."""
    outside, rows, shown = below + above, len(values), f"[{', '.join(ends)}]"
    if outside == rows:
        return (f"Warning: no value of {name!r} lies within its bounds {shown}.",)
    if outside <= _LARGEST_SHARE * rows:
        return ()
    sides = [f"{below:,} below {ends[0]}"] * (below > 0) + [f"{above:,} above {ends[1]}"] * (
        above > 0
    )
    return (
        f"Warning: {outside:,} of {rows:,} values of {name!r} lie outside its bounds {shown} and "
        f"are clipped: {' and '.join(sides)}.",
    )


def narrow_range(
    name: str, ends: Sequence[str], values: np.ndarray, width: float
) -> tuple[str, ...]:
    """Return a warning if different values all lie close together within a wide range."""
    spread = float(np.max(values) - np.min(values))
    if not 0 < spread <= _NARROW * width:
        return ()
    return (
        f"Warning: all values of {name!r} lie within 0.1 % of the width of its bounds "
        f"[{', '.join(ends)}]. Are they in another unit, or is 1.000 meant as 1000?",
    )


def outside_list(
    name: str, names: Sequence[str], column: np.ndarray, codes: np.ndarray
) -> tuple[str, ...]:
    """Return a warning if many values are no stated category, with the nearest category."""
    rows, none = len(codes), int(np.sum(codes < 0))
    if none == rows:
        return (f"Warning: no value of {name!r} is one of its {len(names)} categories.",)
    close, sizes = _near(names, column, codes), np.bincount(codes[codes >= 0], minlength=len(names))
    missed = [n for n in close if close[n] > _LARGEST_SHARE * (close[n] + sizes[names.index(n)])]
    if none <= _LARGEST_SHARE * rows and not missed:
        return ()
    return (
        f"Warning: {none:,} of {rows:,} values of {name!r} are none of its {len(names)} "
        f"categories.{nearest(names, column, codes)}",
    )


def nearest(names: Sequence[str], column: np.ndarray, codes: np.ndarray) -> str:
    """Return a sentence on the categories that unlisted values nearly spell, or ""."""
    close = _near(names, column, codes).most_common(3)
    shown = " and ".join(f"{n!r} ({count:,} rows)" for n, count in close)
    return f" Values are spelled nearly like {shown}: case and spelling matter." if shown else ""


def _near(names: Sequence[str], column: np.ndarray, codes: np.ndarray) -> Counter[str]:
    """Return how many unlisted values are spelled nearly like each category."""
    near: Counter[str] = Counter()
    if is_numeric(column):
        return near
    known = {name.casefold(): name for name in names}
    unlisted = Counter(map(str, column[codes < 0].tolist()))
    for number, (text, count) in enumerate(unlisted.most_common()):
        found = known.get(text.casefold())
        if found is None and number < _MOST_SPELLINGS:
            like = difflib.get_close_matches(text.casefold(), known, 1, 0.8)
            found = known[like[0]] if like else None
        if found is not None:
            near[found] += count
    return near


def unlisted(short: str, name: str, values: Collection[Any], rows: int) -> tuple[str, ...]:
    """Return a warning if the categories of a text column look like another kind of column."""
    found, size = f"Warning: the column {name!r} of {short}", len(values)
    hint = kind_of_text(values, rows)
    made = f"its {size:,} values became {size:,} columns of 0 and 1"
    if len(values) == rows >= _LEAST_ROWS_OF_AN_ID:
        return (f"{found} has a different value in each row: {made}.{hint}",)
    return (f"{found} may be no text: {made}.{hint}",) if hint else ()


def kind_of_text(values: Collection[Any], rows: int) -> str:
    """Return what the values of a text column look like, and how to write them, or ""."""
    texts = [value for value in values if isinstance(value, str)]
    if texts and all(as_date(text) is not None for text in texts):
        return " It looks like dates: give bounds such as ('2020-01-01', '2020-12-31')."
    if texts and 2 * sum(_NUMBER_LIKE.fullmatch(text) is not None for text in texts) >= len(texts):
        return " It looks like numbers but is text: write 1000, not 1,000, and no units."
    if len(values) == rows >= _LEAST_ROWS_OF_AN_ID:
        return " It looks like an id: leave it out (leave_out, in the shell --leave-out)."
    return ""


def classes(name: str, y: np.ndarray) -> tuple[str, ...]:
    """Return a warning if a target of numbers may be classes."""
    values = set(y.tolist()) if is_numeric(y) else set()
    few = 3 <= len(values) <= _MOST_CLASSES and 2 * len(values) <= len(y)
    if not few or any(value != int(value) for value in values):
        return ()
    return (
        f"Warning: the target {name!r} has {len(values)} different values, whole numbers. If they "
        "are classes, make them two labels for logistic regression. If they are amounts, state "
        "task='ridge' (--task ridge).",
    )
