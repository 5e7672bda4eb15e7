"""Request types that filters and odometers accept, one per kind of mechanism.

Before a mechanism starts or is rewound, a request states the cost that the mechanism may have.
Afterwards it states the actual cost. A tuple of requests is a request too, whose cost is the sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.notions import Notion, notion_of
from nrjax._base.numerics import largest_divisor
from nrjax._base.pytrees import Pytree, static
from nrjax._base.sensitivities import check_norm, relation_of
from nrjax._base.validation import (
    check,
    check_choice,
    check_numbers,
    concrete_or_none,
    float_if_large,
)
from nrjax.guarantees.recipe import hint_for
from nrjax.types import Guarantee, epsilon_at

Range: TypeAlias = tuple[Callable[[Any], Any], str]
"""A test of whether a number is in range, and a text that describes the range."""
NOT_NEGATIVE: Range = (lambda x: (x >= 0) & (x < np.inf)), "finite and not negative"
POSITIVE: Range = (lambda x: (x > 0) & (x < np.inf)), "positive and finite"
FRACTION: Range = (lambda x: (x >= 0) & (x < 1)), "at least 0 and below 1"

_RANGES: dict[str, Range] = {
    **dict.fromkeys(("rho", "epsilon", "mu", "cap"), NOT_NEGATIVE),
    **dict.fromkeys(("sensitivity", "time"), POSITIVE),
    "delta": FRACTION,
}


class _Request(Pytree):
    relation: str | None = static(default=None, kw_only=True, repr=False)
    """The relation of neighbours, which filters check; None takes that of the filter."""

    def fields(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the name, the name in messages and the value of each field but a cap of None."""
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            is_left_out = field.name == "cap" and value is None
            if not is_left_out and not field.metadata.get("static"):
                yield field.name, f"{type(self).__name__}.{field.name}", value

    def __post_init__(self):
        for field, name, value in self.fields():
            number = check_numbers(name, value, *_RANGES[field])
            if number is not None and number.ndim == 0 and number.dtype.kind in "iu":
                check(number <= 2**53, name, value, "at most 2^53, as an integer")
                value = float(number)  # int32 might overflow
            object.__setattr__(self, field, float_if_large(value))
        if hasattr(self, "noise"):
            check_norm(self.sensitivity, self.noise)  # pyright: ignore[reportAttributeAccessIssue]

    def check_single(self) -> None:
        """Raise a `ValueError` if a field is an array, whose entries would each get the budget."""
        hint = "Several requests are a tuple, or spent one after another."
        for _, name, value in self.fields():
            check(np.ndim(value) == 0, name, value, "a single number", hint)

    @np.errstate(over="ignore", under="ignore")  # numbers beyond the dtype become infinite
    def well_formed(self, dtype: Any) -> Array:
        """Return whether all fields, traced ones included, are in range (bool).

        Sensitivities, times and their reciprocals must be normal numbers of `dtype`, because XLA
        may treat subnormal numbers as 0.
        """
        ok = jnp.asarray(True)
        for field, _, value in self.fields():
            ok &= jnp.asarray(_RANGES[field][0](jnp.asarray(value)))
            if field in ("sensitivity", "time"):
                cast = jnp.asarray(value).astype(dtype)
                ok &= (cast > float(jnp.finfo(dtype).tiny)) & (cast <= largest_divisor(dtype))
        return ok


class ZCDP(_Request):
    """A request for a `delta`-approximate `rho`-zCDP mechanism (Rogers 2023, Definition 2.4).

    Attributes:
        rho: bound on the Rényi divergence at every order, divided by the order, >= 0.
        delta: weight of the part that rho does not cover, in [0, 1).
    """

    rho: ArrayLike
    delta: ArrayLike = 0.0


