"""The conformance suite, run over every process; and faults that it must see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.processes import IndependentLaplace, Laplace
from nrjax.processes.laplace import LaplaceState
from tests import conformance
from tests.conformance import PROCESS_CHECKS, PROCESSES, ProcessCase


@pytest.mark.parametrize("check", PROCESS_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", PROCESSES, ids=lambda case: case.name)
def test_process(case, check):
    check(case)


def _faulty(name, parent=Laplace, chain=True, **methods):
    """A registered process like `parent`, with these methods instead."""
    kind = type(name, (parent,), methods)
    return ProcessCase(name, kind, (), chain)


def _stays(self, key, state, time):
    new = IndependentLaplace.rewind(self, key, state, time)
    return new._replace(value=jnp.where(time == state.time, state.value, new.value))


@pytest.mark.parametrize(
    ("check", "case"),
    [
        pytest.param(
            conformance.check_noise_is_unique,
            _faulty(
                "OneDraw",
                init=lambda self, key, time: LaplaceState(
                    np.ones(self.shape) * Laplace(()).init(key, time).value, time
                ),
            ),
            id="one draw for all coordinates",
        ),
        pytest.param(
            conformance.check_noise_is_unique,
            _faulty(
                "Neighbours",
                value=lambda self, state: (
                    np.sqrt(0.5) * (state.value + jnp.roll(state.value, 1, axis=-1))
                ),
            ),
            id="half of the noise shared by neighbouring coordinates",
        ),
        pytest.param(
            conformance.check_noise_is_unique,
            _faulty(
                "Common",
                value=lambda self, state: (
                    np.sqrt(0.5)
                    * (state.value + Laplace(self.shape).init(jax.random.key(0), state.time).value)
                ),
            ),
            id="half of the noise shared by all trials",
        ),
        pytest.param(
            conformance.check_purity,
            _faulty(
                "Constant",
                init=lambda self, key, time: Laplace(self.shape).init(jax.random.key(0), time),
                rewind=lambda self, key, state, time: Laplace.rewind(
                    self, jax.random.key(0), state, time
                ),
            ),
            id="a key of its own",
        ),
        pytest.param(
            conformance.check_dtype_and_shape,
            _faulty("Half", value=lambda self, state: state.value.astype("float16")),
            id="another dtype",
        ),
        pytest.param(
            conformance.check_wide_times,
            _faulty(
                "Exponential",
                privacy_loss=lambda self, state, shift: jnp.exp(shift.sum() / state.time),
            ),
            id="loss out of range",
        ),
        pytest.param(
            conformance.check_wide_times,
            _faulty("Stays", IndependentLaplace, chain=False, rewind=_stays),
            id="the same noise twice, where all is new",
        ),
        pytest.param(
            conformance.check_wide_times,
            _faulty("Fresh", rewind=lambda self, key, state, time: self.init(key, time)),
            id="new noise, where the last release is all",
        ),
        pytest.param(
            conformance.check_price_of_all_releases,
            _faulty(
                "LastAlone",
                IndependentLaplace,
                chain=False,
                composed_time=lambda self, state, time: time,
            ),
            id="the last release alone paid for",
        ),
        pytest.param(
            conformance.check_price_of_all_releases,
            _faulty(
                "RoundedUp",
                IndependentLaplace,
                chain=False,
                composed_time=lambda self, state, time: (
                    IndependentLaplace.composed_time(self, state, time) * (1 + 2e-6)
                ),
            ),
            id="a composed time that is rounded up",
        ),
        pytest.param(
            conformance.check_price_of_all_releases,
            _faulty("Chain", IndependentLaplace),
            id="releases that are paid for, said to be a chain",
        ),
    ],
)
def test_planted_faults_are_seen(check, case):
    with pytest.raises(AssertionError):
        check(case)
