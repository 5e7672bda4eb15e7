"""Names of cases, passes and quantities: which are allowed, and which are known."""

import re
from collections.abc import Iterable
from typing import Any

from nrjax._numerics import check

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class UnknownNameError(KeyError, ValueError):
    """There is no case, pass or quantity of this name; the message lists the known names."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show it in quotes


def check_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise `UnknownNameError` if a name is not one of the known ones."""
    try:
        names = list(known)
        check(isinstance(name, str) and name in names, what, name, f"one of {names}")
    except ValueError as error:
        raise UnknownNameError(str(error)) from None


def check_name(what: str, name: Any, taken: Iterable[str] = ()) -> None:
    """Raise `ValueError` if a name cannot be that of a file on every system, or is taken."""
    right = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"
    check(isinstance(name, str) and _NAME.fullmatch(name), what, name, right)
    check(name not in taken, what, name, f"none of {tuple(taken)}, which have another meaning")
