"""What a trial is made of: its parts, checked against each other and brought to one dtype."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, concrete, float_dtype
from nrjax.pytrees import register_dataclass
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


def _to_dtype(leaf: Any, dtype: Any) -> Any:
    """Python numbers and floating arrays in one dtype; other arrays, and keys, as they are.

    A Python float, a float32 array and an int in the same place would each retrace.
    """
    is_number = isinstance(leaf, (int, float)) and not isinstance(leaf, bool)
    if is_number or jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
        return jnp.asarray(leaf, dtype)
    return jnp.asarray(leaf)


_PARTS = {
    "process": ("shape", "init", "rewind", "value", "privacy_loss", "status"),
    "guarantee": ("epsilon", "time", "delta"),
    "schedule": ("init", "next", "max_steps"),
    "utility": ("hypothesis", "evaluate"),
    "rule": ("init", "step", "cost"),
}
"""What a part must have to be taken for one."""

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
            raise ValueError(f"{name} = {part!r}: must be an instance, not the class itself")
        if lacking:
            raise ValueError(
                f"{name} = {part!r}: must have {', '.join(_PARTS[name])}; "
                f"lacks {', '.join(lacking)}"
            )
        if any(leaf is part for leaf in jax.tree.leaves(part)):
            raise ValueError(
                f"{name} = {part!r}: must be a pytree; decorate its class, a frozen dataclass, "
                "with nrjax.register_dataclass"
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
            f"guarantee = {guarantee!r}: must be for {made} noise, which {type(process).__name__} "
            f"makes, but holds for {covered} noise"
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


@partial(jax.jit, static_argnames="structure")
def _quality(utility: Any, release: Array, structure: Any) -> Array:
    """For its shape; of all utilities alike JAX traces it once."""
    del structure  # keeps classes apart, as `Interaction.structure` does
    one = utility.at(jnp.int32(0)) if hasattr(utility, "at") else utility
    return one.evaluate(one.hypothesis(release))


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
        ValueError: an argument is not a part of its kind, `value` or `shift` does not have the
            process's shape or is not finite, `max_steps` is below 1, the utility is not a scalar,
            the guarantee is for other noise, the dtype does not resolve the noise, the rule is for
            fewer steps or a smaller sensitivity of the utility, or a shift is given for a process
            that does not know its realised loss.
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
            f"shift = {shift!r}: must be None for {type(process).__name__}, which does not keep "
            "the noise of all releases, and so cannot say what they realise together"
        )
    value = np.asarray(value) if isinstance(value, (list, tuple)) else value
    shift = np.asarray(shift) if isinstance(shift, (list, tuple)) else shift
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
    parts = (value, process, guarantee, schedule, utility, rule, shift)
    parts = jax.tree.map(lambda leaf: _to_dtype(leaf, dtype), parts)
    structure = (str(jax.tree.structure(parts)), tuple(type(part) for part in parts))
    built = Interaction(*parts, max_steps=jnp.asarray(steps, jnp.int32), structure=structure)

    if shift is not None:
        # Abstractly, for the process's own check of a shift that has numbers.
        abstract_key = jax.eval_shape(lambda: jax.random.key(0))
        jax.eval_shape(
            lambda key: process.privacy_loss(process.init(key, jnp.ones((), dtype)), shift),
            abstract_key,
        )

    kind = (str(jax.tree.structure(built.utility)), type(built.utility))
    result = _quality.eval_shape(built.utility, built.value, structure=kind)
    if result.shape != ():
        raise ValueError(f"utility.evaluate returns shape {result.shape}: must be a scalar")
    return built
