"""`mpirun -n 4 python -m miniapps.coupled`"""

import sys

from miniapps.coupled import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
