"""One benchmark in a separate process, so that its peak memory can be measured.

    python -m benchmarks.child MODULE REPORT [--quick]

Writes the result of the module's `rows`, the device and the peak memory to the file REPORT.
"""

import dataclasses
import importlib
import json
import sys
from pathlib import Path

from benchmarks.rows import Row, peak_gib


def main():
    """Run one benchmark and write its report."""
    module, report, *options = sys.argv[1:]
    benchmark = importlib.import_module(module)
    try:
        rows = benchmark.rows("--quick" in options)
    except FileNotFoundError as error:  # data that must be fetched first
        rows = [Row("", note=f"skipped: {error}")]
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("benchmarks", "nrjax"):
            raise
        rows = [Row("", note=f"skipped: {error}")]
    written = {"rows": [dataclasses.asdict(row) for row in rows], **_machine()}
    Path(report).write_text(json.dumps(written))


def _machine():
    """Return the device, and the peak memory of this process and of the device in GiB."""
    facts = {"device": "", "peak": peak_gib(), "device_peak": None}
    jax = sys.modules.get("jax")
    if jax is not None:
        devices = jax.local_devices()
        statistics = devices[0].memory_stats() or {}
        used = statistics.get("peak_bytes_in_use")
        facts["device"] = f"{len(devices)} x {devices[0].device_kind}"
        facts["device_peak"] = None if used is None else used / 2**30
    return facts


if __name__ == "__main__":
    main()
