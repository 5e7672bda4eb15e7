"""The minimiser of a risk with a random linear term, and its solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import noise_range
from nrjax.processes import SphericalLaplace
from nrjax.processes.spherical import SphericalState
from nrjax.types import NoiseProcess, Status

_TILE_SIZE = 2**16
"""Number of data entries that are read at once. A Hessian needs as many floats per trial."""

_MOST_STEPS = 60
"""Largest number of Newton steps. A start far from the minimum takes some 20."""


class PerturbedState(NamedTuple):
    """The state of `PerturbedOptimum`.

    Attributes:
        value: perturbed minimiser minus the optimum, shape (dimension,).
        linear: state of the noise b of the linear term.
        solved: whether the solver reached its accuracy.
    """

    value: Array
    linear: SphericalState
    solved: Array

    @property
    def time(self) -> Array:
        """The scale of the noise b."""
        return self.linear.time


def remainder(dtype: Any) -> float:
    """Return the largest norm of the gradient at which the solver may stop if b is small."""
    return 4 * float(jnp.finfo(dtype).eps)


class PerturbedOptimum(NoiseProcess):
    """The noise that objective perturbation adds to the optimum of a logistic regression.

    At time t, a vector b of density proportional to `exp(-|b|/t)` is drawn, and the noise is
    `theta_b - theta*`, where `theta_b` minimises `R(theta) + <b, theta>/n + (extra/2) |theta|^2`.
    The noise depends on the data. `nrjax.erm.ObjectivePerturbation` makes the process together with
    the guarantee of its one release. A trial that asks for a second one ends as `Status.OVERFLOW`.

    The solver takes at least one step, since the optimum itself has no noise. It stops when the
    gradient's norm is at most `4 eps (1 + |b|/n)`, where eps is the machine epsilon: 5e-7 in
    float32, and 9e-16 in float64. A trial whose solver does not get there ends as
    `Status.OVERFLOW`.

    Attributes:
        rows: distinct rows times their labels, shape (distinct rows, dimension), of norm at most 1.
        weights: fraction of each distinct row among all rows, shape (distinct rows,).
        count: number of rows n.
        regularisation: lambda.
        extra: additional factor of the l2 penalty.
        optimum: theta*, the private value of the process, shape (dimension,).
        inverse: inverse of the Hessian at theta*, shape (dimension, dimension), to start from.
    """

    noise: ClassVar[str] = "perturbed optimum"
    rows: Any
    weights: Any
    count: Any
    regularisation: Any
    extra: Any
    optimum: Any
    inverse: Any

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the optimum, (dimension,)."""
        return jnp.shape(self.optimum)

    @property
    def private_value(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The optimum, the only value that the process is made for."""
        return self.optimum

    def init(self, key: Array, time: ArrayLike) -> PerturbedState:
        """Draw b at the first time, and minimise."""
        time = jnp.asarray(time, float_dtype(time))
        linear = SphericalLaplace(self.shape).init(key, time)
        return self._solve(linear, jnp.zeros(self.shape, time.dtype))

    def rewind(self, key: Array, state: PerturbedState, time: ArrayLike) -> PerturbedState:
        """Return the same state, and mark it as failed if the time is another one."""
        del key
        return state._replace(solved=state.solved & (jnp.asarray(time) == state.time))

    def value(self, state: PerturbedState) -> Array:
        """Return the perturbed minimiser minus the optimum."""
        return state.value

    def largest_time(self, dtype: Any) -> float:
        """Return the largest time of a dtype, at which b does not overflow."""
        return noise_range(dtype)[1]

    def smallest_time(self, dtype: Any) -> float:
        """Return the smallest time of a dtype: XLA may flush a smaller b to 0."""
        return noise_range(dtype)[0]

    def status(self, state: PerturbedState) -> Array:
        """Return `Status.OVERFLOW` if the solver did not reach its accuracy, else `RUNNING`."""
        return jnp.where(state.solved, Status.RUNNING, Status.OVERFLOW).astype(jnp.int32)

    def _solve(self, linear: SphericalState, start: Array) -> PerturbedState:
        optimum = jnp.asarray(self.optimum, start.dtype)
        push = linear.value / self.count
        with jax.default_matmul_precision("highest"):  # by default accelerators round to 10 bits
            theta, solved = self._minimise(push, optimum + start)
        return PerturbedState(theta - optimum, linear, solved)

    def _minimise(self, push: Array, theta: Array) -> tuple[Array, Array]:
        """Return the minimiser for the linear term `<push, theta>`, and whether it is accurate."""
        accuracy = remainder(theta.dtype) * (1 + jnp.linalg.norm(push))

        def at(theta: Array) -> tuple[Array, Array, Array]:
            gradient = self._gradient(theta) + push
            return theta, gradient, jnp.linalg.norm(gradient)

        # Steps by the Hessian at the optimum cost two products with the rows. They suffice unless
        # the noise is strong, and end when a step does not halve the gradient.
        def near(carry: Any) -> Array:
            (_, _, norm), halved = carry
            return (norm > accuracy) & halved

        def short(carry: Any) -> Any:
            (theta, gradient, norm), _ = carry
            new = at(theta - self.inverse @ gradient)
            halved = new[-1] < 0.5 * norm
            kept = jax.tree.map(lambda a, b: jnp.where(halved, a, b), new, carry[0])
            return kept, halved

        # A whole Newton step is taken if it halves the gradient, and else a damped one, which
        # converges from any start: the third derivative of the logistic loss along a direction is
        # at most |x| times the second (Sun and Tran-Dinh 2019, Theorem 2).
        def far(carry: Any) -> Array:
            (_, _, norm), count = carry
            return (norm > accuracy) & (count < _MOST_STEPS)

        def long(carry: Any) -> Any:
            (theta, gradient, norm), count = carry
            step = _solved(self._hessian(theta), gradient)
            size = jnp.linalg.norm(step)
            damping = jnp.where(size > 0, jnp.log1p(size) / jnp.where(size > 0, size, 1), 1)
            whole = at(theta - step)
            damped = at(theta - damping * step)
            halved = whole[-1] < 0.5 * norm
            return jax.tree.map(lambda a, b: jnp.where(halved, a, b), whole, damped), count + 1

        first = at(theta)
        # Weak noise leaves the optimum accurate enough. It must not be released as it is.
        moved = at(theta - self.inverse @ first[1])
        taken = (first[-1] <= accuracy) | (moved[-1] < first[-1])
        first = jax.tree.map(lambda a, b: jnp.where(taken, a, b), moved, first)
        found, _ = jax.lax.while_loop(near, short, (first, jnp.asarray(True)))
        (theta, _, norm), _ = jax.lax.while_loop(far, long, (found, jnp.int32(0)))
        return theta, norm <= accuracy

    def _gradient(self, theta: Array) -> Array:
        """Return the gradient of the regularised risk."""

        def part(rows: Array, weights: Array) -> Array:
            return -(weights * jax.nn.sigmoid(-(rows @ theta))) @ rows

        return self._sum(part, theta) + (self.regularisation + self.extra) * theta

    def _hessian(self, theta: Array) -> Array:
        """Return the Hessian of the regularised risk."""

        def part(rows: Array, weights: Array) -> Array:
            margins = rows @ theta
            curvature = weights * jax.nn.sigmoid(margins) * jax.nn.sigmoid(-margins)
            return (rows.T * curvature) @ rows

        penalty = self.regularisation + self.extra
        return self._sum(part, theta) + penalty * jnp.eye(theta.size, dtype=theta.dtype)

    def _sum(self, part: Callable[[Array, Array], Array], theta: Array) -> Array:
        """Return the sum over all rows of a function of some rows and their weights."""
        rows, weights = (jnp.asarray(leaf, theta.dtype) for leaf in (self.rows, self.weights))
        tile = max(1, _TILE_SIZE // theta.size)
        whole = len(rows) // tile * tile
        if whole <= tile:
            return part(rows, weights)

        def add(total: Array, at: Array) -> tuple[Array, None]:
            some = (jax.lax.dynamic_slice_in_dim(leaf, at, tile) for leaf in (rows, weights))
            return total + part(*some), None

        rest = part(rows[whole:], weights[whole:])
        return jax.lax.scan(add, rest, jnp.arange(0, whole, tile))[0]


class PerturbedPath(PerturbedOptimum):
    """The minimisers of a risk along one path of noise, without a known guarantee.

    A rewind moves b along a path of `nrjax.SphericalLaplace` and minimises again. Use it to measure
    the loss of objective perturbation at many noise levels. Each release by itself is that of
    `PerturbedOptimum`, but several together cost more than the last one (statement 44 of
    `docs/proofs`), so guarantees for one release refuse this process.

    It has the attributes of `PerturbedOptimum`.
    """

    noise: ClassVar[str] = "perturbed path"

    def rewind(self, key: Array, state: PerturbedState, time: ArrayLike) -> PerturbedState:
        """Move b to a smaller time, and minimise again."""
        linear = SphericalLaplace(self.shape).rewind(key, state.linear, time)
        return self._solve(linear, state.value)


def _solved(matrix: Array, vector: Array) -> Array:
    """Return the solution of a linear system whose matrix is positive definite."""
    factor = jnp.linalg.cholesky(matrix)
    lower = jax.lax.linalg.triangular_solve(factor, vector[:, None], left_side=True, lower=True)
    options: dict[str, bool] = {"left_side": True, "lower": True, "transpose_a": True}
    return jax.lax.linalg.triangular_solve(factor, lower, **options)[:, 0]
