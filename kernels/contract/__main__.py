"""`python -m kernels.contract`: see `kernels.commands.contract`."""

import sys

from kernels.commands.contract import main

if __name__ == "__main__":
    sys.exit(main())
