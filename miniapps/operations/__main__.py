"""`mpirun -n 2 python -m miniapps.operations`, or with FILE.py:FUNCTION as its first argument."""

import sys

from miniapps.operations import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
