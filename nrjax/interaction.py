"""What a trial is made of: its parts, checked against each other and brought to one dtype."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._contract import check_results, state_follows_utility
from nrjax._numerics import check, concrete, float_dtype, numbers
from nrjax._shown import shown
from nrjax.pytrees import register_dataclass
from nrjax.stopping._thresholds import ThresholdRule
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Interaction:
    """All that a trial is made of, as one pytree; `build_interaction` checks and builds it."""

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | None
    schedule: Schedule
    utility: Utility
    rule: StoppingRule
    shift: Any
    max_steps: Any
    structure: tuple[str, tuple[type, ...]] = dataclasses.field(metadata={"static": True})
    """Classes of the parts, and of their parts by name: keeps apart the compiled programs of
    classes that a user has registered with JAX's own function (see `nrjax.pytrees`)."""
    by_bounds: bool = dataclasses.field(default=False, metadata={"static": True})
    """Whether bounds or a ceiling of the utility may stand for it: it has them, and the rule's
    state does not follow it."""

    # An interaction is a family of one (`nrjax.family.Family`), with nothing that varies.

    @property
    def axes(self) -> tuple[int, ...]:
        """None: results have no axis beside that of trials."""
        return ()

    def at(self, point: Array) -> tuple[()]:
        """Nothing of its own."""
        del point
        return ()

    def member(self, varied: tuple[()]) -> "Interaction":
        """Itself."""
        del varied
        return self


def _to_dtype(path: Any, leaf: Any, dtype: Any) -> Any:
    """Numbers and floating arrays in one dtype; other arrays, and keys, as they are.

    A Python float, a float32 array and an int in the same place would each retrace.
    """
    is_number = isinstance(leaf, (int, float, np.number)) and not isinstance(leaf, bool)
    if is_number:
        return jnp.asarray(np.asarray(leaf, dtype))
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":
        held = jax.dtypes.canonicalize_dtype(leaf.dtype)
        fits = np.array_equal(leaf.astype(held), leaf)
        name = f"{_ORDER[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
        check(fits, name, leaf, f"within {held}, or floats")
    array = jnp.asarray(leaf)
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


_PARTS = {
    "process": ("shape", "init", "rewind", "value", "privacy_loss", "status"),
    "guarantee": ("epsilon", "time", "delta"),
    "schedule": ("init", "next", "max_steps"),
    "utility": ("hypothesis", "evaluate"),
    "rule": ("init", "step", "cost"),
}
"""What a part must have to be taken for one."""

_ORDER = ("value", "process", "guarantee", "schedule", "utility", "rule", "shift")

_LEVELS_PER_DEVIATION = 16
"""Fewest representable numbers that one standard deviation of the noise must span."""


def _check_parts(parts: dict[str, Any]) -> None:
    """Each argument is a part of its kind, and a pytree of numbers."""
    for name, part in parts.items():
        if part is None and name == "guarantee":
            continue
        lacking = [method for method in _PARTS[name] if not hasattr(part, method)]
        if name == "utility" and hasattr(part, "at"):
            lacking = []
        if isinstance(part, type):
            raise ValueError(f"{name} = {shown(part)}: must be an instance, not the class itself")
        if lacking:
            raise ValueError(
                f"{name} = {shown(part)}: must have {', '.join(_PARTS[name])}; "
                f"lacks {', '.join(lacking)}"
            )
        if any(leaf is part for leaf in jax.tree.leaves(part)):
            raise ValueError(
                f"{name} = {shown(part)}: must be a pytree; decorate its class, a frozen "
                "dataclass, with nrjax.register_dataclass"
            )


def _check_rule(
    rule: StoppingRule, utility: Utility, guarantee: Any, steps: int | None, dtype: Any
) -> None:
    """What the rule and the utility promise is enough for the schedule and for each other."""
    kind = type(rule).__name__
    if getattr(rule, "uses_epsilon", False) and guarantee is None:
        raise ValueError(f"guarantee = None: {kind} sets its noise by the guarantee's epsilon")
    for name, part in (("rule", rule), ("utility", utility)):
        most = getattr(part, "max_steps", None)
        if most is not None and steps is not None and steps > most:
            raise ValueError(
                f"{name} = {type(part).__name__} for {most} steps: must cover the {steps} steps of "
                "the schedule (or give max_steps)"
            )
    if isinstance(rule, ThresholdRule):
        rule.check_resolved(dtype)
    if not (hasattr(rule, "sensitivity") and hasattr(utility, "sensitivity")):
        return
    stated, needed = (getattr(part, "sensitivity", None) for part in (rule, utility))
    if needed is None:
        raise ValueError(
            f"utility = {type(utility).__name__}: must state its sensitivity for {kind}, whose "
            "cost rests on it"
        )
    parts = [needed, getattr(getattr(utility, "utilities", None), "sensitivity", None)]
    own = [float(np.max(number)) for number in map(concrete, parts) if number is not None]
    stated = concrete(stated)
    if stated is not None and own:
        # In the dtype of the run: one of two equal numbers may have been through float32.
        ok = np.asarray(stated, dtype) >= np.asarray(max(own), dtype)
        right = f"at least {max(own):.6g}, the sensitivity of the utility"
        check(ok, "sensitivity of the rule", float(np.max(stated)), right)


