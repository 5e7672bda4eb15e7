"""A sensitivity tagged with its norm, l1 or l2, and with the relation of neighbours."""

from __future__ import annotations

import copy
import math
import re
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from nrjax._base.arrays import EXACT
from nrjax._base.validation import (
    check,
    check_choice,
    check_integer,
    check_number,
    concrete_or_none,
)

Norm = Literal["l1", "l2"]
Noise = Literal["gaussian", "brownian", "laplace", "spherical laplace"]

RELATIONS = {
    "replace": "one row is replaced by another",
    "add-remove": "one row is added or removed",
}
"""The relations of neighbouring data sets, by name.

Groups of rows have names such as "replace, 3 rows". Under "add-remove" the number of rows is
private.
"""

NORMS: dict[str, Norm] = {
    "gaussian": "l2",
    "laplace": "l1",
    "discrete laplace": "l1",
    "spherical laplace": "l2",
    "perturbed optimum": "l2",
}


def norm_of(noise: str) -> Norm:
    """Return the norm of the sensitivity by which a kind of noise is scaled."""
    check_choice("noise", noise, ("brownian", "gaussian", "laplace", "spherical laplace"))
    return "l1" if noise == "laplace" else "l2"


def rounded_up(value: Any) -> Any:
    """Return a fraction or a decimal as the next float that is not smaller, others unchanged."""
    if not isinstance(value, EXACT):
        return value
    try:
        number, exact = float(value), Fraction(value)
    except (ValueError, OverflowError):  # no finite number, which checks of ranges refuse
        return math.inf
    return math.nextafter(number, math.inf) if number < exact else number


