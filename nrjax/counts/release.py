"""As many counts as a budget allows, each within a relative error."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._threefry import unrolled
from nrjax._validation import check, check_integer
from nrjax.composition.filters import GaussianFilter, UnifiedFilter
from nrjax.composition.renyi import RenyiFilter
from nrjax.counts.first_passage import MOST, BrownianPassage, check_smallest
from nrjax.counts.groups import check_counts
from nrjax.counts.jumps import DiscreteLaplacePassage, LaplacePassage
from nrjax.counts.passages import DoublingPassage, RelativeError, where
from nrjax.counts.selection import ExponentialMechanism
from nrjax.keys import Role, check_key, role_key, step_key
from nrjax.pytrees import Pytree, static

_GAUSSIAN = (UnifiedFilter, GaussianFilter, RenyiFilter)
_METHODS: dict[str, tuple[type[Any], tuple[type, ...]]] = {
    "brownian": (BrownianPassage, _GAUSSIAN),
    "doubling": (DoublingPassage, _GAUSSIAN),
    "laplace": (LaplacePassage, (RenyiFilter,)),
    "discrete_laplace": (DiscreteLaplacePassage, (RenyiFilter,)),
}
"""How a count is released, and the filters that have a proof for that."""

_BLOCK = 16
"""Draws between two looks at whether the session has ended; their noise is drawn at once."""


class Session(NamedTuple):
    """What a session of releases came to, int32 but for `spent`.

    From many trials every field has a leading axis.
    """

    returned: Array
    """Counts that were accepted and returned."""
    precise: Array
    """How many of these are within the relative error of the true count."""
    attempted: Array
    """Counts that were selected, returned or not."""
    spent: Array
    """The filter's budget less what remains of it, which is a little rounded down; in the filter's
    currency. 0 where no count was selected."""
    steps: Array
    """Draws of noise that the simulation took."""
    returned_by: Array
    """Counts returned by the time that a share j/marks of the budget was spent, j = 1 ... marks;
    shape (marks,)."""
    precise_by: Array
    """The precise ones of these; shape (marks,)."""


class _State(NamedTuple):
    """A session between two draws; `item` is the place of the present count in the order."""

    running: Array
    spent: Any
    passage: Any
    item: Array
    returned: Array
    precise: Array
    steps: Array


class CountRelease(Pytree):
    """Select the largest count, release it within a relative error, and again, within a budget.

    The experiment of Rogers 2023, section 7.2. An attempt selects a count by the exponential
    mechanism and adds less and less noise to it until the rule accepts; if no level that the
    budget allows is accepted, the last one is paid for and the count discarded. An attempt is
    started only if the selection and the first level are admitted together. The session ends when
    one is not, or when all items were tried; it is empty if already the first one is not.

    * "brownian": Brownian noise reduction; the squared privacy parameters `1/t` are `levels` many,
      equally spaced from `smallest` to the largest that the filter still admits.
    * "laplace": Laplace noise reduction, likewise with `1/t^2` (t is the noise's scale);
      "discrete_laplace": the same with whole numbers (`nrjax.DiscreteLaplace`).
    * "doubling": fresh Gaussian noise of squared parameter `smallest`, then twice that, and so on.
      Each try is paid for, and is made only if the filter admits it; else the count is discarded.

    Attributes:
        counts: true counts, each moved by at most 1 between neighbours, shape (items,).
        selection: how the next count is chosen.
        accuracy: when a noisy count is good enough.
        filter: the budget of the whole session: a `UnifiedFilter`, a `GaussianFilter` or, the
            only one for Laplace noise, a `RenyiFilter`.
        smallest: smallest squared privacy parameter, scalar, > 0: `1/t` for Gaussian noise of
            variance t, `1/t^2` for Laplace noise of scale t.
        method: "brownian", "doubling", "laplace" or "discrete_laplace" (static).
        levels: number of levels, at least 2 (static); of no effect on "doubling".
        marks: number of shares of the budget at which results are counted, at least 1 (static).
    """

    counts: Any
    selection: ExponentialMechanism
    accuracy: RelativeError
    filter: Any
    smallest: Any
    method: str = static(default="brownian")
    levels: int = static(default=1000)
    marks: int = static(default=100)

    def __post_init__(self):
        known = isinstance(self.method, str) and self.method in _METHODS
        check(known, "method", self.method, f"one of {sorted(_METHODS)}")
        for name, kind in (("selection", ExponentialMechanism), ("accuracy", RelativeError)):
            value = getattr(self, name)
            check(isinstance(value, kind), name, value, f"of type {kind.__name__}")
        valid = _METHODS[self.method][1]
        names = " or ".join(kind.__name__ for kind in valid)
        right = f"for method {self.method!r} a {names}: no other has a proof for it"
        check(isinstance(self.filter, valid), "filter", self.filter, right)
        if isinstance(self.counts, (list, tuple)):
            object.__setattr__(self, "counts", np.asarray(self.counts, np.float64))
        check_counts(self.counts)
        check_smallest(self.smallest, self.method)
        check_integer("levels", self.levels, 2, MOST)
        check_integer("marks", self.marks, 1, MOST)

    def run(self, key: Array) -> Session:
        """One session, by the trial's own key; works under `jit` and `vmap`.

        Raises:
            ValueError: `key` is not a key, or a field is a batch.
        """
        check(np.ndim(self.counts) == 1, "counts", self.counts, "a non-empty vector")
        check(np.shape(self.smallest) == (), "smallest", self.smallest, "a scalar")
        return _run(self, unrolled(check_key(key)))


@jax.jit
def _run(trial: CountRelease, key: Array) -> Session:
    dtype = jnp.result_type(float)
    counts = jnp.asarray(trial.counts, dtype)
    ranked = counts[trial.selection.order(role_key(key, Role.QUERY), counts)]
    passage = _METHODS[trial.method][0](trial.accuracy, trial.smallest, trial.levels)
    budget = jnp.asarray(trial.filter.budget, dtype)
    noise = role_key(key, Role.NOISE)
    shares = jnp.arange(1, trial.marks + 1, dtype=jnp.int32)

    @jax.jit  # traced once for both places
    def begin(spent: Any, item: Array) -> tuple[Array, Any, Any]:
        """Select a count and start with it, if both are admitted."""
        selected, admitted = trial.filter.take(spent, trial.selection.request)
        admitted &= trial.filter.admits(selected, passage.first_request(dtype))
        admitted &= item < len(ranked)
        started, state = passage.start(trial.filter, selected, ranked[item])
        return admitted, where(admitted, started, spent), state

    def draw(state: _State, random: Array) -> tuple[_State, tuple[Array, Array]]:
        """One draw; if it ends a count, the next one is begun."""
        spent, inner, verdict = passage.step(
            trial.filter, state.spent, state.passage, ranked[state.item], random
        )
        ended = verdict.ended & state.running
        accepted = verdict.accepted & state.running
        precise = accepted & verdict.precise
        share = 1 - jnp.asarray(trial.filter.remaining(spent), dtype) / budget
        mark = jnp.clip(jnp.ceil(share * trial.marks), 1, trial.marks).astype(jnp.int32)
        item = state.item + ended
        admitted, begun, fresh = begin(spent, item)
        following = _State(
            running=state.running & (~ended | admitted),
            spent=where(ended, begun, where(state.running, spent, state.spent)),
            passage=where(ended, fresh, inner),
            item=item,
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
        returned_by += jnp.sum(returned[:, None] <= shares, axis=0, dtype=jnp.int32)
        precise_by += jnp.sum(precise[:, None] <= shares, axis=0, dtype=jnp.int32)
        return state, number + 1, returned_by, precise_by

    zero = jnp.int32(0)
    running, spent, inner = begin(trial.filter.init(), zero)
    state = _State(running, spent, inner, zero, zero, zero, zero)
    none = jnp.zeros_like(shares)
    state, _, returned_by, precise_by = jax.lax.while_loop(
        lambda carry: carry[0].running, block, (state, zero, none, none)
    )
    # What remains is rounded down, even where nothing was spent.
    spent = budget - jnp.asarray(trial.filter.remaining(state.spent), dtype)
    return Session(
        returned=state.returned,
        precise=state.precise,
        attempted=state.item,
        spent=jnp.where(state.item > 0, spent, 0),
        steps=state.steps,
        returned_by=returned_by,
        precise_by=precise_by,
    )
