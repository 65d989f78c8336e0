"""`python -m fpna`: the command `fpna`, where its script is not on PATH."""

import sys

from fpna.command import main

if __name__ == "__main__":
    sys.exit(main())
