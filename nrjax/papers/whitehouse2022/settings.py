"""The settings of `whitehouse2022`, whose fields are also options of the command line."""

import dataclasses
from pathlib import Path
from typing import Literal

from nrjax._base.validation import check
from nrjax.papers._settings import check_per_task, check_settings, parsed_bounds
from nrjax.stopping.accuracy import Noise

OBJECTIVE = "objective"
"""Name of the baseline of objective perturbation, and of its pass."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Whitehouse 2022: the ex-post epsilon that a target loss costs, by mechanism and test.

    The statistics that determine a model are released under noise that is reduced step by step
    until the model's loss reaches the target. The result is the distribution of the ex-post
    epsilon over many trials. Without --task, --mechanism and --test, all twelve combinations are
    run.
    """

    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """Models to fit: `logistic` regression, its optimum released with noise (output perturbation),
    or `ridge` regression from noisy X'X and X'y (covariance perturbation)."""
    mechanism: tuple[Literal["brownian", "laplace", "spherical"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare. `spherical` is Laplace noise for the l2-sensitivity,
    which is pure like `laplace` and needs a smaller epsilon in two dimensions or more."""
    test: tuple[Literal["public", "above_threshold", "reduced_above_threshold"], ...] = (
        "public",
        "above_threshold",
        "reduced_above_threshold",
    )
    """Tests of whether the loss reaches the target: `public` treats the loss as public, at no cost;
    `above_threshold` has one cost for all its answers; `reduced_above_threshold` costs as much as
    the last release."""
    baseline: tuple[Literal["objective"], ...] = ()
    """Releases at one fixed epsilon whose losses the figure shows as well: `objective`, objective
    perturbation of logistic regression (pure, Chaudhuri et al. 2011). Noise on the optimum has the
    losses of its mechanism."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one for all tasks or one per task: flights, kdd99 (logistic), twitter (ridge),
    paper (kdd99 for logistic, twitter for ridge), or the path of a file of your own table."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file."""
    bounds: tuple[str, ...] = ()
    """Bounds of the columns of your own file, as in `nrjax run --data FILE`. Without them, columns
    are taken as they are, without an intercept. Each row is divided by its l2 norm."""
    data_dir: Path | None = None
    """Folder that holds kdd99 and twitter; by default the environment variable NRJAX_DATA, or else
    the cache folder."""
    rows: int | None = None
    """Number of rows to use, counted from the first; by default 10000, or all of your own file."""
    regularisation: float = 0.05
    """Factor lambda of the l2 penalty (lambda/2)|theta|^2."""
    target_loss: tuple[float, ...] = ()
    """Target loss, one for all tasks or one per task. By default 0.41 for kdd99 and 0.025 for
    twitter; for other data the non-private optimum times 1.03 (logistic) or 1.9 (ridge)."""
    test_epsilon: float = 0.5
    """Epsilon of the test above_threshold."""
    test_noise: Noise = "laplace"
    """Noise of the private tests: `laplace`, as in the papers, or `exponential`, which errs less
    at the same cost. The mean of exponential noise is not 0: with the same threshold, a test
    accepts sooner, and worse models."""
    confidence: float | None = None
    """Least probability with which a private test accepts no model above the target loss, such as
    0.9: thresholds are raised, and levels with too much noise are left out. The test
    above_threshold gets the epsilon that it needs. Thresholds depend on the loss of the non-private
    optimum, which epsilon does not cover. By default the paper's settings, with which most models
    can miss the target."""
    utility_sensitivity: Literal["loss", "excess_risk"] = "loss"
    """Sensitivity for the private tests: `loss`, the loss's sensitivity on the ball of hypotheses,
    or `excess_risk`, twice as large, as if the optimum's loss were subtracted."""
    constants: Literal["paper", "tight"] = "paper"
    """Sensitivities of X'X and X'y (ridge): `paper`, as printed, or `tight`, smaller ones with a
    proof. With either choice, a figure compares both."""
    delta: float = 1e-6
    """Allowed probability that the privacy loss exceeds the stated epsilon (brownian)."""
    tight_at: float = 0.3
    """Epsilon at which the privacy boundary of the Brownian mechanism is tight."""
    boundary: Literal["linear", "grid", "minimax"] = "linear"
    """Privacy boundary of the Brownian mechanism: `linear`, as in the paper, which holds at all
    times; `grid`, lowered so that it holds only at the grid's times; or `minimax`, the default of
    `nrjax.brownian`, which is not tuned to an epsilon. `grid` and `minimax` are not in the
    paper."""
    lowest_epsilon: float | None = None
    """Smallest epsilon of the grid; by default 0.16, or 1.05 times the smallest epsilon that a
    linear boundary reaches if that is larger."""
    highest_epsilon: float = 20.0
    """Largest epsilon of the grid."""
    levels: int = 1000
    """Number of epsilons in the grid, in equal ratios."""
    curve_levels: int = 50
    """Number of epsilons at which a pass that never stops measures the loss."""
    release_error: bool = False
    """Report how often the released numbers lie within 1.96 standard deviations of the private
    ones. Noise at the stop is not normal, since a trial stops when its release looks good."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("task", "mechanism", "test", "data"),
            distinct=("task", "mechanism", "test", "baseline"),
            least={"levels": 2, "curve_levels": 2, "rows": 1},
            positive=("regularisation", "tight_at", "highest_epsilon", "test_epsilon"),
            fractions=("delta", "confidence"),
            files=("data",),
        )
        expected = f"at most levels = {self.levels}"
        check(self.curve_levels <= self.levels, "curve_levels", self.curve_levels, expected)
        low, high = self.lowest_epsilon, self.highest_epsilon
        expected = f"between 0 and highest_epsilon = {high}"
        check(low is None or 0 < low < high, "lowest_epsilon", low, expected)
        check_per_task(self, "data", "target_loss")
        parsed_bounds(self.bounds)
