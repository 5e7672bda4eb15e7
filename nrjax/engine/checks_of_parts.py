"""Checks that the methods of each part return what their interface requires.

Methods are only traced: nothing is drawn or computed, except the times of a custom schedule that
states them. Without the checks a wrong result would end every trial at step 0, broadcast silently,
or fail deep inside a compiled loop.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from nrjax._base.captured import jit_with_captured
from nrjax._base.format import format_value
from nrjax._base.keys import abstract_key, is_custom
from nrjax._base.modes import neutral_config
from nrjax._base.validation import check, check_numbers, concrete_or_none
from nrjax.types import Schedule, Utility, overrides


class _Part:
    """A wrapper of a part that calls the part's methods and checks their results."""

    def __init__(self, name: str, part: Any, dtype: Any):
        self.owner = f"of {name} {type(part).__name__}"
        self.part, self.dtype = part, dtype

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method, and turn an error of JAX into a `ValueError` that names the method.

        Errors of other kinds than a trace or unsuitable arguments raise pass through unchanged.
        """
        function = getattr(self.part, method)
        try:
            return function(*arguments, **options)
        except (TypeError, ValueError, jax.errors.NonConcreteBooleanIndexError) as error:
            if _is_own(error):
                raise
            first_line = (str(error).strip().splitlines() or [""])[0]
            shown = ", ".join([*map(_form, arguments), *(f"{k}={v}" for k, v in options.items())])
            hint = ""
            if "Indexer must" in first_line or "interpreted as an integer" in first_line:
                hint = " Integer fields become floats: declare an index nrjax.static()."
            raise ValueError(
                f"{method}({shown}) {self.owner} must work under a trace by JAX (got "
                f"{type(error).__name__}: {first_line}).{hint}"
            ) from error

    def items(self, names: str, method: str, *arguments: Any, **options: Any) -> tuple[Any, ...]:
        """Return the tuple that a method returns, checked to have one item per name."""
        result = self.call(method, *arguments, **options)
        ok = isinstance(result, (tuple, list)) and len(result) == len(names.split(", "))
        self._check(ok, f"result of {method}", result, f"({names})")
        return tuple(result)

    def number(self, kinds: str, method: str, *arguments: Any, shape: tuple = ()) -> Array:
        """Call a method, and return its result as an array, checked by `array`."""
        return self.array(kinds, f"result of {method}", self.call(method, *arguments), shape)

    def array(self, kinds: str, name: str, result: Any, shape: tuple = ()) -> Array:
        """Return a result as an array, checked for its shape and its kind of dtype.

        `kinds` has a letter for each kind of dtype that is allowed: f for a float no wider than
        the run's dtype, i for an integer and b for a bool.
        """
        expected = {"f": str(jnp.dtype(self.dtype)), "i": "an integer", "b": "a bool"}
        ok = isinstance(result, (jax.Array, np.ndarray, np.generic, bool, int, float))
        if ok:
            dtype = jnp.result_type(result)
            narrow = jnp.result_type(result, self.dtype) == self.dtype  # a Python number adapts
            fits = {
                "f": jnp.issubdtype(dtype, jnp.floating) and narrow,
                "i": jnp.issubdtype(dtype, jnp.integer),
                "b": dtype == jnp.bool_,
            }
            ok = jnp.shape(result) == shape and any(fits[kind] for kind in kinds)
        form = "a scalar" if shape == () else f"of shape {shape}"
        dtypes = " or ".join(expected[kind] for kind in kinds)
        self._check(ok, name, result, f"{form}, {dtypes}")
        return jnp.asarray(result)

    def same(self, method: str, result: Any, state: Any) -> None:
        """Check that a new state has the structure, shapes and dtypes of the first state."""
        forms, first = (jax.tree.map(_form, tree) for tree in (result, state))
        ok = jax.tree.structure(result) == jax.tree.structure(state) and forms == first
        self._check(ok, f"state from {method}", forms, f"of the form of the first state, {first}")

    def _check(self, ok: bool, name: str, result: Any, expected: str) -> None:
        if not ok:
            raise ValueError(f"{name} {self.owner} must be {expected} (got {_form(result)}).")


def _form(value: Any) -> str:
    """Return the dtype and shape of an array or number, or a short text for another value."""
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) or hasattr(value, "aval"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (bool, int, float)):
        return f"{jnp.result_type(value)}[]"
    return format_value(value)


def _is_own(error: Exception) -> bool:
    """Return whether nrjax raised an error, so that its message needs no addition."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = frame.f_globals.get("__name__", "")
    return name.split(".")[0] == "nrjax" and name not in (__name__, "nrjax.types")


