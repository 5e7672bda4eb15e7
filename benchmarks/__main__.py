"""All benchmarks in one table: speed, ratio to a baseline, peak memory, device.

    python -m benchmarks [NAME ...] [--quick] [--page docs/benchmarks.md]
    python -m benchmarks --platform {cpu,gpu,tpu} [NAME ...] [--inner-steps ...] [--lanes ...]

Each benchmark runs in a separate process with the default settings of its own command line, `python
-m benchmarks.NAME`, which may print more. "Peak" is the peak memory of that process. A number after
a "+" is the peak memory on the accelerator. Compile time is not counted. A benchmark whose data are
missing leaves a line that says so. On an accelerator the stepping kernels report the fraction of
the roofline of its measured peaks. With --platform the command prints another table, for five loops
on such devices: how close they come to the limit of the random number generator, and what they
launch. NAME is then one of the loops (`benchmarks.accelerators`).

With --page the measurements are stored in `benchmarks/measured.json`, in place of those of the same
benchmarks, and the page of the site and its chart are written from all stored measurements.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import summary, table

NAMES = (
    "start_up",
    "stepping",
    "compiled",
    "million_trials",
    "trust_region",
    "refilling",
    "certified_stopping",
    "curves",
    "whitehouse2022",
    "ligett2017",
    "one_sided",
    "rogers2023",
    "sweep",
    "billion_trials",
    "leaderboard",
    "phase",
    "scaling",
    "workers",
)
"""Modules with a function `rows(quick)`. A new benchmark needs a line here."""


def main(arguments: list[str] | None = None, known: dict[str, str] | None = None) -> int:
    """Print the table.

    Args:
        arguments: arguments of the command line; None for those of `sys.argv`.
        known: modules by name; None for those of this package.

    Returns:
        The exit status: 1 if a benchmark failed, 2 if a name is unknown.
    """
    known = {name: f"benchmarks.{name}" for name in NAMES} if known is None else known
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="use tiny sizes, as a test")
    parser.add_argument("--page", help="store the measurements, and write the page of the site")
    parser.add_argument(
        "--platform",
        choices=("cpu", "gpu", "tpu"),
        help="print the table of loops for these devices",
    )
    parser.add_argument(
        "--inner-steps", type=int, nargs="+", default=(), help="steps per iteration to try"
    )
    parser.add_argument("--lanes", type=int, nargs="+", default=(), help="numbers of lanes to try")
    options = parser.parse_args(arguments)
    try:
        if options.platform:
            from benchmarks import accelerators  # imports JAX, which the other table does not

            tried = options.inner_steps, options.lanes
            accelerators.show(options.platform, options.names, options.quick, *tried)
            return 0
        benchmarks = table.chosen(options.names, known)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    failed, rows = table.show(benchmarks, options.quick)
    if options.page:
        given = sys.argv[1:] if arguments is None else arguments
        command = " ".join(["python -m benchmarks", *given])
        summary.write(Path(options.page), rows, command)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
