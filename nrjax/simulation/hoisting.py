"""What a step computes once for all trials, taken out of what it computes for each.

The step is traced once. An operation belongs to all trials if nothing that it needs differs between
them. Its result is computed by one program for all trials, and is an input of the other.
"""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

_CONSTANT, _SHARED, _OWN = range(3)


def depends(program: ClosedJaxpr, flags: Sequence[bool]) -> list[bool]:
    """Return whether each output of a traced function may differ if the flagged inputs do.

    What an operation with an effect returns may differ, whatever its inputs are: it may be read
    from an array that is written to, and `split` leaves it to each trial.
    """
    marked = {var for var, flag in zip(program.jaxpr.invars, flags, strict=True) if flag}

    def is_marked(var: Any) -> bool:
        return not isinstance(var, Literal) and var in marked

    for equation in program.jaxpr.eqns:
        if equation.effects or any(map(is_marked, equation.invars)):
            marked.update(equation.outvars)
    return [is_marked(var) for var in program.jaxpr.outvars]


def section(
    program: ClosedJaxpr, inputs: list[Any], outputs: list[Any], equations: list[Any]
) -> ClosedJaxpr:
    """Return a part of a traced function, without operations that its outputs do not need."""
    wanted, kept = {var for var in outputs if not isinstance(var, Literal)}, []
    for equation in reversed(equations):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            wanted.update(var for var in equation.invars if not isinstance(var, Literal))
            kept.append(equation)
    constants = zip(program.jaxpr.constvars, program.consts, strict=True)
    constants = [(var, value) for var, value in constants if var in wanted]
    jaxpr = program.jaxpr.replace(
        constvars=[var for var, _ in constants], invars=inputs, outvars=outputs, eqns=kept[::-1]
    )
    return ClosedJaxpr(jaxpr, [value for _, value in constants])


def split(
    program: ClosedJaxpr,
    own: Sequence[bool],
    shared_outputs: Sequence[int],
    own_outputs: Sequence[int],
) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Split a traced function into what it computes for all trials, and for each.

    Args:
        program: the function.
        own: whether each input differs between trials.
        shared_outputs: places of the outputs that the first part returns. They must not depend on
            inputs that differ.
        own_outputs: places of the outputs that the second part returns.

    Returns:
        Two parts. The first takes the inputs that do not differ, and returns its outputs, followed
        by the numbers that the second needs. The second takes these and the other inputs.
    """
    jaxpr = program.jaxpr
    kinds = dict(zip(jaxpr.invars, (_OWN if flag else _SHARED for flag in own), strict=True))

    def kind(var: Any) -> int:
        return _CONSTANT if isinstance(var, Literal) else kinds.get(var, _CONSTANT)

    first, second = [], []
    for equation in jaxpr.eqns:
        found = _OWN if equation.effects else max(map(kind, equation.invars), default=_CONSTANT)
        kinds.update(dict.fromkeys(equation.outvars, found))
        if found != _OWN:
            first.append(equation)
        if found != _SHARED:  # a constant is computed by both
            second.append(equation)
    stated = [jaxpr.outvars[place] for place in shared_outputs]
    others = [jaxpr.outvars[place] for place in own_outputs]
    inputs = [[var for var in jaxpr.invars if kind(var) == wanted] for wanted in (_SHARED, _OWN)]
    rest = section(program, inputs[1], others, second)
    used = [*(var for equation in rest.jaxpr.eqns for var in equation.invars), *others]
    passed = list(dict.fromkeys(var for var in used if kind(var) == _SHARED))
    before = section(program, inputs[0], [*stated, *passed], first)
    return before, section(program, [*passed, *inputs[1]], others, rest.jaxpr.eqns)
