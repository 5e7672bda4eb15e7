"""What can be chosen of every run, and settings as strict JSON and back."""

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
from nrjax.study.looks import check_looks, first_look

Keep = Literal["trials", "summary"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What all studies have in common; each field is an option of the command."""

    out: Path
    """Folder for the results: the trials, summary.json, report.md and figures/."""
    trials: int = 1000
    """Independent trials of each case."""
    seed: int = 0
    """Seed of all randomness; cases share it, so that their differences are paired."""
    chunk: int | None = None
    """Trials between two writes to the store; by default about a sixteenth, from 1024 to 4096."""
    keep: Keep = "trials"
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
        for name in ("trials", "seed", "chunk", "most_trials"):
            number = getattr(self, name)
            whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
            check(number is None or whole, name, number, "an integer")
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

    def begun(self) -> "RunSettings":
        """Those of a run that begins with these, for its store.

        Where `until_se` is asked for, trials are those of the first look, and bins are chosen for
        it; they stay as they are where another `until_se` is asked for later.
        """
        if self.until_se is None:
            return self
        width = self.bin_width
        if self.keep == "summary" and width is None:
            width = self.until_se
        return dataclasses.replace(self, trials=first_look(self), bin_width=width)


def shared_with(own: Any) -> dict[str, Any]:
    """Settings of a study, or of its class, that are called like one of the run's."""
    if own is None:
        return {}
    names = {one.name for one in dataclasses.fields(own)} & set(RunSettings.__dataclass_fields__)
    return {name: getattr(own, name) for name in sorted(names) if hasattr(own, name)}


def with_whole_paths(settings: Any) -> Any:
    """The same dataclass of settings with files named by their whole paths.

    The run may be taken up from another working directory.
    """

    def whole(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(whole, value))
        if isinstance(value, Path):
            return value.expanduser().absolute()
        is_file = isinstance(value, str) and Path(value).suffix.lower() in SUFFIXES
        return str(Path(value).expanduser().absolute()) if is_file else value

    fields = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings)}
    changed = {name: whole(value) for name, value in fields.items()}
    return dataclasses.replace(
        settings, **{name: value for name, value in changed.items() if value != fields[name]}
    )


def to_plain(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass of settings as strict JSON: paths as strings, tuples as lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        return [plain(one) for one in value] if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in dataclasses.asdict(settings).items()}


def from_plain(kind: type, fields: Mapping[str, Any], **changes: Any) -> Any:
    """The inverse of `to_plain`; what `fields` holds besides is left alone.

    Args:
        kind: the class of the settings.
        fields: what `to_plain` gave.
        changes: fields to change.

    Raises:
        ValueError: a field is missing, or has a value that it cannot have.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    missing = ", ".join(map(repr, sorted(known - set(fields))))
    if missing:
        raise ValueError(
            f"the stored settings lack {missing}, and this version of the study has them: use the "
            "version that wrote them"
        )
    hints = typing.get_type_hints(kind)
    made = {name: _typed(name, hints[name], fields[name]) for name in known}
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
