"""What each part of an interaction gives, tried once on shapes: nothing is drawn or computed.

A part that gives something else than its interface says would otherwise stop every trial at step
0, broadcast, or end in an error of JAX's own from inside a compiled loop.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal

from nrjax._modes import set_aside
from nrjax._shown import shown
from nrjax.types import Utility, overrides

_INLINED = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"}
"""Primitives that call one function on their operands, in order."""


class _Part:
    """One part, whose methods are called and whose results are looked at."""

    def __init__(self, name: str, part: Any):
        self.owner = f"{name} = {type(part).__name__}"
        self.part = part

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

    def pair(self, method: str, got: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
        if not (isinstance(got, (tuple, list)) and len(got) == len(names)):
            raise ValueError(
                f"{self.owner}: {method} gives {_form(got)}: must be ({', '.join(names)})"
            )
        return tuple(got)

    def number(self, method: str, got: Any, kinds: str, dtype: Any, shape: tuple = ()) -> Array:
        """The result as an array: of a shape, and of one of some kinds (f, i, b) no wider."""
        right = {"f": str(jnp.dtype(dtype)), "i": "an integer", "b": "a bool"}
        wanted = " or ".join(right[kind] for kind in kinds)
        where = "a scalar" if shape == () else f"of shape {shape}"
        problem = f"{self.owner}: {method} gives {_form(got)}: must be {where}, {wanted}"
        if not isinstance(got, (jax.Array, np.ndarray, np.generic, bool, int, float)):
            raise ValueError(problem)
        kind = jnp.result_type(got)
        fits = {
            "f": jnp.issubdtype(kind, jnp.floating) and jnp.promote_types(kind, dtype) == dtype,
            "i": jnp.issubdtype(kind, jnp.integer),
            "b": kind == jnp.bool_,
        }
        if jnp.shape(got) != shape or not any(fits[name] for name in kinds):
            raise ValueError(problem)
        return jnp.asarray(got)

    def same(self, method: str, got: Any, state: Any) -> None:
        """A new state is of the form of the old one."""
        forms = [jax.tree.map(_form, one) for one in (got, state)]
        if jax.tree.structure(got) != jax.tree.structure(state) or forms[0] != forms[1]:
            raise ValueError(
                f"{self.owner}: {method} gives a state of the form {forms[0]}: must be that of "
                f"its first state, {forms[1]}"
            )


def _form(value: Any) -> str:
    """Dtype and shape, of what has them."""
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) or hasattr(value, "aval"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (bool, int, float)):
        return f"{jnp.result_type(value)}[]"
    return shown(value)


def _is_ours(error: Exception) -> bool:
    """Whether the package itself raised it, which then says what is wrong."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    name = "" if frame is None else frame.tb_frame.f_globals.get("__name__", "")
    ours = name.split(".")[0] == "nrjax" and name not in ("nrjax._contract", "nrjax.types")
    return isinstance(error, (ValueError, TypeError)) and ours


@partial(jax.jit, static_argnames="structure")
def _try(parts: tuple[Any, ...], key: Array, structure: Any) -> None:
    del structure  # keeps classes apart that were registered with JAX's own function
    value, process, guarantee, schedule, utility, rule, shift = parts
    dtype, shape = value.dtype, tuple(process.shape)
    one = jnp.ones((), dtype)

    noise = _Part("process", process)
    state = noise.call("init", key, one)
    noise.same("rewind", noise.call("rewind", key, state, one), state)
    drawn = noise.number("value", noise.call("value", state), "fi", dtype, shape)
    noise.number("status", noise.call("status", state), "i", dtype)
    noise.number("composed_time", noise.call("composed_time", state, one), "f", dtype)
    if shift is not None:
        noise.number("privacy_loss", noise.call("privacy_loss", state, shift), "f", dtype)
    release = value + drawn

    if guarantee is not None:
        cost = _Part("guarantee", guarantee)
        cost.number("epsilon", cost.call("epsilon", one), "f", dtype)

    times = _Part("schedule", schedule)
    begun, time = times.pair("init", times.call("init"), ("state", "time"))
    times.number("init", time, "fi", dtype)
    names = ("state", "time", "done")
    after, time, done = times.pair("next", times.call("next", begun, release), names)
    times.same("next", after, begun)
    times.number("the time of next", time, "fi", dtype)
    times.number("the done of next", done, "b", dtype)

    utility = _Part("utility", utility).call("at", jnp.int32(0))
    quality = _Part("utility", utility)
    hypothesis = quality.call("hypothesis", release)
    quality.number("evaluate", quality.call("evaluate", hypothesis), "fib", dtype)
    if overrides(utility, Utility, "bounds"):
        bounds = quality.call("bounds", hypothesis)
        for bound in quality.pair("bounds", bounds, ("lower", "upper")):
            quality.number("bounds", bound, "fi", dtype)
    else:
        quality.number("ceiling", quality.call("ceiling", release), "fi", dtype)

    test = _Part("rule", rule)
    begun = test.call("init", key, one)
    answer = test.call("step", key, begun, one, one)
    after, stop = test.pair("step", answer, ("state", "stop"))
    test.same("step", after, begun)
    test.number("the stop of step", stop, "b", dtype)
    test.number("status", test.call("status", after), "i", dtype)
    cost = test.call("cost", one, jnp.asarray(True), jnp.int32(1))
    test.number("cost", cost, "fi", dtype)


def check_results(parts: tuple[Any, ...], structure: Any) -> None:
    """Raise a `ValueError` that names part, method, what it gives and what it must give.

    Args:
        parts: of an interaction, in its order, in one dtype.
        structure: classes of the parts: of those alike JAX tries one.
    """
    with set_aside():
        _try.eval_shape(parts, jax.eval_shape(lambda: jax.random.key(0)), structure=structure)


def state_follows_utility(rule: Any, dtype: Any) -> bool:
    """Whether the new state of a rule's `step` may depend on the utility, by the traced program.

    What bounds of the utility say of the answer they cannot say of such a state.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    one = jax.ShapeDtypeStruct((), dtype)
    state = jax.eval_shape(rule.init, key, one)
    with set_aside():
        program = jax.make_jaxpr(lambda *given: rule.step(*given)[0])(key, state, one, one)
    marks = [False] * (len(program.jaxpr.invars) - 1) + [True]
    return any(_reached(program.jaxpr, marks))


def _reached(program: Any, marks: list[bool]) -> list[bool]:
    """Which results of a traced program depend on the arguments that are marked."""
    marked = {variable for variable, mark in zip(program.invars, marks, strict=True) if mark}

    def is_marked(operand: Any) -> bool:
        return not isinstance(operand, Literal) and operand in marked

    for equation in program.eqns:
        if any("Ref" in type(v.aval).__name__ for v in (*equation.invars, *equation.outvars)):
            return [True] * len(program.outvars)  # what is kept in one may come out anywhere
        operands = [is_marked(operand) for operand in equation.invars]
        inside = [part for part in equation.params.values() if isinstance(part, ClosedJaxpr)]
        results = [any(operands)] * len(equation.outvars)
        if equation.primitive.name in _INLINED and len(inside) == 1:
            inner = inside[0].jaxpr
            if len(inner.invars) == len(operands):
                results = _reached(inner, operands)
        pairs = zip(equation.outvars, results, strict=True)
        marked |= {variable for variable, mark in pairs if mark}
    return [is_marked(operand) for operand in program.outvars]
