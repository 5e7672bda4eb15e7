"""The number of processor cores, and the set-up of JAX for a run."""

import contextlib
import os

import jax

from nrjax._base.cache import cache_folder
from nrjax._base.validation import check


def cores() -> int:
    """Return the number of processor cores that this process may use.

    Slurm's number of cores per task counts too, since not all clusters enforce it.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    stated = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(found, max(int(stated), 1)) if stated.isdecimal() else found


def configure_jax(devices: int) -> None:
    """Set JAX's number of CPU devices and its compilation cache, unless the user chose them.

    Raises:
        ValueError: JAX cannot start a platform of the environment variable `JAX_PLATFORMS`.
    """
    is_chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not is_chosen:  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(RuntimeError):  # JAX has started already
            jax.config.update("jax_num_cpu_devices", devices)
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        # Cache small programs too: a study has about a hundred, which together take as long to
        # compile as a large program.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    check_platforms()


def check_platforms() -> None:
    """Start JAX, or raise ValueError if it cannot start a platform of `JAX_PLATFORMS`."""
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError: CUDA without a GPU
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        hint = f"JAX: {error}" if str(error) else ""
        check(False, "JAX_PLATFORMS", platforms, "unset, or platforms that JAX can start", hint)
