"""Columns that may identify people: a decision by names and by numbers of different values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nrjax.datasets._cells import as_cells, missing_in
from nrjax.datasets._columns import MAX_CATEGORIES

_LEAST_PEOPLE = 11
"""Least number of different values of a column that is called after people and identifies them."""

_NUMBERED = "id|key|nr|no|num|number|code|index"
_PEOPLE = (
    "account|applicant|borrower|client|customer|donor|driver|e.?mail|employee|guest|individual|"
    "kunde|member|mitarbeiter|mrn|owner|participant|passenger|patient|person|pid|player|proband|"
    "ptid|pupil|resident|respondent|rider|ssn|student|subj|subject|teacher|tenant|uid|user|"
    "visitor|voter|worker"
)
_ID = re.compile(rf"(^|[^a-z0-9])({_NUMBERED}|rownames?)$")
_PERSON = re.compile(rf"(^|[^a-z0-9])({_PEOPLE})[^a-z]*({_NUMBERED}|name)?[^a-z]*$")

HINT = (
    "If it identifies people, epsilon covers all of their rows with --person and "
    "--rows-per-person (person=, rows_per_person=)."
)


def is_called_id(name: str) -> bool:
    """Return whether a name is that of an id, of rows or of people."""
    text = _in_snake_case(name)
    return _ID.search(text) is not None or _PERSON.search(text) is not None


def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def may_be_shared(name: str, values: int, rows: int) -> bool:
    """Return whether a column is called like an id, and rows share many different values."""
    if not values < rows:
        return False
    if _PERSON.search(_in_snake_case(name)) is not None:
        return values >= _LEAST_PEOPLE
    return values > MAX_CATEGORIES and is_called_id(name)


def warnings_of(columns: Mapping[str, Any], but: Sequence[str]) -> list[str]:
    """Return a warning for each column, but those named, whose values several rows share as people.

    Whole numbers and text can identify people. Missing cells do not count.
    """
    lines = []
    for name in (name for name in columns if name not in but and is_called_id(name)):
        cells = as_cells(columns[name])
        cells = cells[~missing_in(cells)] if cells.ndim == 1 else cells[:0]
        if cells.dtype.kind == "f" and (cells != np.floor(cells)).any():
            continue
        if may_be_shared(name, len(set(map(str, cells.tolist()))), len(cells)):
            lines.append(
                f"Warning: {name!r} may identify people who have several rows, and epsilon covers "
                f"one row. If so, state person={name!r} and rows_per_person (in the shell --person "
                "and --rows-per-person)."
            )
    return lines
