"""The command `nrjax choose`: what an accuracy costs, and by which mechanism."""

import dataclasses
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from nrjax import datasets
from nrjax._base.arrays import as_array
from nrjax._base.validation import check, check_complete
from nrjax.choice import questions
from nrjax.choice.choosing import choose
from nrjax.cli import printing
from nrjax.cli.wording import in_shell
from nrjax.datasets import _people
from nrjax.datasets._reading import is_table
from nrjax.datasets._rows import listed, similar
from nrjax.datasets.tables import columns_of_file
from nrjax.erm import default_regularisation
from nrjax.papers._settings import parsed_missing, parsed_read, stated_bounds
from nrjax.simulation.failures import FailedTrialsWarning

_ONE_ROW = "Only regressions can cover all rows of a person. Else make one row per person first."

_REGRESSIONS = {
    "logistic": questions.logistic_regression,
    "ridge": questions.linear_regression,
}


@dataclasses.dataclass(frozen=True)
class Choose:
    """Find the mechanism that answers a question with an error you can accept at the least cost.

    For example:

        nrjax choose logistic --error '3 %'
        nrjax choose mean --data pay.csv --target pay --bounds pay=0:200000 --error 500

    The choice looks at the data. For a real release, choose on public or synthetic data.
    """

    question: tyro.conf.Positional[
        Literal["mean", "sum", "count", "histogram", "counts", "logistic", "ridge"]
    ]
    """Question: a number or a histogram of one column, counts of its values within a relative error
    (`counts`), or a regression."""
    error: str
    """Largest error, in the question's unit (of a regression: the excess loss), or a percentage
    such as '3 %'."""
    confidence: float = 0.9
    """Least probability with which the error must be met."""
    data: str = "flights"
    """Data set for a regression, or the path of your table; see `nrjax run regression`."""
    target: Annotated[str | None, tyro.conf.arg(aliases=["--column"])] = None
    """Column of the question, or target of a regression on a file."""
    bounds: tuple[str, ...] = ()
    """Bounds COLUMN=LOW:HIGH, chosen without looking at the data; see `nrjax run regression`."""
    missing: tuple[str, ...] = ()
    """Rule for missing cells of a regression's file; see `nrjax run regression`."""
    leave_out: tuple[str, ...] = ()
    """Columns that a regression does not use."""
    person: str | None = None
    """Column that identifies people, for a regression; see `nrjax run regression`."""
    rows_per_person: int | None = None
    """Largest number of rows of a person."""
    bounds_file: Path | None = None
    """File of bounds in TOML or JSON."""
    read: tuple[str, ...] = ()
    """Options of the function of pandas that reads the file, such as sep=';' decimal=,"""
    bins: tuple[float, ...] = ()
    """Rising edges of the bins of a histogram."""
    within: float = 100.0
    """Count below which the errors of `counts` are relative to this number."""
    regularisation: float | None = None
    """Factor lambda of the l2 penalty of a regression: by default 0.05 for a named data set, and
    for a file a number that depends on its number of rows (`nrjax run regression --help`)."""
    prior: tuple[float, float] | None = None
    """Epsilons between which you expect trials to stop, to which boundaries are tuned."""
    trials: int | None = None
    """Largest number of trials of a candidate; by default 16,384."""
    seed: int = 0
    """Seed of all randomness."""
    out: Path | None = None
    """Folder for the trials of all candidates, and choice.png; by default nothing is written."""

    def __call__(self) -> None:
        """Print the choice, and write its folder and figure."""
        question = self._question()
        with printing.plain_warnings():
            warnings.simplefilter("ignore", FailedTrialsWarning)  # it is printed with the choice
            choice = choose(
                question,
                _number(self.error),
                self.confidence,
                prior=self.prior,
                trials=self.trials,
                seed=self.seed,
                folder=self.out,
            )
        print(choice)
        if self.out is not None:
            choice.plot().savefig(self.out / "choice.png")

    def _question(self) -> questions.Question:
        """Return the question about the data."""
        if self.question in _REGRESSIONS:
            table = self._table()
            penalty = self.regularisation
            if penalty is None:
                task: Any = self.question
                own = is_table(self.data)
                penalty = default_regularisation(task, len(table.y)) if own else 0.05
            options: Any = {"regularisation": penalty, "relation": table.relation}
            return _REGRESSIONS[self.question](table.x, table.y, **options)
        for option in ("missing", "leave_out", "person", "rows_per_person"):
            given = getattr(self, option)
            check(not given, option, given, "left out, except for a regression")
        values = self._column()
        is_text = self.question == "counts"
        check_complete(f"column {self.target!r} of {self.data}", values, is_text)
        if self.question == "counts":
            return questions.counts(values.astype(str), self.within)
        if self.question == "count":
            return questions.count(values)
        if self.question == "histogram":
            hint = "For example --bins 0 50 100."
            check(len(self.bins) > 1, "bins", self.bins, "rising edges, at least two", hint)
            question = questions.histogram(values, np.asarray(self.bins))
            return _warned(question, self.target, values, self.bins)
        limits: Any = self._bounds()
        ok = isinstance(limits, dict) and self.target in limits
        hint = f"For example --bounds {self.target}=0:100."
        check(ok, "bounds", self.bounds, f"the bounds of {self.target!r}", hint)
        make = questions.mean if self.question == "mean" else questions.sum
        return _warned(make(values, limits[self.target]), self.target, values, limits[self.target])

    def _bounds(self) -> Any:
        """Return the stated bounds by column."""
        return stated_bounds(self.bounds, self.bounds_file, [self.target] if self.target else ())

    def _column(self) -> np.ndarray:
        """Return a column of a file."""
        hint = "For example --data my.csv."
        check(is_table(self.data), "data", self.data, "the path of a file of a table", hint)
        columns, _ = columns_of_file(self.data, None, parsed_read(self.read))
        target, names = self.target, list(columns)
        hint = similar([] if target is None else [target], names) or "For example --target pay."
        expected = f"a column of {self.data}: {listed(names)}"
        check(target in columns, "target", target, expected, hint)
        for warning in _people.warnings_of(columns, (str(target),)):
            print(f"{in_shell(warning)} {_ONE_ROW}", file=sys.stderr)
        return as_array(columns[self.target])  # pyright: ignore[reportArgumentType]

    def _table(self) -> datasets.Dataset:
        """Return the data set of a regression. The summary of a table is printed."""
        task: Any = self.question
        own: dict[str, Any] = {
            "missing": parsed_missing(self.missing),
            "leave_out": self.leave_out,
            "person": self.person,
            "rows_per_person": self.rows_per_person,
        }
        if not Path(self.data).suffix:
            return datasets.load(self.data, task, **own)
        own |= {"bounds": self._bounds(), "read": parsed_read(self.read)}
        with printing.plain_warnings():
            table = datasets.from_file(self.data, self.target, task=task, **own)
        print(table.summary)
        return table


def _warned(
    question: questions.Question, column: Any, values: np.ndarray, ends: Sequence[float]
) -> questions.Question:
    """Return a question, after a warning if no value lies within its bounds or bins."""
    low, high = ends[0], ends[-1]
    if not np.any((values >= low) & (values <= high)):
        print(f"Warning: no value of {column!r} lies from {low:g} to {high:g}.", file=sys.stderr)
    return question


def _number(error: str) -> float | str:
    """Return an error as a number if it is one, else as text."""
    try:
        return float(error)
    except ValueError:
        return error
