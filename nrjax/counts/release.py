"""Release as many counts as a budget allows, each within a relative error."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import Role, check_key, role_key, step_key
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import Pytree, record, static
from nrjax._base.sensitivities import split_relation
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import (
    as_float_table,
    check,
    check_choice,
    check_integer,
    check_made_in,
    widest_made,
)
from nrjax.composition._state import select
from nrjax.composition.filters import GaussianFilter, UnifiedFilter
from nrjax.composition.renyi import RenyiFilter
from nrjax.counts.first_passage import MOST, BrownianPassage, check_smallest
from nrjax.counts.groups import check_counts
from nrjax.counts.jumps import DiscreteLaplacePassage, LaplacePassage
from nrjax.counts.passages import DoublingPassage, RelativeError
from nrjax.counts.selection import ExponentialMechanism

_GAUSSIAN = (UnifiedFilter, GaussianFilter, RenyiFilter)
_METHODS: dict[str, tuple[type[Any], tuple[type, ...]]] = {
    "brownian": (BrownianPassage, _GAUSSIAN),
    "doubling": (DoublingPassage, _GAUSSIAN),
    "laplace": (LaplacePassage, (RenyiFilter,)),
    "discrete_laplace": (DiscreteLaplacePassage, (RenyiFilter,)),
}
"""By method: its passage class, and the filters that are proved to hold for it."""

_BLOCK = 16
"""Number of draws of noise between two checks of whether the trial has ended."""


@record
class CountOutcome(NamedTuple):
    """The outcome of a `CountRelease` trial.

    Attributes:
        returned: number of counts that were accepted and returned, int32.
        precise: number of returned counts within the relative error of the true count, int32.
        attempted: number of counts that were selected, returned or not, int32.
        spent: cost of the trial in the filter's cost unit, 0 without an attempt.
        steps: number of draws of noise in the simulation, int32.
        returned_by: number of counts returned while at most the fraction j/marks of the budget was
            spent, for j = 1, ..., marks, int32, shape (marks,).
        precise_by: number of precise counts among the counts of `returned_by`, int32, shape
            (marks,).
    """

    returned: Array
    precise: Array
    attempted: Array
    spent: Array
    steps: Array
    returned_by: Array
    precise_by: Array


class _State(NamedTuple):
    """The state of a trial between two draws of noise.

    `item` is the position of the present count in the order of selection.
    """

    running: Array
    waiting: Array
    spent: Any
    passage: Any
    item: Array
    returned: Array
    precise: Array
    steps: Array


class CountRelease(Pytree):
    """A custom trial that selects the largest counts one by one and releases each.

    The trial is the experiment of Rogers 2023, section 7.2. An attempt selects a count by the
    exponential mechanism and reduces the count's noise until the rule accepts the noisy count. If
    it is accepted at no level that the budget allows, the last level is charged and the count is
    discarded. An attempt starts only if the filter admits its selection and first level together.
    The trial ends when an attempt is not admitted, or when all items were tried. For a single
    count, use `release_count`. The methods are:

    * "brownian": Brownian noise reduction at `levels` squared privacy parameters `1/t`, equally
      spaced from `smallest` to the largest that the filter still admits.
    * "laplace": Laplace noise reduction at equally spaced `1/t^2`, where t is the noise's scale.
    * "discrete_laplace": the same as "laplace" with integer noise (`nrjax.DiscreteLaplace`).
    * "doubling": fresh Gaussian noise per try, with a squared privacy parameter that starts at
      `smallest` and doubles. Each try is charged. If the filter refuses a try, the count is
      discarded.

        >>> selection = nrjax.counts.ExponentialMechanism(0.1)
        >>> accuracy = nrjax.counts.RelativeError(0.1)
        >>> budget = nrjax.UnifiedFilter(1.0, 1e-6, relation="add-remove")
        >>> trial = nrjax.counts.CountRelease(
        ...     [900, 400, 7], selection, accuracy, budget, smallest=1e-6)
        >>> outcomes = jax.vmap(trial.run)(jax.random.split(jax.random.key(0), 100))
        >>> bool(jnp.all(outcomes.returned <= 3))
        True

    Attributes:
        counts: true counts, each changed by at most 1 between neighbours, shape (items,).
        selection: the exponential mechanism that selects the next count.
        accuracy: the rule that accepts a noisy count.
        filter: the budget of the whole trial: a `UnifiedFilter`, a `GaussianFilter` or a
            `RenyiFilter` (the only choice for Laplace noise).
        smallest: smallest squared privacy parameter, scalar, > 0: `1/t` for Gaussian noise of
            variance t, `1/t^2` for Laplace noise of scale t.
        method: "brownian", "doubling", "laplace" or "discrete_laplace" (static).
        levels: number of noise levels per count, at least 2 (static); "doubling" has its own.
        marks: number of fractions of the budget at which results are counted (static).
        made_in: float dtype for which the counts were checked (static). `run` refuses a narrower
            one.
    """

    counts: Any
    selection: ExponentialMechanism
    accuracy: RelativeError
    filter: Any
    smallest: Any
    method: str = static(default="brownian")
    levels: int = static(default=1000)
    marks: int = static(default=100)
    made_in: str | None = static(default=None, repr=False)

    def __post_init__(self):
        check_choice("method", self.method, sorted(_METHODS))
        for name, kind in (("selection", ExponentialMechanism), ("accuracy", RelativeError)):
            value = getattr(self, name)
            check(isinstance(value, kind), name, value, f"of type {kind.__name__}")
        valid = _METHODS[self.method][1]
        names = " or ".join(kind.__name__ for kind in valid)
        expected = f"a {names} for method {self.method!r}"
        hint = "No other has a proof for it."
        check(isinstance(self.filter, valid), "filter", self.filter, expected, hint)
        relation, needed = self.filter.relation, self.selection.request.relation
        name, expected = "relation of the filter", f"{needed!r}, that of a monotone selection"
        hint = "Or give the selection monotone=False, which costs twice as much."
        check(needed in (None, relation), name, relation, expected, hint)
        expected = "for one row, since a count is changed by at most 1"
        check(split_relation(relation)[1] == 1, name, relation, expected)
        if isinstance(self.counts, (list, tuple)):
            object.__setattr__(self, "counts", as_float_table(self.counts))
        check_counts(self.counts)
        check_smallest(self.smallest, self.method)
        check_integer("levels", self.levels, 2, MOST)
        check_integer("marks", self.marks, 1, MOST)
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    @neutral_config()
    def run(self, key: Array) -> CountOutcome:
        """Run the trial with a random key, also under `jit` and `vmap`, and return its outcome.

        Raises:
            ValueError: `key` is not a key, a field has a batch axis, or the trial was made in a
                wider float dtype.
        """
        check_made_in("CountRelease", self.made_in, jnp.result_type(float))
        check(np.ndim(self.counts) == 1, "counts", self.counts, "a non-empty vector")
        check(np.shape(self.smallest) == (), "smallest", self.smallest, "a scalar")
        return _run(self, unrolled_key(check_key(key)))


@jax.jit
def _run(trial: CountRelease, key: Array) -> CountOutcome:
    dtype = jnp.result_type(float)
    counts = jnp.asarray(trial.counts, dtype)
    ranked = counts[trial.selection.order(role_key(key, Role.QUERY), counts)]
    passage = _METHODS[trial.method][0](trial.accuracy, trial.smallest, trial.levels)
    budget = jnp.asarray(trial.filter.budget, dtype)
    noise = role_key(key, Role.NOISE)
    marks = jnp.arange(1, trial.marks + 1, dtype=jnp.int32)

    def attempt(state: _State) -> _State:
        """Select a count and start its release, or end the trial if the filter refuses the cost."""
        item = jnp.minimum(state.item, len(ranked) - 1)
        selected, admitted = trial.filter.take(state.spent, trial.selection.request)
        admitted &= trial.filter.admits(selected, passage.first_request(dtype))
        admitted &= state.item < len(ranked)
        started, fresh = passage.start(trial.filter, selected, ranked[item])
        starts = state.waiting & admitted
        return state._replace(
            running=state.running & (~state.waiting | admitted),
            spent=select(starts, started, state.spent),
            passage=select(starts, fresh, state.passage),
        )

    def draw(state: _State, random: Array) -> tuple[_State, tuple[Array, Array]]:
        """Attempt the next count if the last one has ended, and make one draw of noise."""
        state = attempt(state)
        spent, inner, verdict = passage.step(
            trial.filter, state.spent, state.passage, ranked[state.item], random
        )
        ended = verdict.ended & state.running
        accepted = verdict.accepted & state.running
        precise = accepted & verdict.precise
        fraction = 1 - jnp.asarray(trial.filter.remaining(spent), dtype) / budget
        mark = jnp.clip(jnp.ceil(fraction * trial.marks), 1, trial.marks).astype(jnp.int32)
        following = _State(
            running=state.running,
            waiting=ended,
            spent=select(state.running, spent, state.spent),
            passage=inner,
            item=state.item + ended,
            returned=state.returned + accepted,
            precise=state.precise + precise,
            steps=state.steps + state.running,
        )
        late = trial.marks + 1
        return following, (jnp.where(accepted, mark, late), jnp.where(precise, mark, late))

    def block(carry: tuple[_State, Array, Array, Array]) -> tuple[_State, Array, Array, Array]:
        state, number, returned_by, precise_by = carry
        random = passage.draws(step_key(noise, number), _BLOCK, dtype)
        state, (returned, precise) = jax.lax.scan(draw, state, random)
        returned_by += jnp.sum(returned[:, None] <= marks, axis=0, dtype=jnp.int32)
        precise_by += jnp.sum(precise[:, None] <= marks, axis=0, dtype=jnp.int32)
        return state, number + 1, returned_by, precise_by

    zero = jnp.int32(0)
    yes, nothing = jnp.asarray(True), trial.filter.init()
    form = jax.eval_shape(lambda spent: passage.start(trial.filter, spent, ranked[0])[1], nothing)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
    state = _State(yes, yes, nothing, blank, zero, zero, zero, zero)
    none = jnp.zeros_like(marks)
    state, _, returned_by, precise_by = jax.lax.while_loop(
        lambda carry: carry[0].running, block, (state, zero, none, none)
    )
    # `remaining` is rounded down, so it may be below the budget even if nothing was spent.
    spent = budget - jnp.asarray(trial.filter.remaining(state.spent), dtype)
    return CountOutcome(
        returned=state.returned,
        precise=state.precise,
        attempted=state.item,
        spent=jnp.where(state.item > 0, spent, 0),
        steps=state.steps,
        returned_by=returned_by,
        precise_by=precise_by,
    )
