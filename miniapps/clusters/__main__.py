"""`mpirun -n 4 python -m miniapps.clusters`"""

import sys

from miniapps.clusters import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
