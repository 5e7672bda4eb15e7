"""Claim: time and memory grow no faster than expected in trials, levels, rows, dimension.

    python -m benchmarks.scaling [--only CURVE ...] [--figure FILE] [--most SIZE] [--save FILE]

Every size of every curve runs in a separate process, which compiles and then measures. Seconds are
the median of up to five runs, in wall time and in processor time of all threads. Memory is the peak
during a run, less what the compiled and idle process held before it (Linux can reset the peak;
elsewhere it is the growth of the process). Exponents are fitted over the last three sizes, to
processor time, which other work on the machine disturbs least, and for devices and workers to wall
time. All curves take about half an hour on two cores, most of it for the largest sizes: `--only`
chooses among them, and `--most` leaves out larger sizes.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.rows import Row, peak_gib

_ROOT = Path(__file__).parents[1]
_FITTED = 3
"""Number of largest sizes to which an exponent is fitted."""
_LEAST = 1.0
"""Least memory in MiB. Less counts as this much, since a process always varies a little."""
_ENOUGH = 2.0
"""Total seconds after which no further run is made."""


class Curve(NamedTuple):
    """A curve of time and memory against a size.

    Attributes:
        axis: name of the size.
        sizes: sizes, rising.
        time: largest acceptable exponent of time.
        memory: largest acceptable exponent of memory.
        legend: description for the legend.
        wall: whether wall time counts, instead of processor time.
    """

    axis: str
    sizes: tuple[int, ...]
    time: float
    memory: float
    legend: str
    wall: bool = False


def _decades(first: int, last: int) -> tuple[int, ...]:
    return tuple(10**power for power in range(first, last + 1))


CURVES = {
    "folded_trials": Curve("trials", _decades(3, 8), 1, 0, "folded into summaries"),
    "kept_trials": Curve("trials", _decades(3, 7), 1, 1, "all fields kept"),
    "built_levels": Curve("levels", _decades(2, 5), 1, 1, "making the interaction"),
    "stopped_levels": Curve("levels", _decades(2, 5), 1, 0, "1024 trials that stop"),
    "path_levels": Curve("levels", _decades(2, 5), 1, 1, "1024 whole paths"),
    "fitted_rows": Curve("rows", _decades(3, 7), 1, 1, "logistic: fit"),
    "bounded_rows": Curve("rows", _decades(3, 7), 0, 0, "1024 trials, bounds"),
    "evaluated_rows": Curve("rows", _decades(3, 7), 1, 0, "64 trials, all rows, 4 steps"),
    "brownian_dimension": Curve("dimension", _decades(0, 4), 1, 1, "Brownian, 1024 trials"),
    "laplace_dimension": Curve("dimension", _decades(0, 4), 1, 1, "Laplace, 1024 trials"),
    "fitted_dimension": Curve("dimension", (10, 30, 100, 300), 2, 2, "ridge: fit"),
    "solved_dimension": Curve("dimension", (10, 30, 100, 300), 3, 2, "ridge: 128 solves"),
    "scalar_devices": Curve("devices", (1, 2, 4, 8), 0, 1, "4,096,000 trials folded", True),
    "row_devices": Curve("devices", (1, 2, 4, 8), 0, 1, "a million rows, bounds", True),
    "scalar_workers": Curve("workers", (1, 2), 0, 0, "8,192,000 trials folded", True),
}
"""Curves by the function of `benchmarks.growing` that makes the work of a size."""


class Point(NamedTuple):
    """The measurements at one size.

    Attributes:
        size: size.
        wall: wall time of a run in seconds.
        processor: processor time of a run in seconds.
        mib: memory of a run in MiB.
        idle: memory before the run in MiB.
    """

    size: int
    wall: float
    processor: float
    mib: float
    idle: float


def _mib(name: str) -> float:
    """Return a memory of this process in MiB, by its Linux name, or elsewhere its peak."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 1024 * peak_gib()
    return (
        int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) / 1024
    )


