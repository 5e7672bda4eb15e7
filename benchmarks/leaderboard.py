"""Claim: at the same accuracy the parts beyond the papers cost less than what the papers have.

Every line is the epsilon of one thing, bought by two mechanisms or under two guarantees, as the
package states it; nothing is drawn. The ratio is of the epsilons, first to second.

    python -m benchmarks.leaderboard [--looks 5 10 50 100 1000]

* noise: releases of sensitivity 1 whose noise has the same standard deviation (integers had Skellam
  noise alone, which has no guarantee).
* tests: AboveThreshold, Delta = 1, with the same grey zone: a utility that far below the threshold
  is refused by all of 100 queries, one at its other end accepted, each with probability 0.95
  (`nrjax.stopping.accuracy`; of the Gaussian test the same union bound).
* looks: Brownian noise, delta = 1e-6, of the variance for which the linear boundary that is tight
  there states 0.3; looks in equal ratios over a factor of 100. Beside it the variance that buys 0.3
  on such looks, relative to the linear boundary's.
* rounds: a hundred of Laplace noise reduction, each stopped at 0.1, delta = 1e-6.
"""

import argparse
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

import nrjax
from benchmarks.rows import Row
from nrjax import composition
from nrjax.stopping import GaussianThreshold, accuracy

solve: Any = brentq
_DELTA, _QUERIES, _FAILURE, _TARGET = 1e-6, 100, 0.05, 0.3


def noise():
    """By standard deviation: integers under discrete Laplace noise, beside Laplace noise."""
    discrete = nrjax.DiscreteLaplace(())
    for deviation in (0.5, 1.0, 3.0):
        laplace = nrjax.PureGuarantee(1.0).epsilon(deviation / np.sqrt(2))
        time = solve(lambda t, sd=deviation: float(discrete.deviation(t)) - sd, 0.05, 100.0)
        found = nrjax.DiscretePureGuarantee(1.0).epsilon(time)
        yield f"discrete Laplace, deviation {deviation:g}", found, laplace, "Laplace noise", ""


def zone(noise):
    """Width of the grey zone of a test of epsilon 1."""
    refused = accuracy.shortfall(1.0, 1.0, _FAILURE, 1 / _QUERIES, noise)

    def missed(distance):
        return 1 - float(accuracy.acceptance_probability(-distance, 1.0, 1.0, noise)) - _FAILURE

    return float(refused) + solve(missed, 1e-6, 100.0)


def tests():
    """At the grey zone of the Laplace test of epsilon 1."""
    width, other = zone("laplace"), zone("exponential")
    yield "one-sided test", other / width, 1.0, "Laplace test", f"zone {width:.4g}"
    deviation = width / (norm.isf(_FAILURE / _QUERIES) + norm.isf(_FAILURE))
    first = deviation / np.sqrt(1 + 1.5**2)
    rule = GaussianThreshold(0.0, 1.0, -0.5, 0.5, first, 1.5 * first, _QUERIES)
    for answers in (1, 5, 20, _QUERIES):
        cost = rule.cost(1.0, True, answers)
        yield f"Gaussian test, box 1, stopped at {answers}", cost, 1.0, "Laplace test", ""


def looks(counts):
    """By number of looks; then the hockey-stick guarantee, at any times."""
    line = nrjax.LinearBoundary.tight_at_epsilon(_TARGET, 1.0, _DELTA)
    time = float(line.time(_TARGET))
    stated, height = float(line.epsilon(time)), float(line.curve(time)) / np.sqrt(time)
    for count in counts:
        places = (count - 1) // 2 - np.arange(count)
        grid = nrjax.Grid(time * 100 ** (places / (count - 1)))
        exact: Any = line.on(grid)
        here = np.asarray(exact.times)[(count - 1) // 2]
        # The same multiple of the line at every scale of times.
        c = height * np.median(exact.heights / np.asarray(line.curve(exact.times), float))
        x = np.sqrt(c * c + 2 * _TARGET) - c
        note = f"variance {1 / x**2 / time:.3f}"
        yield f"GridBoundary, {count} looks", exact.epsilon(here), stated, "LinearBoundary", note
    for target in (0.1, 0.3, 1.0, 3.0):
        line = nrjax.LinearBoundary.tight_at_epsilon(target, 1.0, _DELTA)
        time = float(line.time(target))
        least = nrjax.RenyiBoundary.tight_at_time(time, 1.0, _DELTA).epsilon(time)
        own = float(nrjax.RenyiBoundary.tight_at_epsilon(target, 1.0, _DELTA).time(target))
        note = f"variance {own / time:.3f}; hockey-stick, not probabilistic"
        yield f"RenyiBoundary, {target:g}", least, line.epsilon(time), "LinearBoundary", note


def rounds():
    """A hundred in one budget, at the order that suits them."""

    def least(request):
        def spare(epsilon):
            filter = composition.RenyiFilter.tuned(epsilon, _DELTA, request)
            return filter.budget / float(filter.cost(request)) - 100

        return solve(spare, 3.0, 11.0, xtol=1e-4)

    reduction = composition.LaplaceReduction(1.0, 10.0)
    first = least(reduction)
    yield "100 rounds at 0.1, certificate of Laplace noise", first, 10.0, "adding up", ""
    for cap in (0.1, 0.2, 0.4):
        found = least(composition.LaplaceReduction(1.0, 10.0, cap))
        note = "" if found < first else f"dearer than {first:.3f}, without a cap"
        yield f"100 rounds at 0.1, capped at {cap:g}", found, 10.0, "adding up", note


def board(counts):
    """Print the table; its rows."""
    print("| what | epsilon | peer | its epsilon | ratio | |")
    print("| --- | ---: | --- | ---: | ---: | --- |")
    found = []
    for part in (noise(), tests(), looks(counts), rounds()):
        for claim, own, other, peer, note in part:
            own, other = float(own), float(other)
            cells = f"{own:.4f} | {peer} | {other:.4f} | {own / other:.3f} | {note}"
            print(f"| {claim} | {cells} |", flush=True)
            said = f"epsilon {own:.4g} for {other:.4g}" + (f"; {note}" if note else "")
            found.append(Row(claim, ratio=own / other, peer=f"{peer}: epsilon", note=said))
    return found


def parser():
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--looks", type=int, nargs="+", default=[5, 10, 50, 100, 1000])
    return made


def rows(quick: bool) -> list[Row]:
    """The rows of the table."""
    return board(parser().parse_args(["--looks", "5"] if quick else []).looks)


def main():
    """Print the epsilons."""
    board(parser().parse_args().looks)


if __name__ == "__main__":
    main()
