"""Settings of `whitehouse2022`: fields are options of the command, docstrings their help."""

import dataclasses
from pathlib import Path
from typing import Literal

from nrjax._validation import check
from nrjax.papers._settings import check_per_task, check_settings
from nrjax.stopping.accuracy import Noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Whitehouse 2022: the ex-post epsilon that a target loss costs, by mechanism and test.

    The statistics that determine a model are released under noise that is reduced step by step
    until the model's loss reaches the target. The result is the distribution of the privacy paid
    over many trials. Without --task, --mechanism and --test all twelve combinations are run.
    """

    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """Models to fit: `logistic` regression, its optimum released with noise (output perturbation),
    or `ridge` regression from noisy X'X and X'y (covariance perturbation)."""
    mechanism: tuple[Literal["brownian", "laplace"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare."""
    test: tuple[Literal["public", "above_threshold", "reduced_above_threshold"], ...] = (
        "public",
        "above_threshold",
        "reduced_above_threshold",
    )
    """Tests of the loss: `public` treats the loss as public, at no cost; `above_threshold` has one
    cost for all its answers; `reduced_above_threshold` costs as much as the last release."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one or one per task: flights, kdd99 (logistic), twitter (ridge), paper (kdd99 for
    logistic, twitter for ridge), or the path of your own .csv or .npz file."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file. Each row of the other columns is
    divided by its l2 norm, so scale columns alike first; there is no intercept."""
    data_dir: Path | None = None
    """Folder that holds kdd99 and twitter; by default the environment variable NRJAX_DATA, or else
    the cache folder."""
    rows: int | None = None
    """Number of rows to use, counted from the first; by default 10000, and all of your own file."""
    regularisation: float = 0.05
    """lambda of the l2 penalty (lambda/2)|theta|^2."""
    target_loss: tuple[float, ...] = ()
    """Target loss, one or one per task. By default 0.41 for kdd99 and 0.025 for twitter; for other
    data the non-private optimum times 1.03 (logistic) or 1.9 (ridge)."""
    test_epsilon: float = 0.5
    """Epsilon of AboveThreshold."""
    test_noise: Noise = "laplace"
    """Noise of the private tests: `laplace`, the papers'; `exponential`, which errs less at the
    same cost. Its mean is not 0: with the same threshold it accepts sooner, and worse models."""
    utility_sensitivity: Literal["loss", "excess_risk"] = "loss"
    """Sensitivity for the private tests: `loss`, that of the loss on the ball of hypotheses;
    `excess_risk`, twice as much, as if the optimum's loss were subtracted."""
    constants: Literal["paper", "tight"] = "paper"
    """Sensitivities of X'X and X'y (ridge): `paper`, as printed, or `tight`, smaller ones with a
    proof. A figure compares both in any case."""
    delta: float = 1e-6
    """Probability with which the stated epsilon may be exceeded (Brownian mechanism)."""
    tight_at: float = 0.3
    """Epsilon at which the linear privacy boundary is tight."""
    boundary: Literal["linear", "grid"] = "linear"
    """Boundary of the Brownian mechanism: the paper's `linear` one, which holds at all times, or
    `grid`, the same curve as low as the times of the grid allow (not in the paper)."""
    lowest_epsilon: float | None = None
    """First level of the grid; by default 0.16, or 1.05 times the smallest epsilon that the
    boundary reaches if that is larger."""
    highest_epsilon: float = 20.0
    """Last level of the grid."""
    levels: int = 1000
    """Levels of the grid, in equal ratios."""
    curve_levels: int = 50
    """Levels at which a pass that never stops measures the loss."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("task", "mechanism", "test", "data"),
            distinct=("task", "mechanism", "test"),
            least={"levels": 2, "curve_levels": 2, "rows": 1},
            positive=("regularisation", "tight_at", "highest_epsilon", "test_epsilon"),
            fractions=("delta",),
            files=("data",),
        )
        expected = f"at most levels = {self.levels}"
        check(self.curve_levels <= self.levels, "curve_levels", self.curve_levels, expected)
        low, high = self.lowest_epsilon, self.highest_epsilon
        expected = f"between 0 and highest_epsilon = {high}"
        check(low is None or 0 < low < high, "lowest_epsilon", low, expected)
        check_per_task(self, "data", "target_loss")
