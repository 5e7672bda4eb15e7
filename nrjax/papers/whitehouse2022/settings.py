"""What can be chosen in `whitehouse2022`; each field is an option of the command."""

import dataclasses
from pathlib import Path
from typing import Literal

from nrjax._validation import check
from nrjax.papers._shared import check_per_task, check_settings
from nrjax.stopping.accuracy import Noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Whitehouse 2022: the ex-post epsilon that a target loss costs, by mechanism and test.

    What a model needs to know of the data is released under noise that is reduced step by step
    until the model's loss reaches the target. The result is the distribution of the privacy paid
    over many trials. Without --task, --mechanism and --test all twelve combinations are run.
    """

    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """What is learnt: `logistic` regression, its optimum released with noise (output
    perturbation), or `ridge` regression from noisy X'X and X'y (covariance perturbation)."""
    mechanism: tuple[Literal["brownian", "laplace"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare."""
    test: tuple[Literal["public", "above_threshold", "reduced_above_threshold"], ...] = (
        "public",
        "above_threshold",
        "reduced_above_threshold",
    )
    """How the loss is checked: `public` looks at it for free; the others pay, AboveThreshold one
    price for all looks, ReducedAboveThreshold what the last release costs."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one or one per task: flights, kdd99 (logistic), twitter (ridge), paper (kdd99 for
    logistic, twitter for ridge), or the path of your own .csv or .npz file."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file. Each row of the other columns is
    divided by its l2 norm, so scale columns alike first; there is no intercept."""
    data_dir: Path | None = None
    """Folder that holds kdd99 and twitter (else the variable NRJAX_DATA, else the cache folder)."""
    rows: int | None = None
    """Rows to use, from the first on; by default 10000, and all of your own file."""
    regularisation: float = 0.05
    """lambda of the l2 penalty (lambda/2)|theta|^2."""
    target_loss: tuple[float, ...] = ()
    """Loss to reach, one or one per task. By default 0.41 for kdd99 and 0.025 for twitter; for
    other data the non-private optimum times 1.03 (logistic) or 1.9 (ridge)."""
    test_epsilon: float = 0.5
    """Privacy level of AboveThreshold."""
    test_noise: Noise = "laplace"
    """Noise of the private tests: `laplace`, the papers'; `exponential`, which errs less at the
    same cost. It is not centred: at the target itself it says yes sooner, and to worse models."""
    utility_sensitivity: Literal["loss", "excess_risk"] = "loss"
    """What the private tests hide of the loss: `loss`, its own sensitivity on the ball of
    hypotheses; `excess_risk`, twice that, as if the optimum's loss were subtracted."""
    constants: Literal["paper", "tight"] = "paper"
    """Sensitivities of X'X and X'y (ridge): the paper's, or smaller ones that hold. A figure
    compares the two either way."""
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
    """Levels of the pass that measures the loss at each epsilon, never stopped."""

    def __post_init__(self):
        check_settings(
            self,
            several=("task", "mechanism", "test", "data"),
            distinct=("task", "mechanism", "test"),
            least={"levels": 2, "curve_levels": 2, "rows": 1},
            positive=("regularisation", "tight_at", "highest_epsilon", "test_epsilon"),
            shares=("delta",),
            files=("data",),
        )
        right = f"at most levels = {self.levels}"
        check(self.curve_levels <= self.levels, "curve_levels", self.curve_levels, right)
        low, right = self.lowest_epsilon, f"between 0 and highest_epsilon = {self.highest_epsilon}"
        check(low is None or 0 < low < self.highest_epsilon, "lowest_epsilon", low, right)
        check_per_task(self, "data", "target_loss")
