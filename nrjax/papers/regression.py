"""Private regression on your own table: the cases of `whitehouse2022`, with one data set."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets import Dataset, tables
from nrjax.datasets._reading import FILES, is_table
from nrjax.datasets._rows import RowRules
from nrjax.erm import (
    TrivialLosses,
    bounded_release,
    default_regularisation,
    trivial_losses,
)
from nrjax.papers import OWN_TABLE, _scores, whitehouse2022
from nrjax.papers._own_report import OwnReporting
from nrjax.papers._scores import HELD_OUT, Part
from nrjax.papers._settings import parsed_missing, parsed_read, stated_bounds
from nrjax.papers.whitehouse2022.study import Problem, cases_of_problem, problem_of
from nrjax.stopping import accuracy
from nrjax.study.release_error import RELEASE_ERROR
from nrjax.study.study import Study

_SMALL = 0.01
"""Difference of two losses, as a fraction of one, up to which they are practically equal."""


_HIGHEST = 20.0
"""Largest epsilon of the grid if the noise of private tests fits the target there."""

_MOST = 1000.0
"""Largest epsilon of a default grid. Noise may be too small for float32 beyond it."""

_NO_TEST = (
    "The private test is left out, since its noise fits the target only from an epsilon of about "
    "{epsilon:.3g} on. No epsilon of these runs covers the decision to stop. Take a higher "
    "--target-fraction, or state --highest-epsilon to run the test."
)

_ABOVE_TEST = 2.0
"""Largest epsilon of the grid, as a multiple of the one at which a private test's noise fits."""

