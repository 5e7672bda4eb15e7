"""Settings of `skellam_counts`: fields are options, docstrings their help."""

import dataclasses
import math
from typing import Literal, get_args

import numpy as np

from nrjax._validation import check
from nrjax.papers._settings import check_settings
from nrjax.study.results import Results
from nrjax.study.statistics import rank_of

Mechanism = Literal["skellam", "brownian", "laplace", "discrete_laplace"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Noise reduction on counts by group that leaves whole numbers, or real ones.

    Noise on the counts is reduced step by step, through the same standard deviations for every
    mechanism, until the counts are accurate enough. The test treats their error as public, at no
    cost. The result is the distribution of the realised privacy loss against a neighbour, compared
    with the stated epsilon if the mechanism has a guarantee.
    """

    data: str = "flights"
    """flights (336,776 flights by destination: 105 groups), or the path of your own .csv file of
    two columns, item and count."""
    mechanism: tuple[Mechanism, ...] = get_args(Mechanism)
    """Noise-reduction mechanisms to compare: `skellam` and `discrete_laplace` have whole numbers,
    `brownian` and `laplace` real ones. All but `skellam` have a guarantee."""
    neighbour: tuple[Literal["replace", "remove"], ...] = ("replace",)
    """Neighbour for the loss: `replace` moves a row from the first to the second of `groups`,
    `remove` takes a row out of the first."""
    groups: tuple[str, ...] = ()
    """Names of two groups, for the neighbour; by default the two largest. The names are not part
    of a release."""
    criterion: Literal["relative", "absolute"] = "relative"
    """Error of the counts: `relative` is the share of the groups whose count is off by more than
    `relative_error` of itself, `absolute` the mean error, in counts."""
    relative_error: float = 0.1
    """Largest error of an accurate count, as a fraction of the count."""
    target_loss: float | None = None
    """Target error. By default 0.1 (relative: nine groups in ten are accurate), or
    `relative_error` times the mean count (absolute)."""
    highest_deviation: float | None = None
    """Standard deviation of the first and strongest noise, in counts. By default `relative_error`
    times the mean count (relative), or 10 times the target (absolute)."""
    lowest_deviation: float | None = None
    """Standard deviation of the last and weakest noise; by default 0.5, or the smallest that
    numbers of this precision can add to the largest count."""
    levels: int = 100
    """Levels of the noise, their standard deviations in equal ratios."""
    curve_levels: int = 40
    """Levels at which a pass that never stops measures the loss."""
    delta: float = 1e-6
    """Probability with which Brownian noise's stated epsilon may be exceeded. The report has the
    realised loss's quantile at 1 - delta, too."""
    tight_at: float | None = None
    """Standard deviation at which Brownian noise's linear privacy boundary is tight; by default
    the geometric mean of the first and the last one. It must not depend on the counts."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("mechanism", "neighbour"),
            distinct=("mechanism", "neighbour"),
            least={"levels": 2, "curve_levels": 2},
            positive=("relative_error", "highest_deviation", "lowest_deviation", "tight_at"),
            fractions=("delta",),
            files=("data",),
        )
        ok = len(self.groups) in (0, 2) and len(set(self.groups)) == len(self.groups)
        check(ok, "groups", self.groups, "the names of two groups, or none")
        expected = f"at most levels = {self.levels}"
        check(self.curve_levels <= self.levels, "curve_levels", self.curve_levels, expected)
        highest, lowest = self.highest_deviation, self.lowest_deviation
        ok = highest is None or lowest is None or lowest < highest
        check(ok, "lowest_deviation", lowest, f"below highest_deviation = {highest}")
        target = self.target_loss
        ok = target is None or (math.isfinite(target) and target >= 0)
        check(ok, "target_loss", target, "0 or more")
        ok = target is None or self.criterion != "relative" or target < 1
        check(ok, "target_loss", target, "below 1, a share of the groups")


def median_deviation(results: Results, name: str) -> float:
    """Return the median standard deviation of the noise at which a case's trials ended."""
    facts, levels = results.cases[name].attributes, results.about["settings"]["levels"]
    grid = np.geomspace(facts["highest_deviation"], facts["lowest_deviation"], levels)
    step = results.distribution_of(name, "step")
    # Standard deviations fall with the step, so ranks count from the other end.
    rank = step.trials + 1 - rank_of(step.trials, 0.5)
    return float(grid[int(step.order_statistic(rank)[1])])
