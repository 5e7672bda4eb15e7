"""Importing is quick: nothing is loaded before it is needed, and no device is touched."""

import json
import subprocess
import sys

SLOW = {"dask", "distributed", "matplotlib", "optax", "pandas", "pooch", "scipy", "xarray"}
"""Packages that take long to import, and that neither the library nor the command's help needs."""

PROGRAM = """
import json, signal, sys
from jax._src import xla_bridge

def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})

signal.signal(signal.SIGINT, signal.default_int_handler)
import nrjax
ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
core = [name for name in sys.modules if name.startswith("nrjax")]
nrjax.erm.RidgeProblem, nrjax.datasets.load
library = loaded()
import nrjax.cli
command = loaded()
import nrjax.study.figures
facts = [core, library, command, ignored, xla_bridge.backends_are_initialized()]
print(json.dumps([*facts, "matplotlib.pyplot" in sys.modules]))
nrjax.counts.CountRelease, nrjax.Study, nrjax.Case, nrjax.Quantity, nrjax.Curve, nrjax.Reporting
nrjax.er
"""


def test_imports_load_nothing_slow_and_start_no_device():
    """Devices of a worker are set up when the number of its cores is known.

    pyplot's global state and its window system stay out of the program; packages come when they
    are named. The process's signals are left alone, whatever its arguments look like.
    """
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "-m", "nrjax"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    core, library, command, ignored, started, pyplot = json.loads(ended.stdout or ended.stderr)
    assert not {"nrjax.erm", "nrjax.study", "nrjax.papers", "nrjax._base.progress"} & set(core)
    assert {"jax", "nrjax"} <= set(library)
    assert not set(library) & {*SLOW, "tyro", "rich"}
    assert "tyro" in command
    assert not set(command) & SLOW
    assert not ignored
    assert not started
    assert not pyplot
    assert "module 'nrjax' has no attribute 'er'" in ended.stderr


EACH_FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "nrjax"]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""


def test_any_module_can_be_imported_first():
    """Public names are imported late, which must not close a circle of imports."""
    names = ("engine", "simulation.batching", "study.compare", "erm", "papers.ligett2017", "cli")
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        EACH_FIRST,
        *(f"nrjax.{name}" for name in names),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
