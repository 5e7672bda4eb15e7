"""What is asked of a filter, and spent: small classes, one for each kind of mechanism.

The same classes say what a mechanism may cost (`admits`, before it is started or rewound) and what
it did cost (`spend`). A tuple of requests is a request too: their sum.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import largest_divisor
from nrjax._validation import as_numeric, check
from nrjax.pytrees import Pytree
from nrjax.sensitivities import check_norm

Range: TypeAlias = tuple[Callable[[Any], Any], str]
"""Whether a number is in it, and words for it."""
NOT_NEGATIVE: Range = (lambda x: (x >= 0) & (x < np.inf)), "finite and not negative"
POSITIVE: Range = (lambda x: (x > 0) & (x < np.inf)), "positive and finite"
SHARE: Range = (lambda x: (x >= 0) & (x < 1)), "at least 0 and below 1"

_RANGES: dict[str, Range] = {
    **dict.fromkeys(("rho", "epsilon", "mu", "cap"), NOT_NEGATIVE),
    **dict.fromkeys(("sensitivity", "time"), POSITIVE),
    "delta": SHARE,
}


class _Request(Pytree):
    def _fields(self) -> Iterator[tuple[str, str, Any]]:
        """Of each field that is given its name, the same after its class's, and its value."""
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            if (value := getattr(self, field.name)) is not None:
                yield field.name, f"{type(self).__name__}.{field.name}", value

    def __post_init__(self):
        for field, name, value in self._fields():
            ok, right = _RANGES[field]
            number = as_numeric(name, value, right)
            if number is not None:
                check(ok(number), name, value, right)
                if number.ndim == 0 and number.dtype.kind in "iu":  # int32 might not hold it
                    check(number <= 2**53, name, value, "at most 2^53, as an integer")
                    object.__setattr__(self, field, float(number))
        if hasattr(self, "noise"):
            check_norm(self.sensitivity, self.noise)  # pyright: ignore[reportAttributeAccessIssue]

    def check_single(self) -> None:
        """Raise a `ValueError` for an array of several: each would have the whole budget."""
        right = "a single number; several requests are a tuple, or spent one after another"
        for _, name, value in self._fields():
            check(np.ndim(value) == 0, name, value, right)

    def well_formed(self, dtype: Any) -> Array:
        """Whether all fields are in range (bool); for traces, of which nothing can be raised.

        Sensitivities and times must be normal numbers of `dtype`, and so their reciprocals: others
        XLA may take for 0.
        """
        ok = jnp.asarray(True)
        for field, _, value in self._fields():
            value = jnp.asarray(value)
            ok &= jnp.asarray(_RANGES[field][0](value))
            if field in ("sensitivity", "time"):
                # As integers: subnormal numbers compare as 0.
                cast, tiny = value.astype(dtype), np.asarray(jnp.finfo(dtype).tiny, dtype)
                bits = jnp.dtype(f"int{8 * tiny.itemsize}")
                ok &= jax.lax.bitcast_convert_type(cast, bits) >= tiny.view(bits)
                ok &= cast <= largest_divisor(dtype)
        return ok


class ZCDP(_Request):
    """A `delta`-approximate `rho`-zCDP mechanism (Rogers 2023, Definition 2.4)."""

    rho: ArrayLike
    """Zero-concentrated parameter, >= 0: Renyi divergence at most `order * rho`."""
    delta: ArrayLike = 0.0
    """Weight of the part that is not covered, in [0, 1)."""


class ExPost(_Request):
    """An ex-post private mechanism (Rogers 2023, Definition 4.1), or a private test."""

    epsilon: ArrayLike
    """Bound of the privacy loss, >= 0: the largest that may come out, or the one that did."""
    delta: ArrayLike = 0.0
    """Probability with which the loss may exceed it, in [0, 1)."""
    cap: ArrayLike | None = None
    """The most that `epsilon` can come to, >= 0, fixed before the round; or None. Under a
    `RenyiFilter` it is then charged by `certificates.capped`; an epsilon above it is refused."""


class Pure(_Request):
    """An epsilon-differentially private mechanism: its loss is at most `epsilon`, >= 0."""

    epsilon: ArrayLike


class GDP(_Request):
    """A mu-Gaussian differentially private mechanism, mu >= 0 (Dong, Roth, Su 2022)."""

    mu: ArrayLike


class BoundedRange(_Request):
    """A mechanism whose privacy loss keeps to an interval of length `epsilon`, >= 0.

    The exponential mechanism is one (Durfee, Rogers 2019): `nrjax.counts.ExponentialMechanism`.
    """

    epsilon: ArrayLike


class _Noise(_Request):
    sensitivity: ArrayLike
    """Of the value, > 0, in units of the noise: its D1 for Laplace noise, its D2 for Brownian."""
    time: ArrayLike
    """Scale of Laplace noise (discrete: `nrjax.DiscreteLaplace`), variance of Brownian; > 0."""
    noise: ClassVar[str]


class LaplaceMechanism(_Noise):
    """One release with Laplace noise of a fixed scale, `time`."""

    noise = "laplace"


class BrownianReduction(_Noise):
    """Brownian noise reduction that stopped at, or is about to be rewound to, `time`."""

    noise = "gaussian"


class LaplaceReduction(_Noise):
    """Laplace noise reduction that stopped at, or is about to be rewound to, `time`."""

    noise = "laplace"
    cap: ArrayLike | None = None
    """The most that `sensitivity / time` can come to, as in `ExPost`; None: under a `RenyiFilter`
    it is charged by `certificates.laplace_reduction`, which needs none."""


class DiscreteLaplaceReduction(_Noise):
    """The same with discrete Laplace noise on a vector of integers, whose D1 is one too."""

    noise = "discrete laplace"
    cap: ArrayLike | None = None
    """As of `LaplaceReduction`, whose certificate is another."""


LAPLACE = LaplaceReduction, DiscreteLaplaceReduction
REDUCTIONS = BrownianReduction, *LAPLACE
"""The kinds that are rewound."""

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
