"""`mpirun -n 4 python -m miniapps.dlrm`"""

import sys

from miniapps.dlrm import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
