"""`mpirun -n 4 python -m miniapps.mesh`"""

import sys

from miniapps.mesh import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
