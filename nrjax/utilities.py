"""Utilities: any function of a release, and utilities that differ from step to step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.arrays import copied
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import static
from nrjax._base.validation import as_table, check, check_positive, concrete_or_none
from nrjax.types import Utility

U = TypeVar("U", bound=Utility)

_NOT_TRACED = (
    jax.errors.TracerArrayConversionError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class FunctionUtility(Utility):
    """A utility that scores a release by a function `score(release, *data)`.

    `nrjax.Mechanism.until` makes it of a function. Derive from `nrjax.Utility` instead if a release
    gives a hypothesis, such as a fitted model, or if the score has cheap bounds.

        >>> def score(release, truth):
        ...     return -jnp.max(jnp.abs(release - truth))
        >>> utility = nrjax.utilities.FunctionUtility(score, (jnp.zeros(3),))
        >>> float(utility.evaluate(jnp.ones(3)))
        -1.0

    Attributes:
        score: a JAX function of ONE release that returns a scalar, static. Larger is better.
            Interactions with one function object share a compiled program: define it once.
        data: further arguments of the function, a tuple of numbers, arrays or pytrees.
        sensitivity: largest change of the score at a fixed release if one row of the private data
            changes, scalar, in the dtype of the run: the data are rounded to it, which may move
            the scores of neighbours apart. It may be None for a public rule.

    Raises:
        ValueError: an attribute has the wrong type, or `sensitivity` is not positive and finite.
    """

    score: Callable[..., Any] = static()
    data: Any = ()
    sensitivity: Any = None

    def __post_init__(self):
        score, expected = self.score, "a function of a release, or a nrjax.Utility"
        check(callable(score) and isinstance(score, Hashable), "score", score, expected)
        hint = "Write data=(truth,) for a function score(release, truth)."
        check(isinstance(self.data, tuple), "data", self.data, "a tuple of arguments", hint)
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)
        listed = jax.tree.map(as_table, self.data, is_leaf=lambda leaf: isinstance(leaf, list))
        object.__setattr__(self, "data", jax.tree.map(copied, listed))

    def evaluate(self, hypothesis: Any) -> Array:
        """Return the score of a release, a scalar.

        Raises:
            ValueError: JAX cannot trace the function, the arguments do not fit it, or its result is
                not a scalar.
        """
        arguments = (hypothesis, *self.data)
        try:
            result = self.score(*arguments)
        except (TypeError, *_NOT_TRACED) as error:  # a bug of another kind speaks for itself
            raise ValueError(_explained(self.score, arguments, error)) from error
        hint = "Reduce it, for example by jnp.max(jnp.abs(...))."
        is_scalar = result is not None and np.shape(result) == ()
        check(is_scalar, "the result of score", result, "a scalar", hint)
        return result  # pyright: ignore[reportReturnType]


def _explained(score: Any, arguments: tuple[Any, ...], error: Exception) -> str:
    """Return the message for an error that a score raised under a trace."""
    name, kind = getattr(score, "__name__", score), type(error).__name__
    if isinstance(error, _NOT_TRACED):
        return (
            f"score must be a function that JAX can trace (got {name}, which raised {kind}). Write "
            "jnp for np and math, jnp.where for if, and leave out float() and int()."
        )
    shown = ", ".join(
        f"{jnp.result_type(a)}{list(jnp.shape(a))}" for a in jax.tree.leaves(arguments)
    )
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"score must take a release and its data, here {shown} (got {name}, which raised {kind}: "
        f"{first_line}). Give its other arguments as data=(truth,)."
    )


class UtilitySequence(Utility, Generic[U]):
    """A sequence of utilities, one per step, all of one class and with equal shapes.

    Use it if the score of a release changes from step to step, such as with a target that falls. A
    private rule covers the sequence as long as no row of the data changes any of the utilities by
    more than `sensitivity` (Whitehouse 2022, section 5; Ligett 2017, Algorithm 2).

        >>> class Closeness(nrjax.Utility):
        ...     target: float
        ...     def evaluate(self, hypothesis):
        ...         return -jnp.abs(hypothesis - self.target)
        >>> utility = nrjax.UtilitySequence.of([Closeness(target) for target in (1.0, 2.0, 3.0)])
        >>> float(utility.at(1).evaluate(5.0)), utility.max_steps
        (-3.0, 3)

    Attributes:
        utilities: a utility whose leaves have a leading axis of steps; `UtilitySequence.of` makes
            it from a list.
        sensitivity: largest sensitivity of the utilities, scalar. It may be None for a public rule.

    Raises:
        ValueError: `sensitivity` is not positive and finite, or is for another relation of
            neighbours than that of the utilities.
    """

    utilities: U
    sensitivity: Any = None

    def __post_init__(self):
        if self.sensitivity is not None:
            check_positive("sensitivity", self.sensitivity)

    @classmethod
    @neutral_config()
    def of(cls, utilities: Sequence[U], sensitivity: Any = None) -> UtilitySequence[U]:
        """Make a sequence from a list of utilities.

        Args:
            utilities: one per step.
            sensitivity: by default the largest sensitivity, if every utility states one.

        Raises:
            ValueError: the list is empty, its utilities differ in class or shapes or hold no
                arrays, or `sensitivity` is below the sensitivity that a utility states.
        """
        ok = isinstance(utilities, Sequence) and all(isinstance(u, Utility) for u in utilities)
        check(
            ok and len(utilities) > 0,
            "utilities",
            utilities,
            "at least one nrjax.Utility, in a list",
        )
        shapes = {(jax.tree.structure(u), *map(np.shape, jax.tree.leaves(u))) for u in utilities}
        check(len(shapes) == 1, "utilities", list(utilities), "of one class and one set of shapes")
        has_leaves = len(jax.tree.leaves(utilities[0])) > 0
        check(has_leaves, "utilities", list(utilities), "made of arrays")
        stated = [concrete_or_none(utility.sensitivity) for utility in utilities]
        largest = max((float(np.max(n)) for n in stated if n is not None), default=0.0)
        if sensitivity is None and all(number is not None for number in stated):
            sensitivity = largest
        number = concrete_or_none(sensitivity)
        if number is not None:
            expected = f"at least {largest:.6g}, which one of the utilities states"
            check(number >= largest, "sensitivity", sensitivity, expected)
        return cls(jax.tree.map(lambda *leaves: jnp.stack(leaves), *utilities), sensitivity)

    @property
    def noise(self) -> str | tuple[str, ...] | None:
        """The kinds of noise of the releases that the utilities can read, or None for any."""
        return self.utilities.noise

    @property
    def max_steps(self) -> int:
        """The number of utilities."""
        return jax.tree.leaves(self.utilities)[0].shape[0]

    def evaluate(self, hypothesis: Any) -> Array:
        """Raise a `ValueError`, since utilities differ: use `at(step).evaluate(hypothesis)`."""
        raise ValueError("utility must be that of one step: use at(step).evaluate(hypothesis).")

    def at(self, step: Array) -> U:
        """Return the utility at a step, without the axis of steps."""
        return jax.tree.map(lambda leaf: leaf[step], self.utilities)
