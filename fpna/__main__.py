"""`python -m fpna`: as the command `fpna`."""

import sys

from fpna.command import main

if __name__ == "__main__":
    sys.exit(main())