reporting = OwnReporting()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Your own table: the ex-post epsilon that an accurate regression costs, by mechanism.

    A model of the target is released under noise that is reduced step by step until its loss on the
    table is close to that of the best model. The result is the distribution of the ex-post epsilon
    over many trials, with a private test, which covers the decision to stop, and with a public one,
    which does not. The report also states what one release without a test would cost. For example:

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
    mechanism: tuple[Literal["brownian", "laplace", "spherical"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare. `spherical` is Laplace noise for the l2-sensitivity,
    which is pure like `laplace` and needs a smaller epsilon in two dimensions or more."""
    test: tuple[Literal["public", "above_threshold", "reduced_above_threshold"], ...] = (
        "reduced_above_threshold",
        "public",
    )
    """Tests of whether the loss reaches the target loss. Those of AboveThreshold are private, so
    that epsilon covers the decision to stop. `public` is the cost if stopping costs nothing, that
    is if the score reads no private data."""
    regularisation: float | None = None
    """Factor lambda of the l2 penalty (lambda/2)|theta|^2. By default a number that depends on the
    task and the number n of rows only: min(0.005, 0.15/sqrt(n)) for logistic regression, and
    min(0.03, max(20/n, 0.2/sqrt(n))) for ridge regression."""
    target_loss: float | None = None
    """Target loss, penalty included; by default between the loss of the penalised optimum and that
    of the best constant model, at --target-fraction."""
    target_fraction: float = 0.2
    """Fraction of the gain of the optimum over the best constant model that a model at the default
    target loss gives up. The constant model uses the intercept only. Most trials reached the
    default within the default grid on each of 30 public tables of more than 500 rows."""
    held_out: float | None = None
    """Fraction of the rows, such as 0.2, on which models are only scored. They are drawn by
    --split-seed and not used in training. Epsilon does not cover them."""
    split_seed: int = 0
    """Seed of the draw of the held-out rows."""
    confidence: float = 0.9
    """Least probability with which a private test accepts no model above the target loss. Its
    thresholds depend on the loss of the non-private optimum, which epsilon does not cover."""
    delta: float = 1e-6
    """Allowed probability that the privacy loss exceeds the stated epsilon (brownian)."""
    lowest_epsilon: float = 0.01
    """Smallest epsilon of the grid."""
    highest_epsilon: float | None = None
    """Largest epsilon of the grid; by default 20, or twice the epsilon at which the noise of a
    private test fits the target, if that is more. The latter is computed from your rows, which
    epsilon does not cover. If it is more than 1,000, the private test is left out by default, with
    a warning."""

    def __post_init__(self):
        hint = "From another source: read it with pandas, then nrjax.datasets.from_frame."
        if not Path(self.data).suffix:
            hint = f"For a named data set: nrjax run whitehouse2022 --data {self.data}"
        expected = f"the path of a file of a table: {FILES}"
        check(is_table(self.data), "data", self.data, expected, hint)
        object.__setattr__(self, "data", str(Path(self.data).expanduser().absolute()))
        for name in ("target_fraction", "held_out"):
            number = getattr(self, name)
            ok = number is None or 0 < number < 1
            check(ok, name, number, "strictly between 0 and 1")
        check(self.split_seed >= 0, "split_seed", self.split_seed, "at least 0")
        self.of_paper("logistic", 1)
        parsed_missing(self.missing)

    def of_paper(self, task: Literal["logistic", "ridge"], rows: int) -> whitehouse2022.Settings:
        """Return the paper's settings for a task and number of rows. This checks the values."""
        shared = {field.name for field in dataclasses.fields(whitehouse2022.Settings)}
        own = {name: value for name, value in vars(self).items() if name in shared}
        target_loss = () if self.target_loss is None else (self.target_loss,)
        own |= {"data": (self.data,), "task": (task,), "target_loss": target_loss}
        if self.regularisation is None:
            own["regularisation"] = default_regularisation(task, rows)
        own |= {"boundary": "minimax", "levels": 200}
        if self.highest_epsilon is None:
            own["highest_epsilon"] = _HIGHEST
        return whitehouse2022.Settings(**own)


def study(settings: Settings) -> Study:
    """Prepare the table and return the study.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the table is unsuitable, or bounds are missing.

    Warns:
        UserWarning: rows fall out of what was stated, a model without features meets the target, or
            the optimum gains little or nothing over the base rate.
    """
    bounds = stated_bounds(settings.bounds, settings.bounds_file)
    rules = RowRules(
        parsed_missing(settings.missing),
        settings.leave_out,
        settings.person,
        settings.rows_per_person,
    )
    whole = tables.prepared_file(
        settings.data,
        settings.target,
        bounds,
        settings.task,
        rules,
        parsed_read(settings.read),
    )
    task: Any = whole.task
    data_set, parts = _split(whole, settings)
    paper = settings.of_paper(task, len(data_set.y))
    problem = problem_of(paper, data_set)
    trivial = trivial_losses(problem, data_set.x)
    target = _target(settings, data_set, problem, trivial)
    needed = 0.0
    if settings.highest_epsilon is None:
        needed = _ABOVE_TEST * _needed(paper, problem, target, data_set.relation)
        is_left_out = needed > _MOST and "public" in paper.test
        changes: Any = {"test": ("public",)} if is_left_out else {"highest_epsilon": needed}
        if needed > paper.highest_epsilon:
            paper = dataclasses.replace(paper, **changes)
    facts = _scores.facts(parts, problem.optimum)
    facts |= {"zero_loss": trivial.zero, "constant_loss": trivial.constant}
    facts["grid_from_rows"] = needed > _HIGHEST
    excess = target - problem.optimum_loss
    once = bounded_release(problem, excess, settings.confidence, paper.delta, data_set.relation)
    facts["one_release"] = {**once._asdict(), "confidence": settings.confidence}
    if settings.target_loss is None:
        facts["target_fraction"] = settings.target_fraction
    if task == "ridge" and whole.units is not None:
        facts["target_unit"] = {"name": settings.target, "half": whole.units.target[1]}
    facts["doubts"] = _doubts(target, problem, trivial, facts)
    if paper.test != settings.test:
        facts["doubts"].append(_NO_TEST.format(epsilon=needed / _ABOVE_TEST))
    of_table = (r.removeprefix("Warning: ") for r in whole.remarks if r.startswith("Warning: "))
    for text in (*of_table, *facts["doubts"]):
        warnings.warn(text, stacklevel=2)
    return Study(
        OWN_TABLE,
        cases_of_problem(paper, data_set, problem, target, facts),
        quantities=RELEASE_ERROR | _scores.quantities(parts),
        reporting=reporting,
        settings=settings,
        source=OWN_TABLE,
    )


def _split(whole: Dataset, settings: Settings) -> tuple[Dataset, dict[str, Part]]:
    """Return the rows for training, and all parts on which models are scored, by prefix."""
    if settings.held_out is None:
        return whole, {"": Part(whole.task, whole.x, whole.y)}
    rows = len(whole.y)
    order = np.random.default_rng(settings.split_seed).permutation(rows)
    held = round(settings.held_out * rows)
    places = {"": np.sort(order[held:]), HELD_OUT: np.sort(order[:held])}
    parts = {name: Part(whole.task, whole.x[at], whole.y[at]) for name, at in places.items()}
    enough = min(held, rows - held) > 0 and np.ptp(parts[""].y) > 0
    expected = "such that both parts have rows, and training has different values of the target"
    check(enough, "held_out", settings.held_out, expected)
    remark = f"{held:,} of these rows are held out (seed {settings.split_seed})."
    remarks = (*whole.remarks, remark)
    return dataclasses.replace(whole, x=parts[""].x, y=parts[""].y, remarks=remarks), parts


def _target(
    settings: Settings, data_set: Dataset, problem: Problem, trivial: TrivialLosses
) -> float:
    """Return the target loss, which is above the optimum's."""
    optimum = problem.optimum_loss
    target = settings.target_loss
    if target is None:
        target = optimum + settings.target_fraction * (trivial.constant - optimum)
    expected = f"above {optimum:.6g}, the penalised optimum of {data_set.task}"
    hint = "" if settings.target_loss else "The best model of this table uses no feature."
    check(target > optimum, "target_loss", target, f"{expected} on {data_set.name}", hint)
    return float(target)


def _needed(
    paper: whitehouse2022.Settings, problem: Problem, target: float, relation: str
) -> float:
    """Return the epsilon from which the noise of a private test fits the target, 0 without one."""
    if set(paper.test) == {"public"} or paper.confidence is None:
        return 0.0
    utility: Any = problem.released("laplace", relation=relation).utility
    if paper.utility_sensitivity == "excess_risk":
        utility = utility.excess_risk()
    margin, gamma = accuracy.MARGIN * (target - problem.optimum_loss), 1 - paper.confidence
    numbers = margin, utility.sensitivity, gamma, 1 / paper.levels
    return float(accuracy.epsilon_for_shortfall(*numbers, paper.test_noise))


def _doubts(
    target: float, problem: Problem, trivial: TrivialLosses, facts: Mapping[str, Any]
) -> list[str]:
    """Return sentences on why the run may answer nothing."""
    doubts = []
    if met := trivial.met(target):
        text = f"The target loss {target:.4g} is met by {met}: any epsilon reaches it."
        doubts.append(f"{text} Lower --target-loss, or leave it out.")
    gain = 1 - problem.optimum_loss / trivial.constant
    if 0 <= gain < _SMALL:
        doubts.append(
            f"The optimum's loss is only {gain:.2%} below that of the best constant model, both "
            "with the penalty: the columns hardly predict the target."
        )
    loss, base = (facts[f"scores_of_{name}"]["loss"] for name in ("optimum", "constant"))
    if loss > (1 + _SMALL) * base:
        doubts.append(
            f"The optimum has a loss of {loss:.4g} on the data without the penalty, and a model "
            f"that uses no column has {base:.4g}. Lower --regularisation."
        )
    return doubts
