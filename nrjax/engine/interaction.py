"""The configuration of a trial: its parts, validated together and cast to one dtype."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.arrays import as_array
from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import abstract_key
from nrjax._base.modes import neutral_config
from nrjax._base.numerics import check_wide, holds
from nrjax._base.pytrees import Pytree, static
from nrjax._base.sensitivities import shared_relation, split_relation
from nrjax._base.validation import (
    check,
    check_numbers,
    check_shape,
    check_within,
    concrete_or_none,
    is_integer,
)
from nrjax._base.value import Value, check_array, split_value
from nrjax.engine.checks_between_parts import (
    check_costs,
    check_distributions,
    check_exact_times,
    check_group,
    check_integral,
    check_looks,
    check_monotone,
    check_noise_reduction,
    check_notion_and_delta,
    check_own_value,
    check_paid_rule,
    check_resolution,
    check_rule,
    check_sensitivities,
)
from nrjax.engine.checks_of_parts import (
    check_results,
    check_stated_times,
    check_times,
    check_wrapped,
    state_follows_utility,
)
from nrjax.guarantees.recipe import hint_for
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility, overrides

_PARTS = {
    "process": NoiseProcess,
    "guarantee": Guarantee,
    "schedule": Schedule,
    "utility": Utility,
    "rule": StoppingRule,
}

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
        bounds_decide: whether `simulate` may use `Utility.bounds` in place of `evaluate` (static).
            It is computed: True if the utility has bounds, and the rule's state ignores it.

    Raises:
        ValueError: a part is not an instance of its interface, or a method of it does not work
            under a trace or returns what the interface does not allow. `value` or `shift` is not
            finite or not of the process's shape. The shift is longer than the sensitivity, or the
            process cannot compute a realised loss. `max_steps` is below 1. The guarantee is for
            another noise. Parts state different relations. The rule covers too few steps,
            assumes too small a sensitivity, or is for monotone utilities under another relation
            than "add-remove". A custom schedule returns other times than it states. The dtype is
            too coarse for the noise or the sensitivity.
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
    bounds_decide: bool = static(init=False, repr=False)
    # The dtype of all floats, by which `steps.start` finds later casts.
    _made_in: str = static(init=False, repr=False)

    @neutral_config()
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

    def with_value(self, number: Array) -> Interaction:
        """Return a copy with another `value.number`, without checks: use it under a trace."""
        moved = copy.copy(self)
        object.__setattr__(moved, "value", self.value._replace(number=number))
        return moved


def _cast(name: str, part: Any, dtype: Any) -> Any:
    """Cast the numbers and arrays of floats of a part to `dtype`, and keep other arrays."""

    def cast(path: Any, leaf: Any) -> Any:
        return _cast_leaf(f"{name}{jax.tree_util.keystr(path)}", leaf, dtype)

    return jax.tree_util.tree_map_with_path(cast, part)


def _cast_leaf(name: str, leaf: Any, dtype: Any) -> Any:
    """Cast a number or an array of floats to `dtype`, and return other arrays unchanged."""
    if is_integer(leaf):
        expected = f"an integer that {np.dtype(dtype)} holds exactly"
        hint = "Pass a float, or declare the field nrjax.static() if it is an index."
        check(holds(dtype, int(leaf)), name, leaf, expected, hint)
    if isinstance(leaf, np.ma.MaskedArray):
        leaf = as_array(leaf)  # masked entries become NaN
    if isinstance(leaf, (int, float, np.number)) and not isinstance(leaf, bool):
        return jnp.asarray(check_within(name, leaf, dtype))
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
    """Check that each part implements its interface, and that the process fits the others."""
    for name, kind in _PARTS.items():
        part = getattr(interaction, name)
        if part is not None or name != "guarantee":
            hint = hint_for(part)
            if name == "utility" and callable(part):
                hint = "Write nrjax.utilities.FunctionUtility(score), or mechanism.until(score)."
            check(isinstance(part, kind), name, part, f"an instance of nrjax.{kind.__name__}", hint)
    process, utility = interaction.process, interaction.utility
    check_shape(f"shape of {type(process).__name__}", process.shape)
    shifted = interaction.shift is None or overrides(process, NoiseProcess, "privacy_loss")
    expected = f"None for {type(process).__name__}, which does not keep the noise of all releases"
    check(shifted, "shift", interaction.shift, expected)
    readable = utility.noise if isinstance(utility.noise, tuple) else (utility.noise,)
    fits = process.noise is None or None in readable or process.noise in readable
    expected = f"for releases with {process.noise} noise, as the process has"
    check(fits, "utility", type(utility).__name__, expected, "Use both from one released(...).")


def _checked(interaction: Interaction) -> dict[str, Any]:
    """Return the fields of an interaction, validated together and cast to one dtype."""
    _check_parts(interaction)
    for name in ("guarantee", "rule"):
        check_wide(name, getattr(interaction, name))
    relation = _checked_relation(interaction)
    value, shift = _checked_arrays(interaction)
    steps, max_steps = _checked_steps(interaction)
    dtype = float_dtype(value)
    _check_between(interaction, value, shift, steps, dtype)
    split = _split(interaction, value, dtype)
    parts: dict[str, Any] = {name: getattr(interaction, name) for name in _PARTS}
    concrete = concrete_or_none(shift)
    parts |= {"shift": shift if concrete is None else concrete.astype(dtype)}
    parts = {"value": split.number} | parts
    parts = {name: _cast(name, part, dtype) for name, part in parts.items()}
    structure = _check_methods(interaction, parts, shift, dtype)
    return {
        **parts,
        "value": Value(parts["value"], None if split.rest is None else jnp.asarray(split.rest)),
        "max_steps": None if max_steps is None else jnp.asarray(max_steps, jnp.int32),
        "relation": relation,
        "_structure": structure,
        "_made_in": np.dtype(dtype).name,
        "bounds_decide": _bounds_decide(parts["utility"], parts["rule"], dtype),
    }


def _checked_relation(interaction: Interaction) -> str | None:
    """Return the relation that the parts share, checked against the rule's assumptions."""
    names = ("guarantee", "schedule", "rule", "utility")
    if interaction.relation is not None:
        split_relation(interaction.relation)
    stated = {name: getattr(interaction, name) for name in names}
    relation = shared_relation(interaction=interaction, **stated)
    check_group(interaction.rule, interaction.utility, relation)
    check_monotone(interaction.rule, relation)
    return relation


