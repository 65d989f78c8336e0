"""`mpirun -n 4 python -m miniapps.training`"""

import sys

from miniapps.runner.main import main
from miniapps.training import APP

if __name__ == "__main__":
    sys.exit(main(APP))
