"""Stopping rules with planted faults."""

import jax
import jax.numpy as jnp

from nrjax.keys import step_key
from nrjax.processes.laplace import Laplace
from nrjax.stopping import AboveThreshold, ReducedAboveThreshold
from nrjax.stopping.private import AboveThresholdState


def faulty(parent, name, **methods):
    """A rule like `parent`, with these methods instead."""
    return type(name, (parent,), {**methods, "__doc__": name})


def _fresh(self, key, state, epsilon, utility):
    noise = Laplace(()).init(jax.random.fold_in(key, 1), 2 * self.sensitivity / self.epsilon)
    return AboveThreshold.step(self, key, state._replace(noise=noise.value), epsilon, utility)


def _fresh_reduced(self, key, state, epsilon, utility):
    noise = Laplace(()).init(step_key(state.key, 100 + state.step), 2 * self.sensitivity / epsilon)
    return ReducedAboveThreshold.step(self, key, state._replace(noise=noise), epsilon, utility)


def _half(self, key, epsilon):
    state = AboveThreshold.init(self, key, epsilon)
    return state._replace(noise=state.noise / 2)


def _half_reduced(self, key, state, epsilon, utility):
    moved, _ = ReducedAboveThreshold.step(self, key, state, epsilon, -jnp.inf)
    classical = AboveThreshold(self.threshold, self.sensitivity, epsilon)
    halved = AboveThresholdState(moved.noise.value / 2, state.step)
    return moved, classical.step(key, halved, epsilon, utility)[1]


FreshAboveThreshold = faulty(AboveThreshold, "FreshAboveThreshold", step=_fresh)
FreshReduced = faulty(ReducedAboveThreshold, "FreshReduced", step=_fresh_reduced)
HalfAboveThreshold = faulty(AboveThreshold, "HalfAboveThreshold", init=_half)
HalfReduced = faulty(ReducedAboveThreshold, "HalfReduced", step=_half_reduced)
