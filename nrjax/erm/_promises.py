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
from nrjax.erm import _door, sensitivity

_SLACK = 1e-9
"""Relative; promises are checked in float64, where rounding is far below it."""

_SEED = 0
_RANDOM_ROWS = 64
_DIRECTIONS = 4
_SEGMENTS = 8
_TILE_SIZE = 2**20


def _number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf" and np.isfinite(value)


def _check_pair(name: str, pair: Any) -> None:
    right = "two finite numbers (low, high), low <= high"
    ok = np.ndim(pair) == 1 and len(pair) == 2 and all(_number(end) for end in pair)
    check(ok, name, pair, right)
    check(pair[0] <= pair[1], name, pair, right)


@dataclasses.dataclass(frozen=True)
class Promises:
    """Stated bounds, in the units of the loss; see `OutputProblem.fit`."""

    lipschitz: float
    max_norm: float
    label_range: tuple[float, float] | None
    radius: float | None
    loss_at_zero: tuple[float, float] | None
    lowest_loss: float | None
    loss_spread: float | None
    ball: float
    """Radius of the ball that holds the optimum."""

    @classmethod
    def build(
        cls,
        *,
        regularisation: float,
        lipschitz: float,
        max_norm: float,
        label_range: tuple[float, float] | None,
        radius: float | None,
        loss_at_zero: tuple[float, float] | None,
        lowest_loss: float | None,
        loss_spread: float | None,
    ) -> "Promises":
        """Check that the numbers can be true together, and derive the ball.

        Raises:
            ValueError: they cannot.
        """
        numbers = {"regularisation": regularisation, "lipschitz": lipschitz, "max_norm": max_norm}
        optional = {"radius": radius, "loss_spread": loss_spread}
        numbers |= {name: number for name, number in optional.items() if number is not None}
        for name, number in numbers.items():
            check(_number(number) and number > 0, name, number, "above 0 and finite")
        radii = [lipschitz / regularisation]
        if radius is not None:
            radii.append(radius)
        if label_range is not None:
            _check_pair("label_range", label_range)
        if loss_at_zero is not None:
            _check_pair("loss_at_zero", loss_at_zero)
        if lowest_loss is not None:
            check(_number(lowest_loss), "lowest_loss", lowest_loss, "a finite number")
            if loss_at_zero is not None:
                right = f"at most {loss_at_zero[0]:.6g}, the lowest loss_at_zero"
                check(lowest_loss <= loss_at_zero[0], "lowest_loss", lowest_loss, right)
                most = 2 * (loss_at_zero[1] - lowest_loss) / regularisation
                radii.append(math.sqrt(most))
        ball = min(radii)
        right = "such that the ball has a radius above 0: no loss at zero is above lowest_loss"
        check(ball > 0, "loss_at_zero", loss_at_zero, right)
        return cls(
            lipschitz=float(lipschitz),
            max_norm=float(max_norm),
            label_range=label_range,
            radius=radius,
            loss_at_zero=loss_at_zero,
            lowest_loss=lowest_loss,
            loss_spread=loss_spread,
            ball=float(ball),
        )

    @property
    def spread(self) -> float | None:
        """How far the losses of two rows can lie apart at one theta of the ball, if known."""
        known = [] if self.loss_spread is None else [self.loss_spread]
        if self.loss_at_zero is not None:
            low, high = self.loss_at_zero
            reach = self.lipschitz * self.ball
            known.append(2 * reach + high - low)
            if self.lowest_loss is not None:
                known.append(reach + high - self.lowest_loss)
        return float(min(known)) if known else None

    def sensitivity(self, rows: int) -> float | None:
        """Of the evaluated risk at one hypothesis, if `spread` is known; see `evaluated`."""
        spread = self.spread
        if spread is None:
            return None
        low = spread if self.lowest_loss is None else abs(self.lowest_loss)
        size = max(low, *map(abs, self.loss_at_zero)) if self.loss_at_zero else spread
        return sensitivity.evaluated(sensitivity.bounded_loss(rows, spread), size)

    def check_rows(self, features: Any, labels: Any) -> None:
        """Norms of the rows and the range of the labels; shapes are the door's to check."""
        x, y = _door.floats("features", features), _door.floats("labels", labels)
        if x.ndim == 2 and x.size:
            norms = np.linalg.norm(x, axis=1)
            norms = np.where(np.isfinite(norms), norms, 0)  # the door says what is not finite
            if norms.max() > self.max_norm * (1 + _door.NORM_SLACK):
                row = int(norms.argmax())
                raise ValueError(
                    f"features[{row}] has l2 norm {norms[row]:.6g}: must be at most "
                    f"max_norm = {self.max_norm:.6g}, for the promises to cover it; scale the "
                    "rows by public numbers, or divide each by its norm"
                )
        if y.ndim != 1:
            return
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


