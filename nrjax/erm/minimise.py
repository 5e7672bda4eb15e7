"""The non-private optimum of a regularised empirical risk."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import record
from nrjax._base.validation import check
from nrjax.erm.output_utility import Loss, mean_risk

_ITERATIONS, _TRIED_SIZES, _MEMORY = 500, 30, 10
"""Largest numbers of iterations of L-BFGS, of tried steps in each, and of remembered ones."""


@record
class Minimum(NamedTuple):
    """The non-private optimum, in NumPy float64 whatever precision the simulation uses.

    Attributes:
        argument: minimiser, shape (dimension,).
        value: regularised risk at the minimiser.
        gradient_norm: l2 norm of the gradient at the minimiser. Divided by lambda, the norm bounds
            the distance to the exact optimum.
        iterations: number of steps of the solver; 0 for a linear solve.
    """

    argument: np.ndarray
    value: float
    gradient_norm: float
    iterations: int


@partial(jax.jit, static_argnames="loss")
def _lbfgs(loss: Loss, data: Any, start: Array, tolerance: Array) -> tuple[Array, ...]:
    import optax  # imported here, since it takes as long to import as all of nrjax

    risk = partial(mean_risk, loss, data)
    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(risk)

    def unfinished(carry: Any) -> Array:
        _, _, norm, count = carry
        return (norm > tolerance) & (count < _ITERATIONS)

    def step(carry: Any) -> Any:
        argument, state, _, count = carry
        value, gradient = value_and_grad(argument, state=state)
        updates, state = solver.update(
            gradient, state, argument, value=value, grad=gradient, value_fn=risk
        )
        argument = optax.apply_updates(argument, updates)
        # The line search leaves the gradient at the new point in its state.
        return argument, state, jnp.linalg.norm(optax.tree_utils.tree_get(state, "grad")), count + 1

    first = (start, solver.init(start), jnp.asarray(jnp.inf, start.dtype), jnp.int32(0))
    argument, _, _, count = jax.lax.while_loop(unfinished, step, first)
    value, gradient = jax.value_and_grad(risk)(argument)
    return argument, value, jnp.linalg.norm(gradient), count


@partial(jax.jit, static_argnames="loss")
def _risk(loss: Loss, data: Any, argument: Array) -> tuple[Array, Array]:
    """Return the risk and its gradient."""
    return jax.value_and_grad(partial(mean_risk, loss, data))(argument)


def _quasi_newton(changes: list[tuple[np.ndarray, np.ndarray]], gradient: np.ndarray) -> np.ndarray:
    """Return the direction of L-BFGS, from changes of the argument and of its gradient."""
    direction, weights = -gradient, []
    for moved, turned in reversed(changes):
        weights.append((moved @ direction) / (moved @ turned))
        direction = direction - weights[-1] * turned
    if not changes:
        return direction / np.linalg.norm(gradient)
    moved, turned = changes[-1]
    direction = direction * (moved @ turned) / (turned @ turned)
    for (moved, turned), weight in zip(changes, reversed(weights), strict=True):
        direction = direction + moved * (weight - (turned @ direction) / (moved @ turned))
    return direction


def _small_lbfgs(loss: Loss, data: Any, start: np.ndarray, tolerance: float) -> tuple[Any, ...]:
    """Minimise by L-BFGS with the loop in Python: only the risk is compiled.

    The line search bisects for Wolfe's conditions. Where rounding hides a decrease of the risk,
    the slope alone decides, so that the gradient falls below the root of the precision.

    Returns:
        The argument, risk and gradient norm, and the number of steps. The norm may be above the
        tolerance, for example if the loss has a kink.
    """

    def risk(argument: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = jax.device_get(_risk(loss, data, argument))
        return float(value), np.asarray(gradient)

    at, changes = start, []
    value, gradient = risk(at)
    for count in range(_ITERATIONS):
        if not np.linalg.norm(gradient) > tolerance:
            return at, value, np.linalg.norm(gradient), count
        direction = _quasi_newton(changes, gradient)
        slope, size, low, high = gradient @ direction, 1.0, 0.0, np.inf
        for _ in range(_TRIED_SIZES):
            tried = at + size * direction
            new_value, new_gradient = risk(tried)
            increase = new_value - value
            if not increase <= max(1e-4 * size * slope, 1e-14 * abs(value)):
                high = size
            elif new_gradient @ direction < 0.9 * slope:
                low = size
            else:
                break
            size = (low + high) / 2 if high < np.inf else 2 * size
        else:
            return at, value, np.linalg.norm(gradient), count
        change = tried - at, new_gradient - gradient
        if change[0] @ change[1] > 0:
            changes = [*changes, change][-_MEMORY:]
        at, value, gradient = tried, new_value, new_gradient
    return at, value, np.linalg.norm(gradient), _ITERATIONS


@neutral_config()
def minimise(loss: Loss, data: tuple, dimension: int, tolerance: float) -> Minimum:
    """Return the minimiser of `mean_risk`, found from zero in float64.

    The small L-BFGS compiles in a fifth of the time of optax's, which is tried if it fails.

    Raises:
        ValueError: the l2 norm of the gradient did not fall to `tolerance`.
    """
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), data)
        argument, value, norm, count = _small_lbfgs(loss, wide, np.zeros(dimension), tolerance)
        if not norm <= tolerance:
            result = _lbfgs(loss, wide, jnp.zeros(dimension), jnp.asarray(tolerance))
            argument, value, norm, count = jax.device_get(result)
    name = f"the gradient norm after {count} iterations"
    hint = (
        "The loss may not be differentiable: replace a hinge or an absolute error by a smooth "
        "version. Else rescale the rows or raise the regularisation."
    )
    check(norm <= tolerance, name, float(norm), f"at most tolerance = {tolerance:.3g}", hint)
    return Minimum(np.asarray(argument), float(value), float(norm), int(count))
