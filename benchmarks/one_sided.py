"""Claim: exponential noise in private tests costs less epsilon at the same promise of accuracy.

The promise: with probability at least 0.9 no model is accepted that misses its goal (an excess risk
above alpha, a loss above the target), by the exact union bounds of `nrjax.stopping.accuracy`, for
either noise. The peer is Laplace noise, in the same run and on the same random numbers.

* `ligett2017`, constants `tight`: the study as it is, with `--test-noise`. AboveThreshold has the
  threshold at which either noise refuses the optimum equally often, and the epsilon that the rest
  of alpha asks for as a margin; ReducedAboveThreshold alpha less the margin of each step's epsilon.
* `whitehouse2022`: its private cases, whose tests promise nothing (they compare at the target), are
  given the same promise for the way from the optimum to the target: AboveThreshold refuses the
  optimum, at one look, with probability 0.01.

    NRJAX_DATA=... python -m benchmarks.one_sided [--trials 1000] [--data paper] [--cases 'l*']

Total epsilons of all trials, infinite where one did not stop: mean with its standard error, median,
and the paired differences (exponential less Laplace) with their 95 % intervals, of the means by
Student's law, of the medians by a paired bootstrap. "missed": share of the trials, of either noise,
that stopped at a model which misses its goal.
"""

import argparse
import dataclasses
import fnmatch
import sys
import time
from typing import Any

import numpy as np

import nrjax
from benchmarks.rows import Row
from nrjax.keys import study_key
from nrjax.papers import ligett2017, whitehouse2022
from nrjax.stopping import accuracy
from nrjax.study.bootstrap import interval, resampled_quantiles
from nrjax.study.distribution import Sample

GAMMA, REFUSED = 0.1, 0.01
_NOISES = ("laplace", "exponential")


def promising(case, levels, noise):
    """A private case of `whitehouse2022` with the promise, over so many levels."""
    facts, trial = case.labels, case.trial
    moved, target, share = facts["utility_sensitivity"], facts["target"], 1 / levels
    if facts["test"] == "above_threshold":
        # Both in units of 4 Delta/epsilon.
        below = float(accuracy.shortfall(4.0, 1.0, GAMMA, share, noise))
        above = float(accuracy.surplus(4.0, 1.0, REFUSED, noise))
        unit = (target - facts["optimum"]) / (below + above)
        rule = nrjax.InteractiveAboveThreshold(
            below * unit - target, moved, 4 * moved / unit, noise=noise
        )
    else:
        epsilons = np.asarray(trial.guarantee.epsilon(trial.schedule.times), float)
        margins = np.asarray(accuracy.shortfall(epsilons, moved, GAMMA, share, noise), float)
        rule = nrjax.ReducedAboveThreshold(margins - target, moved, noise=noise)
    return dataclasses.replace(case, trial=dataclasses.replace(trial, rule=rule))


def cases(data, levels, noise, constants: Any = "tight"):
    """All that have a private test with such noise, by name."""
    one = whitehouse2022.Settings(
        data=data,
        levels=levels,
        curve_levels=2,
        test=("above_threshold", "reduced_above_threshold"),
    )
    two = ligett2017.Settings(
        data=data,
        levels=levels,
        alpha=(0.05, 0.1),
        gamma=GAMMA,
        constants=constants,
        test_noise=noise,
        method=("noise_reduction", "brownian_above_threshold", "brownian_reduced"),
    )
    found = whitehouse2022.cases(one).items()
    found = {f"whitehouse {name}": promising(case, levels, noise) for name, case in found}
    return found | {f"ligett {name}": case for name, case in ligett2017.cases(two).items()}


def simulated(case, trials):
    """Stopping epsilons, the share that missed the goal, and seconds with compilation."""
    before = time.perf_counter()
    options = {} if case.batching is None else {"batching": case.batching}
    outcome = nrjax.simulate(study_key(0), case.trial, trials=trials, **options)
    epsilon = np.asarray(outcome.stopping_epsilon, float)
    missed = np.asarray(outcome.stopped & (outcome.utility < case.goal))
    return epsilon, float(missed.mean()), time.perf_counter() - before


def compared(epsilons):
    """Of Laplace and of exponential noise, and of the second less the first."""
    laws = [Sample(one) for one in epsilons]
    apart = Sample(epsilons[1] - epsilons[0])
    resampled = [resampled_quantiles(one, (0.5,))[:, 0] for one in epsilons]
    return {
        "mean": [one.mean for one in laws],
        "error": [one.standard_error for one in laws],
        "median": [one.quantile(0.5) for one in laws],
        "apart": apart.mean,
        "apart_interval": apart.mean_interval(),
        "median_interval": interval(resampled[1] - resampled[0]),
    }


def measured(data, levels, trials, patterns=("*",), constants="tight"):
    """By name: what was compared, what was missed, and seconds."""
    both = [cases(data, levels, noise, constants) for noise in _NOISES]
    for name in both[0]:
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            found = [simulated(made[name], trials) for made in both]
            epsilons, missed, seconds = zip(*found, strict=True)
            with np.errstate(invalid="ignore"):
                yield name, {**compared(epsilons), "missed": missed, "seconds": sum(seconds)}


def rows(quick):
    """For the table: how many times as much Laplace noise costs, in the mean."""
    trials, patterns = (16, ["ligett l*"]) if quick else (1000, ["*"])
    return [
        Row(
            f"epsilon, {name}",
            2 * trials / one["seconds"],
            one["mean"][0] / one["mean"][1],
            "Laplace noise, epsilon",
            note=f"missed {one['missed'][0]:.2g}, {one['missed'][1]:.2g}",
        )
        for name, one in measured(("flights",), 1000, trials, patterns)
    ]


def main():
    """Print the table, in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--levels", type=int, default=1000)
    parser.add_argument("--data", nargs="+", default=["flights"])
    parser.add_argument("--cases", nargs="+", default=["*"])
    parser.add_argument("--constants", default="tight", help="of ligett2017: tight, or paper")
    options = parser.parse_args()
    print("| case | Laplace, mean | median | exponential, mean | median | difference of means |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    asked = options.levels, options.trials, options.cases, options.constants
    for name, one in measured(tuple(options.data), *asked):
        mean, error, median = one["mean"], one["error"], one["median"]
        low, high = one["apart_interval"]
        cells = [name]
        for i in range(2):
            cells += [f"{mean[i]:.4g} ± {error[i]:.2g}", f"{median[i]:.4g}"]
        apart = f"{one['apart']:.3g} ({low:.3g} to {high:.3g}), {one['apart'] / mean[0]:+.1%}"
        print("|", " | ".join([*cells, apart]), "|", flush=True)
        ends = one["median_interval"]
        print(f"  {name}: medians apart {ends}, missed {one['missed']}", file=sys.stderr)


if __name__ == "__main__":
    main()
