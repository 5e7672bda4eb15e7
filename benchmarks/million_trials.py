"""Claim: a million trials of a scalar mechanism need under 2 GiB.

    python -m benchmarks.million_trials [--trials 1000000]

Peak memory is that of the whole process, Python and JAX included. A typical printout is in
benchmarks/README.md.
"""

import argparse
import dataclasses
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.pytrees import register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Closeness:
    """Minus the distance of a release from 3."""

    def hypothesis(self, release):
        """The release."""
        return release

    def evaluate(self, hypothesis):
        """Minus the distance."""
        return -jnp.abs(hypothesis - 3.0)

    def bounds(self, hypothesis):
        """The utility itself, twice."""
        return self.evaluate(hypothesis), self.evaluate(hypothesis)


def peak_gib():
    """Largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main():
    """Print seconds and peak memory for the Brownian and the Laplace mechanism."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1_000_000)
    options = parser.parse_args()
    linear = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    print(
        f"{options.trials} trials, {len(jax.devices())} x {jax.devices()[0].device_kind}; "
        f"peak before: {peak_gib():.2f} GiB"
    )
    for name, process, guarantee in (
        ("brownian", nrjax.Brownian(()), linear),
        ("laplace", nrjax.Laplace(()), nrjax.PureGuarantee(1.0)),
    ):
        grid = nrjax.Grid.geometric(guarantee, 0.6, 20.0, 100)
        for run in ("first", "second"):
            before = time.perf_counter()
            outcome = nrjax.simulate(
                jax.random.key(0),
                options.trials,
                3.0,
                process,
                guarantee,
                grid,
                Closeness(),
                nrjax.PublicThreshold(-0.5),
            )
            seconds = time.perf_counter() - before
            steps = float(np.sum(outcome.step + 1.0))
            print(
                f"{name:<9} {run:<6} {seconds:6.2f} s, {steps / seconds / 1e6:6.1f}e6 steps/s,"
                f" peak {peak_gib():.2f} GiB, median epsilon {np.median(outcome.epsilon):.3f}"
            )


if __name__ == "__main__":
    main()
