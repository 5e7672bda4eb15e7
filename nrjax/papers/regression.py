"""Private regression on your own table: the cases of `whitehouse2022`, with one data set."""

import dataclasses
from pathlib import Path
from typing import Literal

from nrjax._base.validation import check
from nrjax.datasets import tables
from nrjax.datasets._reading import FILES, is_table
from nrjax.datasets._rows import RowRules
from nrjax.papers import OWN_TABLE, whitehouse2022
from nrjax.papers._settings import parsed_missing, parsed_read, stated_bounds
from nrjax.papers.whitehouse2022.study import cases_of
from nrjax.study.release_error import RELEASE_ERROR
from nrjax.study.study import Study

reporting = whitehouse2022.reporting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Your own table: the ex-post epsilon that an accurate regression costs, by mechanism.

    A model of the target is released under noise that is reduced step by step until its loss on the
    table is close to that of the best model. The result is the distribution of the ex-post epsilon
    over many trials. For example:

        nrjax run --data churn.csv --target churned --bounds age=18:90 city=A,B

    In this form, without the word `regression`, you can leave out --out: the example writes to
    runs/churn.
    """

    data: str
    """Path of your table: a text file with a header (.csv, .tsv, .txt), .xlsx, .parquet, .dta, .sav
    or another file that pandas reads, or an .npz file with an array `x`. `nrjax data PATH` shows
    how it is understood, and which options to type."""
    target: str | None = None
    """Column (CSV) or array (NPZ, by default `y`) to predict. Two values are for logistic
    regression, more numbers for ridge regression."""
    bounds: tuple[str, ...] = ()
    """Bounds of each column of numbers or dates, COLUMN=LOW:HIGH, to which it is clipped, and
    categories of other columns, COLUMN=A,B,C. Choose them without looking at the data. `data` takes
    all bounds from the data, which is not private. Only the array `x` of an .npz file can be
    without bounds: it is then taken as it is."""
    missing: tuple[str, ...] = ()
    """Rule for missing cells: `refuse`, by default; `drop`, which leaves rows out; or COLUMN=VALUE,
    which fills cells in with values that you choose without the data."""
    leave_out: tuple[str, ...] = ()
    """Columns that are not used."""
    person: str | None = None
    """Column that identifies people, which is no feature. Epsilon then covers all rows of a
    person."""
    rows_per_person: int | None = None
    """Largest number of rows of a person. A file with more rows of a person is refused."""
    bounds_file: Path | None = None
    """File of bounds in TOML or JSON, for any names and categories. `nrjax data PATH --write-bounds
    bounds.toml` writes a template."""
    read: tuple[str, ...] = ()
    """Options of the function of pandas that reads the file, OPTION=VALUE, such as sep=';'
    decimal=, encoding=latin-1 na_values=?,missing."""
    task: Literal["logistic", "ridge"] | None = None
    """Model to fit: `logistic` regression (output perturbation) or `ridge` regression (covariance
    perturbation). By default, the one that suits the target."""
    mechanism: tuple[Literal["brownian", "laplace"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare."""
    test: tuple[Literal["public", "above_threshold", "reduced_above_threshold"], ...] = ("public",)
    """Tests of whether the loss reaches the target loss. `public` reads the loss at no cost, so
    that epsilon covers the releases and not the decision to stop; the others are private."""
    regularisation: float = 0.05
    """Factor lambda of the l2 penalty (lambda/2)|theta|^2."""
    target_loss: float | None = None
    """Target loss, penalty included; by default the non-private optimum times 1.03 (logistic) or
    1.9 (ridge)."""
    confidence: float = 0.9
    """Least probability with which a private test accepts no model above the target loss. Its
    thresholds depend on the loss of the non-private optimum, which epsilon does not cover."""
    delta: float = 1e-6
    """Allowed probability that the privacy loss exceeds the stated epsilon (brownian)."""
    lowest_epsilon: float = 0.01
    """Smallest epsilon of the grid."""
    highest_epsilon: float = 20.0
    """Largest epsilon of the grid."""

    def __post_init__(self):
        hint = "From another source: read it with pandas, then nrjax.datasets.from_frame."
        if not Path(self.data).suffix:
            hint = f"For a named data set: nrjax run whitehouse2022 --data {self.data}"
        expected = f"the path of a file of a table: {FILES}"
        check(is_table(self.data), "data", self.data, expected, hint)
        object.__setattr__(self, "data", str(Path(self.data).expanduser().absolute()))
        self.of_paper("logistic")
        parsed_missing(self.missing)

    def of_paper(self, task: str) -> whitehouse2022.Settings:
        """Return the paper's settings for one task. Making them checks the values."""
        shared = {field.name for field in dataclasses.fields(whitehouse2022.Settings)}
        own = {name: value for name, value in vars(self).items() if name in shared}
        target_loss = () if self.target_loss is None else (self.target_loss,)
        own |= {"data": (self.data,), "task": (task,), "target_loss": target_loss}
        own |= {"boundary": "minimax", "levels": 200}
        return whitehouse2022.Settings(**own)


def study(settings: Settings) -> Study:
    """Prepare the table and return the study.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the table is unsuitable, or bounds are missing.
    """
    bounds = stated_bounds(settings.bounds, settings.bounds_file)
    rules = RowRules(
        parsed_missing(settings.missing),
        settings.leave_out,
        settings.person,
        settings.rows_per_person,
    )
    data_set = tables.prepared_file(
        settings.data,
        settings.target,
        bounds,
        settings.task,
        rules,
        parsed_read(settings.read),
    )
    cases = cases_of(settings.of_paper(data_set.task), [data_set])
    return Study(
        OWN_TABLE,
        cases,
        quantities=RELEASE_ERROR,
        reporting=reporting,
        settings=settings,
        source=OWN_TABLE,
    )
