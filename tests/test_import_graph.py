"""The package's imports point downwards and have no circle.

Every import counts: at the top of a file, inside a function, and under `TYPE_CHECKING`.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nrjax

ROOT = Path(nrjax.__file__).parent
FACADE = {"nrjax", "nrjax._public", "nrjax.questions"}
"""Modules that hold the public names, which users import and the package itself does not."""


def modules():
    """Map the dotted name of each module to its file."""
    names = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["nrjax", *path.relative_to(ROOT).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(path, names):
    """Return the modules of the package that a file imports, wherever it does so."""
    targets = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} imports relatively"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                targets.add(submodule if submodule in names else node.module)
    return targets & set(names)


ORDER = (
    ("cli", "__main__"),
    ("papers",),
    ("auditing",),
    ("choice",),
    ("study",),
    ("statistics",),
    ("simulation",),
    ("counts", "erm", "datasets", "private_selection"),
    ("engine",),
    ("composition",),
    ("stopping",),
    ("guarantees", "processes", "schedules", "utilities"),
    ("types",),
    ("_base",),
)
"""Packages and modules from the top down: each imports from its own line and from lower ones."""


def level(module):
    """Return how far down a module stands, counted from the top."""
    package = module.split(".")[1]
    return next(index for index, line in enumerate(ORDER) if package in line)


def graph():
    """Map each module to the modules that it imports, without the public names."""
    names = modules()
    return {
        name: imports(path, names) - {name, *FACADE}
        for name, path in names.items()
        if name not in FACADE
    }


def check_downwards(edges):
    """Assert that no module imports from a line above its own."""
    upwards = {
        f"{module} -> {target}"
        for module, targets in edges.items()
        for target in targets
        if level(target) < level(module)
    }
    assert not upwards


def check_no_circle(edges):
    """Assert that modules can be sorted so that each follows those that it imports."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_imports_point_downwards():
    check_downwards(graph())


def test_imports_have_no_circle():
    check_no_circle(graph())


def test_an_upward_import_and_a_circle_are_found():
    edges = graph()
    edges["nrjax._base.keys"] = edges["nrjax._base.keys"] | {"nrjax.types"}
    with pytest.raises(AssertionError, match=r"nrjax\._base\.keys -> nrjax\.types"):
        check_downwards(edges)
    edges["nrjax.types"] = edges["nrjax.types"] | {"nrjax._base.keys"}
    with pytest.raises(AssertionError, match=r"nrjax\._base\.keys"):
        check_no_circle(edges)


def test_study_needs_neither_the_papers_nor_the_command():
    for name, path in modules().items():
        if name.startswith("nrjax.study"):
            assert "tyro" not in path.read_text(), name
