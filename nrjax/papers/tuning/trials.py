"""The custom trials of `tuning`: the model that a method publishes, and what it pays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.private_selection import Candidate, PoissonSelection, RepeatedSelection
from nrjax.processes import Laplace, noise_path
from nrjax.pytrees import Pytree, static

_REDUCED = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Epsilons of a noise-reduction run, as multiples of its cap."""
_SHARES = {"geometric": 3, "logarithmic": 2}
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
    less than the epsilon of the step, which is the cost of all models up to there.
    """
    chosen, noise, score = jax.random.split(key, 3)
    epsilons, number = cap * jnp.asarray(_REDUCED, cap.dtype), table.drawn(chosen)
    path = noise_path(noise, Laplace(table.optima.shape[1:]), 1 / epsilons)
    models = table.optima[number] + table.scales[number] * path
    scores = jax.vmap(table.score)(jax.random.split(score, len(_REDUCED)), models, epsilons / 2)
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
        table, stop = (self.table,), self.stop
        if self.method in _SHARES:
            one: Any = self.method
            epsilon = level / _SHARES[one]
            done = RepeatedSelection(scored_model, epsilon, stop, data=table, method=one)
        elif self.method == "liu_talwar":
            return self._doubling(key, level)
        else:
            reduces = self.method == "poisson_reduction"
            base, data = (reduced_model, (*table, level)) if reduces else (scored_model, table)
            publish: Any = "best" if self.method == "poisson_best" else "first"
            done = PoissonSelection(base, self.stages, self.runs, -level, data, publish=publish)
        public, runs = done.simulate(key)
        return self._measured(public.stage > 0, public.result, public.epsilon, runs)

    def _doubling(self, key: Array, target: Array) -> Published:
        """Repeat the selection of Liu and Talwar at rising epsilons, and pay for each."""

        def step(state: Any) -> Any:
            stage, _, paid, runs = state
            epsilon, own = self.stages[stage], jax.random.fold_in(key, stage)
            done = RepeatedSelection(scored_model, epsilon, self.stop, -target, (self.table,))
            public, more = done.simulate(own)
            last = jnp.where(public.stage > 0, len(self.stages), stage + 1)
            return last, public, paid + public.epsilon, runs + more

        first = (jnp.int32(0), None, jnp.zeros_like(target), jnp.int32(0))
        blank = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(step, first)[1]
        )
        first = (first[0], blank, *first[2:])
        _, public, paid, runs = jax.lax.while_loop(
            lambda state: state[0] < len(self.stages), step, first
        )
        return self._measured(public.stage > 0, public.result, paid, runs)

    def _measured(self, found: Array, model: Array, paid: Array, runs: Array) -> Published:
        model = jnp.where(found, model, 0)
        return Published(self.table.loss(model, self.table.measured), paid, runs)
