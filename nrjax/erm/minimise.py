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

_ITERATIONS = 500
"""Largest number of iterations of L-BFGS."""

_NEWTON_STEPS, _HALVINGS = 50, 30


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
def _derivatives(loss: Loss, data: Any, at: Array, along: Array) -> tuple[Array, ...]:
    """Return the risk, its gradient, and the product of its Hessian with a vector."""
    risk = jax.value_and_grad(partial(mean_risk, loss, data))
    (value, gradient), (_, product) = jax.jvp(risk, (at,), (along,))
    return value, gradient, product


def _newton(loss: Loss, data: Any, start: np.ndarray, tolerance: float) -> tuple[Any, ...]:
    """Minimise by Newton's method, whose linear systems are solved by conjugate gradients.

    One small program serves, which compiles in a fifth of the time of a line search.

    Returns:
        The argument, risk and gradient norm, and the number of steps. The norm may be above the
        tolerance: the Hessian of a loss such as the hinge says nothing.
    """

    def derivatives(at: np.ndarray, along: np.ndarray) -> list[np.ndarray]:
        return list(map(np.asarray, jax.device_get(_derivatives(loss, data, at, along))))

    at, zero = start, np.zeros_like(start)
    value, gradient, _ = derivatives(at, zero)
    for count in range(_NEWTON_STEPS):
        norm = np.linalg.norm(gradient)
        if not norm > tolerance:
            return at, value, norm, count
        # Conjugate gradients for Hessian * direction = -gradient.
        direction, rest, along = zero, -gradient, -gradient
        for _ in range(2 * start.size):
            product = derivatives(at, along)[2]
            curvature = along @ product
            if not curvature > 0:
                break
            size = (rest @ rest) / curvature
            direction = direction + size * along
            before, rest = rest @ rest, rest - size * product
            if rest @ rest <= (1e-4 * norm) ** 2:
                break
            along = rest + (rest @ rest) / before * along
        for halving in range(_HALVINGS):
            tried = at + 0.5**halving * direction
            value, gradient, _ = derivatives(tried, zero)
            if np.linalg.norm(gradient) < norm:
                break
        else:
            return at, value, norm, count
        at = tried
    return at, value, np.linalg.norm(gradient), _NEWTON_STEPS


@neutral_config()
def minimise(loss: Loss, data: tuple, dimension: int, tolerance: float) -> Minimum:
    """Return the minimiser of `mean_risk`, found from zero in float64.

    Newton's method finds it in a few steps. If not, L-BFGS is tried, which knows no Hessian.

    Raises:
        ValueError: the l2 norm of the gradient did not fall to `tolerance`.
    """
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), data)
        argument, value, norm, count = _newton(loss, wide, np.zeros(dimension), tolerance)
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