def _settle() -> float:
    """Release free memory, reset the peak, and return the memory in use in MiB."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):  # not Linux, or another C library
        return 1024 * peak_gib()
    return _mib("VmRSS")


def measure(name: str, size: int) -> Point:
    """Measure a curve at a size, in this process."""
    from benchmarks import growing

    work = getattr(growing, name)(size)
    held = (work.warm or work.run)()
    del held
    walls, processors = [], []
    idle, peak = _settle(), 0.0
    while not walls or (sum(walls) < _ENOUGH and len(walls) < 5):
        before, used = time.perf_counter(), time.process_time()
        held = work.run()
        walls.append(time.perf_counter() - before)
        processors.append(time.process_time() - used)
        peak = peak or _mib("VmHWM")  # in the first run, while its result is held
        del held
    middle = statistics.median
    return Point(size, middle(walls), middle(processors), max(peak - idle, 0.0), idle)


def apart(name: str, size: int, quick: bool = False) -> Point:
    """Measure a curve at a size, in a separate process.

    Raises:
        RuntimeError: the process failed; the message has the end of its output.
    """
    # Waiting threads of a matrix product would count as processor time.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    if CURVES[name].axis == "devices":
        flags = f"{environment.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={size}"
        environment["XLA_FLAGS"] = flags
    command = [sys.executable, "-m", "benchmarks.scaling", "--child", name, str(size)]
    command += ["--quick"] if quick else []
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=_ROOT, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{name} at {size:,}: {ended.stderr[-2000:]}")
    return Point(*json.loads(ended.stdout.strip().splitlines()[-1]))


def exponent(sizes: Any, values: Any) -> float:
    """Return the slope of the logarithms over the largest sizes, by least squares."""
    last = slice(-_FITTED, None)
    return float(np.polyfit(np.log(sizes[last]), np.log(values[last]), 1)[0])


def exponents(curve: Curve, points: list[Point]) -> tuple[float, float]:
    """Return the exponents of time and memory."""
    sizes = [point.size for point in points]
    seconds = [point.wall if curve.wall else point.processor for point in points]
    memory = [max(point.mib, _LEAST) for point in points]
    return exponent(sizes, seconds), exponent(sizes, memory)


def sweep(names: Sequence[str], most: float, quick: bool = False) -> dict[str, list[Point]]:
    """Print and return the points of curves, up to a size. `quick` takes the smallest only."""
    curves: dict[str, list[Point]] = {name: [] for name in names}
    chosen = [
        (name, size)
        for name in names
        for size in [size for size in CURVES[name].sizes if size <= most][: 1 if quick else None]
    ]
    # One at a time, unless the times do not matter.
    with ThreadPoolExecutor(os.cpu_count() if quick else 1) as pool:
        measured = pool.map(lambda pair: apart(pair[0], pair[1], quick), chosen)
        for (name, size), point in zip(chosen, measured, strict=True):
            curves[name].append(point)
            print(
                f"{name:20} {size:>12,} {point.wall:10.4f} s, {point.processor:10.4f} s of all "
                f"cores, {point.mib:9.1f} MiB beyond {point.idle:.0f}",
                flush=True,
            )
    return curves


def draw(curves: dict[str, list[Point]], file: Path) -> None:
    """Draw time and memory for each axis, with the exponents in the legends."""
    from matplotlib.figure import Figure

    axes = list(dict.fromkeys(CURVES[name].axis for name in curves))
    wide = min(3, len(axes))
    high = 2 * -(-len(axes) // wide)
    figure = Figure(figsize=(4.6 * wide, 3.4 * high), layout="constrained")
    panels = figure.subplots(high, wide, squeeze=False)
    for panel in panels.flat[len(axes) * 2 :]:
        panel.set_visible(False)
    for place, axis in enumerate(axes):
        names = [name for name in curves if CURVES[name].axis == axis]
        column, row = place % wide, 2 * (place // wide)
        _panel(panels[row, column], {name: curves[name] for name in names}, memory=False)
        _panel(panels[row + 1, column], {name: curves[name] for name in names}, memory=True)
    figure.savefig(file, dpi=150)


def _panel(panel: Any, curves: dict[str, list[Point]], *, memory: bool) -> None:
    """Time, or memory, of the curves of one axis."""
    styles = zip(("-", "--", ":", "-."), "osD^", ("0", "0.25", "0.4", "0.55"), strict=True)
    sizes = [0]
    for (name, points), (line, marker, grey) in zip(curves.items(), styles, strict=False):
        curve, sizes = CURVES[name], [one.size for one in points]
        values = [one.wall if curve.wall else one.processor for one in points]
        values = [max(one.mib, _LEAST) for one in points] if memory else values
        right = curve.memory if memory else curve.time
        slope = f": {exponent(sizes, values):.2f} ({right:g})" if len(sizes) > 1 else ""
        style = {"linestyle": line, "marker": marker, "color": grey, "markersize": 5}
        panel.plot(sizes, values, label=curve.legend + slope, **style)
    axis = CURVES[next(iter(curves))].axis
    unit = "memory of a run (MiB)" if memory else "time of a run (s)"
    panel.set(xscale="log", yscale="log", xlabel=axis, ylabel=unit)
    low, top = panel.get_ylim()
    panel.set_ylim(low / 3 if top < 10 * low else low, 3 * top)
    if max(sizes) < 10:
        panel.set_xticks(sizes, map(str, sizes))
        panel.minorticks_off()
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7, loc="upper left", title="exponent (at most)", title_fontsize=7)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", nargs="+", default=list(CURVES), choices=list(CURVES))
    arguments.add_argument("--most", type=float, default=np.inf, help="leave out larger sizes")
    arguments.add_argument("--figure", type=Path, help="file for the figure, such as scaling.png")
    arguments.add_argument(
        "--save", type=Path, help="file for the points, to which new ones are added"
    )
    arguments.add_argument("--quick", action="store_true", help="smallest sizes only, as a test")
    arguments.add_argument("--child", nargs=2, metavar=("CURVE", "SIZE"), help=argparse.SUPPRESS)
    return arguments


def race(options: Any) -> list[Row]:
    """Print and draw the points and exponents, and return a row per curve."""
    curves = sweep(options.only, options.most, options.quick)
    if options.save:
        kept = json.loads(options.save.read_text()) if options.save.exists() else {}
        kept = {name: [Point(*point) for point in points] for name, points in kept.items()} | curves
        options.save.write_text(json.dumps(kept))
        curves = {name: kept[name] for name in CURVES if name in kept}
    if options.figure:
        draw(curves, options.figure)
    rows = []
    for name, points in curves.items():
        curve, note = CURVES[name], f"{points[-1].processor:.3g} s at {points[-1].size:,}"
        if len(points) > 1:
            seconds, memory = exponents(curve, points)
            note = f"time {seconds:.2f} ({curve.time:g}), memory {memory:.2f} ({curve.memory:g})"
        rows.append(Row(f"{curve.axis}: {curve.legend}", note=note))
        print(f"{rows[-1].claim:40} {note}", flush=True)
    return rows


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    return race(parser().parse_args(["--quick"] if quick else []))


def main() -> None:
    """Measure, print and draw."""
    options = parser().parse_args()
    if options.child:
        name, size = options.child
        if options.quick:
            from benchmarks import growing

            growing.FIXED.update(growing.TINY)
        print(json.dumps(measure(name, int(size))))
        return
    race(options)


if __name__ == "__main__":
    main()
