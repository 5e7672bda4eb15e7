"""Claim: time and memory grow with trials, levels, rows and dimension no faster than they should.

    python -m benchmarks.scaling [--only CURVE ...] [--figure FILE] [--most SIZE] [--save FILE]

Every size of every curve is a process of its own, which compiles, then measures: seconds are the
median of up to five runs, wall time and processor time of all its threads; memory is the largest
that the process had in a run beyond what it had before it, compiled, with its input, but idle
(Linux resets that peak; elsewhere it is how much the process ever grew). Exponents are fitted to
processor time, which other work on the machine disturbs least, but for devices and workers to wall
time; over the last three sizes. All curves take about half an hour on two cores, most of it the
largest sizes: `--only` chooses among them, `--most` leaves out larger sizes.
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
"""Sizes, of the largest, that an exponent is fitted to."""
_LEAST = 1.0
"""MiB; less is taken for this much, since a process always moves a little."""
_ENOUGH = 2.0
"""Seconds of runs after which no other is added."""


class Curve(NamedTuple):
    """What is measured against what."""

    axis: str
    sizes: tuple[int, ...]
    time: float
    """Exponent that its time should have at most."""
    memory: float
    """That of its memory."""
    what: str
    """In words, for the legend."""
    wall: bool = False
    """Whether wall time counts, and not processor time."""


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
"""By the function of `benchmarks.growing` that makes the work of a size."""


class Point(NamedTuple):
    """What was measured at one size."""

    size: int
    wall: float
    processor: float
    mib: float
    """Memory of a run."""
    idle: float
    """MiB that the process had before it."""


def _mib(name: str) -> float:
    """A memory of this process, in MiB, as Linux calls it; elsewhere the largest it ever had."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 1024 * peak_gib()
    return int(next(one for one in status.splitlines() if one.startswith(name)).split()[1]) / 1024


def _settle() -> float:
    """Give back what is free, forget the peak so far, and say how much memory is held."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):  # not Linux, or another C library
        return 1024 * peak_gib()
    return _mib("VmRSS")


def measure(name: str, size: int) -> Point:
    """Of a curve at a size, in this process."""
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
        peak = peak or _mib("VmHWM")  # of the first run, while its result is held
        del held
    middle = statistics.median
    return Point(size, middle(walls), middle(processors), max(peak - idle, 0.0), idle)


def apart(name: str, size: int, quick: bool = False) -> Point:
    """The same in a process of its own.

    Raises:
        RuntimeError: it failed; the message has the end of what it wrote.
    """
    # Threads of a matrix product that wait for each other would count as processor time.
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
    """Slope of the logarithms over the largest sizes, by least squares."""
    last = slice(-_FITTED, None)
    return float(np.polyfit(np.log(sizes[last]), np.log(values[last]), 1)[0])


def exponents(curve: Curve, points: list[Point]) -> tuple[float, float]:
    """Those of time and memory."""
    sizes = [one.size for one in points]
    seconds = [one.wall if curve.wall else one.processor for one in points]
    return exponent(sizes, seconds), exponent(sizes, [max(one.mib, _LEAST) for one in points])


def sweep(names: Sequence[str], most: float, quick: bool = False) -> dict[str, list[Point]]:
    """Print and give the points of these curves, up to a size; the smallest of a quick look."""
    found: dict[str, list[Point]] = {name: [] for name in names}
    chosen = [
        (name, size)
        for name in names
        for size in [one for one in CURVES[name].sizes if one <= most][: 1 if quick else None]
    ]
    # One at a time, where times are to mean something.
    with ThreadPoolExecutor(os.cpu_count() if quick else 1) as pool:
        measured = pool.map(lambda one: apart(one[0], one[1], quick), chosen)
        for (name, size), point in zip(chosen, measured, strict=True):
            found[name].append(point)
            print(
                f"{name:20} {size:>12,} {point.wall:10.4f} s, {point.processor:10.4f} s of all "
                f"cores, {point.mib:9.1f} MiB beyond {point.idle:.0f}",
                flush=True,
            )
    return found


def draw(found: dict[str, list[Point]], file: Path) -> None:
    """The figure: for each axis time, and below it memory; exponents are in the legends."""
    from matplotlib.figure import Figure

    axes = list(dict.fromkeys(CURVES[name].axis for name in found))
    wide = min(3, len(axes))
    high = 2 * -(-len(axes) // wide)
    figure = Figure(figsize=(4.6 * wide, 3.4 * high), layout="constrained")
    panels = figure.subplots(high, wide, squeeze=False)
    for panel in panels.flat[len(axes) * 2 :]:
        panel.set_visible(False)
    for place, axis in enumerate(axes):
        names = [name for name in found if CURVES[name].axis == axis]
        column, row = place % wide, 2 * (place // wide)
        _panel(panels[row, column], {name: found[name] for name in names}, memory=False)
        _panel(panels[row + 1, column], {name: found[name] for name in names}, memory=True)
    figure.savefig(file, dpi=150)


def _panel(panel: Any, found: dict[str, list[Point]], *, memory: bool) -> None:
    """Time, or memory, of the curves of one axis."""
    styles = zip(("-", "--", ":", "-."), "osD^", ("0", "0.25", "0.4", "0.55"), strict=True)
    sizes = [0]
    for (name, points), (line, marker, grey) in zip(found.items(), styles, strict=False):
        curve, sizes = CURVES[name], [one.size for one in points]
        values = [one.wall if curve.wall else one.processor for one in points]
        values = [max(one.mib, _LEAST) for one in points] if memory else values
        right = curve.memory if memory else curve.time
        slope = f": {exponent(sizes, values):.2f} ({right:g})" if len(sizes) > 1 else ""
        style = {"linestyle": line, "marker": marker, "color": grey, "markersize": 5}
        panel.plot(sizes, values, label=curve.what + slope, **style)
    axis = CURVES[next(iter(found))].axis
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
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--only", nargs="+", default=list(CURVES), choices=list(CURVES))
    made.add_argument("--most", type=float, default=np.inf, help="leave out larger sizes")
    made.add_argument("--figure", type=Path, help="a file for the figure, such as scaling.png")
    made.add_argument("--save", type=Path, help="a file for the points; what is there is kept")
    made.add_argument("--quick", action="store_true", help="the smallest sizes, of little work")
    made.add_argument("--child", nargs=2, metavar=("CURVE", "SIZE"), help=argparse.SUPPRESS)
    return made


def race(options: Any) -> list[Row]:
    """Print the points and exponents, draw them; a row a curve."""
    found = sweep(options.only, options.most, options.quick)
    if options.save:
        kept = json.loads(options.save.read_text()) if options.save.exists() else {}
        kept = {name: [Point(*one) for one in some] for name, some in kept.items()} | found
        options.save.write_text(json.dumps(kept))
        found = {name: kept[name] for name in CURVES if name in kept}
    if options.figure:
        draw(found, options.figure)
    rows = []
    for name, points in found.items():
        curve, note = CURVES[name], f"{points[-1].processor:.3g} s at {points[-1].size:,}"
        if len(points) > 1:
            seconds, memory = exponents(curve, points)
            note = f"time {seconds:.2f} ({curve.time:g}), memory {memory:.2f} ({curve.memory:g})"
        rows.append(Row(f"{curve.axis}: {curve.what}", note=note))
        print(f"{rows[-1].claim:40} {note}", flush=True)
    return rows


def rows(quick: bool) -> list[Row]:
    """The rows of the table."""
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