def _check_noise(
    value: Any, process: NoiseProcess, guarantee: Guarantee | None, schedule: Schedule, dtype: Any
) -> None:
    """The guarantee is for this noise, and the dtype resolves the noise beside the value."""
    made, covered = getattr(process, "noise", None), getattr(guarantee, "noise", None)
    if None not in (made, covered) and made != covered:
        raise ValueError(
            f"guarantee = {shown(guarantee)}: must be for {made} noise, which "
            f"{type(process).__name__} makes, but holds for {covered} noise"
        )
    largest, last = concrete(value), concrete(getattr(schedule, "last_time", None))
    if largest is None or last is None or not largest.size or not hasattr(process, "deviation"):
        return
    with jax.ensure_compile_time_eval():
        deviation = concrete(process.deviation(jnp.asarray(last, dtype)))
    spacing = np.spacing(np.max(np.abs(largest)).astype(dtype))
    if deviation is not None and np.any(_LEVELS_PER_DEVIATION * spacing > deviation):
        raise ValueError(
            f"value is as large as {np.max(np.abs(largest)):.4g}, where {np.dtype(dtype).name} "
            f"numbers are {spacing:.2g} apart: must resolve the noise, whose standard deviation "
            f"falls to {np.min(deviation):.2g}; subtract a public centre, or use float64 "
            "(JAX_ENABLE_X64=1)"
        )


_NORMS = {"laplace": 1, "gaussian": 2}
"""The norm in which a noise's guarantees measure the value's sensitivity."""


def _norm(array: np.ndarray, order: int) -> float:
    return float(np.linalg.norm(np.ravel(array), order)) if array.size else 0.0


def _covering(
    guarantee: Guarantee | None, value: Any, shift: Any, schedule: Schedule, dtype: Any
) -> Guarantee | None:
    """The guarantee, for a sensitivity that holds of the value in the dtype of the run.

    A cast to it moves the values of neighbours apart, by half a unit in the last place each.
    Integers up to 2^24 (float32) and floats of that dtype are not moved.
    """
    order = _NORMS.get(getattr(guarantee, "noise", ""), 1)
    stated = concrete(getattr(guarantee, "sensitivity", None))
    moved = concrete(shift)
    if stated is not None and moved is not None and guarantee.noise in _NORMS:  # pyright: ignore
        length = _norm(moved.astype(np.float64), order)
        right = f"of l{order} norm at most {stated.max():.6g}, the sensitivity of the guarantee"
        slack = 8 * float(jnp.finfo(dtype).eps)
        check(length <= stated.max() * (1 + slack), "shift", shift, f"{right}, not {length:.6g}")
    owner = "guarantee"
    if guarantee is None:
        owner, stated = "schedule", concrete(getattr(schedule, "sensitivity", None))
    number = concrete(value)
    if number is None or stated is None or _holds(dtype, number.dtype):
        return guarantee
    farthest = np.abs(number.astype(np.float64)) + stated.max()
    if number.dtype.kind in "iu" and np.max(farthest, initial=0) <= 2 ** (
        jnp.finfo(dtype).nmant + 1
    ):
        return guarantee
    spacing = _norm(np.spacing(farthest.astype(dtype)).astype(np.float64), order)
    if spacing <= float(jnp.finfo(dtype).eps) * stated.min() / 2:
        return guarantee
    few = 2**-6 if owner == "guarantee" else 2**-16
    if spacing > few * stated.min():
        raise ValueError(
            f"value is rounded to {np.dtype(dtype).name}, which may move it by {spacing:.2g} "
            f"against a neighbour's: must be well below the sensitivity {stated.min():.6g} of the "
            f"{owner}; subtract a public centre, give the value as {np.dtype(dtype).name} with a "
            "sensitivity that holds for what it is then, or use float64 (JAX_ENABLE_X64=1)"
        )
    if owner == "schedule":
        return guarantee
    enlarged = (stated.astype(np.float64) + spacing) * (1 + 4 * float(jnp.finfo(dtype).eps))
    return dataclasses.replace(guarantee, sensitivity=enlarged)  # pyright: ignore


