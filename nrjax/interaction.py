"""What a trial is made of: its parts, checked against each other and brought to one dtype."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._contract import check_results, state_follows_utility
from nrjax._numerics import check, check_shape, concrete, float_dtype, numbers
from nrjax._shown import representation, shown
from nrjax.pytrees import Pytree, static
from nrjax.stopping.thresholds import ThresholdRule
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility, overrides


class Value(NamedTuple):
    """A private value in the dtype of a run, and what that leaves of it."""

    number: Array
    rest: Array | None
    """What the value exceeds `number` by; None in float64, unless it is a traced integer."""

    __repr__ = representation


class Interaction(Pytree, kw_only=True):
    """All that a trial is made of: its six parts, checked against each other, in one dtype.

    A pytree: `vmap` a function that makes and runs one, or takes one. Python's numbers and arrays
    of other dtypes are brought to that of the run, which is float32 unless JAX_ENABLE_X64=1.

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
        ValueError: an argument is not a part of its kind, or a method of it gives something else
            than its interface says; `value` or `shift` does not have the process's shape or is not
            finite, or the shift is longer than the guarantee's sensitivity; `max_steps` is below 1;
            the guarantee is for other noise; the dtype does not resolve the noise, or the
            sensitivity beside the value or the threshold; the rule is for fewer steps or a smaller
            sensitivity of the utility; or a shift is given for a process that does not know its
            realised loss.
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
    """Classes of the parts, and of their parts by name: keeps apart the compiled programs of
    classes that a user has registered with JAX's own function (see `nrjax.pytrees`)."""
    by_bounds: bool = static(init=False, repr=False)
    """Whether bounds or a ceiling of the utility may stand for it: it has them, and the rule's
    state does not follow it."""

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

    # An interaction is a family of one (`simulation.family.Family`), with nothing that varies.

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


_ORDER = ("value", "process", "guarantee", "schedule", "utility", "rule", "shift")

_LEVELS_PER_DEVIATION = 16
"""Fewest representable numbers that one standard deviation of the noise must span."""


def _check_rule(
    rule: StoppingRule, utility: Utility, guarantee: Any, steps: int | None, dtype: Any
) -> None:
    """What the rule and the utility promise is enough for the schedule and for each other."""
    kind = type(rule).__name__
    if rule.uses_epsilon and guarantee is None:
        raise ValueError(f"guarantee = None: {kind} sets its noise by the guarantee's epsilon")
    for name, part in (("rule", rule), ("utility", utility)):
        most = part.max_steps
        if most is not None and steps is not None and steps > most:
            raise ValueError(
                f"{name} = {type(part).__name__} for {most} steps: must cover the {steps} steps of "
                "the schedule (or give max_steps)"
            )
    if isinstance(rule, ThresholdRule):
        # A utility that states what its exact value moves by is itself rounded, and more than once.
        rule.check_resolved(dtype, 8 if utility.sensitivity is not None else 1)
    stated, needed = rule.sensitivity, utility.sensitivity
    if stated is None:
        return
    if needed is None and "sensitivity" in vars(utility):  # a field, of which nothing is known
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
    if guarantee is not None:
        right = "a number, at least 0 and below 1"
        delta = numbers(f"delta of {type(guarantee).__name__}", guarantee.delta, right)
        if delta is not None:
            ok = (delta >= 0) & (delta < 1)
            check(ok, f"delta of {type(guarantee).__name__}", guarantee.delta, right)
    kind, made = type(process).__name__, process.noise
    for name, part in (("guarantee", guarantee), ("schedule", schedule)):
        covered = None if part is None else part.noise
        unknown = made is None and part is guarantee  # a schedule's filter takes no unnamed noise
        if covered is not None and made != covered and not unknown:
            raise ValueError(
                f"{name} = {shown(part)}: must be for {made or 'other'} noise, which {kind} makes, "
                f"but holds for {covered} noise"
            )
    if schedule.for_chains:
        chain = not overrides(process, NoiseProcess, "composed_time")
        right = f"noise reduction, whose stop {type(schedule).__name__} pays"
        check(chain, "process", process, right)
    largest, last = concrete(value), concrete(schedule.last_time)
    if largest is None or last is None or not largest.size:
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


def _check_shift(shift: Any, guarantee: Guarantee | None) -> None:
    """A shift is one between neighbours: no longer than the sensitivity of the guarantee."""
    if guarantee is None:
        return
    moved, stated = concrete(shift), concrete(guarantee.sensitivity)
    order = _NORMS.get(guarantee.noise or "")
    if moved is None or stated is None or order is None:
        return
    length = float(np.linalg.norm(np.ravel(moved.astype(np.float64)), order))
    right = f"of l{order} norm at most {stated.max():.6g}, the sensitivity of the guarantee"
    slack = 8 * max(_epsilon(number.dtype) for number in (moved, stated))
    check(length <= stated.max() * (1 + slack), "shift", shift, f"{right}, not {length:.6g}")


def _epsilon(dtype: Any) -> float:
    """Machine epsilon of a floating dtype; of others, that of float64."""
    return float(jnp.finfo(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float64).eps)


