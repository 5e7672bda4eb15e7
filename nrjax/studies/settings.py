"""What can be chosen of every study, and settings as strict JSON and back."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from nrjax._numerics import check
from nrjax.datasets.user import SUFFIXES
from nrjax.studies.precision import check_looks, first_look

_LATER = {"bin_width": None}
"""Fields that stores once did not have, and what is meant there."""

_FILES = ("data", "data_dir")
"""Fields that name files, or data sets that need none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What all studies have in common; each field is an option of the command."""

    out: Path
    """Folder for the results: the store, summary.json, report.md and figures/."""
    trials: int = 1000
    """Independent trials of each case."""
    seed: int = 0
    """Seed of all randomness; cases share it, so that their differences are paired."""
    chunk: int | None = None
    """Trials between two writes to the store; by default about a sixteenth, from 1024 to 4096."""
    keep: Literal["trials", "summary"] = "trials"
    """`trials`: every trial; `summary`: what trials are folded into, chunk by chunk (histograms,
    moments, counts), so that a study of any size takes megabytes."""
    until_se: float | None = None
    """Add trials until the standard error of every case's median epsilon is at most this, in
    units of epsilon; looked at after 1000, 2000, 4000, ... trials, but no fewer than --trials.
    With --keep summary refused where it is finer than the histogram at a median."""
    most_trials: int | None = None
    """With --until-se: no more trials than this; by default 1,024,000 or, of --keep summary,
    1,024,000,000."""
    bin_width: Annotated[float | None, tyro.conf.Suppress] = None
    """Of --keep summary: how wide bins of epsilon should be at most; the `until_se` that the run
    begins with."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the results of an earlier run in the same folder."""

    def __post_init__(self):
        check(isinstance(self.out, Path), "out", self.out, "a pathlib.Path")
        check(self.trials >= 1, "trials", self.trials, "at least 1")
        check(self.trials <= 2**32, "trials", self.trials, "at most 2^32, the number of keys")
        check(0 <= self.seed < 2**32, "seed", self.seed, "in [0, 2^32)")
        check(self.chunk is None or self.chunk >= 1, "chunk", self.chunk, "at least 1")
        check(self.chunk is None or self.chunk < 2**32, "chunk", self.chunk, "below 2^32")
        check(self.keep in ("trials", "summary"), "keep", self.keep, "'trials' or 'summary'")
        ok = self.until_se is None or (np.isfinite(self.until_se) and self.until_se > 0)
        check(ok, "until_se", self.until_se, "positive and finite")
        right = "from 1 to 2^32, the number of keys"
        most = self.most_trials
        check(most is None or 1 <= most <= 2**32, "most_trials", most, right)
        check_looks(self)


def begun(settings: Any) -> Any:
    """The settings of a run that begins with these, for its store.

    Files are named by their whole paths: the run may be taken up from another working directory.
    Where `until_se` is asked for, trials are those of the first look, and bins are chosen for it;
    they stay as they are where another `until_se` is asked for later.
    """

    def whole(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(whole(name, one) for one in value)
        if isinstance(value, Path):
            return value.expanduser().absolute()
        is_file = isinstance(value, str) and Path(value).suffix.lower() in SUFFIXES
        return str(Path(value).expanduser().absolute()) if is_file else value

    files = {
        name: whole(name, getattr(settings, name)) for name in _FILES if hasattr(settings, name)
    }
    settings = dataclasses.replace(settings, **files)
    if settings.until_se is None:
        return settings
    width = settings.bin_width
    if settings.keep == "summary" and width is None:
        width = settings.until_se
    return dataclasses.replace(settings, trials=first_look(settings), bin_width=width)


def to_plain(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass of settings as strict JSON: paths as strings, tuples as lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        return [plain(one) for one in value] if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in dataclasses.asdict(settings).items()}


def from_plain(kind: type, fields: Mapping[str, Any], **changes: Any) -> Any:
    """The inverse of `to_plain`.

    Args:
        kind: the class of the settings.
        fields: what `to_plain` gave.
        changes: fields to change.

    Raises:
        ValueError: a field is missing or unknown, or has a value that it cannot have.
    """
    fields = _LATER | dict(fields)
    known = {field.name for field in dataclasses.fields(kind)}
    for word, names in (("lack", known - set(fields)), ("hold", set(fields) - known)):
        if names:
            listed = ", ".join(map(repr, sorted(names)))
            right = "has them" if word == "lack" else "does not know them"
            raise ValueError(
                f"the stored settings {word} {listed}, and this version of nrjax {right}: use the "
                "version that wrote them"
            )
    hints = typing.get_type_hints(kind)
    made = {name: _typed(name, hints[name], value) for name, value in fields.items()}
    return kind(**made | changes)


def _typed(name: str, hint: Any, value: Any) -> Any:
    """A value of JSON as the type of its field has it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        if value is None and type(None) in arguments:
            return None
        (hint,) = (one for one in arguments if one is not type(None))
        return _typed(name, hint, value)
    if origin is Literal:
        check(value in arguments, name, value, f"one of {arguments}")
        return value
    if origin is tuple:
        check(isinstance(value, list), name, value, "a list")
        return tuple(_typed(name, arguments[0], one) for one in value)
    if hint is Path:
        check(isinstance(value, str), name, value, "a path")
        return Path(value)
    kinds = (int, float) if hint is float else (hint,)
    check(type(value) in kinds, name, value, f"of type {hint.__name__}")
    return value
