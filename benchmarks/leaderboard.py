"""Claim: at equal accuracy the parts beyond the papers cost less than those of the papers.

Every line compares the epsilon of one result under two mechanisms or two guarantees, as the package
states it. Nothing is drawn. The ratio is the first epsilon divided by the second.

    python -m benchmarks.leaderboard [--looks 5 10 50 100 1000]

* noise: releases of sensitivity 1 whose noise has the same standard deviation. For integers the
  alternative, Skellam noise, has no guarantee.
* tests: AboveThreshold with Delta = 1 and the same grey zone: a utility at the lower end of the
  zone is refused by all of 100 queries, one at the upper end is accepted, each with probability
  0.95 (`nrjax.stopping.accuracy`; the same union bound for the Gaussian test).
* looks: Brownian noise, delta = 1e-6, at the variance for which the linear boundary that is tight
  there states 0.3. Times have equal ratios over a factor of 100. The note gives the variance that
  has epsilon 0.3 on such times, relative to the linear boundary's.
* rounds: 100 rounds of Laplace noise reduction, each stopped at 0.1, delta = 1e-6.
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
    """Yield discrete Laplace noise next to Laplace noise, by standard deviation."""
    discrete = nrjax.DiscreteLaplace(())
    for deviation in (0.5, 1.0, 3.0):
        laplace = nrjax.PureGuarantee(1.0).epsilon(deviation / np.sqrt(2))
        time = solve(lambda t, sd=deviation: float(discrete.deviation(t)) - sd, 0.05, 100.0)
        epsilon = nrjax.DiscretePureGuarantee(1.0).epsilon(time)
        yield f"discrete Laplace, deviation {deviation:g}", epsilon, laplace, "Laplace noise", ""


def zone(noise):
    """Return the width of the grey zone of a test of epsilon 1."""
    refused = accuracy.shortfall(1.0, 1.0, _FAILURE, 1 / _QUERIES, noise)

    def missed(distance):
        return 1 - float(accuracy.acceptance_probability(-distance, 1.0, 1.0, noise)) - _FAILURE

    return float(refused) + solve(missed, 1e-6, 100.0)


def tests():
    """Yield tests with the grey zone of the Laplace test of epsilon 1."""
    width, other = zone("laplace"), zone("exponential")
    yield "one-sided test", other / width, 1.0, "Laplace test", f"zone {width:.4g}"
    deviation = width / (norm.isf(_FAILURE / _QUERIES) + norm.isf(_FAILURE))
    first = deviation / np.sqrt(1 + 1.5**2)
    rule = GaussianThreshold(0.0, 1.0, -0.5, 0.5, first, 1.5 * first, _QUERIES)
    for answers in (1, 5, 20, _QUERIES):
        cost = rule.cost(1.0, True, answers)
        yield f"Gaussian test, box 1, stopped at {answers}", cost, 1.0, "Laplace test", ""


def looks(counts):
    """Yield grid boundaries by number of times, then Rényi boundaries at any times."""
    line = nrjax.LinearBoundary.tight_at_epsilon(_TARGET, 1.0, _DELTA)
    time = float(line.time(_TARGET))
    stated, height = float(line.epsilon(time)), float(line.curve(time)) / np.sqrt(time)
    for count in counts:
        places = (count - 1) // 2 - np.arange(count)
        grid = nrjax.Grid(time * 100 ** (places / (count - 1)))
        exact: Any = line.on(grid)
        middle = np.asarray(exact.times)[(count - 1) // 2]
        # The same multiple of the line at every scale of times.
        c = height * np.median(exact.heights / np.asarray(line.curve(exact.times), float))
        x = np.sqrt(c * c + 2 * _TARGET) - c
        note = f"variance {1 / x**2 / time:.3f}"
        yield f"GridBoundary, {count} looks", exact.epsilon(middle), stated, "LinearBoundary", note
    for target in (0.1, 0.3, 1.0, 3.0):
        line = nrjax.LinearBoundary.tight_at_epsilon(target, 1.0, _DELTA)
        time = float(line.time(target))
        least = nrjax.RenyiBoundary.tight_at_time(time, 1.0, _DELTA).epsilon(time)
        variance = float(nrjax.RenyiBoundary.tight_at_epsilon(target, 1.0, _DELTA).time(target))
        note = f"variance {variance / time:.3f}; hockey-stick, not probabilistic"
        yield f"RenyiBoundary, {target:g}", least, line.epsilon(time), "LinearBoundary", note


def rounds():
    """Yield 100 rounds in one budget, at the best order."""

    def least(request):
        def spare(epsilon):
            filter = composition.RenyiFilter.tuned(epsilon, _DELTA, request)
            return filter.budget / float(filter.cost(request)) - 100

        return solve(spare, 3.0, 11.0, xtol=1e-4)

    reduction = composition.LaplaceReduction(1.0, 10.0)
    first = least(reduction)
    yield "100 rounds at 0.1, certificate of Laplace noise", first, 10.0, "adding up", ""
    for cap in (0.1, 0.2, 0.4):
        epsilon = least(composition.LaplaceReduction(1.0, 10.0, cap))
        note = "" if epsilon < first else f"more than {first:.3f}, without a cap"
        yield f"100 rounds at 0.1, capped at {cap:g}", epsilon, 10.0, "adding up", note


def board(counts):
    """Print the table and return its rows."""
    print("| part | epsilon | baseline | its epsilon | ratio | |")
    print("| --- | ---: | --- | ---: | ---: | --- |")
    report_rows = []
    for part in (noise(), tests(), looks(counts), rounds()):
        for claim, epsilon, other, baseline, note in part:
            epsilon, other = float(epsilon), float(other)
            cells = f"{epsilon:.4f} | {baseline} | {other:.4f} | {epsilon / other:.3f} | {note}"
            print(f"| {claim} | {cells} |", flush=True)
            summary = f"epsilon {epsilon:.4g} for {other:.4g}" + (f"; {note}" if note else "")
            report_rows.append(
                Row(claim, ratio=epsilon / other, baseline=f"{baseline}: epsilon", note=summary)
            )
    return report_rows


def parser():
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--looks", type=int, nargs="+", default=[5, 10, 50, 100, 1000])
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    return board(parser().parse_args(["--looks", "5"] if quick else []).looks)


def main():
    """Print the epsilons."""
    board(parser().parse_args().looks)


if __name__ == "__main__":
    main()