def _split(value: Any, dtype: Any, sensitivity: Any) -> tuple[Any, Any]:
    """A value in the dtype of the run and, in float32 or traced, what the cast leaves of it.

    A cast would move the values of neighbours apart. Releases are rounded sums of both parts and
    the noise instead, which is post-processing of what the guarantee is for.
    """
    single, number = dtype == jnp.float32, concrete(value)
    whole = jnp.issubdtype(value.dtype if number is None else number.dtype, jnp.integer)
    if number is None:
        if not single and not whole:
            return value.astype(dtype), None
        low = value & (255 if single else 2047) if whole else jnp.zeros_like(value)
        return (value - low).astype(dtype), low.astype(dtype)
    exact = number.astype(np.float64)
    if whole:
        largest = 47 if single else 53
        check(np.abs(exact) <= 2**largest, "value", value, f"integers up to 2^{largest}")
    with np.errstate(over="ignore"):
        cast = exact.astype(dtype)
    check(np.isfinite(cast), "value", value, f"within {np.dtype(dtype).name}")
    if not single:
        return cast, None
    stated = concrete(sensitivity)
    if stated is not None and not whole and number.dtype != dtype:
        # Two parts have 48 bits, of this value and of a neighbour's.
        lost = 2.0**-47 * float(np.sum(np.abs(exact)))
        right = (
            f"below 2^24 times the sensitivity {stated.min():.3g}, or of integers; subtract a "
            "public centre, or use float64 (JAX_ENABLE_X64=1)"
        )
        check(lost <= 2.0**-23 * stated.min(), "value", value, right)
    return cast, (exact - cast.astype(np.float64)).astype(dtype)


def _array(name: str, value: Any) -> Any:
    """A value or shift as an array of real numbers."""
    value = np.asarray(value) if isinstance(value, (list, tuple)) else value
    numbers(name, value, "numbers, in an array of the process's shape")
    return value


def _checked(given: Interaction) -> dict[str, Any]:
    """The fields of an interaction, checked against each other and brought to one dtype."""
    kinds = {"process": NoiseProcess, "guarantee": Guarantee, "schedule": Schedule}
    kinds |= {"utility": Utility, "rule": StoppingRule}
    for name, kind in kinds.items():
        part = getattr(given, name)
        if part is not None or name != "guarantee":
            check(isinstance(part, kind), name, part, f"an instance of nrjax.{kind.__name__}")
    process, guarantee, schedule = given.process, given.guarantee, given.schedule
    utility, rule, shift = given.utility, given.rule, given.shift
    if shift is not None and not overrides(process, NoiseProcess, "privacy_loss"):
        raise ValueError(
            f"shift = {shown(shift)}: must be None for {type(process).__name__}, which does not "
            "keep the noise of all releases, and so cannot say what they realise together"
        )
    value, split = given.value, None
    if isinstance(value, Value):  # of a copy, whose guarantee may be another
        kept = [concrete(part) for part in value]
        if kept[0] is not None and kept[1] is not None and np.any(kept[1]):
            value = kept[0].astype(np.float64) + kept[1]
        else:
            split, value = value, value.number
    # Of NumPy's arrays alone: those of JAX have a layout in memory.
    one = getattr(utility, "utilities", utility)
    laid, meant = getattr(value, "layout", None), getattr(one, "layout", None)
    if isinstance(value, np.ndarray) and None not in (laid, meant) and laid != meant:
        raise ValueError(
            f"utility = {type(utility).__name__}: must be for the value's layout {laid!r}, as "
            f"released with it, but is for {meant!r}"
        )
    value = _array("value", value)
    shift = None if shift is None else _array("shift", shift)
    check_shape(f"shape of {type(process).__name__}", process.shape)
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
    steps = schedule.max_steps if given.max_steps is None else given.max_steps
    number = numbers("max_steps", steps, "an integer")
    if number is not None:
        ok = number.dtype.kind in "iu" and number.ndim == 0
        check(ok, "max_steps", steps, "an integer")
        check(1 <= number < 2**31, "max_steps", steps, "at least 1 and below 2^31")

    dtype = float_dtype(value)
    check(dtype in (jnp.float32, jnp.float64), "dtype of value", str(dtype), "float32 or float64")
    taken = None if number is None else min(int(number), schedule.max_steps)
    if taken is None:  # traced: ends where a sequence does
        lengths = [n for n in (rule.max_steps, utility.max_steps) if n is not None]
        steps = jnp.minimum(steps, min(lengths, default=2**31 - 1))
    _check_rule(rule, utility, guarantee, taken, dtype)
    _check_noise(value, process, guarantee, schedule, dtype)
    _check_shift(shift, guarantee)
    if split is None:
        split = Value(*_split(value, dtype, None if guarantee is None else guarantee.sensitivity))
    moved = concrete(shift)
    moved = shift if moved is None else moved.astype(dtype)
    parts = (split.number, process, guarantee, schedule, utility, rule, moved)
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
    one = parts[4].at(jnp.int32(0))
    bounded = overrides(one, Utility, "bounds") or overrides(one, Utility, "ceiling")
    return {
        **dict(zip(_ORDER, parts, strict=True)),
        "value": Value(parts[0], None if split.rest is None else jnp.asarray(split.rest)),
        "max_steps": None if given.max_steps is None else jnp.asarray(steps, jnp.int32),
        "structure": structure,
        "by_bounds": bounded and not state_follows_utility(parts[5], dtype),
    }