def _held(value: Any, dtype: Any) -> Any:
    """Concrete numbers in the dtype, cast on the host: JAX would wrap large integers first."""
    number = concrete(value)
    return value if number is None else number.astype(dtype)


def _holds(dtype: Any, other: Any) -> bool:
    """Whether numbers of the other floating dtype are numbers of this one."""
    return jnp.issubdtype(other, jnp.floating) and jnp.promote_types(dtype, other) == dtype


def _array(name: str, value: Any) -> Any:
    """A value or shift as an array of real numbers."""
    value = np.asarray(value) if isinstance(value, (list, tuple)) else value
    numbers(name, value, "numbers, in an array of the process's shape")
    return value


def build_interaction(
    value: ArrayLike,
    process: NoiseProcess,
    guarantee: Guarantee | None,
    schedule: Schedule,
    utility: Utility,
    rule: StoppingRule,
    *,
    shift: ArrayLike | None = None,
    max_steps: int | None = None,
) -> Interaction:
    """Check the parts of a trial against each other and bring them to one dtype.

    Raises:
        ValueError: an argument is not a part of its kind, or a method of it gives something else
            than its interface says; `value` or `shift` does not have the process's shape or is not
            finite, or the shift is longer than the guarantee's sensitivity; `max_steps` is below 1;
            the guarantee is for other noise; the dtype does not resolve the noise, or the
            sensitivity beside the value or the threshold; the rule is for fewer steps or a smaller
            sensitivity of the utility; or a shift is given for a process that does not know its
            realised loss.
    """
    _check_parts(
        {
            "process": process,
            "guarantee": guarantee,
            "schedule": schedule,
            "utility": utility,
            "rule": rule,
        }
    )
    if shift is not None and not getattr(process, "realised_loss", True):
        raise ValueError(
            f"shift = {shown(shift)}: must be None for {type(process).__name__}, which does not "
            "keep the noise of all releases, and so cannot say what they realise together"
        )
    value = _array("value", value)
    shift = None if shift is None else _array("shift", shift)
    shape = tuple(process.shape)
    for name, array in (("value", value), ("shift", shift)):
        if array is None:
            continue
        if jnp.shape(array) != shape:
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}: must have the process's shape {shape}"
            )
        number = concrete(array)
        if number is not None:
            check(np.isfinite(number), name, array, "finite")
    steps = schedule.max_steps if max_steps is None else max_steps
    number = concrete(steps)
    if number is not None:
        ok = number.dtype.kind in "iu" and number.ndim == 0
        check(ok, "max_steps", steps, "an integer")
        check(1 <= number < 2**31, "max_steps", steps, "at least 1 and below 2^31")

    dtype = float_dtype(value)
    check(dtype in (jnp.float32, jnp.float64), "dtype of value", str(dtype), "float32 or float64")
    taken = None if number is None else min(int(number), schedule.max_steps)
    _check_rule(rule, utility, guarantee, taken, dtype)
    _check_noise(value, process, guarantee, schedule, dtype)
    guarantee = _covering(guarantee, value, shift, schedule, dtype)
    parts = (_held(value, dtype), process, guarantee, schedule, utility, rule, _held(shift, dtype))
    parts = jax.tree_util.tree_map_with_path(partial(_to_dtype, dtype=dtype), parts)
    structure = (str(jax.tree.structure(parts)), tuple(type(part) for part in parts))
    if shift is not None:
        # With its numbers, which a process may have more to say of.
        now = jnp.ones((), dtype)
        jax.eval_shape(
            lambda key: process.privacy_loss(process.init(key, now), shift),
            jax.eval_shape(lambda: jax.random.key(0)),
        )
    check_results(parts, structure)
    one = parts[4].at(jnp.int32(0)) if hasattr(utility, "at") else utility
    bounded = hasattr(one, "bounds") or hasattr(one, "ceiling")
    return Interaction(
        *parts,
        max_steps=jnp.asarray(steps, jnp.int32),
        structure=structure,
        by_bounds=bounded and not state_follows_utility(parts[5], dtype),
    )
