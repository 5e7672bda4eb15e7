"""Planted faults that audits must find."""

import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.processes._kernel import NoiseState
from tests.auditing.cases import (
    DELTA,
    DOWN,
    FEW,
    LINE,
    PAIRS,
    TAIL,
    UP,
    Key,
    Rounds,
    brownian,
    interaction,
    rule_pair,
    variant,
)


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
