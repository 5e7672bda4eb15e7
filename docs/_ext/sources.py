"""Sources of pages that lie elsewhere: the help of the command, and the notebooks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nrjax

COMMANDS = (
    *("", "run", "run regression", "run whitehouse2022", "run ligett2017", "run rogers2023"),
    *(
        "run skellam_counts",
        "run tuning",
        "run unknown_keys",
        "choose",
        "design",
        "audit",
        "fingerprint",
        "resume",
        "merge",
        "plot",
        "summary",
        "data",
    ),
)


# One process for all commands: most of the time is that of importing JAX.
_SCRIPT = """
import contextlib, pathlib, sys
from nrjax import cli
for command in sys.argv[2:]:
    name = command.replace(" ", "_") or "nrjax"
    with open(pathlib.Path(sys.argv[1], f"{name}.txt"), "w") as file:
        with contextlib.redirect_stdout(file), contextlib.suppress(SystemExit):
            cli.main([*command.split(), "--help"])
"""


def _write_help(folder):
    """Write the help of each command, unless it is newer than the package."""
    package, first = Path(nrjax.__file__).parent, folder / "nrjax.txt"
    newest = max(file.stat().st_mtime for file in package.rglob("*.py"))
    if not first.exists() or first.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        settings = os.environ | {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
        words = [sys.executable, "-c", _SCRIPT, str(folder), *COMMANDS]
        subprocess.run(words, env=settings, check=True)


def _copy_notebooks(docs):
    """Copy the notebooks that changed to the tutorials, which show them executed."""
    for source in (docs.parent / "notebooks").glob("*.ipynb"):
        copy = docs / "tutorials" / source.name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copyfile(source, copy)


def _start(app):
    docs = Path(app.srcdir)
    _write_help(docs / "_build" / "help")
    if (docs / "tutorials" / "index.md").exists():
        _copy_notebooks(docs)


def _drop_absent(app, docname, source):
    """Remove the gallery and the tutorials from the menu if they are absent."""
    if docname == "index":
        for folder in ("gallery", "tutorials"):
            if not (Path(app.srcdir) / folder / "index.md").exists():
                source[0] = re.sub(rf"^{folder}/index\n", "", source[0], flags=re.MULTILINE)


def setup(app):
    """Write the files before Sphinx looks for pages."""
    app.connect("builder-inited", _start, priority=100)
    app.connect("source-read", _drop_absent)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
