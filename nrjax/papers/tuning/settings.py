"""The settings of `tuning`, whose fields are also options of the command line."""

import dataclasses
from typing import Literal, get_args

from nrjax._base.validation import check
from nrjax.papers._settings import check_settings

Method = Literal[
    "single",
    "composition",
    "geometric",
    "logarithmic",
    "liu_talwar",
    "poisson_first",
    "poisson_best",
    "poisson_reduction",
]
FIXED = ("single", "composition", "geometric", "logarithmic")
"""The methods whose epsilon is chosen in advance. The other methods stop at a target loss."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Private tuning: what choosing the regularisation and features of a regression costs.

    A third of the rows trains models, which are released under Laplace noise. A third scores them,
    also under noise, and a third measures the loss of the model that a method publishes. The result
    is the epsilon that each method pays for a loss, next to a model without tuning and to an
    oracle, who knows the best candidate.
    """

    data: str = "flights"
    """Data set: flights, or the path of your own .npz file with arrays `x` and `y`."""
    task: tuple[Literal["logistic", "ridge"], ...] = ("logistic", "ridge")
    """Models to tune: `logistic` regression, `ridge` regression."""
    rows: int = 30_000
    """Number of rows, counted from the first: a third each to train, to score and to measure."""
    regularisation: tuple[float, ...] = (0.05, 0.2, 0.01, 0.003)
    """Candidate factors lambda of the l2 penalty. The first is that of a model without tuning."""
    features: tuple[str, ...] = (
        "",
        "log1p|hour|distance|temp|humid|wind|precip|visib",
        "log1p|hour|distance",
    )
    """Candidate sets of features, each a regular expression for their names. The first is that of a
    model without tuning. The candidates are all pairs with a `regularisation`."""
    method: tuple[Method, ...] = get_args(Method)
    """Methods. With an epsilon chosen in advance: `single` models, for no tuning and the oracle;
    `composition` of all candidates at equal epsilons; the best of a `geometric` or `logarithmic`
    number of random candidates. With a target loss, at epsilons that double from stage to stage:
    `liu_talwar` pays for each stage; `poisson_first` and `poisson_best` publish the first or best
    success of Poisson numbers of runs; `poisson_reduction` also reduces the noise within a run."""
    gain: tuple[float, ...] = (0.4, 0.6, 0.7, 0.8, 0.9)
    """Target losses, as fractions of the way from the zero model's loss on the scoring rows to that
    of the best candidate without noise. The study takes both from the data, without privacy."""
    lowest_epsilon: float = 0.02
    """Smallest epsilon, and that of the first stage."""
    highest_epsilon: float = 20.0
    """Largest epsilon, which limits the number of stages, too."""
    levels: int = 9
    """Number of epsilons of the methods with an epsilon chosen in advance, in equal ratios."""
    runs: float = 4.0
    """Mean number of runs per stage (the methods poisson)."""
    stop: float = 0.05
    """Parameter of the number of runs (geometric, logarithmic, liu_talwar): the probability with
    which the selection ends after each run, for the geometric distribution."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("task", "method", "regularisation", "features", "gain"),
            distinct=("task", "method", "regularisation", "features", "gain"),
            least={"rows": 30, "levels": 2},
            positive=("regularisation", "lowest_epsilon", "highest_epsilon", "runs"),
            fractions=("stop",),
            files=("data",),
        )
        for fraction in self.gain:
            check(0 < fraction < 1, "gain", self.gain, "strictly between 0 and 1")
        low, high = self.lowest_epsilon, self.highest_epsilon
        check(low < high, "lowest_epsilon", low, f"below highest_epsilon = {high}")
