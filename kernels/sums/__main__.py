"""`python -m kernels.sums`: see `kernels.commands.sums`."""

import sys

from kernels.commands.sums import main

if __name__ == "__main__":
    sys.exit(main())
