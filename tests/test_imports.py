"""Importing is quick: nothing is loaded before it is needed, and no device is touched."""

import json
import subprocess
import sys

SLOW = ("dask", "distributed", "matplotlib", "optax", "pandas", "pooch", "scipy", "xarray")
"""Packages that take long to import, and that neither the library nor the command's help needs."""

PROGRAM = """
import json, sys
from jax._src import xla_bridge

def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})

import nrjax, nrjax.erm, nrjax.datasets
library = loaded()
import nrjax.cli
print(json.dumps([library, loaded(), xla_bridge.backends_are_initialized()]))
"""


def test_imports_load_nothing_slow_and_start_no_device():
    """Devices of a worker are set up when the number of its cores is known."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    library, command, started = json.loads(ended.stdout)
    assert {"jax", "nrjax"} <= set(library)
    assert not set(library) & {*SLOW, "tyro", "rich"}
    assert "tyro" in command
    assert not set(command) & set(SLOW)
    assert not started
