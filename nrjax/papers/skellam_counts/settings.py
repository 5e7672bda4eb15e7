"""What can be chosen in `skellam_counts`; each field is an option of the command."""

import dataclasses
import math
from typing import Literal, get_args

from nrjax._validation import check
from nrjax.papers._shared import check_settings

Mechanism = Literal["skellam", "brownian", "laplace", "discrete_laplace"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Noise reduction on counts by group that leaves whole numbers, or real ones.

    Noise on the counts is reduced step by step, through the same standard deviations for every
    mechanism, until the counts are good enough by a public test: their error is looked at for
    free. The result is the distribution of the realised privacy loss against a neighbour, beside
    the epsilon that is stated where the mechanism has a guarantee.
    """

    data: str = "flights"
    """flights (336,776 flights by destination: 105 groups), or the path of your own .csv file of
    two columns, item and count."""
    mechanism: tuple[Mechanism, ...] = get_args(Mechanism)
    """Noise-reduction mechanisms to compare: `skellam` and `discrete_laplace` leave whole numbers,
    of which the latter has a guarantee, as have `brownian` and `laplace`, of real numbers."""
    neighbour: tuple[Literal["replace", "remove"], ...] = ("replace",)
    """The neighbour against which the loss is taken: `replace` moves a row from the first to the
    second of `groups`, `remove` takes a row out of the first."""
    groups: tuple[str, ...] = ()
    """Names of two groups, for the neighbour; by default the two largest. They are not part of
    what is released."""
    criterion: Literal["relative", "absolute"] = "relative"
    """How the error of the counts is measured: `relative` is the share of the groups whose count
    is off by more than `relative_error` of itself, `absolute` the mean error, in counts."""
    relative_error: float = 0.1
    """Largest error of a count that is good enough, as a fraction of it."""
    target_loss: float | None = None
    """Error to reach. By default 0.1 (relative: nine groups in ten are good enough), or
    `relative_error` times the mean count (absolute)."""
    highest_deviation: float | None = None
    """Standard deviation of the first and strongest noise, in counts. By default `relative_error`
    times the mean count (relative), or 10 times the target (absolute)."""
    lowest_deviation: float | None = None
    """Standard deviation of the last and weakest noise; by default 0.5, or the smallest that
    numbers of this precision can hold beside the largest count."""
    levels: int = 100
    """Levels of the noise, their standard deviations in equal ratios."""
    curve_levels: int = 40
    """Levels of the pass that measures the loss along the path, never stopped."""
    delta: float = 1e-6
    """Probability with which Brownian noise's stated epsilon may be exceeded; the quantile of the
    realised loss at 1 - delta is looked for too."""
    tight_at: float | None = None
    """Standard deviation at which Brownian noise's linear privacy boundary is tight; by default
    the geometric mean of the first and the last one. It must not be chosen by the counts."""

    def __post_init__(self):
        check_settings(
            self,
            several=("mechanism", "neighbour"),
            distinct=("mechanism", "neighbour"),
            least={"levels": 2, "curve_levels": 2},
            positive=("relative_error", "highest_deviation", "lowest_deviation", "tight_at"),
            shares=("delta",),
            files=("data",),
        )
        ok = len(self.groups) in (0, 2) and len(set(self.groups)) == len(self.groups)
        check(ok, "groups", self.groups, "the names of two groups, or none")
        right = f"at most levels = {self.levels}"
        check(self.curve_levels <= self.levels, "curve_levels", self.curve_levels, right)
        highest, lowest = self.highest_deviation, self.lowest_deviation
        ok = highest is None or lowest is None or lowest < highest
        check(ok, "lowest_deviation", lowest, f"below highest_deviation = {highest}")
        target = self.target_loss
        ok = target is None or (math.isfinite(target) and target >= 0)
        check(ok, "target_loss", target, "0 or more")
        ok = target is None or self.criterion != "relative" or target < 1
        check(ok, "target_loss", target, "below 1, a share of the groups")
