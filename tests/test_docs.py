"""The site: every public name is in the reference, and the pages' code prints what they show."""

import doctest
import importlib
import inspect
import itertools
import os
import re
from pathlib import Path

import jax
import matplotlib as mpl
import pytest

from docs.figures import storeys
from tests.examples import FLAT, NAMES

DOCS = Path(__file__).parent.parent / "docs"
MODULES = (
    *("composition", "composition.conversions", "composition.certificates", "counts", "datasets"),
    *("erm", "erm.sensitivity", "erm.theory", "guarantees", "private_selection", "processes"),
    *("questions", "schedules", "stopping", "stopping.accuracy", "utilities"),
)
# Functions of modules without `__all__` that only other modules use.
HELPERS = {
    *("best_order", "check_conversion", "number"),
    *("distance", "largest_error", "largest_relative_error", "AdaptiveState"),
}
# Pages whose code takes seconds, most of them to compile.
LONG = re.compile(r"simulate\(|sweep\(|run_until\(|scan_path\(|choose\(|audit\(|\.run\(|\.fit\(")
# Of those, the pages that show a report or are read first, with one or two small programs each.
QUICK = {"index", "sharp-edges", "howto/results"}
BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = {
    str(path.relative_to(DOCS).with_suffix("")): path
    for path in sorted(DOCS.rglob("*.md"))
    if not {"_build", "gallery", "tutorials"} & set(path.parts) and BLOCK.search(path.read_text())
}


def documented():
    """Return the full names in the tables of the reference."""
    names = set()
    for page in (DOCS / "reference").glob("*.rst"):
        module = "nrjax"
        for line in page.read_text().splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   \w+", line):
                names.add(f"{module}.{line.strip()}")
    return names


def public():
    """Return the full names of the public classes and functions."""
    names = {f"nrjax.{name}" for name in FLAT}
    for module in MODULES:
        values = vars(importlib.import_module(f"nrjax.{module}"))
        for name in values.get("__all__", [name for name in values if not name.startswith("_")]):
            value = values[name]
            here = "__all__" in values or getattr(value, "__module__", "") == f"nrjax.{module}"
            if (
                here
                and (inspect.isclass(value) or callable(value))
                and name not in {*FLAT, *HELPERS}
            ):
                names.add(f"nrjax.{module}.{name}")
    return names


def test_every_public_name_is_in_the_reference():
    assert sorted(public() - documented()) == []


def test_the_reference_has_no_name_that_does_not_exist():
    for name in documented():
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def run_code(text, name):
    """Run the code of a page as one session. Return what differs from the page."""
    code = "\n".join(BLOCK.findall(text))
    test = doctest.DocTestParser().get_doctest(code, dict(NAMES), name, name, 0)
    report = []
    doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=report.append)
    return "".join(report)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            marks=pytest.mark.long if LONG.search(path.read_text()) and page not in QUICK else (),
        )
        for page, path in PAGES.items()
    ],
)
def test_the_code_of_a_page_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        pytest.skip("the pages show numbers in float32")
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    text = PAGES[page].read_text()
    for code in BLOCK.findall(text):  # code without a prompt would not run
        assert code.startswith(">>> "), code
    assert run_code(text, page) == ""


def test_a_wrong_page_is_found():
    assert "Expected:" in run_code("```python\n>>> 1 + 1\n3\n```\n", "wrong")


def test_the_picture_of_the_storeys_is_up_to_date():
    """Run `python -m docs.figures.storeys` if it is not. Numbers of lines may be off by a fifth."""
    drawn = storeys.read(re.search("<dc:description>(.*?)<", storeys.PICTURE.read_text())[1])
    current = storeys.contents()
    names = [[name for name, _ in row] for row in current]
    assert [[name for name, _ in row] for row in drawn] == names
    before = {name: size for row in drawn for name, size in row}
    for name, size in itertools.chain(*current):
        assert abs(size - before[name]) <= max(50, size / 5), name
    assert set(storeys.WORDS) == set(before)


def test_links_between_pages_lead_to_files():
    for path in (path for path in DOCS.rglob("*.md") if "_build" not in path.parts):
        for target in re.findall(r"\]\(((?!https?:|#)[^)#]+\.(?:md|ipynb|rst))", path.read_text()):
            assert os.path.exists(path.parent / target), f"{path.name} links to {target}"


def test_each_card_with_a_picture_has_a_file_and_an_alternative_text():
    pictures = 0
    for page in (DOCS / "index.md", DOCS / "gallery" / "index.md"):
        for card in re.findall(r"^:::\{grid-item-card\}.*?^:::$", page.read_text(), re.M | re.S):
            (target,) = re.findall(r"^:link: (\S+)", card, re.M)
            assert "{doc}" not in card, f"{target}: a link inside a card that is a link"
            found = re.findall(r"^:img-top: (\S+)\n:img-alt: (.+)$", card, re.M)
            assert len(found) == card.count(":img-top:"), target
            for picture, alternative in found:
                assert (page.parent / picture).exists(), picture
                assert 20 < len(alternative) < 150
                pictures += 1
    assert pictures == 4 + 12


def test_the_tutorials_have_one_order():
    text = (DOCS / "tutorials" / "index.md").read_text()
    listed = re.findall(r"^\d+\. \{doc\}`.*?<(\w+)>`", text, re.M)
    (tree,) = re.findall(r"^:hidden:\n\n(.*?)^```", text, re.M | re.S)
    assert tree.split() == listed
    notebooks = {path.stem for path in (DOCS.parent / "notebooks").glob("*.ipynb")}
    pages = {path.stem for path in (DOCS / "tutorials").glob("*.md")} - {"index"}
    assert set(listed) == notebooks | pages
