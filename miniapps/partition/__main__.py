"""`python -m miniapps.partition`: see `miniapps.partition.commands`."""

import sys

from miniapps.partition.commands import main

if __name__ == "__main__":
    sys.exit(main())
