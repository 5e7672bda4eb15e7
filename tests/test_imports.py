"""Importing is quick: nothing is loaded before it is needed, and no device is touched."""

import json
import subprocess
import sys

SLOW = {"dask", "distributed", "matplotlib", "optax", "pandas", "pooch", "scipy", "xarray"}
"""Packages that take long to import, and that neither the library nor the command's help needs."""

PROGRAM = """
import json, sys
from jax._src import xla_bridge

def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})

import nrjax
core = [name for name in sys.modules if name.startswith("nrjax")]
import nrjax.erm, nrjax.datasets
library = loaded()
import nrjax.cli
print(json.dumps([core, library, loaded(), xla_bridge.backends_are_initialized()]))
"""
NAMED = """
import nrjax
nrjax.erm.RidgeProblem, nrjax.counts.CountRelease, nrjax.datasets.load
nrjax.Study, nrjax.Case, nrjax.Quantity, nrjax.Curve, nrjax.Reporting
nrjax.er
"""


def python(program):
    """What a process of its own says, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_imports_load_nothing_slow_and_start_no_device():
    """Devices of a worker are set up when the number of its cores is known."""
    ended = python(PROGRAM)
    core, library, command, started = json.loads(ended.stdout or ended.stderr)
    assert not {"nrjax.erm", "nrjax.study", "nrjax.papers", "nrjax.progress"} & set(core)
    assert {"jax", "nrjax"} <= set(library)
    assert not set(library) & {*SLOW, "tyro", "rich"}
    assert "tyro" in command
    assert not set(command) & SLOW
    assert not started


def test_packages_come_when_they_are_named():
    assert "module 'nrjax' has no attribute 'er'" in python(NAMED).stderr
