"""Bounds on a loss that a user states, the constants derived from them, and a spot check."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.arrays import as_array
from nrjax._base.validation import check
from nrjax.erm._validation import check_rows

_SLACK = 1e-9
"""Relative tolerance of the checks, far above the rounding error of float64."""

_TILE_SIZE = 2**20
"""Maximum number of array entries in one batch of the spot check."""


@dataclasses.dataclass(frozen=True)
class StatedBounds:
    """The bounds on a loss that a user states, in the units of the loss.

    `OutputProblem.fit` explains the attributes. None means that a bound is not stated.

    Raises:
        ValueError: a bound is out of range, or the bounds contradict each other.
    """

    regularisation: float
    lipschitz: float
    max_norm: float
    label_range: tuple[float, float] | None = None
    radius: float | None = None
    loss_at_zero: tuple[float, float] | None = None
    lowest_loss: float | None = None
    loss_spread: float | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if value is None and field.default is None:
                continue
            array, is_pair = as_array(value), name in ("label_range", "loss_at_zero")
            ok = array.dtype.kind in "iuf" and array.shape == ((2,) if is_pair else ())
            ok = ok and np.all(np.isfinite(array))
            if is_pair:
                ok, expected = (
                    ok and array[0] <= array[1],
                    "finite numbers (low, high), low <= high",
                )
            elif name == "lowest_loss":
                expected = "a finite number"
            else:
                ok, expected = ok and array > 0, "positive and finite"
            check(ok, name, value, expected)
            # Narrow numbers would round the ball and the losses down.
            object.__setattr__(self, name, tuple(array.tolist()) if is_pair else float(array))
        if self.lowest_loss is not None and self.loss_at_zero is not None:
            low, high = self.loss_at_zero
            ok = self.lowest_loss <= low and self.lowest_loss < high
            expected = f"at most {low:.6g} and below {high:.6g}, the loss_at_zero"
            check(ok, "lowest_loss", self.lowest_loss, expected)

    @property
    def ball(self) -> float:
        """The radius of a ball around 0 that contains the optimum."""
        radii = [self.lipschitz / self.regularisation]
        if self.radius is not None:
            radii.append(self.radius)
        if self.loss_at_zero is not None and self.lowest_loss is not None:
            most = self.loss_at_zero[1] - self.lowest_loss
            radii.append(math.sqrt(2 * most / self.regularisation))
        return float(min(radii))

    @property
    def losses(self) -> tuple[float, float] | None:
        """The largest difference between two losses at one theta, and a bound on risks.

        It is None if neither `loss_spread` nor `loss_at_zero` is stated.
        """
        spreads = [] if self.loss_spread is None else [self.loss_spread]
        if self.loss_at_zero is not None:
            low, high = self.loss_at_zero
            reach = self.lipschitz * self.ball
            spreads.append(2 * reach + high - low)
            if self.lowest_loss is not None:
                spreads.append(reach + high - self.lowest_loss)
        if not spreads:
            return None
        # Largest difference between the losses of two rows at one theta of the ball.
        spread = float(min(spreads))
        low = spread if self.lowest_loss is None else abs(self.lowest_loss)
        size = spread if self.loss_at_zero is None else max(low, *map(abs, self.loss_at_zero))
        return spread, float(size)

    def check_labels(self, y: np.ndarray) -> None:
        """Check that all labels are finite and in the stated range."""
        low, high = (-np.inf, np.inf) if self.label_range is None else self.label_range
        expected = "finite" if self.label_range is None else f"in label_range = ({low}, {high})"
        check_rows(np.isfinite(y) & (y >= low) & (y <= high), "labels", expected)

    def check_optimum(self, optimum: np.ndarray) -> None:
        """Check that the optimum lies in the ball."""
        norm = float(np.linalg.norm(optimum))
        name = "radius" if self.radius == self.ball else "the ball's radius"
        expected = f"at least {norm:.6g}, the l2 norm of the optimum"
        check(norm <= self.ball * (1 + _SLACK), name, self.ball, expected)


def check_signature(loss: Any, row: np.ndarray, label: np.ndarray, dimension: int) -> None:
    """Check that `loss(theta, row, label)` returns a scalar of the dtype of its arguments."""
    check(callable(loss), "loss", loss, "a function of theta, row and label")
    with jax.enable_x64(True):
        returned = jax.eval_shape(loss, np.zeros(dimension), row, label)
    ok = getattr(returned, "shape", None) == () and returned.dtype == np.float64
    check(ok, "the result of loss", returned, "a scalar of its arguments' dtype")


def spot_check(
    loss: Callable, x: np.ndarray, y: np.ndarray, stated: StatedBounds, theta: np.ndarray
) -> None:
    """Check the stated bounds at a few points, in float64.

    The check can refute a bound but not prove it. The points are 0, `theta / 2`, `theta` and the
    two points of the sphere along `theta`. The rows are the rows of the data, as they are and
    scaled to norm `max_norm`. The labels are those of the data and the ends of `label_range`.

    Args:
        loss: loss of one example, `loss(theta, row, label)`.
        x: rows of the data, shape (rows, features).
        y: labels of the rows, shape (rows,).
        stated: the stated bounds.
        theta: a point of the ball, not 0, shape (dimension,).

    Raises:
        ValueError: a bound does not hold, or the loss is not finite, differentiable and convex.
    """
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    longest = x * (stated.max_norm / np.where(norms > 0, norms, stated.max_norm))
    ends = () if stated.label_range is None else stated.label_range
    rows = np.concatenate([x, longest, *(longest for _ in ends)])
    labels = np.concatenate([y, y, *(np.full(len(y), end) for end in ends)])
    rim = theta * (stated.ball / np.linalg.norm(theta))
    points = (np.zeros_like(theta), 0.5 * theta, theta, rim, -rim)
    with jax.enable_x64(True):
        probed = [_probe(loss, rows, labels, point) for point in points]
    losses, slopes = map(np.stack, zip(*probed, strict=True))  # shape (points, rows)
    name = getattr(loss, "__name__", loss)
    check(np.isfinite(losses + slopes), "loss", name, "finite and differentiable in the ball")
    slack = _SLACK * max(1.0, float(np.abs(losses).max()))
    steepest, lowest, spread = slopes.max(), losses.min(), np.ptp(losses, axis=1).max()
    expected = f"at least {steepest:.6g}, a gradient norm in the ball"
    check(steepest <= stated.lipschitz + slack, "lipschitz", stated.lipschitz, expected)
    if stated.loss_at_zero is not None:
        low, high = losses[0].min(), losses[0].max()
        ok = low >= stated.loss_at_zero[0] - slack and high <= stated.loss_at_zero[1] + slack
        expected = f"a range with the losses at zero {low:.6g} and {high:.6g}"
        check(ok, "loss_at_zero", stated.loss_at_zero, expected)
    if stated.lowest_loss is not None:
        expected = f"at most {lowest:.6g}, a loss in the ball"
        check(lowest >= stated.lowest_loss - slack, "lowest_loss", stated.lowest_loss, expected)
    if stated.loss_spread is not None:
        expected = f"at least {spread:.6g}, a difference between two losses at one theta"
        check(spread <= stated.loss_spread + slack, "loss_spread", stated.loss_spread, expected)
    zero, half, end, right, left = losses
    above_chord = max(np.max(zero - 0.5 * (right + left)), np.max(half - 0.5 * (zero + end)))
    check(above_chord <= slack, "loss", name, "convex in theta")


@partial(jax.jit, static_argnames="loss")
def _probe(loss: Callable, rows: Array, labels: Array, theta: Array) -> tuple[Array, Array]:
    """Return the loss and the gradient norm of each row at theta."""

    def probe_row(example: tuple[Array, Array]) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(loss)(theta, *example)
        return value, jnp.linalg.norm(gradient)

    tile = max(1, _TILE_SIZE // max(rows.shape[1], theta.shape[0]))
    return jax.lax.map(probe_row, (rows, labels), batch_size=min(tile, rows.shape[0]))
