"""What a user promises of a loss, what follows from it, and where it is tried."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check
from nrjax._shown import shown
from nrjax.erm import sensitivity
from nrjax.erm._door import check_labels

_SLACK = 1e-9
"""Relative; promises are checked in float64, where rounding is far below it."""

_LONGEST, _RANDOM, _FEATURES, _LABELS = 2, 2, 64, 9
"""Most of the directions that are tried: of the longest rows, at random, of features; and labels
tried with each."""

_AT_THE_RIM = 4
"""Rows tried with arguments on the rim of the ball."""

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
        size = spread if self.loss_at_zero is None else max(low, *map(abs, self.loss_at_zero))
        return sensitivity.evaluated(sensitivity.bounded_loss(rows, spread), size)

    def check_labels(self, y: np.ndarray) -> None:
        """Raise a `ValueError` unless all labels are finite and in the stated range."""
        if self.label_range is None:
            check_labels(y, np.isfinite(y), "finite")
        else:
            low, high = self.label_range
            right = f"in label_range = {shown(self.label_range)}"
            check_labels(y, (y >= low) & (y <= high), right)

    def check_optimum(self, optimum: np.ndarray) -> None:
        """Raise a `ValueError` unless it lies in the ball."""
        norm = float(np.linalg.norm(optimum))
        name = "radius" if self.radius == self.ball else "the ball's radius"
        right = f"at least {norm:.6g}, the l2 norm of the optimum"
        check(norm <= self.ball * (1 + _SLACK), name, self.ball, right)


@partial(jax.jit, static_argnames="loss")
def _probe(loss: Callable, rows: Array, labels: Array, theta: Array) -> tuple[Array, Array]:
    """Loss and gradient norm of each row at theta."""

    def one(example: tuple[Array, Array]) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(loss)(theta, *example)
        return value, jnp.linalg.norm(gradient)

    tile = max(1, _TILE_SIZE // max(rows.shape[1], theta.shape[0]))
    return jax.lax.map(one, (rows, labels), batch_size=min(tile, rows.shape[0]))


@partial(jax.jit, static_argnames="loss")
def _gradients(loss: Callable, theta: Array, rows: Array, labels: Array) -> Array:
    return jax.vmap(jax.grad(loss), (None, 0, 0))(theta, rows, labels)


class Trials:
    """Promises of a loss are tried on the given rows and on other admissible ones; in float64.

    These have the largest norm, along the longest given rows, features and random directions, and
    against them, or are zero; each with several labels: of a range its ends and what is between,
    else those given. What does not hold is a `ValueError`.
    """

    def __init__(self, loss: Any, x: np.ndarray, y: np.ndarray, promises: Promises):
        d, generator = x.shape[1], np.random.default_rng(0)
        longest = x[np.argsort(-np.linalg.norm(x, axis=1))[:_LONGEST]]
        others = generator.normal(size=(_RANDOM, d)), np.ones((1, d)), np.eye(d)[:_FEATURES]
        some = np.concatenate([longest, *others])
        lengths = np.linalg.norm(some, axis=1)
        some = some[lengths > 0] / lengths[lengths > 0, None]
        some = promises.max_norm * np.concatenate([some, -some])
        # Without a range, numbers between the labels need not be admissible (those of classes).
        pool = np.unique(y)[:_LABELS]
        if promises.label_range is not None:
            pool = np.linspace(*promises.label_range, _LABELS)
        some = np.concatenate([some, np.zeros((1, d))])
        self._rows = np.concatenate([x, np.repeat(some, len(pool), axis=0)])
        self._labels = np.concatenate([y, np.tile(pool, len(some))])
        self._loss, self._promises, self._given = loss, promises, len(y)

    def _check_loss(self, ok: Any, right: str) -> None:
        if not ok:
            name = getattr(self._loss, "__name__", repr(self._loss))
            raise ValueError(f"loss = {name}: must {right}")

    def at_the_rim(self, dimension: int) -> None:
        """At 0 and along gradients, where a loss of a linear prediction is largest and smallest."""
        self._check_loss(callable(self._loss), "be a function of theta, row and label")
        # Of the largest norm, evenly spread over directions and labels.
        ours = np.arange(self._given, len(self._rows) - 1)  # but for the zeros
        ours = ours[np.linspace(0, len(ours) - 1, min(_AT_THE_RIM, len(ours))).round().astype(int)]
        zero, rows, labels = np.zeros(dimension), self._rows[ours], self._labels[ours]
        with jax.enable_x64(True):
            got = jax.eval_shape(self._loss, zero, rows[0], labels[0])
            ok = getattr(got, "shape", None) == () and got.dtype == np.float64
            self._check_loss(ok, f"return a scalar of its arguments' dtype, but returns {got}")
            gradients = _gradients(self._loss, zero, rows, labels)
        ways = np.concatenate([gradients, np.ones((1, dimension))])
        lengths = np.linalg.norm(ways, axis=1)
        rim = self._promises.ball * ways[lengths > 0] / lengths[lengths > 0, None]
        self.at(zero, *rim, *-rim)

    def at(self, *thetas: np.ndarray) -> None:
        """At thetas, of which the first is 0, and half way from each to the next."""
        points = *thetas, *(0.5 * (start + end) for start, end in itertools.pairwise(thetas))
        with jax.enable_x64(True):
            seen = [_probe(self._loss, self._rows, self._labels, theta) for theta in points]
        losses, norms = map(np.stack, zip(*seen, strict=True))  # shape (points, rows)
        del seen

        def worst(broken: np.ndarray) -> tuple[Any, str]:
            at = point, row = np.unravel_index(np.argmax(broken), broken.shape)
            name = f"features[{row}]" if row < self._given else "an admissible row"
            theta = f"theta of norm {np.linalg.norm(points[point]):.4g}"
            return at, f"{name} (label {self._labels[row]:.6g}) at {theta}"

        at, where = worst(~np.isfinite(losses + norms))
        right = f"the loss is {losses[at]}, its gradient's norm {norms[at]}, for {where}"
        ok = np.isfinite(losses[at] + norms[at])
        self._check_loss(ok, f"be finite and differentiable, but {right}")
        known = self._promises
        at, where = worst(norms)
        right = f"at least {norms[at]:.6g}, the gradient norm of {where}"
        check(norms[at] <= known.lipschitz * (1 + _SLACK), "lipschitz", known.lipschitz, right)
        slack = _SLACK * max(1.0, float(np.abs(losses).max()))

        def promised(name: str, values: np.ndarray, low: Any, high: Any, right: str) -> None:
            stated = getattr(known, name)
            if stated is not None:
                over = np.maximum(low - values, values - high)
                at, where = worst(over)
                check(over[at] <= slack, name, stated, f"{right.format(values[at])} of {where}")

        promised("lowest_loss", losses, known.lowest_loss, np.inf, "at most {:.6g}, the loss")
        lowest, highest = (0, 0) if known.loss_at_zero is None else known.loss_at_zero
        promised("loss_at_zero", losses[:1], lowest, highest, "two around {:.6g}, the loss")
        below = losses.max(axis=1, keepdims=True) - losses
        right = "at least {:.6g}, by which another row's is above the loss"
        promised("loss_spread", below, 0, known.loss_spread, right)
        losses[len(thetas) :] -= 0.5 * (losses[1 : len(thetas)] + losses[: len(thetas) - 1])
        losses[: len(thetas)] = -np.inf
        at, where = worst(losses)
        right = f"the loss of {where}, half way between two, is {losses[at]:.6g} above their mean"
        self._check_loss(losses[at] <= slack, f"be convex in theta, but {right}")
