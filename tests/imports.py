"""The imports of the package, read from its files.

Every import counts: at the top of a file, inside a function, and under `TYPE_CHECKING`.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

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


def graph():
    """Map each module to the modules that it imports, without the public names."""
    names = modules()
    return {
        name: imports(path, names) - {name, *FACADE}
        for name, path in names.items()
        if name not in FACADE
    }


def folder_of(module):
    """Return the folder of a module at the top of the package, or the module if it has none."""
    return module.split(".")[1]


def storeys(edges):
    """Return sets of folders from the top down, each folder as low as its imports allow."""
    below = {}
    for module, targets in edges.items():
        folder = folder_of(module)
        below.setdefault(folder, set()).update(set(map(folder_of, targets)) - {folder})
    height = {}
    for folder in TopologicalSorter(below).static_order():
        height[folder] = 1 + max((height[other] for other in below[folder]), default=-1)
    downwards = sorted(set(height.values()), reverse=True)
    return [{folder for folder in height if height[folder] == number} for number in downwards]
