"""A sensitivity tagged with its norm, l1 or l2."""

from __future__ import annotations

from typing import Any, Literal

from nrjax._validation import check, check_positive

Norm = Literal["l1", "l2"]
Noise = Literal["gaussian", "brownian", "laplace"]

NORMS: dict[str, Norm] = {"gaussian": "l2", "laplace": "l1", "discrete laplace": "l1"}


def norm_of(noise: str) -> Norm:
    """Return the norm of the sensitivity by which a kind of noise is scaled."""
    expected = "'brownian', 'gaussian' or 'laplace'"
    check(noise in ("brownian", "gaussian", "laplace"), "noise", noise, expected)
    return "l1" if noise == "laplace" else "l2"


class Sensitivity(float):
    """A sensitivity, the largest change of a private value by one row, with its norm.

    Guarantees refuse a sensitivity in the wrong norm. They accept plain floats, and arithmetic on a
    `Sensitivity` returns plain floats.

        >>> nrjax.PureGuarantee(nrjax.Sensitivity(1.0, "l1"))
        PureGuarantee(sensitivity=Sensitivity(1.0, 'l1'))

    Attributes:
        norm: "l1" for Laplace noise, "l2" for Gaussian noise.

    Raises:
        ValueError: the number is not positive and finite, or the norm is unknown.
    """

    norm: Norm

    def __new__(cls, value: float, norm: Norm) -> Sensitivity:
        """Make a sensitivity from a number and its norm."""
        check(norm in ("l1", "l2"), "norm", norm, "'l1' or 'l2'")
        check_positive("sensitivity", value)
        self = super().__new__(cls, value)
        self.norm = norm
        return self

    def __getnewargs__(self) -> tuple[float, Norm]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # For copies and pickles.
        return float(self), self.norm

    def __repr__(self) -> str:
        return f"Sensitivity({float(self)!r}, {self.norm!r})"


def check_norm(sensitivity: Any, noise: str) -> None:
    """Raise a `ValueError` if a sensitivity has a norm other than the noise requires."""
    norm = NORMS[noise]
    expected = f"an {norm}-sensitivity, by which {noise.capitalize()} noise is scaled"
    hint = f"Give nrjax.Sensitivity(VALUE, {norm!r})."
    check(getattr(sensitivity, "norm", norm) == norm, "sensitivity", sensitivity, expected, hint)
