"""The custom trials of `tuning`: the model that a method publishes, and what it pays."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.pytrees import Pytree, static
from nrjax.private_selection import Candidate, PoissonSelection, RepeatedSelection
from nrjax.processes import Laplace, noise_path

_REDUCED = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Epsilons of a noise-reduction run, as multiples of its cap."""
_LUCKY = 0.05
"""Probability with which noise lifts the score of a step by more than the scores are lowered."""
_MULTIPLES = {"geometric": 3, "logarithmic": 2}
"""Cost of these methods as a multiple of the epsilon of one run."""


class Table(Pytree):
    """The candidates without noise, and the rows that score and measure models.

    Training and scoring rows are disjoint, so one row changes either the models or the scores. A
    run at epsilon for each therefore costs epsilon.

    Attributes:
        optima: models without noise, shape (candidates, features).
        scales: scale of the Laplace noise at epsilon 1, 0 for an unused feature, of that shape.
        scored: features and labels of the rows that score models.
        measured: features and labels of the rows that measure the loss.
        most: largest loss of a row, to which losses are clipped.
        sensitivity: largest change of a score if a row is replaced.
        logistic: whether the loss is logistic, not squared (static).
    """

    optima: Array
    scales: Array
    scored: tuple[Array, Array]
    measured: tuple[Array, Array]
    most: Any
    sensitivity: Any
    logistic: bool = static()

    def loss(self, model: Array, rows: tuple[Array, Array]) -> Array:
        """Return the mean clipped loss of a model."""
        x, y = rows
        predicted = x @ model
        each = jax.nn.softplus(-y * predicted) if self.logistic else 0.5 * (y - predicted) ** 2
        return jnp.mean(jnp.minimum(each, self.most))

    def noisy(self, key: Array, number: Array, epsilon: Any) -> Array:
        """Return the model of a candidate under noise."""
        noise = jax.random.laplace(key, self.optima.shape[1:], self.optima.dtype)
        return self.optima[number] + self.scales[number] / epsilon * noise

    def score(self, key: Array, model: Array, epsilon: Any) -> Array:
        """Return minus the loss of a model on the scoring rows, under noise."""
        noise = jax.random.laplace(key, (), model.dtype)
        return self.sensitivity / epsilon * noise - self.loss(model, self.scored)

    def drawn(self, key: Array) -> Array:
        """Return the number of a random candidate."""
        return jax.random.randint(key, (), 0, len(self.optima))


class Published(NamedTuple):
    """The published models of a trial, one per epsilon or target.

    Attributes:
        test_loss: loss on the measured rows; that of the zero model if nothing was published.
        paid: epsilon that was paid.
        runs: number of runs of the base mechanism, for this report only.
    """

    test_loss: Array
    paid: Array
    runs: Array


def scored_model(key: Array, epsilon: Array, table: Table, number: Array | None = None) -> Any:
    """Release a candidate, by default a random one, with a noisy score."""
    chosen, noise, score = jax.random.split(key, 3)
    model = table.noisy(noise, table.drawn(chosen) if number is None else number, epsilon)
    return Candidate(table.score(score, model, epsilon), model)


def reduced_model(key: Array, cap: Array, table: Table, target: Array) -> Candidate:
    """Reduce the noise of a random candidate until its score reaches a target, or up to a cap.

    Epsilon doubles from step to step, and a score has half of it. So all scores up to a step cost
    less than the epsilon of the step, which is the cost of all models up to there. Scores are
    lowered, since each step is another chance to accept a bad model.
    """
    chosen, noise, score = jax.random.split(key, 3)
    epsilons, number = cap * jnp.asarray(_REDUCED, cap.dtype), table.drawn(chosen)
    path = noise_path(noise, Laplace(table.optima.shape[1:]), 1 / epsilons)
    models = table.optima[number] + table.scales[number] * path
    scores = jax.vmap(table.score)(jax.random.split(score, len(_REDUCED)), models, epsilons / 2)
    scores -= 2 * table.sensitivity / epsilons * -math.log(2 * _LUCKY)
    step = jnp.argmax(scores >= -target)  # 0 if no score is good enough
    return Candidate(scores[step], models[step], epsilons[step])


class Tuning(Pytree):
    """A trial of one method at every level: an epsilon, or a target loss.

    Attributes:
        table: candidates and rows.
        levels: epsilons, or target losses, shape (levels,).
        stages: epsilon of each stage of a method with targets, shape (stages,).
        runs: mean number of Poisson runs per stage.
        stop: parameter of the other numbers of runs.
        method: as in the settings (static).
    """

    table: Table
    levels: Array
    stages: Array
    runs: Any
    stop: Any
    method: str = static()

    def run(self, key: Array) -> Published:
        """Run the method at each level with the same key."""
        at_level = {"single": self._single, "composition": self._composition}
        method = at_level.get(self.method, self._selected)
        each = jax.vmap(method, (None, 0))(key, self.levels)
        return Published(*(jnp.reshape(part, -1) for part in each))

    def _single(self, key: Array, epsilon: Array) -> Published:
        """Release every candidate, each of which stands for itself."""
        numbers = jnp.arange(len(self.table.optima))
        models = jax.vmap(self.table.noisy, (None, 0, None))(key, numbers, epsilon)
        losses = jax.vmap(self.table.loss, (0, None))(models, self.table.measured)
        return Published(losses, jnp.full_like(losses, epsilon), jnp.ones_like(numbers))

    def _composition(self, key: Array, epsilon: Array) -> Published:
        """Release every candidate at an equal part of epsilon, and take the best score."""
        numbers = jnp.arange(len(self.table.optima))
        base = jax.vmap(scored_model, (0, None, None, 0))
        keys = jax.random.split(key, numbers.size)
        each = base(keys, epsilon / numbers.size, self.table, numbers)
        best = each.result[jnp.argmax(each.score)]
        loss = self.table.loss(best, self.table.measured)
        return Published(loss, epsilon, jnp.int32(numbers.size))

    def _selected(self, key: Array, level: Array) -> Published:
        """Run a private selection at an epsilon, or for a target."""
        table, method, stages = (self.table,), self.method, self.stages
        repeated: Any = method
        publish: Any = "best" if method == "poisson_best" else "first"
        if method in _MULTIPLES:
            epsilon = level / _MULTIPLES[method]
            made = RepeatedSelection(scored_model, epsilon, self.stop, data=table, method=repeated)
        elif method == "liu_talwar":
            made = RepeatedSelection(scored_model, stages, self.stop, -level, table)
        elif method == "poisson_reduction":
            made = PoissonSelection(
                reduced_model, stages, self.runs, -level, (*table, level), others=stages
            )
        else:
            made = PoissonSelection(scored_model, stages, self.runs, -level, table, publish=publish)
        public, runs = made.simulate(key)
        # Without a result, the model is zero.
        return Published(self.table.loss(public.result, self.table.measured), public.epsilon, runs)