class Sensitivity(float):
    """A sensitivity, the largest change of a private value by one row, with its norm.

    Guarantees refuse a sensitivity in the wrong norm. They accept plain floats, and arithmetic on a
    `Sensitivity` returns plain floats. Interactions, studies, filters and odometers refuse
    sensitivities of different relations. A fraction or a decimal is rounded up to a float.

        >>> nrjax.PureGuarantee(nrjax.Sensitivity(1.0, "l1"))
        PureGuarantee(sensitivity=Sensitivity(1.0, 'l1'))
        >>> nrjax.Sensitivity(1.0, "l1", "add-remove").of_rows(3)  # for people with up to 3 rows
        Sensitivity(3.0, 'l1', 'add-remove, 3 rows')

    Attributes:
        norm: "l1" for Laplace noise, "l2" for Gaussian and for spherical Laplace noise.
        relation: relation of the neighbours, "replace" or "add-remove", or a name from `of_rows`;
            None if it is not stated.

    Raises:
        ValueError: the number is not positive and finite, or the norm or relation is unknown.
    """

    norm: Norm
    relation: str | None

    def __new__(cls, value: float, norm: Norm, relation: str | None = None) -> Sensitivity:
        """Make a sensitivity from a number, its norm and its relation."""
        check_choice("norm", norm, ("l1", "l2"))
        value = rounded_up(value)
        number, exact = check_number("sensitivity", value), np.asarray(value).item()
        check(number >= exact, "sensitivity", value, "a number that a float holds")
        self = super().__new__(cls, number)
        self.norm, self.relation = norm, relation
        if relation is not None:
            split_relation(relation)
        return self

    def of_rows(self, rows: int) -> Sensitivity:
        """Return the sensitivity for neighbours that differ in up to `rows` rows of one person.

        It is `rows` times this sensitivity, by the triangle inequality (group privacy).

        Raises:
            ValueError: the relation is not stated or is that of a group, or `rows` is below 1.
        """
        check_choice("relation", self.relation, RELATIONS)
        check_integer("rows", rows, 1, 2**53)
        if rows == 1:
            return self
        product = float(self) * rows
        expected = f"small enough for {rows} rows to change the value by a finite number"
        check(product < math.inf, "sensitivity", self, expected)
        if Fraction(product) < Fraction(float(self)) * rows:
            product = math.nextafter(product, math.inf)
        return Sensitivity(product, self.norm, f"{self.relation}, {rows} rows")

    def __getnewargs__(self) -> tuple[float, Norm, str | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # For copies and pickles.
        return float(self), self.norm, self.relation

    def __repr__(self) -> str:
        known = "" if self.relation is None else f", {self.relation!r}"
        return f"Sensitivity({float(self)!r}, {self.norm!r}{known})"


def split_relation(relation: Any) -> tuple[str, int]:
    """Return a relation for one row, and the number of rows: ("replace", 3) for three rows.

    Raises:
        ValueError: the relation is unknown.
    """
    found = re.fullmatch(r"(replace|add-remove)(?:, ([2-9]|[1-9][0-9]+) rows)?", str(relation))
    expected = f"one of {tuple(RELATIONS)}, or such as 'replace, 3 rows'"
    check(found is not None, "relation", relation, expected)
    assert found is not None
    return found[1], int(found[2] or 1)


def describe_relation(relation: str) -> str:
    """Return the meaning of a relation in words."""
    base, rows = split_relation(relation)
    several = f"up to {rows} rows are replaced by others"
    if base == "add-remove":
        several = f"up to {rows} rows are added or removed"
    return RELATIONS[base] if rows == 1 else several


def relation_of(part: Any) -> str | None:
    """Return the relation that a part or its sensitivity states, or None.

    Raises:
        ValueError: the part states another relation than its sensitivity.
    """
    owners = part, getattr(part, "sensitivity", None)
    own, given = (getattr(owner, "relation", None) for owner in owners)
    own, given = (stated if isinstance(stated, str) else None for stated in (own, given))
    name = f"relation of {type(part).__name__}"
    check(given in (None, own) or own is None, name, own, f"{given!r}, that of its sensitivity")
    return own or given


def with_relation(part: Any, relation: str | None) -> Any:
    """Return a copy of a part that states a relation, or the part itself if it states one.

    The copy's sensitivity states the relation too: a recipe passes it on to its guarantee.

    Raises:
        ValueError: the class of the part has a property `relation` that returns None.
    """
    if relation is None or relation_of(part) is not None:
        return part
    kind = type(part)
    is_field = not isinstance(getattr(kind, "relation", None), property)
    expected = f"{relation!r}, that of the given sensitivity"
    check(is_field, f"relation of {kind.__name__}", None, expected)
    stated = copy.copy(part)
    object.__setattr__(stated, "relation", relation)
    number = concrete_or_none(vars(part).get("sensitivity"))
    if number is not None and number.ndim == 0 and part.noise in NORMS:
        sensitivity = Sensitivity(float(number), NORMS[part.noise], relation)
        object.__setattr__(stated, "sensitivity", sensitivity)
    return stated


def shared_relation(**parts: Any) -> str | None:
    """Return the relation that parts state, or None if no part states one.

    Raises:
        ValueError: two parts state different relations, or the relation is unknown.
    """
    stated = {name: known for name, part in parts.items() if (known := relation_of(part))}
    if not stated:
        return None
    owner, first = next(iter(stated.items()))
    split_relation(first)
    for name, relation in stated.items():
        expected, hint = f"{first!r}, that of the {owner}", "Use sensitivities of one relation."
        check(relation == first, f"relation of the {name}", relation, expected, hint)
    return first


def check_norm(sensitivity: Any, noise: str) -> None:
    """Raise a `ValueError` if a sensitivity has a norm other than the noise requires."""
    norm = NORMS[noise]
    named = noise[:1].upper() + noise[1:].replace("laplace", "Laplace")
    expected = f"an {norm}-sensitivity, by which {named} noise is scaled"
    hint = f"Give nrjax.Sensitivity(VALUE, {norm!r})."
    check(getattr(sensitivity, "norm", norm) == norm, "sensitivity", sensitivity, expected, hint)
