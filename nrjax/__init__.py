"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy.

A mechanism adds much noise to a private value, and removes the noise step by step until a release
is good enough. The privacy that it pays, epsilon, depends on where it stops and varies from trial
to trial. nrjax runs thousands to millions of trials, on CPUs, GPUs and TPUs, and returns the
distribution of epsilon. It is for research: do not use it to release data about people.

Start with one mechanism, one score of its releases, and many trials:

    >>> def score(release, truth):
    ...     return -jnp.abs(release - truth)
    >>> mechanism = nrjax.brownian(120.0, sensitivity=1.0, delta=1e-6)
    >>> interaction = mechanism.until(score, at_least=-2.0, data=(120.0,))
    >>> outcomes = nrjax.simulate(jax.random.key(0), interaction, trials=1000)
    >>> low, median, high = outcomes.quantile([0.05, 0.5, 0.95])

To choose each of the six parts of a trial, make a `nrjax.Interaction` of a value, a process, a
guarantee, a schedule, a utility and a rule. For many cases that share their random numbers, with
tables and figures in a folder, make a study:

    >>> study = nrjax.Study("mean", {"brownian": interaction})  # study.run("runs/mean")

`nrjax.choose` answers what an accuracy costs, and by which mechanism. `nrjax.FixedRelease` is a
release at an epsilon fixed in advance, to compare with. `nrjax.audit` checks by simulation whether
the guarantee of your own mechanism holds.

These modules are loaded when you use them. `help(nrjax.erm)` documents the module `erm`:

    processes     noise that can be rewound: Brownian, Laplace, discrete Laplace, Skellam
    guarantees    epsilon as a function of the time (noise level) at which a trial stops
    schedules     times that are fixed, or chosen from the releases
    utilities     scores of releases
    stopping      public and private tests of the scores; `stopping.accuracy` has error bounds
    composition   filters and odometers for many mechanisms on one data set
    erm           private logistic, ridge and other regularised regression
    counts        histograms, and counts under a budget
    datasets      data sets and your own tables, scaled
    private_selection  a good result of many private runs, such as of tuned models
    questions     questions for `nrjax.choose`
    study         studies, results, tables and figures
    papers        reproductions of published experiments
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from nrjax._base.version import __version__ as __version__

if TYPE_CHECKING:
    from nrjax._public import *  # noqa: F403
else:

    def __getattr__(name):
        """Import the submodule `name`, or return the public name from `nrjax._public`.

        JAX is imported only at the first use of a public name, so that the command `nrjax` can
        report why JAX cannot be imported.
        """
        if importlib.util.find_spec(f"nrjax.{name}") is not None:
            return importlib.import_module(f"nrjax.{name}")
        return getattr(importlib.import_module("nrjax._public"), name)

    def __dir__():
        """Return all public names, including those that are not imported yet."""
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *__getattr__("__all__")})
