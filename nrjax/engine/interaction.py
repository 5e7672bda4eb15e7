"""The configuration of a trial: its parts, validated together and cast to one dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import abstract_key
from nrjax._base.numerics import float_dtype, holds
from nrjax._base.pytrees import Pytree, static
from nrjax._base.sensitivities import shared_relation, split_relation
from nrjax._base.validation import check, check_numbers, check_shape, concrete_or_none, is_integer
from nrjax._base.value import Value, check_array, split_value
from nrjax.engine.checks_between_parts import (
    check_costs,
    check_group,
    check_noise,
    check_paid_rule,
    check_rule,
    check_sensitivities,
)
from nrjax.engine.checks_of_parts import check_results, state_follows_utility
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility, overrides

_PARTS = {
    "process": NoiseProcess,
    "guarantee": Guarantee,
    "schedule": Schedule,
    "utility": Utility,
    "rule": StoppingRule,
}
_FIELDS = ("value", *_PARTS, "shift")


MADE_BY = "Make one by mechanism.until(score, ...); of a FixedRelease, by fixed.until(score, ...)."
"""The hint of errors about values that are no interactions."""


class Interaction(Pytree, kw_only=True):
    """The configuration of a trial: value, process, guarantee, schedule, utility and rule.

    The parts are checked against each other, and their numbers are cast to the dtype of the run,
    float32 unless JAX_ENABLE_X64=1. An interaction is a pytree: you can `vmap` a function that
    takes or returns interactions. For a changed copy use `dataclasses.replace`.

        >>> class Closeness(nrjax.Utility):
        ...     def evaluate(self, hypothesis):
        ...         return -jnp.abs(hypothesis - 120.0)
        >>> interaction = nrjax.Interaction(
        ...     value=120.0,
        ...     process=nrjax.Laplace(()),
        ...     guarantee=nrjax.PureGuarantee(sensitivity=1.0),
        ...     schedule=nrjax.Grid([100.0, 10.0, 1.0]),
        ...     utility=Closeness(),
        ...     rule=nrjax.PublicThreshold(-2.0),
        ... )
        >>> interaction.steps  # nrjax.simulate(key, interaction, trials=1000) runs it
        3

    Attributes:
        value: the private value f(x), of the process's shape.
        process: the noise process, which is added to the value.
        guarantee: the privacy guarantee, which states the epsilon of a stop at a time. If it is
            None, every reported epsilon is NaN.
        schedule: the schedule, which chooses the time (noise level) of each release.
        utility: the utility, which measures the quality of a release.
        rule: the stopping rule, which tests each release.
        shift: f(x) - f(x') for a neighbouring data set x', to report the realised privacy loss; or
            None.
        max_steps: largest number of releases. The schedule's `max_steps` is the default and the
            limit.
        relation: relation of the neighbours (static), by default the one that a `nrjax.Sensitivity`
            of the parts states; None if no part states one.

    Raises:
        ValueError: a part is not an instance of its interface, or a method of it does not work
            under a trace or returns what the interface does not allow. `value` or `shift` is not
            finite or not of the process's shape. The shift is longer than the sensitivity, or the
            process cannot compute a realised loss. `max_steps` is below 1. The guarantee is for
            another noise. Parts state different relations. The rule covers too few steps, or
            assumes too small a sensitivity. The dtype is too coarse for the noise or the
            sensitivity.
    """

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | None = None
    schedule: Schedule
    utility: Utility
    rule: StoppingRule
    shift: Any = None
    max_steps: Any = None
    relation: str | None = static(default=None)
    # The parts' classes, as JAX takes classes of `register_dataclass` for equal (`Pytree`).
    _structure: tuple[str, tuple[type, ...]] = static(init=False, repr=False)
    # Whether bounds may replace the utility: it has bounds, and the rule's state ignores it.
    _uses_bounds: bool = static(init=False, repr=False)

    def __post_init__(self):
        for name, field in _checked(self).items():
            object.__setattr__(self, name, field)

    @property
    def dtype(self) -> Any:
        """The floating dtype of the run."""
        return self.value.number.dtype

    @property
    def steps(self) -> Any:
        """The largest number of releases."""
        return self.schedule.max_steps if self.max_steps is None else self.max_steps


def _cast(path: Any, leaf: Any, dtype: Any) -> Any:
    """Cast a number or an array of floats to `dtype`, and return other arrays unchanged."""
    name = f"{_FIELDS[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
    if is_integer(leaf):
        expected = f"an integer that {np.dtype(dtype)} holds exactly"
        hint = "Pass a float, or declare the field nrjax.static() if it is an index."
        check(holds(dtype, int(leaf)), name, leaf, expected, hint)
    if isinstance(leaf, (int, float, np.number)) and not isinstance(leaf, bool):
        return jnp.asarray(np.asarray(leaf, dtype))
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":
        held = jax.dtypes.canonicalize_dtype(leaf.dtype)
        exact = np.array_equal(leaf.astype(held), leaf)
        check(exact, name, leaf, f"within {held}", "Use floats, or JAX_ENABLE_X64=1.")
    try:
        array = jnp.asarray(leaf)
    except TypeError:
        array = None
    hint = "Declare a field of functions or text nrjax.static()."
    check(array is not None, name, leaf, "a number or an array", hint)
    if array is None or not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array.astype(dtype)


def _check_parts(interaction: Interaction) -> None:
    """Check that each part implements its interface and is made for the process."""
    for name, kind in _PARTS.items():
        part = getattr(interaction, name)
        if part is not None or name != "guarantee":
            hint = ""
            if name == "utility" and callable(part):
                hint = "Write nrjax.utilities.FunctionUtility(score), or mechanism.until(score)."
            check(isinstance(part, kind), name, part, f"an instance of nrjax.{kind.__name__}", hint)
    process, utility = interaction.process, interaction.utility
    check_shape(f"shape of {type(process).__name__}", process.shape)
    shifted = interaction.shift is None or overrides(process, NoiseProcess, "privacy_loss")
    expected = f"None for {type(process).__name__}, which does not keep the noise of all releases"
    check(shifted, "shift", interaction.shift, expected)
    noise = getattr(getattr(utility, "utilities", utility), "noise", None)
    fits = None in (noise, process.noise) or noise == process.noise
    expected = f"for releases with {process.noise} noise, as the process has"
    check(fits, "utility", type(utility).__name__, expected, "Use both from one released(...).")


def _checked(interaction: Interaction) -> dict[str, Any]:
    """Return the fields of an interaction, validated together and cast to one dtype."""
    _check_parts(interaction)
    process, guarantee, schedule = interaction.process, interaction.guarantee, interaction.schedule
    utility, rule, shift = interaction.utility, interaction.rule, interaction.shift
    parts: Any = {"guarantee": guarantee, "schedule": schedule, "rule": rule, "utility": utility}
    if interaction.relation is not None:
        split_relation(interaction.relation)
    relation = shared_relation(interaction=interaction, **parts)
    check_group(rule, utility, relation)
    value = interaction.value
    value = value.whole() if isinstance(value, Value) else value  # from dataclasses.replace
    shape = tuple(process.shape)
    value = check_array("value", value, shape)
    shift = None if shift is None else check_array("shift", shift, shape)
    number = check_numbers(
        "max_steps",
        interaction.steps,
        lambda n: n.dtype.kind in "iu" and n.ndim == 0 and 1 <= n < 2**30,
        "an integer, at least 1 and below 2^30",
    )
    dtype = float_dtype(value)
    max_steps = interaction.max_steps
    steps = None if number is None else min(int(number), schedule.max_steps)
    if steps is None:  # traced: the trial ends when a sequence of utilities or thresholds ends
        lengths = [n for n in (rule.max_steps, utility.max_steps) if n is not None]
        max_steps = jnp.minimum(max_steps, min(lengths, default=2**30 - 1))
    check_rule(rule, utility, guarantee, steps, dtype)
    check_noise(value, process, guarantee, schedule, dtype)
    check_sensitivities(shift, guarantee, schedule)
    check_paid_rule(rule, guarantee, schedule)
    split = interaction.value
    if not isinstance(split, Value) or value is not split.number:
        sensitivity = None if guarantee is None else guarantee.sensitivity
        split = split_value(value, dtype, sensitivity, process.integral)
    concrete_shift = concrete_or_none(shift)
    cast_shift = shift if concrete_shift is None else concrete_shift.astype(dtype)
    parts = (split.number, process, guarantee, schedule, utility, rule, cast_shift)
    parts = jax.tree_util.tree_map_with_path(partial(_cast, dtype=dtype), parts)
    structure = (str(jax.tree.structure(parts)), tuple(type(part) for part in parts))
    if shift is not None:
        # A process may check the shift's concrete numbers.
        state = jax.eval_shape(process.init, abstract_key(), jnp.ones((), dtype))
        jax.eval_shape(lambda state: process.privacy_loss(state, shift), state)
    check_results(parts, structure)
    check_costs(parts[2], parts[3], dtype)
    first: Array = jnp.int32(0)
    utility = parts[4].at(first)
    bounded = any(overrides(utility, Utility, name) for name in ("bounds", "bounds_from_release"))
    return {
        **dict(zip(_FIELDS, parts, strict=True)),
        "value": Value(parts[0], None if split.rest is None else jnp.asarray(split.rest)),
        "max_steps": None if max_steps is None else jnp.asarray(max_steps, jnp.int32),
        "relation": relation,
        "_structure": structure,
        "_uses_bounds": bounded and not state_follows_utility(parts[5], dtype),
    }
