"""`mpirun -n 2 python -m miniapps.operations`, or with FILE.py:FUNCTION as its first argument."""

import sys

from miniapps.operations import APP
from miniapps.runner.main import main


def spelled(argv: list[str]) -> list[str]:
    """The command line with its first argument, if it is a function of the user, as the option that it stands for."""
    named = bool(argv) and not argv[0].startswith("-")
    return ["--function", *argv] if named else argv


if __name__ == "__main__":
    sys.exit(main(APP, spelled(sys.argv[1:])))