@partial(jax.jit, static_argnames="structure")
def _try(parts: tuple[Any, ...], key: Array, structure: Any) -> None:
    del structure  # part of the cache key: JAX takes classes of `register_dataclass` for equal
    value, process, guarantee, schedule, utility, rule, shift = parts
    dtype = value.dtype
    one = jnp.ones((), dtype)

    noise = _Part("process", process, dtype)
    state = noise.call("init", key, one)
    noise.same("rewind", noise.call("rewind", key, state, one), state)
    drawn = noise.number("fi", "value", state, shape=tuple(process.shape))
    noise.number("i", "status", state)
    noise.number("f", "equivalent_time", state, one)
    if shift is not None:
        noise.number("f", "privacy_loss", state, shift)
    release = value + drawn

    if guarantee is not None:
        _Part("guarantee", guarantee, dtype).number("f", "epsilon", one)

    times = _Part("schedule", schedule, dtype)
    first, time = times.items("state, time", "init")
    times.array("fi", "time from init", time)
    state, time, done = times.items("state, time, done", "next", first, release)
    times.same("next", state, first)
    times.array("fi", "time from next", time)
    times.array("b", "done from next", done)

    quality = _Part("utility", _Part("utility", utility, dtype).call("at", jnp.int32(0)), dtype)
    hypothesis = quality.call("hypothesis", release)
    quality.number("fib", "evaluate", hypothesis)
    pairs = [quality.items("lower, upper", "bounds_from_release", release)]
    if overrides(quality.part, Utility, "bounds"):
        pairs.append(quality.items("lower, upper", "bounds", hypothesis, rounding=False))
    for bound in (bound for pair in pairs for bound in pair):
        quality.array("fi", "each of the bounds", bound)

    test = _Part("rule", rule, dtype)
    first = test.call("init", key, one)
    state, stop = test.items("state, stop", "step", key, first, one, one)
    test.same("step", state, first)
    test.array("b", "stop from step", stop)
    test.number("i", "status", state)
    test.number("fi", "cost", one, jnp.asarray(True), jnp.int32(1))


def check_results(parts: tuple[Any, ...], structure: Any) -> None:
    """Raise a `ValueError` if a method of a part returns what its interface does not allow.

    All parts must have one dtype. Parts with equal `structure`, which holds their classes, are
    traced only once.
    """
    with neutral_config():
        _try.eval_shape(parts, abstract_key(), structure=structure)


def state_follows_utility(rule: Any, dtype: Any) -> bool:
    """Return whether the new state of a rule's `step` may depend on the utility.

    If it may, bounds cannot replace the utility. The check reads the traced program of `step`.
    """
    key = abstract_key()
    one = jax.ShapeDtypeStruct((), dtype)
    with neutral_config():
        state = jax.eval_shape(rule.init, key, one)
        program = jax.make_jaxpr(lambda *arguments: rule.step(*arguments)[0])(key, state, one, one)
    return _reads_last(program)


def _reads_last(program: Any) -> bool:
    """Return whether a result of a traced function may depend on its last argument, an array."""
    _, used = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
    return used[-1]


def check_times(schedule: Schedule) -> None:
    """Check the form of the times that a schedule, or one that it wraps, states."""
    for part in unwrapped(schedule):
        if part.times is None or not is_custom(part):
            continue
        name, expected = f"times of {type(part).__name__}", "a vector of falling, positive numbers"
        times = check_numbers(name, part.times, lambda n: np.isfinite(n) & (n > 0), expected)
        check(np.ndim(part.times) == 1, name, part.times, expected)
        check(times is None or np.all(np.diff(times) <= 0), name, part.times, expected)


