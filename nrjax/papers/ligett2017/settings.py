"""The settings of `ligett2017`, whose fields are also options of the command line."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from nrjax._base.validation import check
from nrjax.papers._settings import check_per_task, check_settings, parsed_bounds
from nrjax.papers.ligett2017.presets import Name, Perturbation
from nrjax.stopping.accuracy import Noise

Method = Literal[
    "noise_reduction", "doubling", "theory", "brownian_above_threshold", "brownian_reduced"
]
METHODS: tuple[Method, ...] = get_args(Method)
_ALPHAS = tuple(round(0.005 * number, 3) for number in range(1, 41))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Ligett 2017: the privacy that an excess risk of at most alpha costs, by method.

    A model is released under noise that is reduced until a private test finds its excess risk small
    enough. With probability 1 - gamma, the excess risk is then at most alpha. Two baselines of the
    paper and the Brownian mechanism have the same target. The result is the distribution of the
    privacy cost over many trials.
    """

    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """Models to fit: `logistic` regression (output perturbation) or `ridge` regression."""
    method: tuple[Method, ...] = METHODS
    """Methods to compare. `noise_reduction`: Laplace noise is reduced until AboveThreshold accepts;
    `doubling`: fresh noise and a fresh test at each doubling of epsilon; `theory`: one release at
    the epsilon that a theorem requires; `brownian_above_threshold` and `brownian_reduced`: Gaussian
    noise is reduced until AboveThreshold or ReducedAboveThreshold accepts."""
    constants: Name = "paper"
    """Constants of the tests and theorems. `paper`: as printed, with errata corrected; `figures`:
    as in the program that drew the printed figures; `tight`: the smallest with a proof."""
    alpha: tuple[float, ...] = _ALPHAS
    """Requested excess risks. Each is a separate case."""
    gamma: float = 0.1
    """Allowed probability of an excess risk above alpha."""
    test_noise: Noise = "laplace"
    """Noise of AboveThreshold and ReducedAboveThreshold: `laplace`, as in the paper, or
    `exponential`, which errs less and requires the constants paper or tight."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one for all tasks or one per task: flights, kdd99 (logistic), twitter (ridge),
    paper (kdd99 for logistic, twitter for ridge), or the path of a file of your own table."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file."""
    bounds: tuple[str, ...] = ()
    """Bounds of the columns of your own file, as in `nrjax run --data FILE`: rows are divided by a
    number that bounds their l1 norms. Without them, columns are taken as they are, without an
    intercept, and rows are divided by the largest l1 norm."""
    data_dir: Path | None = None
    """Folder that holds kdd99 and twitter; by default the environment variable NRJAX_DATA, or else
    the cache folder."""
    rows: int | None = None
    """Number of rows to use, counted from the first; by default all."""
    copies: int = 1
    """Number of times that the rows are repeated, to simulate a larger data set."""
    regularisation: float = 0.005
    """Factor lambda of the l2 penalty (lambda/2)|theta|^2."""
    ridge_perturbation: Perturbation = "covariance"
    """Statistics of ridge regression that get noise: `covariance`, X'X and X'y; `output`, the
    optimum."""
    levels: int = 1000
    """Number of levels in the grid of epsilons."""
    delta: float = 1e-6
    """Allowed probability that the privacy loss exceeds the stated epsilon (Brownian methods)."""
    tight_at: float | None = None
    """Epsilon at which the privacy boundary of the Brownian methods is tight. By default 1/64 of
    the theorem's epsilon at each alpha (brownian_above_threshold) or the first level of the grid
    (brownian_reduced)."""
    trials: int = 100
    """Number of independent trials per case."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("task", "method", "alpha", "data"),
            distinct=("task", "method", "alpha"),
            least={"levels": 2, "copies": 1, "rows": 1},
            positive=("alpha", "regularisation", "tight_at"),
            fractions=("delta", "gamma"),
            files=("data",),
        )
        check_per_task(self, "data")
        parsed_bounds(self.bounds)
        ok = self.test_noise == "laplace" or self.constants in ("paper", "tight")
        expected = f"laplace with the constants {self.constants}"
        hint = "Exponential noise needs the constants paper or tight."
        check(ok, "test_noise", self.test_noise, expected, hint)
