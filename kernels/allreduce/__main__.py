"""`python -m kernels.allreduce`: see `kernels.commands.allreduce`."""

import sys

from kernels.commands.allreduce import main

if __name__ == "__main__":
    sys.exit(main())
