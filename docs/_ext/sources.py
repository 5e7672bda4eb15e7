"""Sources of pages that lie elsewhere: the help of the command, and the notebooks."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nrjax

COMMANDS = (
    *("", "run", "run regression", "run whitehouse2022", "run ligett2017", "run rogers2023"),
    *("run skellam_counts", "choose", "design", "audit", "resume", "plot", "summary", "data"),
)


def _write_help(folder):
    """Write the help of each command, unless it is newer than the package."""
    package = Path(nrjax.__file__).parent
    newest = max(file.stat().st_mtime for file in package.rglob("*.py"))

    def write(command):
        path = folder / f"{command.replace(' ', '_') or 'nrjax'}.txt"
        if path.exists() and path.stat().st_mtime > newest:
            return
        words = [sys.executable, "-m", "nrjax", *command.split(), "--help"]
        settings = os.environ | {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
        text = subprocess.run(words, env=settings, text=True, capture_output=True, check=True)
        path.write_text(text.stdout)

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, COMMANDS))


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


def setup(app):
    """Write the files before Sphinx looks for pages."""
    app.connect("builder-inited", _start, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
