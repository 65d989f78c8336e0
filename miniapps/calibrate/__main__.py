"""`mpirun -n 2 python -m miniapps.calibrate`"""

import sys

from miniapps.calibrate import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
