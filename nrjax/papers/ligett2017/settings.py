"""What can be chosen in `ligett2017`; each field is an option of the command."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from nrjax._validation import check
from nrjax.papers._shared import check_per_task, check_settings
from nrjax.papers.ligett2017.presets import Name, Perturbation
from nrjax.stopping.accuracy import Noise

Method = Literal[
    "noise_reduction", "doubling", "theory", "brownian_above_threshold", "brownian_reduced"
]
METHODS: tuple[Method, ...] = get_args(Method)
_ALPHAS = tuple(round(0.005 * number, 3) for number in range(1, 41))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Ligett 2017: what it costs to be within alpha of the optimum, by method.

    A model is released under noise that is taken away until its excess risk is privately seen to
    be small enough; with probability 1 - gamma it is at most alpha. Two baselines of the paper, and
    the Brownian mechanism, have the same goal. The result is the privacy paid, over many trials.
    """

    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """What is learnt: `logistic` regression (output perturbation) or `ridge` regression."""
    method: tuple[Method, ...] = METHODS
    """`noise_reduction`: Laplace noise taken away, tested by AboveThreshold; `doubling`: fresh
    noise and a fresh test at each doubling of epsilon; `theory`: one release at the epsilon that a
    theorem asks for; `brownian_above_threshold` and `brownian_reduced`: Gaussian noise taken away,
    tested by AboveThreshold or by ReducedAboveThreshold."""
    constants: Name = "paper"
    """`paper`: as printed, errata corrected; `figures`: the program that drew the printed figures;
    `tight`: the smallest constants that are proved."""
    alpha: tuple[float, ...] = _ALPHAS
    """Excess risks to ask for."""
    gamma: float = 0.1
    """Probability with which the excess risk may be larger."""
    test_noise: Noise = "laplace"
    """Noise of AboveThreshold and ReducedAboveThreshold: `laplace`, the paper's; `exponential`,
    which errs less, with the margin that is proved for it (constants paper and tight)."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one or one per task: flights, kdd99 (logistic), twitter (ridge), paper (kdd99 for
    logistic, twitter for ridge), or the path of your own .csv or .npz file."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file. Rows are divided by the largest
    l1 norm, so scale columns alike first; there is no intercept."""
    data_dir: Path | None = None
    """Folder that holds kdd99 and twitter (else the variable NRJAX_DATA, else the cache folder)."""
    rows: int | None = None
    """Rows to use, from the first on; by default all."""
    copies: int = 1
    """How many times over the rows are used, to see what a larger data set would cost."""
    regularisation: float = 0.005
    """lambda of the l2 penalty (lambda/2)|theta|^2."""
    ridge_perturbation: Perturbation = "covariance"
    """Where ridge regression gets its noise: `covariance`, X'X and X'y; `output`, the optimum."""
    levels: int = 1000
    """Levels of the grid of epsilons."""
    delta: float = 1e-6
    """Probability with which the stated epsilon may be exceeded (Brownian methods)."""
    tight_at: float | None = None
    """Epsilon at which the Brownian methods' boundary is tight; by default 1/64 of the theorem's
    epsilon at each alpha, and with ReducedAboveThreshold the first level of its grid."""
    trials: int = 100
    """Independent trials of each case."""

    def __post_init__(self):
        check_settings(
            self,
            several=("task", "method", "alpha", "data"),
            distinct=("task", "method", "alpha"),
            least={"levels": 2, "copies": 1, "rows": 1},
            positive=("alpha", "regularisation", "tight_at"),
            shares=("delta", "gamma"),
            files=("data",),
        )
        check_per_task(self, "data")
        ok = self.test_noise == "laplace" or self.constants in ("paper", "tight")
        right = f"laplace with the constants {self.constants}, those of a program that has no other"
        check(ok, "test_noise", self.test_noise, right)
