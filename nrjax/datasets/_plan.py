"""The line to type after a dry run: a call that prepares a table, with placeholders for bounds."""

import ast
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nrjax._base.format import escaped
from nrjax.datasets._looks import Column
from nrjax.datasets._rows import RowRules

_MOST_TYPED = 20
"""Largest number of bounds in a command. More are for a file."""

FILE = "bounds.toml"
"""The name of a file of bounds in a command."""

_NUMBER = "NUMBER"
"""The placeholder of the largest number of rows of a person."""


class Plan(NamedTuple):
    """A call that prepares a table, with placeholders for bounds that are not stated."""

    target: str | None
    stated: Mapping[str, Any]
    ranges: list[str]
    lists: list[str]
    labels: str | None
    leave_out: list[str]
    rules: RowRules
    read: dict[str, Any]

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        target: str | None,
        stated: Mapping[str, Any],
        read: Mapping[str, Any],
        rules: RowRules,
        reads_dates: bool,
    ) -> "Plan":
        """Return the call for described columns, some of whose bounds are stated.

        `reads_dates` is whether the file's reader has an option for dates in another format.
        """
        parsed = _dates_to_parse(columns) if reads_dates else []
        features = [c for c in columns if c.name != rules.person]
        used = [c for c in features if c.name == target or c in parsed or not c.left_out]
        unstated = [c for c in used if c.name not in stated and c.kind != "booleans"]
        labels = next((c.name for c in unstated if c.name == target and c.values == 2), None)
        others = [c for c in unstated if c.name != labels]
        options = _merged(c.read for c in used if c.read)
        dates = [*options.get("parse_dates", []), *_as_list(read.get("parse_dates", []))]
        missing = rules.missing
        if missing == "refuse" and (any(c.missing for c in used) or "na_values" in options):
            missing = "drop"
        left_out = [c.name for c in features if c not in used]
        return cls(
            target,
            stated,
            [c.name for c in others if c.has_range or c in parsed],
            [c.name for c in others if not (c.has_range or c in parsed)],
            labels,
            [*rules.leave_out, *left_out],
            rules._replace(missing=missing),
            options | dict(read) | ({"parse_dates": dates} if dates else {}),
        )

    def bounds(self) -> list[tuple[str, str, str]]:
        """Return each column with its bounds, as the shell and as Python write them."""
        shown = [(name, _joined(limits), repr(limits)) for name, limits in self.stated.items()]
        shown += [(name, "LOW:HIGH", "(LOW, HIGH)") for name in self.ranges]
        shown += [(name, "CATEGORIES", "CATEGORIES") for name in self.lists]
        return shown + ([] if self.labels is None else [(self.labels, "LABELS", "LABELS")])

    def in_shell(self, path: Path) -> str:
        """Return the call as a command."""
        parts = ["nrjax", "run", "--data", str(path), "--target", self.target or "COLUMN"]
        parts += ["--read", *(f"{n}={_option(v)}" for n, v in self.read.items())] * bool(self.read)
        parts += ["--leave-out", *self.leave_out] if self.leave_out else []
        person, most, missing = self.rules.person, self.rules.rows_per_person, self.rules.missing
        if person is not None:
            parts += ["--person", person, "--rows-per-person", str(most or _NUMBER)]
        if isinstance(missing, Mapping):
            parts += ["--missing", *(f"{n}={v}" for n, v in missing.items())]
        elif missing == "drop":
            parts += ["--missing", "drop"]
        lists = [each for each in self.stated.values() if isinstance(each, list)]
        odd = any("," in str(category) for each in lists for category in each)
        limits = [f"{name}={text}" for name, text, _ in self.bounds()]
        odd |= any(each.startswith("-") or each.count("=") > 1 for each in limits)
        if odd or len(limits) > _MOST_TYPED:
            parts += ["--bounds-file", FILE]
        elif limits:
            parts += ["--bounds", *limits]
        return " ".join(map(_quoted, parts))

    def in_python(self) -> str:
        """Return the call in Python."""
        target = "COLUMN" if self.target is None else repr(self.target)
        parts = [f"nrjax.datasets.from_frame(frame, {target}"]
        limits = [f"{name!r}: {code}" for name, _, code in self.bounds()]
        if len(limits) > _MOST_TYPED:
            parts.append(f"bounds={FILE!r}")
        elif limits:
            parts.append(f"bounds={{{', '.join(limits)}}}")
        parts += [f"leave_out={self.leave_out!r}"] if self.leave_out else []
        if self.rules.person is not None:
            most = self.rules.rows_per_person or _NUMBER
            parts.append(f"person={self.rules.person!r}, rows_per_person={most}")
        missing = self.rules.missing
        parts += [f"missing={missing!r}"] if missing != "refuse" else []
        return ", ".join(parts) + ")"


def _dates_to_parse(columns: Sequence[Column]) -> list[Column]:
    """Return the columns of dates in another format that one call of pandas can read.

    `dayfirst` holds for all columns of a call, so that columns that need another one are left out.
    """
    dates = [c for c in columns if c.looks_like == "dates in another format"]
    day_first = ["dayfirst=True" in c.read.split() for c in dates]
    return [c for c, first in zip(dates, day_first, strict=True) if first == any(day_first)]


def _merged(reads: Iterable[str]) -> dict[str, Any]:
    """Return the options of `read` of several columns, whose dates are one list."""
    options: dict[str, Any] = {}
    for name, value in (word.split("=", 1) for read in reads for word in shlex.split(read)):
        if name == "parse_dates":
            names = ast.literal_eval(value) if value.startswith("[") else [value]
            options.setdefault(name, []).extend(names)
        else:
            options[name] = value
    return options


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _option(value: Any) -> str:
    """Return the value of an option of `read` as the shell writes it."""
    texts = [str(each) for each in value] if isinstance(value, list) else []
    is_short = texts and not any("," in text or "[" in text for text in texts)
    text = ",".join(texts) if is_short else str(value)
    return text.replace("\t", r"\t")


def _quoted(word: str) -> str:
    """Return a word as the shell reads it, without control characters."""
    return f"$'{escaped(word)}'" if escaped(word) != word else shlex.quote(word)


def _joined(limits: Any) -> str:
    """Return a range or a list as the shell writes it."""
    is_listed = isinstance(limits, (list, tuple))
    texts = [str(each).removesuffix(".0") for each in (limits if is_listed else [limits])]
    return (":" if isinstance(limits, tuple) else ",").join(texts)
