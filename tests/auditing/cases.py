"""Interactions to audit, of every built-in mechanism."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax import composition

DELTA = 1e-6
TIMES = np.geomspace(1000.0, 10.0, 20)
LINE = nrjax.LinearBoundary.tight_at_epsilon(0.5, 1.0, DELTA)


def flat(audit):
    """Return the text of an audit on one line."""
    return " ".join(str(audit).split())


class Fixed(nrjax.Utility):
    """A utility of the data, whatever the release."""

    utility: Any
    sensitivity: Any = 1.0

    def evaluate(self, hypothesis):
        return self.utility + 0 * jnp.sum(hypothesis)


def interaction(process, guarantee, times=TIMES, utility=None, rule=None, value=0.0, **changes):
    schedule = changes.pop("schedule", None) or nrjax.Grid(times)
    shape = process.shape
    return nrjax.Interaction(
        value=np.full(shape, value),
        process=process,
        guarantee=guarantee,
        schedule=schedule,
        utility=utility or Fixed(0.0),
        rule=rule or nrjax.PublicThreshold(1.0),
        **changes,
    )


@cache
def exact():
    """Return the minimax boundary, which is crossed with probability delta."""
    return nrjax.GridBoundary.minimax(sensitivity=1.0, delta=DELTA, times=TIMES)


@cache
def hockey_stick():
    return nrjax.HockeyStickBoundary.design(TIMES, np.ones(20), 1.0, DELTA)


def brownian(guarantee=None, process=None, **changes):
    return interaction(process or nrjax.Brownian(()), guarantee or exact(), **changes)


def with_rule(rule, utilities, epsilon):
    """Return an interaction in which only the answers of a rule reveal something."""
    utility = nrjax.UtilitySequence.of([Fixed(u) for u in utilities])
    times = np.linspace(1.0, 0.9, len(utilities))
    guarantee = nrjax.PureGuarantee(epsilon)
    return interaction(nrjax.Laplace(()), guarantee, times, utility, rule)


class Step(NamedTuple):
    """The time halves, or stays if the release is positive."""

    number: Any
    time: Any


class Adaptive(nrjax.Schedule):
    """A schedule whose times depend on the releases."""

    max_steps: int = nrjax.static(default=20)
    last_time = 10.0

    def init(self):
        first = jnp.asarray(TIMES[0], jnp.result_type(float))
        return Step(jnp.int32(1), first), first

    def next(self, state, release):
        time = jnp.maximum(state.time * jnp.where(release > 0, 0.9, 0.6), 10.0)
        return Step(state.number + 1, time), time, state.number >= self.max_steps


def filtered():
    budget = nrjax.UnifiedFilter(10.0, 1e-5)
    kind = composition.BrownianReduction
    schedule = composition.FilteredSchedule(nrjax.Grid(TIMES), budget, budget.init(), kind, 1.0)
    return brownian(LINE, schedule=schedule)


def one_sided():
    return nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.5, 1.0, DELTA)


UP, DOWN = (1.0, 0.0, 1.0, 0.0), (0.0, 1.0, 0.0, 1.0)
ABOVE = nrjax.AboveThreshold(0.5, 1.0, 1.0)
GAUSSIAN = nrjax.GaussianThreshold(0.0, 1.0, -0.5, 0.5, 3.8, 5.7, steps=4)


def rule_pair(rule, epsilon=1e-3, first=UP, second=DOWN):
    return with_rule(rule, first, epsilon), with_rule(rule, second, epsilon)


class Rounds(nrjax.Pytree):
    """Two rounds of noise reduction, of which `early` charges the look before the last."""

    early: bool = nrjax.static()

    def run(self, key):
        process, loss, paid = nrjax.Laplace(()), 0.0, 0.0
        for first, second in jax.random.split(key, (2, 2)):
            coarse = process.init(first, 4.0)
            fine = process.rewind(second, coarse, 2.0)
            on = process.value(coarse) > 0
            loss += jnp.where(on, *(process.privacy_loss(one, 1.0) for one in (fine, coarse)))
            paid += jnp.where(on, 0.25 if self.early else 0.5, 0.25)
        return Loss(loss, jnp.asarray(paid))


class Loss(NamedTuple):
    privacy_loss: Any
    epsilon: Any


class Shown(NamedTuple):
    transcript: Any
    epsilon: Any


class SparseVector(nrjax.Pytree):
    """The sparse vector variants 3, 5 and 6 of Lyu et al. 2017, which claim epsilon = 1."""

    queries: Any
    variant: int = nrjax.static()

    def run(self, key):
        rho, nu = jax.random.split(key)
        threshold = 2 * jax.random.laplace(rho)
        scale = {3: 2.0, 5: 0.0, 6: 2.0}[self.variant]
        noisy = self.queries + scale * jax.random.laplace(nu, self.queries.shape)
        yes = noisy >= threshold
        if self.variant == 3:  # stops at the first positive answer, and shows the noisy query
            first = jnp.argmax(yes)
            yes = jnp.where(jnp.any(yes), jnp.stack([first, noisy[first]]), -jnp.ones(2))
        return Shown(yes.astype(float), jnp.asarray(1.0))


def variant(number, first, second):
    return tuple(SparseVector(np.array(queries, float), number) for queries in (first, second))


class Key(nrjax.Pytree):
    """A key with one user, shown if its noisy count is above 8, with delta P(noise > 7)."""

    count: Any
    exact: bool = nrjax.static(default=True)

    def run(self, key):
        process = nrjax.DiscreteLaplace(())
        count = self.count + process.value(process.init(key, 2.0))
        above = count > 8 if self.exact else count >= 8
        return Shown((above & (self.count > 0)).astype(float)[None], jnp.asarray(1.0))


@cache
def unknown_keys(*counts):
    options = {"keys_per_user": 1, "delta": 0.01, "levels": (0.1, 1.0, 3)}
    return nrjax.counts.unknown_keys(counts, **options).until(at_least=9.0)


def noisy(key, epsilon, values):
    chosen, noise = jax.random.split(key)
    number = jax.random.randint(chosen, (), 0, values.size)
    score = jnp.asarray(values)[number] + jax.random.laplace(noise) / epsilon
    return nrjax.private_selection.Candidate(score, number)


class Selected(nrjax.Pytree):
    """A private selection from two candidates, of which the noisy score is published."""

    values: Any
    kind: type = nrjax.static()

    def run(self, key):
        runs = {"means" if self.kind is nrjax.PoissonSelection else "stop": 0.8}
        trial = self.kind(noisy, np.array([0.5, 1.0]), **runs, threshold=1.0, data=(self.values,))
        public = trial.run(key)
        shown = jnp.stack([public.stage.astype(float), jnp.nan_to_num(public.score)])
        return Shown(shown, public.epsilon)


def selected(kind):
    pair = (Selected(np.array(values), kind) for values in ((1.0, 0.0), (0.0, 1.0)))
    return *pair, PAIRS | {"delta": 0.0}


TAIL = float(np.exp(-8 / 2) / (1 + np.exp(-1 / 2)))
"""The probability that discrete Laplace noise of time 2 exceeds 7."""

PAIRS, FEW = {"trials": 4000}, {"trials": 5000}
HONEST = {
    "linear": lambda: (brownian(LINE), FEW),
    "mixture": lambda: (brownian(nrjax.MixtureBoundary.tight_at_epsilon(0.5, 1.0, DELTA)), FEW),
    "one-sided": lambda: (brownian(one_sided()), FEW),
    "linear on its grid": lambda: (brownian(LINE.on(nrjax.Grid(TIMES))), FEW),
    "minimax": lambda: (brownian(), FEW),
    "vector": lambda: (brownian(process=nrjax.Brownian((3,))), FEW),
    "renyi": lambda: (
        brownian(nrjax.RenyiBoundary.tight_at_epsilon(0.5, 1.0, DELTA)),
        FEW,
    ),
    "renyi mixture": lambda: (brownian(nrjax.RenyiMixture(1.0, DELTA, (5, 50), (0.4, 0.6))), FEW),
    "hockey-stick": lambda: (
        brownian(hockey_stick()),
        FEW,
    ),
    "adaptive": lambda: (brownian(one_sided(), schedule=Adaptive()), FEW),
    "filtered": lambda: (filtered(), FEW),
    "laplace": lambda: (interaction(nrjax.Laplace(()), nrjax.PureGuarantee(1.0)), FEW),
    "laplace jumps": lambda: (
        interaction(nrjax.LaplaceJumps((), 10.0, 1000.0), nrjax.PureGuarantee(1.0)),
        FEW,
    ),
    "discrete laplace": lambda: (
        interaction(nrjax.DiscreteLaplace(()), nrjax.DiscretePureGuarantee(1.0)),
        FEW,
    ),
    "rounds": lambda: (Rounds(early=False), FEW | {"delta": 0.0}),
    "independent laplace": lambda: (
        interaction(nrjax.IndependentLaplace(()), nrjax.PureGuarantee(1.0), [4.0, 2.0]),
        PAIRS,
    ),
    "above threshold": lambda: (*rule_pair(ABOVE), PAIRS),
    "exponential": lambda: (
        *rule_pair(nrjax.AboveThreshold(0.5, 1.0, 1.0, noise="exponential")),
        PAIRS,
    ),
    "reduced": lambda: (*rule_pair(nrjax.ReducedAboveThreshold(0.5, 1.0), 1.0), PAIRS),
    "reduced, exponential": lambda: (
        *rule_pair(nrjax.ReducedAboveThreshold(0.5, 1.0, noise="exponential"), 1.0),
        PAIRS,
    ),
    "laplace tests": lambda: (*rule_pair(nrjax.LaplaceTests(0.5, 1.0, 0.5)), PAIRS),
    "gaussian threshold": lambda: (*rule_pair(GAUSSIAN), PAIRS),
    "key": lambda: (Key(1.0), Key(0.0), PAIRS | {"delta": TAIL}),
    "unknown keys": lambda: (unknown_keys(5, 2), unknown_keys(4, 2), PAIRS),
    "poisson selection": lambda: selected(nrjax.PoissonSelection),
    "repeated selection": lambda: selected(nrjax.private_selection.RepeatedSelection),
}
"""The interaction, perhaps a neighbour, and options of an audit, by name."""
