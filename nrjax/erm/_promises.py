"""What a user promises of a loss, what follows from it, and the search for a counterexample."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check
from nrjax.erm import sensitivity

_SLACK = 1e-9
"""Relative; promises are checked in float64, where rounding is far below it."""

_SEED = 0
_RANDOM_ROWS = 64
_DIRECTIONS = 4
_SEGMENTS = 8
_TILE_SIZE = 2**20


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
class Promises:
    """Stated bounds, in the units of the loss; a `ValueError` where they cannot be all true."""

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
        """Radius of the ball that holds the optimum."""
        radii = [self.lipschitz / self.regularisation]
        if self.radius is not None:
            radii.append(self.radius)
        if self.loss_at_zero is not None and self.lowest_loss is not None:
            most = self.loss_at_zero[1] - self.lowest_loss
            radii.append(math.sqrt(2 * most / self.regularisation))
        return float(min(radii))

    def sensitivity(self, rows: int) -> float | None:
        """Of the evaluated risk at one hypothesis; None if it is not known."""
        known = [] if self.loss_spread is None else [self.loss_spread]
        if self.loss_at_zero is not None:
            low, high = self.loss_at_zero
            reach = self.lipschitz * self.ball
            known.append(2 * reach + high - low)
            if self.lowest_loss is not None:
                known.append(reach + high - self.lowest_loss)
        if not known:
            return None
        # How far the losses of two rows can lie apart at one theta of the ball.
        spread = float(min(known))
        low = spread if self.lowest_loss is None else abs(self.lowest_loss)
        size = max(low, *map(abs, self.loss_at_zero)) if self.loss_at_zero else spread
        return sensitivity.evaluated(sensitivity.bounded_loss(rows, spread), size)

    def check_labels(self, y: np.ndarray) -> None:
        """Raise a `ValueError` unless all labels are finite and in the stated range."""
        low, high = (-np.inf, np.inf) if self.label_range is None else self.label_range
        wrong = np.flatnonzero(~(np.isfinite(y) & (y >= low) & (y <= high)))
        if wrong.size:
            stated = f"in label_range = {self.label_range}" if self.label_range else "finite"
            check(False, f"labels[{wrong[0]}]", float(y[wrong[0]]), stated)


@partial(jax.jit, static_argnames="loss")
def _probe(loss: Callable, rows: Array, labels: Array, theta: Array) -> tuple[Array, Array]:
    """Loss and gradient norm of each row at theta."""

    def one(example: tuple[Array, Array]) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(loss)(theta, *example)
        return value, jnp.linalg.norm(gradient)

    tile = max(1, _TILE_SIZE // max(rows.shape[1], theta.shape[0]))
    return jax.lax.map(one, (rows, labels), batch_size=min(tile, rows.shape[0]))


class Witnesses:
    """Rows and points on which the promises are tried, all in float64.

    The rows are the given ones, then random ones of the largest norm, shorter ones, and 0; labels
    those given, or from all of a stated range. The points are zero, random ones, and the ends of
    the ball along gradients of single rows, where a loss of a linear prediction is at its largest
    and smallest.
    """

    def __init__(
        self, loss: Callable, x: np.ndarray, y: np.ndarray, dimension: int, promises: Promises
    ):
        check(callable(loss), "loss", loss, "a function of theta, row and label")
        self._loss, self._promises, self._given = loss, promises, len(y)
        self._name = f"loss = {getattr(loss, '__name__', repr(loss))}"
        generator = np.random.default_rng(_SEED)
        chosen = x[generator.choice(len(y), min(_DIRECTIONS, len(y)), replace=False)]
        drawn = np.concatenate([chosen, -chosen, generator.normal(size=(_RANDOM_ROWS, x.shape[1]))])
        drawn *= promises.max_norm / np.maximum(np.linalg.norm(drawn, axis=1), 1e-300)[:, None]
        short = drawn * generator.uniform(size=(len(drawn), 1)) ** 2
        drawn = np.concatenate([drawn, short, np.zeros_like(drawn[:1])])
        # Without a range, numbers between the labels need not be admissible (those of classes).
        pool = np.unique(y)
        if promises.label_range is not None:
            pool = np.linspace(*promises.label_range, 9)
        self._rows = np.concatenate([x, drawn])
        self._labels = np.concatenate([y, generator.choice(pool, len(drawn))])
        self._check_form(dimension)
        along = slice(len(y), len(y) + len(chosen))
        with jax.enable_x64(True):
            gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(
                np.zeros(dimension), self._rows[along], self._labels[along]
            )
        directions = [np.asarray(gradients), generator.normal(size=(_DIRECTIONS, dimension))]
        directions = np.concatenate(directions)
        norms = np.linalg.norm(directions, axis=1)
        usable = np.isfinite(norms) & (norms > 0)
        rim = promises.ball * directions[usable] / norms[usable, None]
        inside = generator.uniform(size=(len(rim), 1)) * rim
        self._points = np.concatenate([np.zeros((1, dimension)), rim, -rim, inside])

    def _check_form(self, dimension: int) -> None:
        """A scalar in the dtype of the arguments."""
        shapes = (dimension,), self._rows.shape[1:], ()
        with jax.enable_x64(True):
            arguments = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes)
            result = jax.eval_shape(self._loss, *arguments)
        shape = getattr(result, "shape", None)
        if shape != ():
            found = repr(result) if shape is None else f"shape {shape}"
            raise ValueError(
                f"{self._name}: must return a scalar, the loss of one example, but returns {found}"
            )
        if result.dtype != jnp.float64:
            raise ValueError(
                f"{self._name}: must return the dtype of its arguments, but returns {result.dtype} "
                "for float64"
            )

    def _row(self, number: int) -> str:
        label = f"label {self._labels[number]:.6g}"
        if number < self._given:
            return f"features[{number}] ({label})"
        norm = np.linalg.norm(self._rows[number])
        return f"an admissible row of norm {norm:.6g} ({label})"

    def _try(self, theta: np.ndarray, what: str = "theta") -> np.ndarray:
        """Losses at theta, after all promises were tried there."""
        where = f"{what} of norm {np.linalg.norm(theta):.4g}"
        with jax.enable_x64(True):
            losses, norms = map(np.asarray, _probe(self._loss, self._rows, self._labels, theta))
        for quantity, found in (("the loss", losses), ("its gradient's norm", norms)):
            if not np.all(np.isfinite(found)):
                row = int(np.argmin(np.isfinite(found)))
                raise ValueError(
                    f"{self._name}: must be finite and differentiable, but {quantity} is "
                    f"{found[row]} for {self._row(row)} at {where}"
                )
        slack = _SLACK * max(1.0, float(np.max(np.abs(losses))))
        row, low, high = int(norms.argmax()), int(losses.argmin()), int(losses.argmax())

        def promised(name: str, holds: Callable, right: str) -> None:
            stated = getattr(self._promises, name)
            check(stated is None or holds(stated), name, stated, f"{right} at {where}")

        right = f"at least {norms[row]:.6g}, the gradient norm for {self._row(row)}"
        promised("lipschitz", lambda most: norms[row] <= most * (1 + _SLACK), right)
        right = f"at most {losses[low]:.6g}, the loss of {self._row(low)}"
        promised("lowest_loss", lambda least: losses[low] >= least - slack, right)
        apart, rows = losses[high] - losses[low], f"{self._row(high)} and {self._row(low)}"
        right = f"at least {apart:.6g}, by which the losses of {rows} differ"
        promised("loss_spread", lambda most: apart <= most + slack, right)
        return losses

    def check_ball(self) -> None:
        """Try the promises at zero and over the ball, before the optimum is known.

        Where one does not hold a `ValueError` names it, its value, and where.
        """
        losses = [self._try(point) for point in self._points]
        if self._promises.loss_at_zero is not None:
            for row in (int(losses[0].argmin()), int(losses[0].argmax())):
                at, (low, high) = losses[0][row], self._promises.loss_at_zero
                right = f"such that it holds {at:.6g}, the loss of {self._row(row)} at theta = 0"
                slack = _SLACK * max(1.0, abs(at))
                ok = low - slack <= at <= high + slack
                check(ok, "loss_at_zero", self._promises.loss_at_zero, right)
        # Convex: half way between two points no loss is above the mean of its ends.
        generator = np.random.default_rng(_SEED + 1)
        for _ in range(_SEGMENTS):
            ends = generator.choice(len(self._points), 2, replace=False)
            at_middle = self._try(self._points[ends].mean(axis=0))
            start, end = (losses[end] for end in ends)
            above = at_middle - 0.5 * (start + end)
            scale = 1 + np.abs(start) + np.abs(end) + np.abs(at_middle)
            row = int(np.argmax(above / scale))
            if above[row] > _SLACK * scale[row]:
                lengths = np.linalg.norm(self._points[ends], axis=1)
                raise ValueError(
                    f"{self._name}: must be convex in theta, but the loss of {self._row(row)} is "
                    f"{at_middle[row]:.6g} half way between thetas of norms {lengths[0]:.4g} and "
                    f"{lengths[1]:.4g}, above their mean {at_middle[row] - above[row]:.6g}"
                )

    def check_optimum(self, optimum: np.ndarray) -> None:
        """Try the promises at the optimum, which must lie in the ball; else a `ValueError`."""
        # First: where the Lipschitz constant is wrong at the optimum, so is the radius L/lambda.
        self._try(optimum, "the optimum,")
        norm, ball = float(np.linalg.norm(optimum)), self._promises.ball
        name = "radius" if self._promises.radius == ball else "the ball's radius"
        right = f"at least {norm:.6g}, the l2 norm of the optimum"
        check(norm <= ball * (1 + _SLACK), name, ball, right)
