"""The options of a run, and checks of the settings of a study."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from nrjax._base.validation import check, check_choice, check_integer, check_number, is_integer
from nrjax.study.checks import strict_json

Keep = Literal["trials", "summary"]

INTERIM_COUNTS = tuple(1000 * 2**k for k in range(23))
"""The numbers of trials at which a run with `until_se` evaluates its precision."""

_LIMIT = {"trials": 1000 * 2**10, "summary": 1000 * 2**20}
"""The default of `most_trials`, by the value of `keep`."""

SHARED = ("seed", "trials")
"""The options of a run that may also be fields of a study's settings, with equal values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that all runs have in common.

    Attributes:
        trials: Number of independent trials of each case.
        seed: Seed of all randomness. Cases share it, so that their differences are paired.
        chunk: Number of trials per file; by default, files are written every few seconds.
        keep: `trials` stores every trial. `summary` stores histograms and moments, so
            that a study of any size takes megabytes.
        until_se: Add trials until the standard error of every case's median stopping epsilon is at
            most this, in units of epsilon. It is checked after 1000, 2000, 4000, ... trials, but
            not before --trials are done. With --keep summary it must be at least the width of the
            histogram's bins.
        most_trials: Largest number of trials with --until-se; by default 1,024,000, or
            1,024,000,000 with --keep summary.
    """

    trials: int = 1000
    seed: int = 0
    chunk: int | None = None
    keep: Keep = "trials"
    until_se: float | None = None
    most_trials: int | None = None

    def __post_init__(self):
        for name, least, most in (
            ("trials", 1, 2**32),
            ("seed", 0, 2**32 - 1),
            ("chunk", 1, 2**32 - 1),
            ("most_trials", 1, 2**32),
        ):
            if getattr(self, name) is not None or name in ("trials", "seed"):
                number = check_integer(name, getattr(self, name), least, most)
                object.__setattr__(self, name, number)
        check_choice("keep", self.keep, ("trials", "summary"))
        if self.until_se is not None:
            object.__setattr__(self, "until_se", check_number("until_se", self.until_se))
        if self.until_se is None:
            hint = "It bounds a run with until_se; otherwise give trials."
            expected = "left out without until_se"
            check(self.most_trials is None, "most_trials", self.most_trials, expected, hint)
            return
        first = self.first_interim
        expected = (
            f"at least {first}, the first interim count (1000 x 2^k, and no less than trials)"
        )
        check(self.limit >= first, "most_trials", self.limit, expected)

    @property
    def first_interim(self) -> int:
        """The smallest interim count of trials that is at least `trials`."""
        last = INTERIM_COUNTS[-1]
        check(self.trials <= last, "trials", self.trials, f"at most {last} with until_se")
        return next(count for count in INTERIM_COUNTS if count >= self.trials)

    @property
    def limit(self) -> int:
        """The largest number of trials of a run with `until_se`, reached or not."""
        return _LIMIT[self.keep] if self.most_trials is None else self.most_trials

    def resolved(self) -> "RunOptions":
        """Return the options with which a new run starts.

        With `until_se`, the new `trials` are those of the first check of precision: the least of
        1000, 2000, 4000, ... that is not below `trials`.
        """
        if self.until_se is None:
            return self
        return dataclasses.replace(self, trials=self.first_interim)

    def extended(
        self,
        trials: int | None = None,
        until_se: float | None = None,
        most_trials: int | None = None,
    ) -> "RunOptions":
        """Return the options of a resumed run, with each argument that is not None changed.

        Raises:
            ValueError: `trials` is less than the trials of the run, or a value is out of range.
        """
        if trials is not None:
            is_more = is_integer(trials) and self.trials <= trials <= 2**32
            expected = f"an integer, at least {self.trials} and at most 2^32"
            check(is_more, "trials", trials, expected, "Trials of a run are never removed.")
        changes = {"trials": trials, "until_se": until_se, "most_trials": most_trials}
        changes = {name: value for name, value in changes.items() if value is not None}
        options = dataclasses.replace(self, **changes)
        is_new_goal = (options.until_se, options.most_trials) != (self.until_se, self.most_trials)
        if is_new_goal and options.until_se is not None:
            return dataclasses.replace(options, trials=options.first_interim)
        return options

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> "RunOptions":
        """Return the options that are among the recorded settings of a store."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in names if name in settings})


def to_json(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a dict, with paths as strings and tuples as lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        return [plain(part) for part in value] if isinstance(value, tuple) else value

    if settings is None:
        return {}
    return {name: plain(value) for name, value in dataclasses.asdict(settings).items()}


def shared_options(settings: Any) -> dict[str, Any]:
    """Return the options in `SHARED` that are fields of a study's settings, with their values.

    `settings` may also be the dataclass itself; fields without a default are then left out.
    """
    if settings is None:
        return {}
    names = {field.name for field in dataclasses.fields(settings)} & set(SHARED)
    return {name: getattr(settings, name) for name in sorted(names) if hasattr(settings, name)}


def check_settings(settings: Any, taken: Iterable[str] = ()) -> None:
    """Check the settings of a study, or the dataclass of the settings.

    Args:
        settings: a dataclass, or an instance of one.
        taken: names that fields may not have, in addition to the options of a run.

    Raises:
        ValueError: `settings` is not a dataclass, a field has the name of an option, or a value
            cannot be stored as strict JSON.
    """
    check(dataclasses.is_dataclass(settings), "settings", settings, "a dataclass")
    taken = {*RunOptions.__dataclass_fields__, "out", "overwrite", *taken} - set(SHARED)
    names = [field.name for field in dataclasses.fields(settings) if field.name in taken]
    hint = f"A run has an option --{''.join(names[:1]).replace('_', '-')}."
    check(not names, "fields of settings", names, "of other names than options of a run", hint)
    if not isinstance(settings, type):
        for name, value in to_json(settings).items():
            strict_json(f"settings.{name}", value)
