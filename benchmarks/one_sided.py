"""Claim: exponential noise in private tests costs less epsilon at the same accuracy.

The accuracy: with probability at least 0.9 no model is accepted that misses its target (an excess
risk above alpha, a loss above the target), by the exact union bounds of `nrjax.stopping.accuracy`.
The baseline is Laplace noise, in the same run and on the same random numbers.

* `ligett2017`, constants `tight`: the study as it is, with `--test-noise`. The threshold of
  AboveThreshold is the one at which either noise refuses the optimum equally often, and its epsilon
  has the rest of alpha as a margin. ReducedAboveThreshold has alpha less the margin of the epsilon
  of each step.
* `whitehouse2022`: its private tests compare at the target and guarantee no accuracy. Here they get
  the same accuracy, for the interval from the optimum to the target: AboveThreshold refuses the
  optimum in one test with probability 0.01.

    NRJAX_DATA=... python -m benchmarks.one_sided [--trials 1000] [--data paper] [--cases 'l*']

The table has the total epsilons of all trials, infinite for a trial that did not stop: mean with
standard error, median, and the paired differences (exponential less Laplace) with 95 % intervals,
of the means by Student's distribution, of the medians by paired sign tests. "missed" is the
fraction of the trials of each noise that stopped at a model which misses its target.
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
from nrjax._base.keys import study_key
from nrjax.papers import ligett2017, whitehouse2022
from nrjax.statistics.paired import paired_interval
from nrjax.statistics.sample import Sample
from nrjax.stopping import accuracy

GAMMA, REFUSED = 0.1, 0.01
_NOISES = ("laplace", "exponential")


def with_accuracy(case, levels, noise):
    """Return a private case of `whitehouse2022` with the accuracy, over `levels` levels."""
    facts, trial = case.labels, case.trial
    delta, target, share = facts["utility_sensitivity"], facts["target"], 1 / levels
    if facts["test"] == "above_threshold":
        # Both are in units of 4 Delta/epsilon.
        below = float(accuracy.shortfall(4.0, 1.0, GAMMA, share, noise))
        above = float(accuracy.surplus(4.0, 1.0, REFUSED, noise))
        unit = (target - facts["optimum"]) / (below + above)
        rule = nrjax.InteractiveAboveThreshold(
            below * unit - target, delta, 4 * delta / unit, noise=noise
        )
    else:
        epsilons = np.asarray(trial.guarantee.epsilon(trial.schedule.times), float)
        margins = np.asarray(accuracy.shortfall(epsilons, delta, GAMMA, share, noise), float)
        rule = nrjax.ReducedAboveThreshold(margins - target, delta, noise=noise)
    return dataclasses.replace(case, trial=dataclasses.replace(trial, rule=rule))


def cases(data, levels, noise, constants: Any = "tight"):
    """Return all cases that have a private test with a kind of noise, by name."""
    whitehouse = whitehouse2022.Settings(
        data=data,
        levels=levels,
        curve_levels=2,
        test=("above_threshold", "reduced_above_threshold"),
    )
    ligett = ligett2017.Settings(
        data=data,
        levels=levels,
        alpha=(0.05, 0.1),
        gamma=GAMMA,
        constants=constants,
        test_noise=noise,
        method=("noise_reduction", "brownian_above_threshold", "brownian_reduced"),
    )
    named = whitehouse2022.cases(whitehouse).items()
    named = {f"whitehouse {name}": with_accuracy(case, levels, noise) for name, case in named}
    return named | {f"ligett {name}": case for name, case in ligett2017.cases(ligett).items()}


def simulated(case, trials):
    """Return stopping epsilons, the fraction that missed, and seconds with compilation."""
    before = time.perf_counter()
    options = {} if case.batching is None else {"batching": case.batching}
    outcome = nrjax.simulate(study_key(0), case.trial, trials=trials, **options)
    epsilon = np.asarray(outcome.stopping_epsilon, float)
    missed = np.asarray(outcome.stopped & (outcome.utility < case.goal))
    return epsilon, float(missed.mean()), time.perf_counter() - before


def compared(epsilons):
    """Return statistics of both noises, and of their paired differences."""
    samples = [Sample(values) for values in epsilons]
    apart = Sample(epsilons[1] - epsilons[0])
    return {
        "mean": [sample.mean for sample in samples],
        "error": [sample.standard_error for sample in samples],
        "median": [sample.quantile(0.5) for sample in samples],
        "apart": apart.mean,
        "apart_interval": apart.mean_interval(),
        "median_interval": paired_interval(epsilons[::-1], (0.5, 0.5), (1, -1), np.subtract),
    }


def measured(data, levels, trials, patterns=("*",), constants="tight"):
    """Yield the statistics of each case, the missed fractions and the seconds, by name."""
    both = [cases(data, levels, noise, constants) for noise in _NOISES]
    for name in both[0]:
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            results = [simulated(named[name], trials) for named in both]
            epsilons, missed, seconds = zip(*results, strict=True)
            with np.errstate(invalid="ignore"):
                yield name, {**compared(epsilons), "missed": missed, "seconds": sum(seconds)}


def rows(quick):
    """Return rows with the ratio of the mean epsilons, Laplace to exponential noise."""
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
    parser.add_argument(
        "--constants", default="tight", help="constants of ligett2017: tight or paper"
    )
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
