"""What can be chosen in `rogers2023`; each field is an option of the command."""

import dataclasses
import math
from pathlib import Path
from typing import Literal, NamedTuple

from nrjax._validation import check
from nrjax.papers._shared import check_settings

Method = Literal["brownian", "doubling", "laplace", "discrete_laplace"]
Filter = Literal["unified", "gaussian", "renyi"]

FILTERS: dict[str, tuple[Filter, ...]] = {
    "brownian": ("unified", "gaussian", "renyi"),
    "doubling": ("unified", "gaussian", "renyi"),
    "laplace": ("renyi",),
    "discrete_laplace": ("renyi",),
}
"""By method, the filters that are proved to hold for it."""

SAMPLES = (8000, 16_000, 32_000, 64_000, 128_000)
"""Sizes of the Zipf data, unless asked otherwise."""


class Defaults(NamedTuple):
    """What section 7.2 of the paper has for a kind of data."""

    alpha: float
    epsilon: float
    delta: float
    selection: float
    smallest: tuple[float, ...]
    top: int | None


_SYNTHETIC = Defaults(0.1, 10.0, 1e-6, 0.1, (1e-4,), None)

# The smallest privacy parameter is printed 0.0001 here, and its square 0.0001 for the Zipf data.
_REDDIT = Defaults(0.01, 1.0, 1e-6, 0.01, (1e-4, 1e-8), 1000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Rogers 2023: as many counts as possible within a relative error, under one budget.

    The largest count is found by the exponential mechanism, and released under noise that is taken
    away until it is good enough; then the next one, until the budget of the filter is used up. The
    result is how many counts are returned, and how many of them are as good as they look.
    """

    data: tuple[str, ...] = ("zipf",)
    """Counts: zipf (samples of a Zipf law over 300 elements, a = 0.75), reddit (posts by word),
    flights (336,776 flights by destination: 105 items), or paths of your own .csv files of two
    columns, item and count."""
    samples: tuple[int, ...] = ()
    """Sizes of the Zipf data; by default 8000, 16000, 32000, 64000 and 128000. Its counts are drawn
    once for each size, from the seed; trials differ in the mechanisms' noise."""
    data_dir: Path | None = None
    """Folder that holds reddit's file (else the variable NRJAX_DATA, else the cache folder)."""
    top: int | None = None
    """Only so many of the largest counts; by default 1000 of reddit, and all of other data."""
    method: tuple[Method, ...] = ("brownian", "doubling")
    """`brownian`: Gaussian noise taken away, only the last release paid for; `doubling`: fresh
    Gaussian noise, the squared privacy parameter doubled at each try, all tries paid for;
    `laplace`: Laplace noise taken away; `discrete_laplace`: the same with whole numbers."""
    filter: tuple[Filter, ...] = ("unified",)
    """`unified`: zero-concentrated privacy, as in the paper; `gaussian`: exact for Gaussian noise;
    `renyi`: at one order of Renyi's divergence, the only one that holds for Laplace noise."""
    alpha: float | None = None
    """Relative error that is good enough; by default 0.1, reddit 0.01."""
    epsilon: float | None = None
    """Epsilon of the whole session; by default 10, reddit 1."""
    delta: float | None = None
    """Delta of the whole session; by default 1e-6."""
    selection: float | None = None
    """Parameter of the exponential mechanism (Gumbel noise of scale 1/selection); by default 0.1,
    reddit 0.01."""
    neighbour: Literal["add_or_remove", "replace"] = "add_or_remove"
    """What one user can do, each count moving by at most 1: `add_or_remove` moves all counts the
    same way, so that the exponential mechanism costs selection^2/8; `replace` moves some up and
    some down: selection^2/2."""
    smallest: tuple[float, ...] = ()
    """Smallest squared privacy parameters to begin a release at, one case each; by default 1e-4,
    reddit 1e-4 and 1e-8 (the paper's 0.0001 can be read both ways)."""
    levels: int = 1000
    """Levels of the noise of a release, between the smallest and what is left of the budget."""
    seed: int = 0
    """The run's, by which the Zipf data are drawn too."""
    order: float | None = None
    """Order of the filter renyi; by default tuned to rounds that share the budget evenly."""

    def __post_init__(self):
        check_settings(
            self,
            several=("data", "method", "filter"),
            distinct=("data", "method", "filter", "samples", "smallest"),
            least={"levels": 2, "top": 1},
            positive=("alpha", "epsilon", "selection", "smallest"),
            shares=("delta",),
            files=("data",),
        )
        for method in self.method:
            proved = " or ".join(FILTERS[method])
            right = f"{proved} with the method {method}: nothing else is proved to hold for it"
            for one in self.filter:
                check(one in FILTERS[method], "filter", one, right)
        right = f"none for {', '.join(self.data)}: only zipf has sizes to choose"
        check(not self.samples or "zipf" in self.data, "samples", self.samples, right)
        for size in self.samples:
            check(1 <= size <= 2**31, "samples", size, "from 1 to 2^31")
        ok = self.alpha is None or self.alpha < 1
        check(ok, "alpha", self.alpha, "below 1, a share of the count")
        ok = self.order is None or (math.isfinite(self.order) and self.order > 1)
        check(ok, "order", self.order, "finite and above 1")
        ok = self.order is None or "renyi" in self.filter
        check(ok, "order", self.order, "None without the filter renyi, the only one that has it")

    def for_data(self, name: str) -> Defaults:
        """What is chosen, and the paper's choice for this kind of data for the rest."""
        usual = _REDDIT if name == "reddit" else _SYNTHETIC
        given = {field: getattr(self, field) for field in Defaults._fields}
        return usual._replace(**{k: v for k, v in given.items() if v is not None and v != ()})
