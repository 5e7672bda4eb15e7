"""What each part of an interaction gives, tried once on shapes: nothing is drawn or computed.

A part that gives something else than its interface says would otherwise stop every trial at step
0, broadcast, or end in an error of JAX's own from inside a compiled loop.
"""

import traceback
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from nrjax._format import format_value
from nrjax._modes import neutral_config
from nrjax.keys import abstract_key
from nrjax.types import Utility, overrides


class _Part:
    """One part, whose methods are called and whose results are looked at."""

    def __init__(self, name: str, part: Any, dtype: Any):
        self.owner = f"{name} = {type(part).__name__}"
        self.part, self.dtype = part, dtype

    def call(self, method: str, *arguments: Any) -> Any:
        function = getattr(self.part, method)
        try:
            return function(*arguments)
        except Exception as error:
            if _is_ours(error):
                raise
            said = str(error).strip().splitlines() or [""]
            given = ", ".join(map(_form, arguments))
            raise ValueError(
                f"{self.owner}: {method}({given}) must work under a trace; it ends in "
                f"{type(error).__name__}: {said[0]}"
            ) from error

    def items(self, names: str, method: str, *arguments: Any) -> tuple[Any, ...]:
        """The results of a method that gives as many as these names."""
        got = self.call(method, *arguments)
        ok = isinstance(got, (tuple, list)) and len(got) == len(names.split(", "))
        self._check(ok, f"{method} gives {_form(got)}", f"({names})")
        return tuple(got)

    def number(self, kinds: str, method: str, *arguments: Any, shape: tuple = ()) -> Array:
        """What a method gives, as `array` has it."""
        return self.array(kinds, method, self.call(method, *arguments), shape)

    def array(self, kinds: str, what: str, got: Any, shape: tuple = ()) -> Array:
        """A result as an array: of a shape, and of one of some kinds (f, i, b) no wider."""
        right = {"f": str(jnp.dtype(self.dtype)), "i": "an integer", "b": "a bool"}
        where = "a scalar" if shape == () else f"of shape {shape}"
        ok = isinstance(got, (jax.Array, np.ndarray, np.generic, bool, int, float))
        if ok:
            kind = jnp.result_type(got)
            narrow = jnp.result_type(got, self.dtype) == self.dtype  # Python's numbers adopt it
            fits = {
                "f": jnp.issubdtype(kind, jnp.floating) and narrow,
                "i": jnp.issubdtype(kind, jnp.integer),
                "b": kind == jnp.bool_,
            }
            ok = jnp.shape(got) == shape and any(fits[name] for name in kinds)
        wanted = " or ".join(right[name] for name in kinds)
        self._check(ok, f"{what} gives {_form(got)}", f"{where}, {wanted}")
        return jnp.asarray(got)

    def same(self, method: str, got: Any, state: Any) -> None:
        """A new state is of the form of the old one."""
        forms = [jax.tree.map(_form, one) for one in (got, state)]
        ok = jax.tree.structure(got) == jax.tree.structure(state) and forms[0] == forms[1]
        what = f"{method} gives a state of the form {forms[0]}"
        self._check(ok, what, f"that of its first state, {forms[1]}")

    def _check(self, ok: bool, what: str, right: str) -> None:
        if not ok:
            raise ValueError(f"{self.owner}: {what}: must be {right}")


def _form(value: Any) -> str:
    """Dtype and shape, of what has them."""
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) or hasattr(value, "aval"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (bool, int, float)):
        return f"{jnp.result_type(value)}[]"
    return format_value(value)


def _is_ours(error: Exception) -> bool:
    """Whether the package itself raised it, which then says what is wrong."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = frame.f_globals.get("__name__", "")
    ours = name.split(".")[0] == "nrjax" and name not in ("nrjax._interface_checks", "nrjax.types")
    return isinstance(error, (ValueError, TypeError)) and ours


@partial(jax.jit, static_argnames="structure")
def _try(parts: tuple[Any, ...], key: Array, structure: Any) -> None:
    del structure  # keeps classes apart that were registered with JAX's own function
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
    begun, time = times.items("state, time", "init")
    times.array("fi", "init", time)
    after, time, done = times.items("state, time, done", "next", begun, release)
    times.same("next", after, begun)
    times.array("fi", "the time of next", time)
    times.array("b", "the done of next", done)

    utility = _Part("utility", utility, dtype).call("at", jnp.int32(0))
    quality = _Part("utility", utility, dtype)
    hypothesis = quality.call("hypothesis", release)
    quality.number("fib", "evaluate", hypothesis)
    if overrides(utility, Utility, "bounds"):
        for bound in quality.items("lower, upper", "bounds", hypothesis):
            quality.array("fi", "bounds", bound)
    else:
        quality.number("fi", "ceiling", release)

    test = _Part("rule", rule, dtype)
    begun = test.call("init", key, one)
    after, stop = test.items("state, stop", "step", key, begun, one, one)
    test.same("step", after, begun)
    test.array("b", "the stop of step", stop)
    test.number("i", "status", after)
    test.number("fi", "cost", one, jnp.asarray(True), jnp.int32(1))


def check_results(parts: tuple[Any, ...], structure: Any) -> None:
    """Raise a `ValueError` that names part, method, what it gives and what it must give.

    The parts are in one dtype; of those alike in `structure`, their classes, JAX tries one.
    """
    with neutral_config():
        _try.eval_shape(parts, abstract_key(), structure=structure)


def state_follows_utility(rule: Any, dtype: Any) -> bool:
    """Whether the new state of a rule's `step` may depend on the utility, by the traced program.

    What bounds of the utility say of the answer they cannot say of such a state.
    """
    key = abstract_key()
    one = jax.ShapeDtypeStruct((), dtype)
    with neutral_config():
        state = jax.eval_shape(rule.init, key, one)
        program = jax.make_jaxpr(lambda *given: rule.step(*given)[0])(key, state, one, one)
    _, used = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
    return used[-1]