class ExPost(_Request):
    """A request for an ex-post private mechanism or a private test (Rogers 2023, Def. 4.1).

    Use it for noise reduction under any `Guarantee`: `ExPost.of(guarantee, time)`.

    Attributes:
        epsilon: bound on the privacy loss, >= 0: the largest possible one before the mechanism
            runs, the actual one afterwards.
        delta: probability with which the loss may exceed epsilon, in [0, 1).
        cap: largest value that `epsilon` can have, >= 0, fixed before the round; or None. With a
            cap a `RenyiFilter` charges `certificates.capped`. An epsilon above the cap is refused.
        notion: notion of `delta` (static; see `nrjax.guarantees.Notion`); None is taken for
            "probabilistic". Odometers refuse "hockey-stick".
    """

    epsilon: ArrayLike
    delta: ArrayLike = 0.0
    cap: ArrayLike | None = None
    notion: str | None = static(default=None, kw_only=True, repr=False)

    def __post_init__(self):
        if self.notion is not None:
            ex_post = Notion.PURE, Notion.PROBABILISTIC, Notion.HOCKEY_STICK
            check_choice("notion", self.notion, ex_post)
            object.__setattr__(self, "notion", Notion(self.notion))
        super().__post_init__()

    @classmethod
    def of(cls, guarantee: Guarantee, time: ArrayLike) -> ExPost:
        """Return the request for releases that stop at `time`, with the guarantee's notion.

        >>> nrjax.composition.ExPost.of(nrjax.PureGuarantee(1.0), 4.0).notion
        'pure'
        """
        hint = hint_for(guarantee)
        check(not hint, "guarantee", guarantee, "a nrjax.Guarantee", hint)
        epsilon, relation = guarantee.epsilon(time), relation_of(guarantee)
        if guarantee.fixed_times is not None:
            epsilon = epsilon_at(guarantee, time, jnp.result_type(epsilon))
            known = concrete_or_none(epsilon)
            expected = f"one of the fixed_times of {type(guarantee).__name__}"
            check(known is None or not np.isnan(known).any(), "time", time, expected)
        return cls(epsilon, guarantee.delta, relation=relation, notion=notion_of(guarantee))


class Pure(_Request):
    """A request for an epsilon-differentially private mechanism.

    Attributes:
        epsilon: bound on the privacy loss, >= 0.
    """

    epsilon: ArrayLike


class GDP(_Request):
    """A request for a mu-Gaussian differentially private mechanism (Dong, Roth, Su 2022).

    Attributes:
        mu: parameter of the guarantee, >= 0; for Gaussian noise, the sensitivity divided by the
            standard deviation.
    """

    mu: ArrayLike


class BoundedRange(_Request):
    """A request for a mechanism whose privacy loss lies in an interval of length `epsilon`.

    An example is the exponential mechanism (Durfee, Rogers 2019;
    `nrjax.counts.ExponentialMechanism`).

    Attributes:
        epsilon: length of the interval, >= 0.
    """

    epsilon: ArrayLike


class _Noise(_Request):
    sensitivity: ArrayLike
    time: ArrayLike
    noise: ClassVar[str]


class LaplaceMechanism(_Noise):
    """A request for one release with Laplace noise of a fixed scale.

    Attributes:
        sensitivity: l1-sensitivity of the value, > 0.
        time: scale of the noise, > 0.
    """

    noise = "laplace"


class BrownianReduction(_Noise):
    """A request for Brownian noise reduction that stops at, or is to be rewound to, `time`.

    Attributes:
        sensitivity: l2-sensitivity of the value, > 0.
        time: variance of the noise at the stop, > 0.
    """

    noise = "gaussian"


class LaplaceReduction(_Noise):
    """A request for Laplace noise reduction that stops at, or is to be rewound to, `time`.

    Attributes:
        sensitivity: l1-sensitivity of the value, > 0.
        time: scale of the noise at the stop, > 0.
        cap: largest value that `sensitivity / time` can have, fixed before the round; or None. With
            a cap a `RenyiFilter` charges `certificates.capped`, else
            `certificates.laplace_reduction`.
    """

    noise = "laplace"
    cap: ArrayLike | None = None


class DiscreteLaplaceReduction(_Noise):
    """A request for noise reduction with discrete Laplace noise on a vector of integers.

    Attributes:
        sensitivity: l1-sensitivity of the value, an integer > 0.
        time: scale of the noise at the stop, > 0, as in `nrjax.DiscreteLaplace`.
        cap: as for `LaplaceReduction`; without a cap a `RenyiFilter` charges
            `certificates.discrete_laplace_reduction`.
    """

    noise = "discrete laplace"
    cap: ArrayLike | None = None


LAPLACE = LaplaceReduction, DiscreteLaplaceReduction
REDUCTIONS = BrownianReduction, *LAPLACE
"""The kinds of requests whose noise can be rewound."""

Request: TypeAlias = Any
"""A request of one of the kinds above, or a tuple of requests."""


def parts(request: Request) -> Iterator[Any]:
    """Yield the single requests of a request or of a tuple of requests, in order."""
    if isinstance(request, tuple):
        for part in request:
            yield from parts(part)
    else:
        yield request


def names(kinds: Any) -> str:
    """Return the names of kinds of requests, for a message."""
    return ", ".join(kind.__name__ for kind in kinds) or "none"
