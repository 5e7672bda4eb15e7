"""What can be chosen of every run."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from nrjax._validation import check, check_integer, check_positive
from nrjax.study.checks import strict_json
from nrjax.study.layout import to_plain
from nrjax.study.precision import check_interim, first_interim

Keep = Literal["trials", "summary"]

SHARED = ("seed", "trials")
"""Options of a run that a study's own settings may have too: one value is given to both."""


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
    """Trials between two writes to the store; by default as many as take a few seconds."""
    keep: Keep = "trials"
    """`trials`: every trial; `summary`: what trials are folded into, chunk by chunk (histograms,
    moments, counts), so that a study of any size takes megabytes."""
    until_se: float | None = None
    """Add trials until the standard error of every case's median epsilon is at most this, in
    units of epsilon; looked at after 1000, 2000, 4000, ... trials, but no fewer than --trials.
    With --keep summary refused if it is finer than the bins of every epsilon."""
    most_trials: int | None = None
    """With --until-se: no more trials than this; by default 1,024,000 or, of --keep summary,
    1,024,000,000."""
    overwrite: bool = False
    """Replace the results of an earlier run in the same folder."""

    def __post_init__(self):
        check(isinstance(self.out, Path), "out", self.out, "a pathlib.Path")
        for name, least, most in (
            ("trials", 1, 2**32),
            ("seed", 0, 2**32 - 1),
            ("chunk", 1, 2**32 - 1),
            ("most_trials", 1, 2**32),
        ):
            if getattr(self, name) is not None or name in ("trials", "seed"):
                number = check_integer(name, getattr(self, name), least, most)
                object.__setattr__(self, name, number)
        check(self.keep in ("trials", "summary"), "keep", self.keep, "'trials' or 'summary'")
        if self.until_se is not None:
            check_positive("until_se", self.until_se)
            object.__setattr__(self, "until_se", float(self.until_se))
        check_interim(self)

    def begun(self) -> "RunSettings":
        """Those of a run that begins with these, for its store.

        Where `until_se` is asked for, trials are those of the first look.
        """
        if self.until_se is None:
            return self
        return dataclasses.replace(self, trials=first_interim(self))


def shared_with(own: Any) -> dict[str, Any]:
    """Return the options of a run (`SHARED`) that a study's settings, or their class, set."""
    if own is None:
        return {}
    names = {one.name for one in dataclasses.fields(own)} & set(SHARED)
    return {name: getattr(own, name) for name in sorted(names) if hasattr(own, name)}


def check_own(own: Any, options: Iterable[str] = ()) -> None:
    """Check a study's own settings, or their class.

    Args:
        own: the dataclass, or one of it.
        options: names that are taken besides the options of a run.

    Raises:
        ValueError: it is no dataclass; or a field is called like an option of a run, or cannot be
            stored as strict JSON.
    """
    check(dataclasses.is_dataclass(own), "settings", own, "a dataclass")
    names = [one.name for one in dataclasses.fields(own)]
    options = {*RunSettings.__dataclass_fields__, *options} - set(SHARED)
    taken = [name for name in names if name in options]
    right = f"called otherwise: a run has options of these names, such as --{''.join(taken[:1])}"
    check(not taken, "fields of settings", taken, right)
    if not isinstance(own, type):
        for name, value in to_plain(own).items():
            strict_json(f"settings.{name}", value)


def with_whole_paths(settings: Any) -> Any:
    """Return a dataclass of settings with every `Path` made absolute.

    The run may be resumed from another working directory. Text stays as it is.
    """

    def whole(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(whole, value))
        return value.expanduser().absolute() if isinstance(value, Path) else value

    fields = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings)}
    changes = {name: whole(value) for name, value in fields.items() if whole(value) != value}
    return dataclasses.replace(settings, **changes)
