"""`mpirun -n 4 python -m miniapps.reductions`"""

import sys

from miniapps.main import main
from miniapps.reductions import APP

if __name__ == "__main__":
    sys.exit(main(APP))
