"""User-stated bounds on a loss, the constants that follow from them, and a spot check."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._format import format_value
from nrjax._validation import check
from nrjax.erm import sensitivity
from nrjax.erm._validation import check_labels

_SLACK = 1e-9
"""Relative tolerance of the checks, which are in float64, where rounding is far below it."""

_TILE_SIZE = 2**20
"""Most numbers that one batch of the spot check works on."""


def _number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf" and np.isfinite(value)


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _pair(value: Any) -> bool:
    ok = np.ndim(value) == 1 and len(value) == 2 and all(map(_number, value))
    return ok and value[0] <= value[1]


_NEEDED = ("regularisation", "lipschitz", "max_norm")
_RIGHT = (
    ((*_NEEDED, "radius", "loss_spread"), _positive, "above 0 and finite"),
    (("label_range", "loss_at_zero"), _pair, "two finite numbers (low, high), low <= high"),
    (("lowest_loss",), _number, "a finite number"),
)


@dataclasses.dataclass(frozen=True)
class StatedBounds:
    """The bounds on a loss that a user states, in the units of the loss.

    The attributes are arguments of `OutputProblem.fit`; None stands for a bound not stated.

    Raises:
        ValueError: a bound is out of range, or the bounds contradict each other.
    """

    regularisation: float
    lipschitz: float
    max_norm: float
    label_range: tuple[float, float] | None
    radius: float | None
    loss_at_zero: tuple[float, float] | None
    lowest_loss: float | None
    loss_spread: float | None

    def __post_init__(self):
        for names, fits, right in _RIGHT:
            for name in names:
                value = getattr(self, name)
                check((value is None and name not in _NEEDED) or fits(value), name, value, right)
        if self.lowest_loss is not None and self.loss_at_zero is not None:
            right = f"at most {self.loss_at_zero[0]:.6g}, the lowest loss_at_zero"
            check(self.lowest_loss <= self.loss_at_zero[0], "lowest_loss", self.lowest_loss, right)
        right = "such that the ball has a radius above 0: no loss at zero is above lowest_loss"
        check(self.ball > 0, "loss_at_zero", self.loss_at_zero, right)

    @property
    def ball(self) -> float:
        """Radius of a ball around 0 that holds the optimum."""
        radii = [self.lipschitz / self.regularisation]
        if self.radius is not None:
            radii.append(self.radius)
        if self.loss_at_zero is not None and self.lowest_loss is not None:
            most = self.loss_at_zero[1] - self.lowest_loss
            radii.append(math.sqrt(2 * most / self.regularisation))
        return float(min(radii))

    def sensitivity(self, rows: int) -> float | None:
        """Return the sensitivity of the risk as computed, at one theta; None if unknown."""
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
        return sensitivity.evaluated(sensitivity.bounded_loss(rows, spread), size)

    def check_labels(self, y: np.ndarray) -> None:
        """Raise a ValueError unless all labels are finite and in the stated range."""
        if self.label_range is None:
            check_labels(y, np.isfinite(y), "finite")
        else:
            low, high = self.label_range
            right = f"in label_range = {format_value(self.label_range)}"
            check_labels(y, (y >= low) & (y <= high), right)

    def check_optimum(self, optimum: np.ndarray) -> None:
        """Raise a ValueError unless the optimum lies in the ball."""
        norm = float(np.linalg.norm(optimum))
        name = "radius" if self.radius == self.ball else "the ball's radius"
        right = f"at least {norm:.6g}, the l2 norm of the optimum"
        check(norm <= self.ball * (1 + _SLACK), name, self.ball, right)


def check_signature(loss: Any, row: np.ndarray, label: np.ndarray, dimension: int) -> None:
    """Raise a ValueError unless `loss(theta, row, label)` returns a scalar of their dtype."""
    _check_loss(callable(loss), loss, "be a function of theta, row and label")
    with jax.enable_x64(True):
        returned = jax.eval_shape(loss, np.zeros(dimension), row, label)
    ok = getattr(returned, "shape", None) == () and returned.dtype == np.float64
    _check_loss(ok, loss, f"return a scalar of its arguments' dtype, but returns {returned}")


def spot_check(
    loss: Callable, x: np.ndarray, y: np.ndarray, stated: StatedBounds, theta: np.ndarray
) -> None:
    """Check the stated bounds in float64 at a few points; it can refute them, not prove them.

    The points are 0, `theta`, half of it, and both ends of the ball in its direction. The rows are
    the given ones and copies of them of the largest norm, with their labels and the ends of
    `label_range`.

    Args:
        loss: loss of one example, `loss(theta, row, label)`.
        x: rows of the data, shape (rows, features).
        y: their labels, shape (rows,).
        stated: the bounds.
        theta: a point of the ball, not 0, shape (dimension,).

    Raises:
        ValueError: a bound does not hold, or the loss is not finite, differentiable and convex;
            the message names the row.
    """
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    longest = np.where(norms > 0, stated.max_norm * x / np.where(norms > 0, norms, 1), x)
    ends = (
        [] if stated.label_range is None else [np.full(len(y), end) for end in stated.label_range]
    )
    rows = np.concatenate([x, longest, *(longest for _ in ends)])
    labels = np.concatenate([y, y, *ends])
    rim = theta * (stated.ball / np.linalg.norm(theta))
    points = np.stack([np.zeros_like(theta), 0.5 * theta, theta, rim, -rim])
    with jax.enable_x64(True):
        probed = [_probe(loss, rows, labels, point) for point in points]
    losses, slopes = map(np.stack, zip(*probed, strict=True))  # shape (points, rows)
    slack = _SLACK * max(1.0, float(np.abs(losses).max()))

    def worst(excess: np.ndarray) -> tuple[Any, str]:
        """Return the place of the largest excess, in indices and in words."""
        point, row = place = np.unravel_index(np.argmax(excess), excess.shape)
        name = f"features[{row}]" if row < len(y) else f"features[{row % len(y)}], scaled"
        norm = np.linalg.norm(points[point])
        return place, f"{name} (label {labels[row]:.6g}) at theta of norm {norm:.4g}"

    place, where = worst(~np.isfinite(losses + slopes))
    ok = np.isfinite(losses[place] + slopes[place])
    seen = f"the loss is {losses[place]}, its gradient's norm {slopes[place]}, for {where}"
    _check_loss(ok, loss, f"be finite and differentiable, but {seen}")
    low, high = (-np.inf, np.inf) if stated.loss_at_zero is None else stated.loss_at_zero
    lowest = -np.inf if stated.lowest_loss is None else stated.lowest_loss
    spread = np.inf if stated.loss_spread is None else stated.loss_spread
    above_others = losses.max(axis=1, keepdims=True) - losses
    for name, values, excess, expected in (
        ("lipschitz", slopes, slopes - stated.lipschitz, "at least {:.6g}, the gradient norm"),
        ("lowest_loss", losses, lowest - losses, "at most {:.6g}, the loss"),
        (
            "loss_at_zero",
            losses[:1],
            np.maximum(low - losses[:1], losses[:1] - high),
            "two around {:.6g}, the loss",
        ),
        (
            "loss_spread",
            above_others,
            above_others - spread,
            "at least {:.6g}, by which another row's is above the loss",
        ),
    ):
        place, where = worst(excess)
        right = f"{expected.format(values[place])} of {where}"
        check(excess[place] <= slack, name, getattr(stated, name), right)
    zero, half, end, right, left = losses
    above_chord = np.stack([zero - 0.5 * (right + left), half - 0.5 * (zero + end)])
    place, where = worst(above_chord)
    seen = f"the loss of {where} is {above_chord[place]:.6g} above the mean of two points around it"
    _check_loss(above_chord[place] <= slack, loss, f"be convex in theta, but {seen}")


@partial(jax.jit, static_argnames="loss")
def _probe(loss: Callable, rows: Array, labels: Array, theta: Array) -> tuple[Array, Array]:
    """Return the loss and the gradient norm of each row at theta."""

    def one(example: tuple[Array, Array]) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(loss)(theta, *example)
        return value, jnp.linalg.norm(gradient)

    tile = max(1, _TILE_SIZE // max(rows.shape[1], theta.shape[0]))
    return jax.lax.map(one, (rows, labels), batch_size=min(tile, rows.shape[0]))


def _check_loss(ok: Any, loss: Any, expected: str) -> None:
    if not ok:
        raise ValueError(f"loss = {getattr(loss, '__name__', repr(loss))}: must {expected}")
