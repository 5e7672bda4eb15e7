"""Interactions to audit: every built-in mechanism, and planted faults that audits must find."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax import composition
from nrjax.processes._kernel import NoiseState

DELTA = 1e-6
TIMES = np.geomspace(1000.0, 10.0, 20)
LINE = nrjax.LinearBoundary.tight_at_epsilon(0.5, 1.0, DELTA)


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
    "laplace tests": lambda: (*rule_pair(nrjax.LaplaceTests(0.5, 1.0, 0.5)), PAIRS),
    "gaussian threshold": lambda: (*rule_pair(GAUSSIAN), PAIRS),
    "key": lambda: (Key(1.0), Key(0.0), PAIRS | {"delta": TAIL}),
}
"""The interaction, perhaps a neighbour, and options of an audit, by name."""


class TimeForRoot(nrjax.Brownian):
    """Brownian noise that is rewound with dt for sqrt(dt)."""

    def move(self, draw, state, time):
        kept = time / state.time
        return NoiseState(kept * state.value + kept * (state.time - time) * draw, time)


class Fresh(nrjax.Brownian):
    """Gaussian noise that is drawn anew for each release, and paid once."""

    def rewind(self, key, state, time):
        return self.init(key, time)


class Quiet(nrjax.Brownian):
    """Gaussian noise of a multiple of the stated variance."""

    variance: float = nrjax.static(default=0.8)

    def init(self, key, time):
        state = super().init(key, time)
        return state._replace(value=self.variance**0.5 * state.value)

    def move(self, draw, state, time):
        return super().move(self.variance**0.5 * draw, state, time)


class Clipped(nrjax.Brownian):
    """Brownian noise that is clipped before it is added to the value."""

    def value(self, state):
        return jnp.clip(super().value(state), -10.0, 10.0)


class Silent(nrjax.Laplace):
    """A fifth of Laplace noise, with a realised loss of 0."""

    def value(self, state):
        return 0.2 * super().value(state)

    def privacy_loss(self, state, shift):
        return 0 * jnp.sum(shift) * state.time


class Coarse(nrjax.Laplace):
    """Laplace noise of times that are rounded to half precision, in part to less noise."""

    def privacy_loss(self, state, shift):
        rounded = state.time.astype(jnp.float16).astype(state.time.dtype)
        return super().privacy_loss(state._replace(time=rounded), shift)


class Retuned(nrjax.Guarantee):
    """A boundary, or a Rényi order (`hockey`), that is chosen again at each time."""

    hockey: bool = nrjax.static(default=False)
    noise = "gaussian"
    sensitivity = 1.0
    delta = DELTA

    @property
    def notion(self):
        return "hockey-stick" if self.hockey else "probabilistic"

    def epsilon(self, time):
        if not self.hockey:
            return 0.5 / time + jnp.sqrt(-2 * jnp.log(DELTA) / time)
        less = jnp.geomspace(0.1, 1e3, 200)[:, None]
        rest = -jnp.log1p(1 / less) + (-jnp.log(DELTA) - jnp.log1p(less)) / less
        costs = (1 + less) / (2 * jnp.ravel(time)) + rest
        return jnp.min(costs, axis=0).reshape(jnp.shape(time))


class Cheap(nrjax.AboveThreshold):
    """AboveThreshold that charges a positive answer as if it were negative."""

    def cost(self, epsilon, stopped=True, answers=1):
        return super().cost(epsilon, False, answers)


class NoNoise(nrjax.AboveThreshold):
    """AboveThreshold without noise on the queries (variant 5), as a rule."""

    def step(self, key, state, epsilon, utility):
        stop = self.reached(utility, state.step, -state.noise)
        return state._replace(step=state.step + 1), stop


ZEROS, ONES = (0.0,) * 8, (1.0,) * 4 + (-1.0,) * 4
FAR, CLOSE = (8.0, -8.0), (-8.0, 8.0)
FAULTS = {
    "half of delta": lambda: (brownian(), FEW | {"delta": DELTA / 2}),
    "dt for sqrt(dt)": lambda: (brownian(LINE, TimeForRoot(())), FEW),
    "fresh noise": lambda: (brownian(LINE, Fresh(())), FEW),
    "quiet noise": lambda: (brownian(LINE, Quiet(())), FEW),
    "clipped noise": lambda: (brownian(LINE, Clipped(())), FEW),
    "silent loss": lambda: (interaction(Silent(()), nrjax.PureGuarantee(1.0), [4.0, 1.0]), FEW),
    "ties": lambda: (
        Key(1.0, exact=False),
        Key(0.0, exact=False),
        {"delta": TAIL, "trials": 40000},
    ),
    "wrong norm": lambda: (
        interaction(nrjax.Laplace((2,)), nrjax.PureGuarantee(np.sqrt(2))),
        np.ones(2),
        FEW,
    ),
    "replace for add": lambda: (brownian(process=nrjax.Brownian((3,))), np.array([1, -1, 0]), FEW),
    "early refund": lambda: (Rounds(early=True), FEW | {"delta": 0.0}),
    "retuned boundary": lambda: (brownian(Retuned()), FEW),
    "order chosen at the stop": lambda: (brownian(Retuned(hockey=True)), {}),
    "coarse times": lambda: (interaction(Coarse(()), nrjax.PureGuarantee(1.0)), FEW),
    "charged as negative": lambda: (
        *rule_pair(
            Cheap(1.0, 1.0, 4.0), 1e-3, (0.0, 0.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0, 0.0)
        ),
        {"trials": 40000},
    ),
    "no query noise": lambda: (*rule_pair(NoNoise(0.5, 1.0, 1.0)), PAIRS),
    "sparse vector 3": lambda: (*variant(3, (0.0,) * 8, (1.0,) * 7 + (0.0,)), {"trials": 100_000}),
    "sparse vector 5": lambda: (*variant(5, UP, DOWN), PAIRS),
    "sparse vector 6": lambda: (*variant(6, ZEROS, ONES), {"trials": 40000}),
}
for _name in ("sparse vector 3", "sparse vector 5", "sparse vector 6"):
    FAULTS[_name] = lambda case=FAULTS[_name]: (*case()[:-1], case()[-1] | {"delta": 0.0})
