"""The package's imports point downwards and have no circle. Its tree and its tests stay tidy."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.imports import FACADE, ROOT, folder_of, graph, imports, modules, storeys

TESTS = Path(__file__).parent

ORDER = (
    ("__main__",),
    ("cli",),
    ("auditing", "choice", "papers"),
    ("study",),
    ("simulation", "counts", "erm"),
    ("engine", "private_selection"),
    ("composition", "stopping"),
    ("guarantees", "processes", "schedules", "utilities"),
    ("types", "statistics", "datasets"),
    ("_base",),
)
"""The storeys: folders and top-level modules, from the top down.

A folder imports from the storeys below its own only, not from its neighbours, and stands one storey
above the highest folder that it imports. If an import that you add or remove moves a folder on
purpose, move it here, and draw the picture again: `python -m docs.figures.storeys`.
"""


def level(module):
    """Return the storey of a module, counted from the top."""
    return next(number for number, storey in enumerate(ORDER) if folder_of(module) in storey)


def check_downwards(edges):
    """Assert that each module imports from its own folder or from storeys below it."""
    wrong = {
        f"{module} -> {target}"
        for module, targets in edges.items()
        for target in targets
        if level(target) <= level(module) and folder_of(target) != folder_of(module)
    }
    assert not wrong


def check_no_circle(edges):
    """Assert that modules can be sorted so that each follows those that it imports."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_imports_point_downwards():
    check_downwards(graph())


def test_every_folder_stands_as_low_as_its_imports_allow():
    assert storeys(graph()) == list(map(set, ORDER))


def test_imports_have_no_circle():
    check_no_circle(graph())


def test_imports_that_go_up_or_aside_or_round_are_found():
    edges = graph()
    edges["nrjax._base.keys"] = edges["nrjax._base.keys"] | {"nrjax.types"}
    with pytest.raises(AssertionError, match=r"nrjax\._base\.keys -> nrjax\.types"):
        check_downwards(edges)
    edges = graph()
    edges["nrjax.auditing.audit"] = edges["nrjax.auditing.audit"] | {"nrjax.choice.racing"}
    with pytest.raises(AssertionError, match=r"nrjax\.auditing\.audit -> nrjax\.choice\.racing"):
        check_downwards(edges)
    edges = graph()
    edges["nrjax._base.keys"] = edges["nrjax._base.keys"] | {"nrjax.types"}
    edges["nrjax.types"] = edges["nrjax.types"] | {"nrjax._base.keys"}
    with pytest.raises(AssertionError, match=r"nrjax\._base\.keys"):
        check_no_circle(edges)


def test_the_public_names_are_imported_by_the_command_and_the_papers_only():
    """Other modules import from where a name is defined."""
    names = modules()
    importers = {
        folder_of(name)
        for name, path in names.items()
        if name not in FACADE and imports(path, names) & FACADE
    }
    assert importers <= {"cli", "papers", "__main__"}


def test_the_top_of_the_package_is_small():
    entries = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py")}
    assert len(entries) <= 24


def test_no_test_file_is_imported_by_another_module():
    """Tests share code in modules of their own, such as tests/problems.py."""
    found = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(name.startswith("test_") for name in names):
                    found.add(f"{path.relative_to(TESTS)}: {ast.unparse(node)}")
    assert not found


def test_study_needs_neither_the_papers_nor_the_command():
    for name, path in modules().items():
        if name.startswith("nrjax.study"):
            assert "tyro" not in path.read_text(), name
