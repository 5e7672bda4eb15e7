"""The conformance suite run over every process, and planted faults that it must detect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.processes import IndependentLaplace, Laplace
from nrjax.processes._kernel import NoiseState
from tests.conformance import processes
from tests.conformance.processes import ProcessCase
from tests.marks import long_except

QUICK = long_except(processes.PROCESSES, *processes.PROCESSES[:3])
"""Processes, of which those that compile most are long."""
HALF = np.sqrt(0.5)


@pytest.mark.parametrize("check", processes.ONCE, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_bits_of_a_process(case, check):
    check(case)


@pytest.mark.numerical
@pytest.mark.parametrize("check", processes.NUMERICAL, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", processes.PROCESSES, ids=lambda case: case.name)
def test_process(case, check):
    check(case)


def _faulty(parent=Laplace, chain=True, **methods):
    """Return a case for a process like `parent` with some methods replaced."""
    return ProcessCase("faulty", type("Faulty", (parent,), methods), chain=chain, loss=chain)


def _stays(self, key, state, time):
    new = IndependentLaplace.rewind(self, key, state, time)
    return new._replace(value=jnp.where(time == state.time, state.value, new.value))


def _noise(self, time):
    return Laplace(self.shape).init(jax.random.key(0), time).value


FAULTS = {
    "one draw for all coordinates": (
        processes.check_noise_is_unique,
        _faulty(
            init=lambda self, key, time: NoiseState(
                np.ones(self.shape) * Laplace(()).init(key, time).value, time
            )
        ),
    ),
    "half of the noise shared by neighbouring coordinates": (
        processes.check_noise_is_unique,
        _faulty(value=lambda self, state: HALF * (state.value + jnp.roll(state.value, 1, axis=-1))),
    ),
    "half of the noise shared by all trials": (
        processes.check_noise_is_unique,
        _faulty(value=lambda self, state: HALF * (state.value + _noise(self, state.time))),
    ),
    "a key of its own": (
        processes.check_purity,
        _faulty(
            init=lambda self, key, time: Laplace.init(self, jax.random.key(0), time),
            rewind=lambda self, key, *rest: Laplace.rewind(self, jax.random.key(0), *rest),
        ),
    ),
    "another dtype": (
        processes.check_dtype_and_shape,
        _faulty(value=lambda self, state: state.value.astype("float16")),
    ),
    "loss out of range": (
        processes.check_wide_times,
        _faulty(privacy_loss=lambda self, state, shift: jnp.exp(shift.sum() / state.time)),
    ),
    "the same noise twice, where all is new": (
        processes.check_wide_times,
        _faulty(IndependentLaplace, chain=False, rewind=_stays),
    ),
    "new noise, where the last release is all": (
        processes.check_wide_times,
        _faulty(rewind=lambda self, key, state, time: self.init(key, time)),
    ),
    "the last release alone paid for": (
        processes.check_price_of_all_releases,
        _faulty(
            IndependentLaplace, chain=False, equivalent_time=lambda self, state, time: 1.0 * time
        ),
    ),
    "a composed time that is rounded up": (
        processes.check_price_of_all_releases,
        _faulty(
            IndependentLaplace,
            chain=False,
            equivalent_time=lambda self, state, time: (
                IndependentLaplace.equivalent_time(self, state, time) * (1 + 2e-6)
            ),
        ),
    ),
    "noise of another scale, said to be Laplace": (
        processes.check_noise_has_its_name,
        _faulty(deviation=lambda self, time: 0.9 * Laplace.deviation(self, time)),
    ),
    "releases that are paid for, said to be a chain": (
        processes.check_price_of_all_releases,
        _faulty(IndependentLaplace),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    check, case = FAULTS[fault]
    with pytest.raises(AssertionError):
        check(case)
