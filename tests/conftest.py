"""Set-up of all tests: eight virtual devices, the compilation cache, the dtype."""

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

pytest.register_assert_rewrite("tests.conformance", "tests.study")

# XLA's older emitters, where a jaxlib still has them, compile in two thirds of the time, which is
# most of the suite's time. A program in one part compiles faster than in parts for many threads.
# XLA_FLAGS, even empty, overrides both. Other processes inherit them.
OLDER = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
if "XLA_FLAGS" not in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
    trial = [sys.executable, "-c", "import jax; jax.devices()"]
    ended = subprocess.run(trial, env={**os.environ, "XLA_FLAGS": OLDER}, capture_output=True)
    if ended.returncode == 0:
        os.environ["XLA_FLAGS"] = OLDER

# Tests compare one device with several by `Batching(devices=...)`.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update(
    "jax_compilation_cache_dir",
    os.environ.get(
        "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
    ),
)
# Small programs too: every file compiles the same hundreds of them.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# Tracing makes millions of long-lived objects. To collect garbage among them at the usual rate took
# a twelfth of the suite's time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)


LIGHT = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def light(module):
    """Return whether the tests of a module run without most optimisations.

    Modules marked `bits` run fully, and in float64 those marked `numerical`.
    """
    fully = ("bits", "numerical") if jax.config.jax_enable_x64 else ("bits",)
    return not any(next(module.iter_markers(name), None) for name in fully)


def pytest_collection_modifyitems(items):
    """Sort files by kind, so that traced and compiled functions are reused."""
    for item in items:
        if any(mark.name == "bits" for mark in item.own_markers):
            raise pytest.UsageError(f"{item.nodeid}: mark its module, as `pytestmark`, with bits")
    items.sort(key=lambda item: light(item.getparent(pytest.Module)))


def pytest_sessionfinish():
    """Collect garbage once: pytest does so five times at its end, which takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def optimised(request):
    """Compile the programs of modules marked `bits` as users do, and others with less effort.

    JAX's own tests do the same. Other processes inherit the mode, so that their bits agree.
    """
    mode = str(int(light(request.node)))
    if os.environ.get(LIGHT, "0") != mode:
        os.environ[LIGHT] = mode
        jax.config.update(LIGHT.lower(), mode == "1")
        jax.clear_caches()


@pytest.fixture
def dtype():
    """The float dtype of this run: float32, or float64 under JAX_ENABLE_X64."""
    return jnp.result_type(float)


@pytest.fixture(scope="module")
def quiet_sockets():
    """Collect the sockets that a module leaves, before the tests of another module."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
