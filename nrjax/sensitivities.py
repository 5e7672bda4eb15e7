"""A sensitivity with the norm that it is in, so that it cannot be taken for the other one."""

from typing import Any, Literal

from nrjax._validation import check, check_positive

Norm = Literal["l1", "l2"]
Noise = Literal["gaussian", "laplace"]

NORMS: dict[str, Norm] = {"gaussian": "l2", "laplace": "l1", "discrete laplace": "l1"}


def norm_of(noise: str) -> Norm:
    """The norm that a kind of noise for real values, "gaussian" or "laplace", is scaled by."""
    check(noise in ("gaussian", "laplace"), "noise", noise, "'gaussian' or 'laplace'")
    return NORMS[noise]


class Sensitivity(float):
    """How far one row can move a private value: a float that knows its norm.

    Guarantees refuse one of the wrong norm. Arithmetic gives plain floats, which none refuses.

    Attributes:
        norm: "l1", which Laplace noise is scaled by, or "l2", for Gaussian noise.
    """

    norm: Norm

    def __new__(cls, value: float, norm: Norm) -> "Sensitivity":
        """Raises a `ValueError` unless `value` is positive and finite and there is such a norm."""
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
    """Raise a `ValueError` if a sensitivity has a norm, and it is not that of the noise."""
    norm = NORMS[noise]
    right = f"an {norm}-sensitivity, by which {noise.capitalize()} noise is scaled"
    check(getattr(sensitivity, "norm", norm) == norm, "sensitivity", sensitivity, right)