def check_wrapped(schedule: Schedule) -> None:
    """Check that what a schedule wraps states nothing that only the outermost schedule is asked.

    The checks of noise, sensitivity and rule would miss a filter's schedule inside another one.
    """
    for part in itertools.islice(unwrapped(schedule), 1, None):
        stated = (part.noise, part.sensitivity, part.rule, part.guarantee)
        plain = not part.requires_noise_reduction and all(fact is None for fact in stated)
        expected = "without a noise, sensitivity, rule or guarantee of its own"
        hint = "A schedule that pays must be the outermost one: wrap yours inside it."
        check(plain, f"schedule in {type(schedule).__name__}", part, expected, hint)


def check_stated_times(
    schedule: Schedule, cast: Callable[[Schedule], Schedule], shape: tuple[int, ...], dtype: Any
) -> None:
    """Check that a custom schedule that states its times returns them, whatever the releases are.

    A boundary that holds at the stated times only, or an audit, would be wrong for other times. The
    schedule may end before its last time. Traced times are not checked, since nothing reads them.

    Args:
        schedule: the schedule as it was given, from which guarantees read the times.
        cast: function that casts a schedule to the dtype of the run.
        shape: shape of the releases.
        dtype: dtype of the run.
    """
    for part in unwrapped(schedule):
        stated = concrete_or_none(part.times)
        if stated is not None and is_custom(part):
            with jax.ensure_compile_time_eval(), neutral_config():
                _check_returned(cast(part), stated.astype(dtype), jnp.zeros(shape, dtype))


def _check_returned(schedule: Any, stated: np.ndarray, release: Array) -> None:
    """Check the times that a schedule returns, which was cast, against those that it states."""
    name, given = f"times of {type(schedule).__name__}", concrete_or_none(schedule.times)
    hint = "Leave times away, or return jnp.asarray(self.times)[index] from init and next."
    expected = f"the same numbers after the fields are cast to {stated.dtype}"
    same = given is not None and np.array_equal(given.astype(stated.dtype), stated)
    check(same, name, stated, expected, hint)
    state = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, schedule.init()[0]))
    program = jax.make_jaxpr(schedule.next)(state, release)
    check(not _reads_last(program), name, stated, "None, since next reads the release", hint)
    times, ended = map(concrete_or_none, _returned_times(schedule, release, stated.size))
    if times is None or ended is None:
        expected = "computed from the traced fields from which init and next compute their times"
        raise ValueError(f"{name} must be {expected} (got {format_value(stated)}). {hint}")
    over = ended | (np.arange(1, stated.size + 1) >= schedule.max_steps)
    wrong = np.flatnonzero((times != stated) & ~np.append(False, over[:-1]))
    step = wrong[0] if wrong.size else 0
    expected = f"those of init and next, which return {times[step]!s} at step {step}"
    check(not wrong.size, name, stated[step], expected, hint)
    check(over[-1], name, stated, "all times that next returns before it ends", hint)


def unwrapped(schedule: Schedule) -> Iterator[Schedule]:
    """Yield a schedule and every schedule that it wraps, in any of its fields."""
    yield schedule
    for value in (schedule.schedule, *vars(schedule).values()):
        for part in jax.tree.leaves(value, is_leaf=lambda node: isinstance(node, Schedule)):
            if isinstance(part, Schedule):
                yield from unwrapped(part)


@partial(jit_with_captured, static_argnums=(2,))
def _returned_times(schedule: Schedule, release: Array, count: int) -> tuple[Array, Array]:
    """Return the first `count` times of a schedule, and whether it ends after each."""
    state, first = schedule.init()
    state = jax.tree.map(jnp.asarray, state)

    def following(carry: tuple[Any, Array, Array], _: Any) -> tuple[Any, tuple[Array, Array]]:
        state, time, ended = carry
        new, next_time, done = schedule.next(state, release)
        new, ended = jax.tree.map(jnp.asarray, new), ended | done
        return (new, jnp.asarray(next_time, release.dtype), ended), (time, ended)

    start = state, jnp.asarray(first, release.dtype), jnp.asarray(False)
    return jax.lax.scan(following, start, None, length=count)[1]
