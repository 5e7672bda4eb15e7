"""All benchmarks in one table: trials per second, ratio to a peer, peak memory, device.

    python -m benchmarks [NAME ...] [--quick]
    python -m benchmarks --platform {cpu,gpu,tpu} [NAME ...] [--inner-steps ...] [--lanes ...]

Each runs in a process of its own, whose peak memory it is ("+": on the accelerator), with the
settings of its own command line; what has more to say says it there (`python -m benchmarks.NAME`).
Compilation is apart. Data that are not there leave a line that says so. On an accelerator the
stepping kernels state the fraction of the roofline that its measured peaks allow. With --platform
another table, of five loops on such devices (`benchmarks.accelerators`): how far from the
generator's limit, and what a turn launches; NAME is one of them then.
"""

import argparse
import sys

from benchmarks import table

NAMES = (
    "start_up",
    "stepping",
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
    "scaling",
)
"""A module each, with a function `rows(quick)`; a new one is a line here."""


def main(arguments: list[str] | None = None, known: dict[str, str] | None = None) -> int:
    """Print the table.

    Args:
        arguments: of the command line; `sys.argv` without them.
        known: modules by name, other than the package's own.

    Returns:
        The exit status: 1 if a benchmark failed, 2 if there is none of such a name.
    """
    known = {name: f"benchmarks.{name}" for name in NAMES} if known is None else known
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"among {', '.join(known)}; all")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all run")
    parser.add_argument("--platform", choices=("cpu", "gpu", "tpu"), help="the loops, on such")
    parser.add_argument(
        "--inner-steps", type=int, nargs="+", default=(), help="a turn, to be tried"
    )
    parser.add_argument("--lanes", type=int, nargs="+", default=(), help="at a time, to be tried")
    options = parser.parse_args(arguments)
    try:
        if options.platform:
            from benchmarks import accelerators  # JAX, which the other table leaves to children

            tried = options.inner_steps, options.lanes
            accelerators.show(options.platform, options.names, options.quick, *tried)
            return 0
        benchmarks = table.chosen(options.names, known)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if table.show(benchmarks, options.quick) else 0


if __name__ == "__main__":
    sys.exit(main())
