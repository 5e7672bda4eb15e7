"""The settings of `skellam_counts`, whose fields are also options of the command line."""

import dataclasses
import math
from typing import Literal, get_args

import numpy as np

from nrjax._base.quantiles import rank_of
from nrjax._base.validation import check
from nrjax.papers._settings import check_settings
from nrjax.study.results import Results

Mechanism = Literal["skellam", "brownian", "laplace", "discrete_laplace"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Noise reduction on counts by group, with noise of whole numbers or real numbers.

    Noise on the counts is reduced step by step, through the same standard deviations for every
    mechanism, until the counts are accurate enough. The test treats the counts' error as public, at
    no privacy cost. The result is the distribution of the realised privacy loss against a
    neighbouring data set, compared with the stated epsilon if the mechanism has a guarantee.
    """

    data: str = "flights"
    """Counts to release: flights (336,776 flights by destination: 105 groups), or the path of your
    own .csv file of two columns, item and count."""
    mechanism: tuple[Mechanism, ...] = get_args(Mechanism)
    """Noise-reduction mechanisms to compare: `skellam` and `discrete_laplace` add whole numbers,
    `brownian` and `laplace` real numbers. All but `skellam` have a guarantee."""
    neighbour: tuple[Literal["replace", "remove"], ...] = ("replace",)
    """Neighbouring data set against which the loss is measured: `replace` moves a row from the
    first to the second of `groups`, `remove` takes a row out of the first."""
    groups: tuple[str, ...] = ()
    """Names of the two groups of `neighbour`; by default the two largest. The names are not part
    of a release."""
    criterion: Literal["relative", "absolute"] = "relative"
    """Error of the counts: `relative` is the fraction of groups with a relative error above
    `relative_error`, `absolute` the mean absolute error, in counts."""
    relative_error: float = 0.1
    """Largest relative error of an accurate count."""
    target_loss: float | None = None
    """Error at which a trial stops. By default 0.1 (relative: nine groups in ten are accurate), or
    `relative_error` times the mean count (absolute)."""
    highest_deviation: float | None = None
    """Standard deviation of the first and strongest noise, in counts. By default `relative_error`
    times the mean count (relative), or 10 times the target (absolute)."""
    lowest_deviation: float | None = None
    """Standard deviation of the last and weakest noise, in counts. By default 0.5, or the smallest
    that this floating-point precision allows for the largest count, if that is larger."""
    levels: int = 100
    """Number of noise levels, with standard deviations in equal ratios."""
    curve_levels: int = 40
    """Number of noise levels at which a pass that never stops measures the loss."""
    delta: float = 1e-6
    """Allowed probability that the privacy loss exceeds the stated epsilon (Brownian noise). The
    report also has the quantile of the realised loss at 1 - delta."""
    tight_at: float | None = None
    """Standard deviation at which the linear privacy boundary of Brownian noise is tight. By
    default the geometric mean of the largest and the smallest level. It must not depend on the
    counts."""

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
