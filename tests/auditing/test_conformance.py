"""No built-in mechanism is accused, and what "holds" would have refuted is refuted."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.auditing import tilted
from nrjax.simulation import montecarlo
from tests.auditing.cases import PAIRS, Fixed, flat, interaction, rule_pair
from tests.processes.spherical_faults import WrongKernel, WrongRate

pytestmark = [pytest.mark.numerical, pytest.mark.bits]
LEVEL, TRIALS = 0.99, 4096


def score(release):
    return -jnp.max(jnp.abs(release))


def until(mechanism):
    return mechanism.until(score, at_least=-2.0, levels=(0.1, 3.0, 10))


def jumps(value, sensitivity):
    process = nrjax.LaplaceJumps(np.shape(value), 1.0, 2000.0)
    times = np.geomspace(100.0, 2.0, 10) * sensitivity
    return interaction(process, nrjax.PureGuarantee(sensitivity), times)


def spherical(value, sensitivity, process=nrjax.SphericalLaplace):
    made = process(np.shape(value))
    guarantee = nrjax.SphericalPureGuarantee(sensitivity)
    return interaction(made, guarantee, np.array([4.0, 2.0, 1.0]) * sensitivity)


LINES = {
    "linear": nrjax.LinearBoundary,
    "mixture": nrjax.MixtureBoundary,
    "one-sided": nrjax.OneSidedMixtureBoundary,
    "renyi": nrjax.RenyiBoundary,
}


def boundary(kind):
    def make(value, sensitivity):
        line = LINES[kind].tight_at_epsilon(0.5, sensitivity, 1e-6)
        process, times = nrjax.Brownian(np.shape(value)), np.geomspace(1000.0, 10.0, 10)
        return interaction(process, line, times * sensitivity**2)

    return make


MECHANISMS = {
    "laplace": lambda value, most: until(nrjax.laplace(value, most)),
    "discrete laplace": lambda value, most: until(nrjax.discrete_laplace(value, most)),
    "laplace jumps": jumps,
    "spherical laplace": spherical,
    "brownian": lambda value, most: until(nrjax.brownian(value, most, 1e-6)),
    **{name: boundary(name) for name in LINES},
}
L2 = {*LINES, "brownian", "spherical laplace"}
"""Mechanisms that are scaled to an l2-sensitivity."""

VECTORS = ((1, 2), (3, -1, 2), (1, 1, 1), (2, 0, 5, 4), (1,) * 7)
"""Shifts of which no sum of squares is a power of two."""


def accused(name, shift, seeds, trials=TRIALS):
    """Return the number of seeds with which a mechanism is accused."""
    shift = np.asarray(shift, float)
    norm = np.linalg.norm(shift.ravel(), 2 if name in L2 else 1)
    made = MECHANISMS[name](np.zeros(shift.shape), float(norm))
    audits = [nrjax.audit(made, shift, trials=trials, seed=seed) for seed in range(seeds)]
    return sum(audit.verdict == "violated" for audit in audits)


def test_integers_are_not_accused():
    assert accused("discrete laplace", (3, -1, 2), 3) <= 1


@pytest.mark.long
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_mechanism_is_accused_at_any_sensitivity(name):
    shifts, seeds = [*range(1, 13), *VECTORS], 20
    found = {str(shift): accused(name, shift, seeds) for shift in shifts}
    print(f"{name}: {sum(found.values())} of {len(shifts) * seeds} audits accuse: {found}")
    assert max(found.values()) <= stats.binom.isf(1e-5, seeds, 1 - LEVEL)
    assert sum(found.values()) <= stats.binom.isf(1e-4, seeds * len(shifts), 1 - LEVEL)


@pytest.mark.long
def test_wrong_rates_of_spherical_noise_are_refuted():
    """By losses in two dimensions, and by transcripts in one, where their bets see enough."""

    def audits(process):
        plane, line = (spherical(np.zeros(size), 1.0, process) for size in (2, 1))
        moved = dataclasses.replace(line, value=np.ones(1), utility=Fixed(0.5))
        return [nrjax.audit(plane).verdict, nrjax.audit(line, moved).verdict]

    assert audits(nrjax.SphericalLaplace) == ["holds", "not enough trials"]
    for fault in (WrongRate, WrongKernel):
        assert audits(fault) == ["violated", "violated"], fault


def test_the_place_of_an_integer_does_not_depend_on_the_tilt():
    """Dividing by `|v|^2`, a planted fault, gives one release several places."""
    made = MECHANISMS["discrete laplace"](np.zeros(3), 6.0)
    trial, _ = tilted.tilted(made, np.array([3.0, -1.0, 2.0]))
    part = montecarlo.custom_trials(trial, 1024).run_all(jnp.asarray([0, 0], jnp.uint32), 1024)
    exact = part["place"] * (4 / 1)
    assert np.all(exact == np.round(exact))
    theta = np.asarray(trial.tilts)[part["tilt"]]
    noise = (exact - 14 * theta).astype(exact.dtype)
    divided = theta + noise / exact.dtype.type(14)
    assert np.unique(divided).size > np.unique(exact).size


class Quiet(nrjax.Laplace):
    """Laplace noise of a multiple of the stated scale."""

    scale: float = nrjax.static(default=1.0)

    def init(self, key, time):
        state = super().init(key, self.scale * time)
        return state._replace(time=jnp.asarray(time, state.value.dtype))

    def rewind(self, key, state, time):
        inner = state._replace(time=self.scale * state.time)
        state = super().rewind(key, inner, self.scale * time)
        return state._replace(time=jnp.asarray(time, state.value.dtype))


class QuietBrownian(nrjax.Brownian):
    """Gaussian noise of a multiple of the stated scale."""

    scale: float = nrjax.static(default=1.0)

    def init(self, key, time):
        state = super().init(key, time)
        return state._replace(value=self.scale * state.value)

    def move(self, draw, state, time):
        return super().move(self.scale * draw, state, time)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "least"), [("laplace", 0.5), ("linear", 0.9)])
def test_the_noise_that_holds_would_have_refuted_is_refuted(kind, least):
    honest = MECHANISMS[kind](np.zeros(()), 1.0)
    audit = nrjax.audit(honest)
    assert audit.verdict == "holds"
    assert least < audit.refutable < 1
    assert f"The same mechanism with {audit.refutable:g} of its noise was refuted" in flat(audit)
    process = {"laplace": Quiet, "linear": QuietBrownian}[kind]

    def found(scale):
        faulty = dataclasses.replace(honest, process=process((), scale))
        return [nrjax.audit(faulty, seed=seed).verdict for seed in range(20)].count("violated")

    print(f"{kind}: {audit.refutable} is refuted in {found(audit.refutable)} of 20 audits")
    assert found(audit.refutable) >= 15
    assert found(0.5 * (1 + audit.refutable)) < 15  # a planted claim of twice the power


@pytest.mark.long
def test_transcripts_say_which_noise_they_would_have_refuted():
    parts = nrjax.PureGuarantee(1.0), [4.0, 2.0]
    made = interaction(nrjax.IndependentLaplace(()), *parts)
    audit = nrjax.audit(made, 1.0, trials=20_000)
    assert audit.verdict == "not enough trials"
    assert 0.05 < audit.refutable < 1
    assert f"with {audit.refutable:g} of its noise" in flat(audit)

    class Half(nrjax.IndependentLaplace):
        scale: float = nrjax.static(default=1.0)

        def value(self, state):
            return self.scale * super().value(state)

    quiet = interaction(Half((), audit.refutable), *parts)
    verdicts = [nrjax.audit(quiet, 1.0, trials=20_000, seed=s).verdict for s in range(20)]
    assert verdicts.count("violated") >= 15


@pytest.mark.long
def test_a_rule_without_noise_on_the_value_has_no_refutable_scale():
    audit = nrjax.audit(*rule_pair(nrjax.AboveThreshold(0.5, 1.0, 1.0)), **PAIRS)
    assert audit.refutable == 0
    assert "smaller scale than stated would not be refuted" in flat(audit)


@pytest.mark.long
def test_noise_that_fails_is_no_noise_that_is_not_refuted():
    """At a twentieth of the scale, the last time is below the least time of discrete noise."""
    audit = nrjax.audit(until(nrjax.discrete_laplace(120, 1)))
    assert audit.verdict == "holds"
    assert 0.5 < audit.refutable < 1
