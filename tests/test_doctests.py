"""The examples in docstrings run and give the results that they state."""

import dataclasses
import doctest
import importlib
import inspect

import pytest

import nrjax
from tests.examples import FLAT, NAMES
from tests.marks import long_except

MODULES = (
    *("composition", "composition.conversions", "counts", "datasets", "erm", "guarantees"),
    *(
        "private_selection",
        "processes",
        "questions",
        "schedules",
        "stopping",
        "stopping.accuracy",
        "utilities",
    ),
)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def check_examples(value, name):
    """Run the examples of a class with its methods, or of a function. Return their number."""
    runner, report = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS), []
    # With `module=False` inherited classes and decorated functions are not left out.
    for test in doctest.DocTestFinder().find(value, name, module=False, globs=dict(NAMES)):
        if not test.name.removeprefix(name).startswith("._"):
            runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    return runner.tries


def public(module):
    """Return the classes and functions of a module that the flat namespace does not have."""
    values = vars(importlib.import_module(f"nrjax.{module}"))
    names = values.get("__all__", [name for name in values if not name.startswith("_")])
    return {
        f"nrjax.{module}.{name}": values[name]
        for name in names
        if name not in nrjax.__all__
        and (inspect.isclass(values[name]) or inspect.isfunction(values[name]))
        and values[name].__module__.startswith("nrjax.")
    }


SLOW = (
    *("Audit", "Choice", "DiscreteLaplace", "LaplaceJumps", "Outcomes", "Study", "audit", "sweep"),
    *("PoissonSelection", "simulate", "counts", "erm"),
)
"""Names and modules whose examples take seconds to compile."""


def quick_first(names):
    """Return the parameters of names, of which the slow ones are marked long."""
    return long_except(names, *(set(names) - set(SLOW)))


@pytest.mark.parametrize("name", quick_first(FLAT))
def test_every_public_name_has_an_example_that_runs(name):
    assert check_examples(getattr(nrjax, name), name), f"nrjax.{name} has no example"


@pytest.mark.parametrize("module", quick_first(MODULES))
def test_the_examples_of_modules_run(module):
    for name, value in public(module).items():
        check_examples(value, name)


@pytest.mark.parametrize("name", FLAT)
def test_help_is_short_and_documents_every_field(name):
    value, text = getattr(nrjax, name), inspect.getdoc(getattr(nrjax, name))
    fields = getattr(value, "_fields", ())
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.repr]
    elif inspect.isfunction(value):
        fields = inspect.signature(value).parameters
    assert [field for field in fields if f"    {field}: " not in text] == []
    if fields:  # JAX's ArrayLike would be written out
        assert "Union[" not in str(inspect.signature(value))


def test_the_front_page_runs():
    assert check_examples(nrjax, "nrjax")


def test_a_wrong_example_and_a_missing_one_are_found():
    def wrong():
        """>>> nrjax.Grid([2.0, 1.0]).max_steps
        3
        """

    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        check_examples(wrong, "wrong")
    assert not check_examples(public, "public")