@partial(jax.jit, static_argnames="loss")
def _gradients(loss: Callable, rows: Array, labels: Array, theta: Array) -> Array:
    return jax.vmap(jax.grad(loss), (None, 0, 0))(theta, rows, labels)


class Witnesses:
    """Rows and points on which the promises are tried, all in float64.

    The rows are the given ones, then random ones of the largest norm and shorter; labels those
    given, or from all of a stated range. The points are zero, random
    ones, and the ends of the ball along gradients of single rows, where a loss of a linear
    prediction is at its largest and smallest.
    """

    def __init__(
        self, loss: Callable, x: np.ndarray, y: np.ndarray, dimension: int, promises: Promises
    ):
        self._loss, self._promises, self._given = loss, promises, len(y)
        self._name = getattr(loss, "__name__", repr(loss))
        generator = np.random.default_rng(_SEED)
        chosen = x[generator.choice(len(y), min(_DIRECTIONS, len(y)), replace=False)]
        drawn = np.concatenate([generator.normal(size=(_RANDOM_ROWS, x.shape[1])), chosen, -chosen])
        drawn *= promises.max_norm / np.maximum(np.linalg.norm(drawn, axis=1), 1e-300)[:, None]
        # Shorter rows are admissible too, down to zero.
        short = drawn * generator.uniform(size=(len(drawn), 1)) ** 2
        drawn = np.concatenate([drawn, short, np.zeros_like(drawn[:1])])
        # Without a range, numbers between the labels need not be admissible (those of classes).
        pool = np.unique(y)
        if promises.label_range is not None:
            pool = np.linspace(*promises.label_range, 9)
        self._rows = np.concatenate([x, drawn])
        self._labels = np.concatenate([y, generator.choice(pool, len(drawn))])
        self._check_form(dimension)
        self._points = self._choose_points(generator, len(chosen), dimension)

    def _check_form(self, dimension: int) -> None:
        """A scalar in the dtype of the arguments."""
        check(callable(self._loss), "loss", self._loss, "a function of theta, row and label")
        with jax.enable_x64(True):
            theta = jax.ShapeDtypeStruct((dimension,), jnp.float64)
            row = jax.ShapeDtypeStruct(self._rows.shape[1:], jnp.float64)
            label = jax.ShapeDtypeStruct((), jnp.float64)
            result = jax.eval_shape(self._loss, theta, row, label)
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape != ():
            raise ValueError(
                f"loss = {self._name}: must return a scalar, the loss of one example, but returns "
                + (repr(result) if shape is None else f"shape {shape}")
            )
        if dtype != jnp.float64:
            raise ValueError(
                f"loss = {self._name}: must return the dtype of its arguments, but returns {dtype} "
                "for float64"
            )

    def _choose_points(
        self, generator: np.random.Generator, chosen: int, dimension: int
    ) -> list[np.ndarray]:
        """Points of the ball: on its surface in pairs, and inside."""
        at_rows = slice(self._given + _RANDOM_ROWS, self._given + _RANDOM_ROWS + chosen)
        with jax.enable_x64(True):
            along = np.asarray(
                _gradients(
                    self._loss, self._rows[at_rows], self._labels[at_rows], np.zeros(dimension)
                )
            )
        directions = np.concatenate([along, generator.normal(size=(_DIRECTIONS, dimension))])
        norms = np.linalg.norm(directions, axis=1)
        usable = np.isfinite(norms) & (norms > 0)
        directions = self._promises.ball * directions[usable] / norms[usable, None]
        inside = generator.uniform(0, 1, len(directions))[:, None] * directions
        return [*directions, *-directions, *inside]

    def _row(self, number: int) -> str:
        label = f"label {self._labels[number]:.6g}"
        if number < self._given:
            return f"features[{number}] ({label})"
        norm = np.linalg.norm(self._rows[number])
        return f"an admissible row of norm {norm:.6g} ({label})"

    def _try(self, theta: np.ndarray, where: str) -> np.ndarray:
        """Losses at theta, after all promises were tried there."""
        promises = self._promises
        with jax.enable_x64(True):
            losses, norms = map(np.asarray, _probe(self._loss, self._rows, self._labels, theta))
        for what, found in (("the loss", losses), ("its gradient's norm", norms)):
            broken = np.flatnonzero(~np.isfinite(found))
            if broken.size:
                row = int(broken[0])
                raise ValueError(
                    f"loss = {self._name}: must be finite and differentiable, but {what} is "
                    f"{found[row]} for {self._row(row)} at {where}"
                )
        slack = _SLACK * max(1.0, float(np.max(np.abs(losses))))
        row = int(norms.argmax())
        right = f"at least {norms[row]:.6g}, the gradient norm for {self._row(row)} at {where}"
        check(
            norms[row] <= promises.lipschitz * (1 + _SLACK), "lipschitz", promises.lipschitz, right
        )
        low, high = int(losses.argmin()), int(losses.argmax())
        if promises.lowest_loss is not None:
            right = f"at most {losses[low]:.6g}, the loss of {self._row(low)} at {where}"
            ok = losses[low] >= promises.lowest_loss - slack
            check(ok, "lowest_loss", promises.lowest_loss, right)
        if promises.loss_spread is not None:
            apart = losses[high] - losses[low]
            right = (
                f"at least {apart:.6g}, by which the losses of {self._row(high)} and "
                f"{self._row(low)} differ at {where}"
            )
            ok = apart <= promises.loss_spread + slack
            check(ok, "loss_spread", promises.loss_spread, right)
        return losses

    def _check_midpoints(self, points: list[np.ndarray], losses: list[np.ndarray]) -> None:
        """Half way between two points no loss is above the mean of its ends."""
        generator = np.random.default_rng(_SEED + 1)
        for _ in range(_SEGMENTS):
            start, end = generator.choice(len(points), 2, replace=False)
            middle = 0.5 * (points[start] + points[end])
            at_middle = self._try(middle, f"theta of norm {np.linalg.norm(middle):.4g}")
            mean = 0.5 * (losses[start] + losses[end])
            above = at_middle - mean
            scale = 1 + np.abs(losses[start]) + np.abs(losses[end]) + np.abs(at_middle)
            row = int(np.argmax(above / scale))
            if above[row] > _SLACK * scale[row]:
                raise ValueError(
                    f"loss = {self._name}: must be convex in theta, but the loss of "
                    f"{self._row(row)} is {at_middle[row]:.6g} half way between thetas of norms "
                    f"{np.linalg.norm(points[start]):.4g} and {np.linalg.norm(points[end]):.4g}, "
                    f"above their mean {mean[row]:.6g}"
                )

    def check_ball(self) -> None:
        """Try the promises at zero and over the ball, before the optimum is known.

        Raises:
            ValueError: one does not hold; the message names it, its value, and where.
        """
        zero = np.zeros_like(self._points[0])
        losses = [self._try(zero, "theta = 0")]
        if self._promises.loss_at_zero is not None:
            for row in (int(losses[0].argmin()), int(losses[0].argmax())):
                at, (low, high) = losses[0][row], self._promises.loss_at_zero
                right = f"such that it holds {at:.6g}, the loss of {self._row(row)} at theta = 0"
                slack = _SLACK * max(1.0, abs(at))
                ok = low - slack <= at <= high + slack
                check(ok, "loss_at_zero", self._promises.loss_at_zero, right)
        for point in self._points:
            losses.append(self._try(point, f"theta of norm {np.linalg.norm(point):.4g}"))
        self._check_midpoints([zero, *self._points], losses)

    def check_optimum(self, optimum: np.ndarray) -> None:
        """Try the promises at the optimum, which must lie in the ball.

        Raises:
            ValueError: one does not hold.
        """
        norm = float(np.linalg.norm(optimum))
        # First: where the Lipschitz constant is wrong at the optimum, so is the radius L/lambda.
        self._try(optimum, f"the optimum, of norm {norm:.4g}")
        name, value = "the ball's radius", self._promises.ball
        if self._promises.radius == value:
            name = "radius"
        right = f"at least {norm:.6g}, the l2 norm of the optimum"
        check(norm <= value * (1 + _SLACK), name, value, right)
