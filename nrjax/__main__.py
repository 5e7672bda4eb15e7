"""The entry point of the command `nrjax` and of `python -m nrjax`."""

import os
import sys


def main() -> int:
    """Run the command and return the exit status of the process."""
    try:
        from nrjax import cli
    except KeyboardInterrupt:
        print("nrjax: interrupted", file=sys.stderr)
        return 130
    except (ModuleNotFoundError, ValueError) as error:  # a missing extra, or a bad JAX_... variable
        print(f"nrjax: error: {error}", file=sys.stderr)
        return 2
    status = cli.main()
    if status == cli.INTERRUPTED:
        os._exit(status)  # Python would wait up to a minute for compiling threads
    return status


if __name__ == "__main__":
    sys.exit(main())
