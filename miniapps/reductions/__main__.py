"""`mpirun -n 4 python -m miniapps.reductions`"""

import sys

from miniapps.reductions import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
