"""`mpirun -n 2 python -m miniapps.inference`"""

import sys

from miniapps.inference import APP
from miniapps.runner.main import main

if __name__ == "__main__":
    sys.exit(main(APP))
