"""`help` describes the fields of named tuples."""

import importlib
import inspect
import pydoc
from typing import NamedTuple

import nrjax
from nrjax._base.fields import explain_fields

MODULES = (
    *("composition", "counts", "datasets", "erm", "private_selection", "stopping"),
    *("stopping.accuracy", "study.compare", "study.histograms", "study.precision"),
    *("study.release_error", "study.report", "auditing.report", "auditing.events"),
    *("choice.report", "composition.schedule", "composition._state"),
)
"""Modules that define, or export, the named tuples that a user gets."""


def named_tuples():
    for module in (nrjax, *(importlib.import_module(f"nrjax.{name}") for name in MODULES)):
        own = (n for n, value in vars(module).items() if inspect.getmodule(value) is module)
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            if inspect.isclass(value) and hasattr(value, "_fields") and name[0] != "_":
                yield value


def test_help_describes_every_field():
    found = {*named_tuples()}
    assert {nrjax.Outcome, nrjax.Path} < found
    unclear = {
        f"{one.__name__}.{name}"
        for one in found
        for name in one._fields
        if inspect.getdoc(getattr(one, name)).startswith("Alias for field number")
    }
    assert not unclear


class Pair(NamedTuple):
    """Two numbers.

    Attributes:
        first: the first number, whose description
            continues.
        other: no field.

    Raises:
        last: no description of a field.
    """

    first: int
    last: int


def test_descriptions_come_from_the_docstring():
    assert explain_fields(Pair) is Pair
    assert Pair.first.__doc__ == "the first number, whose description continues."
    assert "Alias" in Pair.last.__doc__
    assert "the first number, whose description continues." in pydoc.render_doc(Pair)
    assert Pair(1, 2)._replace(last=3) == (1, 3)
    assert explain_fields(NamedTuple("Bare", [("first", int)])).first.__doc__.startswith("Alias")
