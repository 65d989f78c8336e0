"""`mpirun -n 4 python -m miniapps.solver`"""

import sys

from miniapps.runner.main import main
from miniapps.solver import APP

if __name__ == "__main__":
    sys.exit(main(APP))