def _checked_arrays(interaction: Interaction) -> tuple[Any, Any]:
    """Return the value and the shift as arrays of the process's shape."""
    value, shift, shape = interaction.value, interaction.shift, tuple(interaction.process.shape)
    if isinstance(value, Value):  # from dataclasses.replace
        dtype = value.number.dtype
        uncast = dtype == jnp.float64 or (dtype == jnp.float32 and value.rest is not None)
        expected, hint = "that of an interaction whose floats were not cast", "Make a new one."
        check(uncast, "dtype of value", dtype.name, expected, hint)
        value = value.whole()
    value = check_array("value", value, shape)
    return value, None if shift is None else check_array("shift", shift, shape)


def _checked_steps(interaction: Interaction) -> tuple[int | None, Any]:
    """Return the largest number of releases, None if it is traced, and `max_steps`."""
    rule, utility, max_steps = interaction.rule, interaction.utility, interaction.max_steps
    number = check_numbers(
        "max_steps",
        interaction.steps,
        lambda n: n.dtype.kind in "iu" and n.ndim == 0 and 1 <= n < 2**30,
        "an integer, at least 1 and below 2^30",
    )
    if number is not None:
        return min(int(number), interaction.schedule.max_steps), max_steps
    # The trial ends when a sequence of utilities or thresholds ends.
    lengths = [n for n in (rule.max_steps, utility.max_steps) if n is not None]
    return None, jnp.minimum(max_steps, min(lengths, default=2**30 - 1))


def _check_between(
    interaction: Interaction, value: Any, shift: Any, steps: int | None, dtype: Any
) -> None:
    """Check the parts against each other, before they are cast."""
    process, guarantee, schedule = interaction.process, interaction.guarantee, interaction.schedule
    check_times(schedule)
    check_wrapped(schedule)
    check_rule(interaction.rule, interaction.utility, guarantee, steps, dtype)
    check_notion_and_delta(guarantee)
    check_distributions(process, guarantee, schedule)
    check_looks(guarantee, schedule, dtype)
    check_integral(process, value, schedule, dtype)
    check_own_value(process, value, dtype)
    check_noise_reduction(process, schedule)
    check_exact_times(process, schedule, dtype)
    check_resolution(value, process, schedule, dtype)
    check_sensitivities(shift, guarantee, schedule)
    check_paid_rule(interaction.rule, guarantee, schedule)


def _split(interaction: Interaction, value: Any, dtype: Any) -> Value:
    """Return the private value in the dtype of the run, with the rounding error of the cast."""
    given, guarantee = interaction.value, interaction.guarantee
    if isinstance(given, Value) and value is given.number:
        return given
    sensitivity = None if guarantee is None else guarantee.sensitivity
    return split_value(value, dtype, sensitivity, interaction.process.integral)


def _check_methods(
    interaction: Interaction, parts: dict[str, Any], shift: Any, dtype: Any
) -> tuple[str, tuple[type, ...]]:
    """Check what the methods of the parts return, and return the structure of the parts."""
    schedule, process, cast = interaction.schedule, interaction.process, tuple(parts.values())
    structure = (str(jax.tree.structure(cast)), tuple(type(part) for part in cast))
    if shift is not None:
        # A process may check the shift's concrete numbers.
        state = jax.eval_shape(process.init, abstract_key(), jnp.ones((), dtype))
        jax.eval_shape(lambda state: process.privacy_loss(state, shift), state)
    check_results(cast, structure)
    shape = tuple(process.shape)
    check_stated_times(schedule, lambda part: _cast("schedule", part, dtype), shape, dtype)
    check_costs(parts["guarantee"], parts["schedule"], dtype)
    return structure


def _bounds_decide(utility: Utility, rule: StoppingRule, dtype: Any) -> bool:
    """Return whether bounds may replace the utility, which the state of the rule then ignores."""
    first: Any = utility.at(jnp.int32(0))
    bounded = any(overrides(first, Utility, name) for name in ("bounds", "bounds_from_release"))
    return bounded and not state_follows_utility(rule, dtype)
