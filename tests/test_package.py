"""Public names, documents and versions agree."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nrjax

ROOT = Path(__file__).parents[1]


def test_public_names_exist():
    for name in nrjax.__all__:
        assert getattr(nrjax, name) is not None


def test_documented_names_resolve_after_import_nrjax_alone():
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    modules = "composition|counts|datasets|erm|guarantees|processes|schedules|stopping|utilities"
    pattern = rf"(?<![\w./])(?:nrjax|{modules})(?:\.(?!md\b|py\b|ipynb\b)[A-Za-z_]\w*)+"
    names = {name for file in files for name in re.findall(pattern, file.read_text())}
    assert {"stopping.accuracy", "nrjax.Study"} <= names
    names |= {"nrjax.papers.whitehouse2022", "nrjax.study.compare", "composition.conversions"}
    program = f"""
import json, operator, nrjax
def resolves(name):
    try:
        operator.attrgetter(name.removeprefix("nrjax."))(nrjax)
    except AttributeError:
        return False
    return True
print(json.dumps([name for name in {sorted(names)} if not resolves(name)]))
"""
    assert _output(program) == []


def test_all_public_names_are_listed_and_imported_without_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [name for extra in project["optional-dependencies"].values() for name in extra]
    extras = {re.split(r"[\[>]", name)[0] for name in stated} - {"nrjax", "jax"}
    program = f"""
import json, sys
sys.modules.update(dict.fromkeys({sorted(extras)}))  # None: cannot be imported
from nrjax import *
import nrjax
missing = [name for name in nrjax.__all__ if name not in globals() or name not in dir(nrjax)]
print(json.dumps([missing, dir(nrjax)]))
"""
    missing, names = _output(program)
    assert missing == []
    assert {"Study", "Case", "Sample", "erm", "datasets", "counts", "stopping"} <= {*names}
    assert not {"importlib", "types", "engine", "TYPE_CHECKING"} & {*names}


def _output(program):
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {nrjax.__version__}\n" in citation
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]


DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts),
]
NAMED = re.compile(r"`([\w./-]+(?:\.(?:py|md|rst|sh|toml|png|svg)|/))`")
"""A file or a folder in a document, such as `study/store.py` or `tests/counts/`."""
OF_USERS = {"my_study.py", "report.md", "figures/", "results/", "papers/X/"}
"""Files of a run or of a user, and patterns."""


def missing(text, *folders):
    """Return the files in a text that are in none of some folders, nor bare names of files."""
    named = set(NAMED.findall(text)) - OF_USERS
    known = {path.name for folder in ("nrjax", "tests") for path in (ROOT / folder).rglob("*.py")}
    folders = (ROOT, ROOT / "nrjax", ROOT / "tests", *folders)
    return {
        name for name in named - known if not any((folder / name).exists() for folder in folders)
    }


def test_files_that_the_documents_name_exist():
    absent = {path.name: missing(path.read_text(), path.parent) for path in DOCUMENTS}
    assert not {name: names for name, names in absent.items() if names}
    assert missing("`study/stores.py` and `study/store.py`") == {"study/stores.py"}


def test_tests_that_the_scripts_name_exist():
    script = (ROOT / ".ci/versions").read_text()
    names = re.findall(r"\btests/[\w/{},]+(?:\.py)?", script)
    command = f"shopt -s failglob; printf '%s\\n' {' '.join(names)}"
    expanded = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    found = expanded.stdout.split()
    assert len(found) > 20
    assert [name for name in found if not (ROOT / name).exists()] == []
