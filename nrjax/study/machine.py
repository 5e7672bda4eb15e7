"""The machine: what the bits of a result depend on, and JAX made ready for it."""

import contextlib
import importlib
import os
import platform
import re
from pathlib import Path

import jax

from nrjax._validation import check


def processor() -> dict[str, str]:
    """Model of the processor, and its instructions for vectors, by which XLA compiles."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return {"cpu": platform.processor() or platform.machine(), "cpu_features": ""}
    fields = dict(re.findall(r"^(\S[^\t:]*?)\s*:\s*(.*)$", text, re.MULTILINE))
    flags = fields.get("flags", fields.get("Features", "")).split()
    vector = ("sse", "avx", "fma", "f16c", "amx", "asimd", "sve")
    return {
        "cpu": fields.get("model name", platform.machine()),
        "cpu_features": " ".join(sorted({flag for flag in flags if flag.startswith(vector)})),
    }


def cores() -> int:
    """Processor cores that this process may use, as a container or a queue allows it."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def prepare_jax(devices: int) -> None:
    """So many CPU devices, and compilations kept between runs, unless the user chose.

    Raises:
        ValueError: JAX cannot start what `JAX_PLATFORMS` names.
    """
    from nrjax.datasets import cache_folder

    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not chosen:  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(RuntimeError):  # JAX runs already, with the devices it has
            jax.config.update("jax_num_cpu_devices", devices)
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        # The small programs too: a study's are a hundred, and together take as long as a large one.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # of CUDA without a GPU, a bare assertion
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        right = f"left out, or what JAX can start here; {str(error) or 'there is none such'}"
        check(False, "JAX_PLATFORMS", platforms, right)


def check_matplotlib() -> None:
    """Check before the trials that Matplotlib can be imported, which figures need after them.

    Raises:
        ValueError: `MPLBACKEND` names no backend.
    """
    try:
        importlib.import_module("matplotlib")
    except ValueError as error:
        backend = os.environ.get("MPLBACKEND")
        check(False, "MPLBACKEND", backend, f"left out, or a backend of Matplotlib; {error}")
