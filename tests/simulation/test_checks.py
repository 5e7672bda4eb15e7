"""Bad arguments of functions that run many trials, and their messages."""

from functools import partial

import jax
import numpy as np
import pytest

import nrjax
from nrjax.simulation import montecarlo
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.counting import HistogramSpec, Tally
from tests.draws import LEVELS, Draws
from tests.problems import interaction, scalar

pytestmark = pytest.mark.bits

KEY = jax.random.key(3)
CUSTOM = montecarlo.custom_trials(Draws(0.7), 8)
ONE = nrjax.Batching(tile=16, devices=jax.devices()[:1])


def simulate(**changes):
    return nrjax.simulate(**{"key": KEY, "interaction": interaction(), "trials": 5} | changes)


def outcomes(*derived, chunk=5):
    return montecarlo.outcomes(interaction(), chunk, ("step",), ONE, derived)


def sweep(*others):
    return nrjax.sweep(KEY, [interaction(), *others], trials=10)


def curve(resolution):
    return nrjax.Curve(interaction(), {"utility": nrjax.Quantity()}, resolution=resolution)


def counted(column, bins=None, dim=None):
    specs = (("x", HistogramSpec(column, bins, dim)),)
    Tally(**vars(CUSTOM), specs=specs).compile(KEY)


def norm(outcome):
    return outcome.release


ROWS = [
    (lambda: simulate(trials=0), "trials must be an integer, at least 1"),
    (lambda: simulate(trials=2.5), r"trials must be an integer"),
    (lambda: simulate(trials=2**33), r"first_trial \+ trials must be at most 2\^32"),
    (lambda: simulate(first_trial=-1), "first_trial must be an integer, at least 0"),
    (lambda: simulate(key=jax.random.split(KEY, 2)), "must be a single key"),
    (lambda: simulate(interaction=scalar()), "interaction must be a nrjax.Interaction"),
    (lambda: simulate(interaction=Draws(0.7)), r"such as a selection, by nrjax\.Study or by jax"),
    (lambda: nrjax.Batching(tile=0), "tile must be an integer, at least 1"),
    (lambda: nrjax.Batching(tile=24), "tile must be a power of two"),
    (lambda: nrjax.Batching(lanes=10, tile=4), "lanes must be a multiple of tile = 4"),
    (lambda: nrjax.Batching(inner_steps=True), "inner_steps must be an integer"),
    *[
        (partial(nrjax.Batching, devices=bad), "devices must be a non-empty list of JAX devices")
        for bad in ((), 99, "cpu", [0])
    ],
    (lambda: simulate(batching=64), "batching must be a nrjax.Batching"),
    (
        lambda: nrjax.sweep(KEY, interaction(), trials=5),
        r"interactions must be a list of interactions, .* use nrjax.simulate",
    ),
    (lambda: outcomes(("epsilon", norm)), r"derived must be distinct names"),
    (lambda: outcomes(("n", norm), ("n", norm)), r"derived must be distinct"),
    (lambda: outcomes(("n", 3)), "derived 'n' must be a function of a trial's results"),
    (lambda: outcomes(chunk=2**30 + 1), "launch_size must be at most 1073741824 results"),
    (lambda: montecarlo.custom_trials(Draws(0.7), 0), "launch_size must be an integer, at least 1"),
    (lambda: CUSTOM.run(KEY, 9), "trials must be at most launch_size = 8"),
    (
        lambda: jax.jit(lambda x: montecarlo.custom_trials(Draws(x), 8).launch_size)(6.0),
        "cannot be traced",
    ),
    (lambda: nrjax.sweep(KEY, [], trials=10), r"interactions must be at least one"),
    (lambda: sweep(scalar()), r"interactions\[1\] must be a nrjax.Interaction"),
    (
        lambda: sweep(interaction(process=nrjax.Laplace(()), guarantee=nrjax.PureGuarantee(1.0))),
        r"interactions\[1\] must be like the first.*process: Brownian and Laplace",
    ),
    (
        lambda: sweep(interaction(np.geomspace(100.0, 0.01, 51))),
        r"schedule: float\d\d\[50\] and float\d\d\[51\]",
    ),
    (lambda: curve(0.0), "resolution must be positive and finite"),
    (lambda: curve(np.inf), "resolution must be positive and finite"),
    (lambda: curve(0.1), r"resolution must be None, since Distance has no"),
    (lambda: counted("loss"), "shape of x"),
    (lambda: counted("step", dim=("level", LEVELS)), "shape of x"),
    (lambda: counted("epsilon", WholeBins(0, 3)), "integer or boolean"),
    (lambda: LogBins(3, 3, 2), "highest"),
    (lambda: LogBins("a", 3, 2), "lowest must be an integer"),
    (lambda: LogBins(0, 3, 2, signed="no"), "signed must be True or False"),
    (lambda: LogBins.covering("a", 3.0, 2), "low must be positive and finite"),
    (lambda: WholeBins(0, 2**31), "highest must be an integer"),
    (lambda: LogBins(0, 3, 21), "digits"),
    (lambda: WholeBins(3, 2), "highest"),
]


@pytest.mark.parametrize(("call", "message"), ROWS)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
