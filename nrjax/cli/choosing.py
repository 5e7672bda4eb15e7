"""The command `nrjax choose`: what an accuracy costs, and by which mechanism."""

import dataclasses
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from nrjax import datasets
from nrjax._base.validation import check, check_complete
from nrjax.choice import questions
from nrjax.choice.choosing import choose
from nrjax.datasets._files import extra
from nrjax.papers._settings import parsed_bounds, parsed_missing
from nrjax.simulation.failures import FailedTrialsWarning

_REGRESSIONS = {
    "logistic": questions.logistic_regression,
    "ridge": questions.linear_regression,
}


@dataclasses.dataclass(frozen=True)
class Choose:
    """Find the mechanism that answers a question with an error you can accept at the least cost.

    For example:

        nrjax choose logistic --error '3 %'
        nrjax choose mean --data pay.csv --column pay --bounds pay=0:200000 --error 500

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
    """Data set for a regression, or a CSV file with a header."""
    column: str | None = None
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
    bins: tuple[float, ...] = ()
    """Rising edges of the bins of a histogram."""
    within: float = 100.0
    """Count below which the errors of `counts` are relative to this number."""
    regularisation: float = 0.05
    """Factor lambda of the l2 penalty of a regression."""
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
        with warnings.catch_warnings():
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
            options: Any = {"regularisation": self.regularisation, "relation": table.relation}
            return _REGRESSIONS[self.question](table.x, table.y, **options)
        for option in ("missing", "leave_out", "person", "rows_per_person"):
            given = getattr(self, option)
            check(not given, option, given, "left out, except for a regression")
        values = _column(self.data, self.column)
        is_text = self.question == "counts"
        check_complete(f"column {self.column!r} of {self.data}", values, is_text)
        if self.question == "counts":
            return questions.counts(values.astype(str), self.within)
        if self.question == "count":
            return questions.count(values)
        if self.question == "histogram":
            hint = "For example --bins 0 50 100."
            check(len(self.bins) > 1, "bins", self.bins, "rising edges, at least two", hint)
            question = questions.histogram(values, np.asarray(self.bins))
            return _warned(question, self.column, values, self.bins)
        limits: Any = parsed_bounds(self.bounds, [self.column] if self.column else ())
        ok = isinstance(limits, dict) and set(limits) == {self.column}
        hint = f"For example --bounds {self.column}=0:100."
        check(ok, "bounds", self.bounds, f"the bounds of {self.column!r}", hint)
        make = questions.mean if self.question == "mean" else questions.sum
        return _warned(make(values, limits[self.column]), self.column, values, limits[self.column])

    def _table(self) -> datasets.Dataset:
        """Return the data set of a regression."""
        task: Any = self.question
        own: dict[str, Any] = {
            "missing": parsed_missing(self.missing),
            "leave_out": self.leave_out,
            "person": self.person,
            "rows_per_person": self.rows_per_person,
        }
        if not Path(self.data).suffix:
            return datasets.load(self.data, task, **own)
        bounds = parsed_bounds(self.bounds)
        return datasets.from_file(self.data, self.column, bounds=bounds, task=task, **own)


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


def _column(data: str, column: str | None) -> np.ndarray:
    """Return a column of a CSV file."""
    ok = Path(data).suffix.lower() == ".csv"
    check(ok, "data", data, "the path of a CSV file", "For example --data my.csv.")
    table = extra("pandas").read_csv(data)
    hint = "For example --column pay."
    check(column in table.columns, "column", column, f"one of {list(table.columns)}", hint)
    return table[column].to_numpy()
