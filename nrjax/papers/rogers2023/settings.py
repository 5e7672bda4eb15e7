"""The settings of `rogers2023`, whose fields are also options of the command line."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nrjax._base.validation import check
from nrjax.papers._settings import check_settings

Method = Literal["brownian", "doubling", "laplace", "discrete_laplace"]
Filter = Literal["unified", "gaussian", "renyi"]

FILTERS: dict[str, tuple[Filter, ...]] = {
    "brownian": ("unified", "gaussian", "renyi"),
    "doubling": ("unified", "gaussian", "renyi"),
    "laplace": ("renyi",),
    "discrete_laplace": ("renyi",),
}
"""By method: the filters that are proved to hold for it."""

SAMPLES = (8000, 16_000, 32_000, 64_000, 128_000)  # default numbers of Zipf samples
GROUP = ("dataset", "smallest")  # labels shared by cases that differ in method and filter only


def data_name(facts: Mapping[str, Any]) -> str:
    """Return the name of a case's data, with the number of Zipf samples."""
    return facts["data"] + ("" if facts["samples"] is None else f" {facts['samples']:,}")


class Defaults(NamedTuple):
    """The settings of the paper for a kind of data (section 7.2), used by default."""

    alpha: float
    epsilon: float
    delta: float
    selection: float
    smallest: tuple[float, ...]
    top: int | None


_SYNTHETIC = Defaults(0.1, 10.0, 1e-6, 0.1, (1e-4,), None)

# For Reddit, the paper's 0.0001 may be the smallest privacy parameter or its square.
_REDDIT = Defaults(0.01, 1.0, 1e-6, 0.01, (1e-4, 1e-8), 1000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Rogers 2023: as many counts as possible within a relative error, under one budget.

    The exponential mechanism finds the largest count, which is released under noise that is reduced
    until the count is accurate enough. The next count follows, until the filter's budget is spent.
    The result is the number of counts returned, and the fraction of them within the relative
    error.
    """

    data: tuple[str, ...] = ("zipf",)
    """Counts to release: zipf (samples of a Zipf distribution over 300 elements, exponent 0.75),
    reddit (posts by word), flights (336,776 flights by destination: 105 items), or paths of your
    own .csv files of two columns, item and count."""
    samples: tuple[int, ...] = ()
    """Numbers of Zipf samples, each a data set; by default 8000, 16000, 32000, 64000 and 128000.
    The samples are drawn once, from the seed. Trials differ only in the mechanisms' noise."""
    data_dir: Path | None = None
    """Folder that holds reddit's file; by default the environment variable NRJAX_DATA, or else the
    cache folder."""
    top: int | None = None
    """Number of counts to use, the largest first; by default 1000 of reddit, all of other data."""
    method: tuple[Method, ...] = ("brownian", "doubling")
    """Methods to compare. `brownian`: Gaussian noise is reduced, and only the last noise level is
    charged; `doubling`: fresh Gaussian noise with twice the squared privacy parameter at each try,
    and all tries are charged; `laplace`: Laplace noise is reduced; `discrete_laplace`: discrete
    Laplace noise (whole numbers) is reduced."""
    filter: tuple[Filter, ...] = ("unified",)
    """Privacy filters to compare. `unified`: zero-concentrated privacy, as in the paper;
    `gaussian`: exact for Gaussian noise; `renyi`: one order of the Rényi divergence, the only
    filter that holds for Laplace noise."""
    alpha: float | None = None
    """Requested relative error of a count; by default 0.1, or 0.01 for reddit."""
    epsilon: float | None = None
    """Epsilon of all releases of a trial together; by default 10, or 1 for reddit."""
    delta: float | None = None
    """Delta of all releases of a trial together; by default 1e-6."""
    selection: float | None = None
    """Parameter of the exponential mechanism (Gumbel noise of scale 1/selection); by default 0.1,
    or 0.01 for reddit."""
    neighbour: Literal["add_or_remove", "replace"] = "add_or_remove"
    """Effect of one user, who changes each count by at most 1: `add_or_remove` changes all counts
    in the same direction, so that the exponential mechanism costs selection^2/8; `replace` raises
    some counts and lowers others, so that it costs selection^2/2."""
    smallest: tuple[float, ...] = ()
    """Smallest squared privacy parameters of a release, one case each; by default 1e-4, or
    both 1e-4 and 1e-8 for reddit (the paper's 0.0001 can be read both ways)."""
    levels: int = 1000
    """Number of noise levels per count, from `smallest` to what the remaining budget allows."""
    seed: int = 0
    """Seed of the run, which also draws the Zipf data."""
    order: float | None = None
    """Order of the Rényi divergence in the filter `renyi`; by default the best order for rounds
    that share the budget equally."""

    def __post_init__(self):
        check_settings(
            self,
            nonempty=("data", "method", "filter"),
            distinct=("data", "method", "filter", "samples", "smallest"),
            least={"levels": 2, "top": 1},
            positive=("alpha", "epsilon", "selection", "smallest"),
            fractions=("delta",),
            files=("data",),
        )
        for method in self.method:
            expected = f"{' or '.join(FILTERS[method])} with the method {method}"
            for name in self.filter:
                ok = name in FILTERS[method]
                check(ok, "filter", name, expected, "No other is proved to hold for it.")
        ok, expected = not self.samples or "zipf" in self.data, f"empty for {', '.join(self.data)}"
        check(ok, "samples", self.samples, expected, "Only zipf has sizes to choose.")
        for size in self.samples:
            check(1 <= size <= 2**31, "samples", size, "from 1 to 2^31")
        ok = self.alpha is None or self.alpha < 1
        check(ok, "alpha", self.alpha, "below 1, a fraction of the count")
        ok = self.order is None or (math.isfinite(self.order) and self.order > 1)
        check(ok, "order", self.order, "finite and above 1")
        ok = self.order is None or "renyi" in self.filter
        check(ok, "order", self.order, "None without the filter renyi")

    def for_data(self, name: str) -> Defaults:
        """Return the settings for a data set, with the paper's choices as defaults."""
        usual = _REDDIT if name == "reddit" else _SYNTHETIC
        chosen = {field: getattr(self, field) for field in Defaults._fields}
        return usual._replace(**{k: v for k, v in chosen.items() if v is not None and v != ()})
