"""What a trial is made of: its parts, checked against each other and brought to one dtype."""

import dataclasses
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


def _to_dtype(leaf: Any, dtype: Any) -> Any:
    """Numbers and floating arrays in one dtype; keys, booleans and integer arrays as they are.

    A Python float, a float32 array and an int in the same place would each retrace.
    """
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    is_number = jnp.ndim(leaf) == 0 and not isinstance(leaf, (bool, np.bool_))
    if is_number or jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
        return jnp.asarray(leaf, dtype)
    return jnp.asarray(leaf)


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
        ValueError: `value` or `shift` does not have the process's shape or is not finite,
            `max_steps` is below 1, or the utility is not a scalar.
    """
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
        check(number == np.floor(number), "max_steps", max_steps, "an integer")
        check(number >= 1, "max_steps", max_steps, "at least 1")

    dtype = float_dtype(value)
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

    def quality(release: Array) -> Array:
        return built.utility.evaluate(built.utility.hypothesis(release))

    result = jax.eval_shape(quality, built.value)
    if result.shape != ():
        raise ValueError(f"utility.evaluate returns shape {result.shape}: must be a scalar")
    return built
