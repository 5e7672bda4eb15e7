"""The machine, as far as the bits of a result depend on it."""

import os
import platform
import re
from pathlib import Path


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
