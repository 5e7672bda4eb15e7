"""What is asked of a filter, and spent: small classes, one for each kind of mechanism.

A tuple of requests is a request too: their sum. The same classes say what a mechanism may cost
(`admits`, before it is started or rewound) and what it did cost (`spend`).
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, largest_divisor, numbers
from nrjax.pytrees import Pytree
from nrjax.sensitivities import check_norm


def _not_negative(value: Any) -> Any:
    return (value >= 0) & (value < np.inf)


def _positive(value: Any) -> Any:
    return (value > 0) & (value < np.inf)


def _share(value: Any) -> Any:
    return (value >= 0) & (value < 1)


_RIGHT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "rho": (_not_negative, "finite and not negative"),
    "epsilon": (_not_negative, "finite and not negative"),
    "mu": (_not_negative, "finite and not negative"),
    "delta": (_share, "at least 0 and below 1"),
    "sensitivity": (_positive, "positive and finite"),
    "time": (_positive, "positive and finite"),
}


class _Request(Pytree):
    """What the kinds have in common: the ranges of their fields, by name."""

    def __post_init__(self):
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            ok, right = _RIGHT[field.name]
            name = f"{type(self).__name__}.{field.name}"
            number = numbers(name, value, right)
            if number is not None:
                check(ok(number), name, value, right)
                if number.ndim == 0 and number.dtype.kind in "iu":  # int32 might not hold it
                    check(number <= 2**53, name, value, "at most 2^53, as an integer")
                    object.__setattr__(self, field.name, float(number))
        if hasattr(self, "noise"):
            check_norm(self.sensitivity, self.noise)  # pyright: ignore[reportAttributeAccessIssue]

    def check_single(self) -> None:
        """Raise a `ValueError` for an array of several: each would have the whole budget."""
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            check(
                np.ndim(value) == 0,
                f"{type(self).__name__}.{field.name}",
                value,
                "a single number; several requests are a tuple, or spent one after another",
            )

    def well_formed(self, dtype: Any) -> Array:
        """Whether all fields are in range (bool); for traces, of which nothing can be raised.

        Sensitivities and times must be normal numbers of `dtype`, and so their reciprocals: others
        XLA may take for 0.
        """
        ok = jnp.asarray(True)
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = jnp.asarray(getattr(self, field.name))
            ok &= jnp.asarray(_RIGHT[field.name][0](value))
            if field.name in ("sensitivity", "time"):
                # As integers: subnormal numbers compare as 0.
                cast, tiny = value.astype(dtype), np.asarray(jnp.finfo(dtype).tiny, dtype)
                bits = jnp.dtype(f"int{8 * tiny.itemsize}")
                ok &= jax.lax.bitcast_convert_type(cast, bits) >= tiny.view(bits)
                ok &= cast <= largest_divisor(dtype)
        return ok


class ZCDP(_Request):
    """A `delta`-approximate `rho`-zCDP mechanism (Rogers 2023, Definition 2.4).

    Attributes:
        rho: zero-concentrated parameter, >= 0: Renyi divergence at most `order * rho`.
        delta: weight of the part that is not covered, in [0, 1).
    """

    rho: ArrayLike
    delta: ArrayLike = 0.0


class ExPost(_Request):
    """An ex-post private mechanism (Rogers 2023, Definition 4.1), or a private test.

    When asked for, `epsilon` is the largest that may come out; when spent, the one that came out.

    Attributes:
        epsilon: bound of the privacy loss, >= 0.
        delta: probability with which the loss may exceed it, in [0, 1).
    """

    epsilon: ArrayLike
    delta: ArrayLike = 0.0


class Pure(_Request):
    """An epsilon-differentially private mechanism.

    Attributes:
        epsilon: bound of the privacy loss, >= 0.
    """

    epsilon: ArrayLike


class GDP(_Request):
    """A mu-Gaussian differentially private mechanism (Dong, Roth, Su 2022).

    Attributes:
        mu: distance in standard deviations, >= 0, of the two normal laws that are as hard to tell
            apart.
    """

    mu: ArrayLike


class BoundedRange(_Request):
    """A mechanism whose privacy loss keeps to an interval of length epsilon.

    The exponential mechanism is one (Durfee, Rogers 2019): `nrjax.counts.ExponentialMechanism`.

    Attributes:
        epsilon: length of that interval, >= 0.
    """

    epsilon: ArrayLike


class LaplaceMechanism(_Request):
    """One release with Laplace noise of a fixed scale.

    Attributes:
        sensitivity: l1-sensitivity D1 of the value, > 0, in units of the noise.
        time: scale of the noise, > 0.
    """

    sensitivity: ArrayLike
    time: ArrayLike
    noise: ClassVar[str] = "laplace"


class BrownianReduction(_Request):
    """Brownian noise reduction that stopped at, or is about to be rewound to, `time`.

    Attributes:
        sensitivity: l2-sensitivity D2 of the value, > 0, in units of the noise.
        time: variance of the noise, > 0.
    """

    sensitivity: ArrayLike
    time: ArrayLike
    noise: ClassVar[str] = "gaussian"


class LaplaceReduction(_Request):
    """Laplace noise reduction that stopped at, or is about to be rewound to, `time`.

    Attributes:
        sensitivity: l1-sensitivity D1 of the value, > 0, in units of the noise.
        time: scale of the noise, > 0.
    """

    sensitivity: ArrayLike
    time: ArrayLike
    noise: ClassVar[str] = "laplace"


Request: TypeAlias = Any
"""A request of one of the kinds above, or a tuple of requests."""


def parts(request: Request) -> Iterator[Any]:
    """The single requests of a request, in their order."""
    if isinstance(request, tuple):
        for part in request:
            yield from parts(part)
    else:
        yield request


def names(kinds: Any) -> str:
    """The names of some kinds of requests, for a message."""
    return ", ".join(kind.__name__ for kind in kinds) or "none"
