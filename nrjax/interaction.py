"""What a trial is made of: its parts, checked against each other and brought to one dtype."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._cross_checks import (
    check_costs,
    check_noise,
    check_rule,
    check_sensitivities,
    check_told,
)
from nrjax._format import format_value, representation
from nrjax._interface_checks import check_results, state_follows_utility
from nrjax._numerics import float_dtype, holds
from nrjax._validation import (
    as_numeric,
    check,
    check_numbers,
    check_shape,
    concrete_or_none,
    is_integer,
)
from nrjax.keys import abstract_key
from nrjax.pytrees import Pytree, static
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility, overrides


class Value(NamedTuple):
    """A private value in the dtype of a run, and what that leaves of it."""

    number: Array
    rest: Array | None
    """What the value exceeds `number` by; None in float64, unless it is a traced integer."""

    __repr__ = representation


class Interaction(Pytree, kw_only=True):
    """All that a trial is made of: its six parts, checked against each other, in one dtype.

    A pytree: `vmap` a function that makes and runs one, or takes one. Numbers are brought to the
    dtype of the run, which is float32 unless JAX_ENABLE_X64=1.

    Attributes:
        value: the private value f(x), of the process's shape; kept as a `Value`.
        process: the noise.
        guarantee: what stopping at a time costs; None reports epsilon as NaN.
        schedule: which time comes next.
        utility: how good a release is.
        rule: when it is good enough.
        shift: f(x) - f(x') for a neighbour x', to report the realised privacy loss; or None.
        max_steps: largest number of releases, at most the schedule's own, which None stands for.

    Raises:
        ValueError: an argument is no part of its kind, or a method of it gives something else than
            its interface says; `value` or `shift` is not finite or of the process's shape, the
            shift is beyond the guarantee's sensitivity or the process knows no realised loss;
            `max_steps` is below 1; the guarantee is for other noise; the dtype does not resolve
            the noise beside the value, or the sensitivity beside the threshold; the rule is for
            fewer steps or a smaller sensitivity of the utility.
    """

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | None = None
    schedule: Schedule
    utility: Utility
    rule: StoppingRule
    shift: Any = None
    max_steps: Any = None
    structure: tuple[str, tuple[type, ...]] = static(init=False, repr=False)
    """Classes of the parts, and of their parts by name: see `nrjax.pytrees`."""
    _uses_bounds: bool = static(init=False, repr=False)
    """Whether bounds or a ceiling may stand for the utility, which the rule's state ignores."""

    def __post_init__(self):
        for name, found in _checked(self).items():
            object.__setattr__(self, name, found)

    @property
    def dtype(self) -> Any:
        """Floating dtype of the run."""
        return self.value.number.dtype

    @property
    def steps(self) -> Any:
        """Largest number of releases."""
        return self.schedule.max_steps if self.max_steps is None else self.max_steps

    # A family of one (`simulation.sweeps.Family`), with nothing that varies:

    axes = ()

    def at(self, point: Array) -> tuple[()]:
        """Nothing of its own."""
        return ()

    def member(self, varied: tuple[()]) -> "Interaction":
        """Itself."""
        return self


def _to_dtype(path: Any, leaf: Any, dtype: Any) -> Any:
    """Numbers and floating arrays in one dtype, not to retrace; other arrays as they are."""
    name = f"{_ORDER[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
    if is_integer(leaf):
        right = f"an integer that {np.dtype(dtype)} holds exactly, a float, or nrjax.static()"
        check(holds(dtype, int(leaf)), name, leaf, right)
    if isinstance(leaf, (int, float, np.number)) and not isinstance(leaf, bool):
        return jnp.asarray(np.asarray(leaf, dtype))
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":
        held = jax.dtypes.canonicalize_dtype(leaf.dtype)
        check(np.array_equal(leaf.astype(held), leaf), name, leaf, f"within {held}, or floats")
    try:
        array = jnp.asarray(leaf)
    except TypeError:
        array = None
    right = "a number or an array; declare a field of functions or text nrjax.static()"
    check(array is not None, name, leaf, right)
    if array is None or not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array.astype(dtype)


_ORDER = ("value", "process", "guarantee", "schedule", "utility", "rule", "shift")


def two_parts(value: Any, dtype: Any, sensitivity: Any, integral: bool = False) -> tuple[Any, Any]:
    """A value in the dtype of the run and, in float32 or traced, what the cast leaves of it.

    A cast would move the values of neighbours apart; rounded sums of both parts and the noise are
    post-processing of what the guarantee is for. Under `integral` noise, which would show a
    fraction, a traced value is NaN where it has one.
    """
    single, number = dtype == jnp.float32, concrete_or_none(value)
    whole = jnp.issubdtype(value.dtype if number is None else number.dtype, jnp.integer)
    if number is None:
        if integral and not whole:
            value = jnp.where(value == jnp.round(value), value, jnp.nan)
        if not single and not whole:
            return value.astype(dtype), None
        low = value & (255 if single else 2047) if whole else jnp.zeros_like(value)
        return (value - low).astype(dtype), low.astype(dtype)
    exact = number.astype(np.float64)
    if whole:
        largest = 47 if single else 53
        check(np.abs(exact) <= 2**largest, "value", value, f"integers up to 2^{largest}")
    with np.errstate(over="ignore"):
        cast = exact.astype(dtype) + dtype.type(0)  # a zero's sign would show in releases
    check(np.isfinite(cast), "value", value, f"within {np.dtype(dtype).name}")
    if not single:
        return cast, None
    stated = concrete_or_none(sensitivity)
    if stated is not None and not whole and number.dtype != dtype:
        # Two parts have 48 bits, of this value and of a neighbour's.
        lost = 2.0**-47 * float(np.sum(np.abs(exact)))
        right = (
            f"below 2^24 times the sensitivity {stated.min():.3g}, or of integers; subtract a "
            "public centre, or use float64 (JAX_ENABLE_X64=1)"
        )
        check(lost <= 2.0**-23 * stated.min(), "value", value, right)
    return cast, (exact - cast.astype(np.float64)).astype(dtype)


def _check_array(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """A value or shift as an array of real and finite numbers, of the process's shape."""
    value = np.asarray(value) if isinstance(value, (list, tuple)) else value
    number = as_numeric(name, value, "numbers, in an array of the process's shape")
    if jnp.shape(value) != shape:
        raise ValueError(
            f"{name} has shape {jnp.shape(value)}: must have the process's shape {shape}"
        )
    if number is not None:
        check(np.isfinite(number), name, value, "finite")
    return value


def _check_parts(given: Interaction) -> None:
    """Each part is of its kind, and for the others."""
    kinds = (NoiseProcess, Guarantee, Schedule, Utility, StoppingRule)
    for name, kind in zip(_ORDER[1:6], kinds, strict=True):
        part = getattr(given, name)
        if part is not None or name != "guarantee":
            check(isinstance(part, kind), name, part, f"an instance of nrjax.{kind.__name__}")
    process, utility = given.process, given.utility
    check_shape(f"shape of {type(process).__name__}", process.shape)
    if given.shift is not None and not overrides(process, NoiseProcess, "privacy_loss"):
        raise ValueError(
            f"shift must be None for {type(process).__name__}, which does not keep the noise of "
            f"all releases (got {format_value(given.shift)})."
        )
    noise = getattr(getattr(utility, "utilities", utility), "noise", None)
    expected = f"for releases with {process.noise} noise, as the process has"
    ok = None in (noise, process.noise) or noise == process.noise
    check(ok, "utility", type(utility).__name__, expected)


def _checked(given: Interaction) -> dict[str, Any]:
    """The fields of an interaction, checked against each other and brought to one dtype."""
    _check_parts(given)
    process, guarantee, schedule = given.process, given.guarantee, given.schedule
    utility, rule, shift = given.utility, given.rule, given.shift
    value, split = given.value, None
    if isinstance(value, Value):  # of a copy, whose guarantee may be another
        number, rest = map(concrete_or_none, value)
        split, value = value, value.number
        if number is not None and rest is not None and np.any(rest):
            split, value = None, number.astype(np.float64) + rest
            if np.all(value == np.round(value)):  # only integers may be as large as 2^47
                value = value.astype(np.int64)
    shape = tuple(process.shape)
    value = _check_array("value", value, shape)
    shift = None if shift is None else _check_array("shift", shift, shape)
    number = check_numbers(
        "max_steps",
        given.steps,
        lambda n: n.dtype.kind in "iu" and n.ndim == 0 and 1 <= n < 2**31,
        "an integer, at least 1 and below 2^31",
    )
    dtype = float_dtype(value)
    check(dtype in (jnp.float32, jnp.float64), "dtype of value", str(dtype), "float32 or float64")
    steps = given.max_steps
    taken = None if number is None else min(int(number), schedule.max_steps)
    if taken is None:  # traced: ends where a sequence does
        lengths = [n for n in (rule.max_steps, utility.max_steps) if n is not None]
        steps = jnp.minimum(steps, min(lengths, default=2**31 - 1))
    check_rule(rule, utility, guarantee, taken, dtype)
    check_noise(value, process, guarantee, schedule, dtype)
    check_sensitivities(shift, guarantee, schedule)
    check_told(rule, guarantee, schedule)
    if split is None:
        stated = None if guarantee is None else guarantee.sensitivity
        split = Value(*two_parts(value, dtype, stated, process.integral))
    moved = concrete_or_none(shift)
    moved = shift if moved is None else moved.astype(dtype)
    parts = (split.number, process, guarantee, schedule, utility, rule, moved)
    parts = jax.tree_util.tree_map_with_path(partial(_to_dtype, dtype=dtype), parts)
    structure = (str(jax.tree.structure(parts)), tuple(type(part) for part in parts))
    if shift is not None:
        # With its numbers, which a process may have more to say of.
        state = jax.eval_shape(process.init, abstract_key(), jnp.ones((), dtype))
        jax.eval_shape(lambda state: process.privacy_loss(state, shift), state)
    check_results(parts, structure)
    check_costs(parts[2], parts[3], dtype)
    one = parts[4].at(jnp.int32(0))
    bounded = overrides(one, Utility, "bounds") or overrides(one, Utility, "ceiling")
    return {
        **dict(zip(_ORDER, parts, strict=True)),
        "value": Value(parts[0], None if split.rest is None else jnp.asarray(split.rest)),
        "max_steps": None if steps is None else jnp.asarray(steps, jnp.int32),
        "structure": structure,
        "_uses_bounds": bounded and not state_follows_utility(parts[5], dtype),
    }
