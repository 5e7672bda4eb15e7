"""The command `nrjax design`: a boundary for the epsilons at which you expect trials to stop."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import numpy as np
import tyro

from nrjax._base.validation import check
from nrjax.cli import printing
from nrjax.guarantees import (
    GridBoundary,
    HockeyStickBoundary,
    LinearBoundary,
    OneSidedMixtureBoundary,
    RenyiBoundary,
    RenyiMixture,
    log_uniform,
)
from nrjax.guarantees._priors import Objective
from nrjax.guarantees._stopping import solve_one_release

_BEYOND, _COUNT = 3.0, 21
"""Default levels: their number, and how far they reach beyond the likely ones, as a factor."""

_NOTIONS = (
    "Means are over the prior: 90 % on the likely levels, 10 % on all. The variance is relative to "
    "that of one release with the same epsilon. Epsilons of two notions do not mean the same: a "
    "probabilistic one also bounds how often a realised loss exceeds it."
)


@dataclasses.dataclass(frozen=True)
class Design:
    """Design a boundary of Brownian noise for the epsilons at which you expect trials to stop.

    A trial releases a value with less and less noise, and stops when the result is good enough. A
    boundary is a curve: the epsilon of stopping at each noise level. It is fixed before the first
    release. This command finds the curve with the least mean cost under your expectation, and
    prints the curve, other boundaries for comparison, and the price of a wrong expectation. The
    guarantee holds wherever trials stop.

    For example, if trials probably stop between epsilon 0.2 and 0.6:

        nrjax design 0.2 0.6 --delta 1e-6

    A level is the epsilon of one release with the same noise (the exact Gaussian mechanism), which
    you would pay if you knew in advance where the trial stops.
    """

    likely: Annotated[tyro.conf.Positional[tuple[float, float]], tyro.conf.arg(metavar="LOW HIGH")]
    """Two levels between which you expect trials to stop. They must come from public
    knowledge, or from private data through a mechanism whose cost is paid for."""
    levels: Annotated[tuple[float, float, int] | None, tyro.conf.arg(metavar="LOW HIGH COUNT")] = (
        None
    )
    """All levels, at most 200 in equal ratios. By default, 21 levels from a third
    of the first likely level to three times the second."""
    delta: float = 1e-6
    """Bound on the hockey-stick divergence at epsilon."""
    sensitivity: float = 1.0
    """L2-sensitivity of the private value."""
    objective: Objective = "log"
    """The mean to make small: of log(epsilon), or of epsilon."""

    def __call__(self) -> None:
        """Print the curve, the other boundaries, and the price of a wrong prior."""
        low, high = self.likely
        check(0 < low <= high, "likely", self.likely, "LOW HIGH with 0 < LOW <= HIGH")
        first, last, count = span = self.levels or (low / _BEYOND, high * _BEYOND, _COUNT)
        ok = 0 < first <= low and high <= last and 1 <= count <= 200
        check(ok, "levels", self.levels, "LOW HIGH COUNT around the likely ones, COUNT up to 200")
        levels = np.geomspace(first, last, count)
        times, (most, least) = self._times(levels), self._times(self.likely)
        weights = log_uniform(times, least, most)
        designed = self._design(times, weights)
        self._show_curve(designed, levels)
        self._show_others(designed, levels, weights)
        near = 1 + 1e-6  # as in `log_uniform`
        self._show_prices(designed, levels, (times * near >= least) & (times <= most * near))
        printing.console().print(self._call(span), soft_wrap=True, highlight=False)

    def _times(self, levels: Iterable[float]) -> np.ndarray:
        """Return the times at which one release costs epsilons."""
        single, parameters = HockeyStickBoundary.single, (self.sensitivity, self.delta)
        return np.asarray([single(*parameters, epsilon=float(e)).times[0] for e in levels])

    def _design(self, times: np.ndarray, weights: np.ndarray) -> HockeyStickBoundary:
        """Return the boundary for a prior."""
        return HockeyStickBoundary.design(
            times, weights, self.sensitivity, self.delta, self.objective
        )

    def _ratio(self, epsilons: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> float:
        """Return the mean epsilon relative to that of the levels, as `objective` has it."""
        if self.objective == "log":
            return float(np.exp(weights @ np.log(epsilons / levels)))
        return float(weights @ epsilons / (weights @ levels))

    def _show_curve(self, designed: HockeyStickBoundary, levels: np.ndarray) -> None:
        """Print the epsilon of stopping at each level."""
        epsilons = designed.epsilons
        columns = zip(levels, np.sqrt(designed.times), epsilons, epsilons / levels, strict=True)
        rows = ([f"{number:.4g}" for number in row] for row in columns)
        headings = "level", "standard deviation", "epsilon", "epsilon / level"
        printing.show("The epsilon of stopping at each level", headings, rows)

    def _others(self, times: np.ndarray, weights: np.ndarray) -> Iterator[tuple[str, Any]]:
        """Generate other boundaries by name."""
        parameters: Any = self.sensitivity, self.delta
        designs: Any = times, weights, *parameters
        middle = float(np.exp(weights @ np.log(times)))
        yield "RenyiMixture.design", RenyiMixture.design(*designs, objective=self.objective)
        yield "RenyiBoundary.tight_at_time", RenyiBoundary.tight_at_time(middle, *parameters)
        minimax: Any = {"sensitivity": self.sensitivity, "delta": self.delta, "times": times}
        yield "GridBoundary.minimax", GridBoundary.minimax(**minimax)
        for kind in (OneSidedMixtureBoundary, LinearBoundary):
            boundary = kind.design(*designs, objective=self.objective)
            yield f"{kind.__name__}.design on these times", GridBoundary.of(boundary, times)

    def _show_others(
        self, designed: HockeyStickBoundary, levels: np.ndarray, weights: np.ndarray
    ) -> None:
        """Print what each boundary costs, relative to the levels."""
        rows, places = [], self.sensitivity / np.sqrt(designed.times)
        others = self._others(designed.times, weights)
        for name, boundary in itertools.chain([("HockeyStickBoundary.design", designed)], others):
            epsilons = np.asarray(boundary.epsilon(designed.times), float)
            needed = [solve_one_release(float(epsilon), self.delta) for epsilon in epsilons]
            variance = np.exp(2 * weights @ np.log(needed / places))
            numbers = self._ratio(epsilons, levels, weights), variance, np.max(epsilons / levels)
            rows.append([name, boundary.notion, *(f"{number:.3f}" for number in numbers)])
        headings = "boundary", "notion", "mean epsilon", "mean variance", "largest epsilon"
        title = "Cost relative to one release at the level, which only an oracle can choose"
        printing.show(title, headings, rows)
        printing.console().print(_NOTIONS, soft_wrap=True, highlight=False)

    def _show_prices(
        self, designed: HockeyStickBoundary, levels: np.ndarray, likely: np.ndarray
    ) -> None:
        """Print what you pay if trials stop elsewhere than you expected."""
        index, rows = np.flatnonzero(likely), []
        number, times = np.arange(likely.size), designed.times
        ranges = {
            "as you expect": likely,
            "earlier": number < index[0],
            "later": number > index[-1],
        }
        for name, chosen in ranges.items():
            if not chosen.any():
                continue
            prior = log_uniform(times, times[chosen].min(), times[chosen].max())
            paid, least = (
                self._ratio(boundary.epsilons, levels, chosen / chosen.sum())
                for boundary in (designed, self._design(times, prior))
            )
            span = " to ".join(f"{end:.3g}" for end in levels[chosen][[0, -1]])
            price = f"{100 * (paid / least - 1):.1f} %"
            rows.append([name, span, f"{paid:.3f}", f"{least:.3f}", price])
        headings = "trials stop", "at levels", "mean epsilon", "with the right prior", "price"
        printing.show("The price of a wrong prior", headings, rows)

    def _call(self, levels: tuple[float, float, int]) -> str:
        """Return the code that makes the boundary in Python."""
        numbers = f"{self.sensitivity!r}, {self.delta!r}"
        low, high, count = levels
        rest = "" if self.objective == "log" else f", {self.objective!r}"
        return f"""The same boundary in Python, whose schedule is nrjax.Grid(boundary.times):

import numpy as np
import nrjax

single = nrjax.HockeyStickBoundary.single
levels = np.geomspace({low!r}, {high!r}, {count})
times = [single({numbers}, epsilon=e).times[0] for e in levels]
most, least = [single({numbers}, epsilon=e).times[0] for e in {self.likely}]
weights = nrjax.guarantees.log_uniform(times, least, most)
boundary = nrjax.HockeyStickBoundary.design(times, weights, {numbers}{rest})"""
