"""An application whose trace is written every few rows and milliseconds, so that there is much to be cut off in:

mpirun -n P python small_chunks.py APP OPTIONS...
"""

import importlib
import sys

from miniapps.runner.main import main
from miniapps.trace import storage, writer

SMALLER = 16  # than the files of applications have it: chunks of one table fill long before those of another

writer.INTERVAL_NS //= SMALLER
writer.BLOCK //= SMALLER
rows = storage.chunk_rows
storage.chunk_rows = lambda table, size: max(4, rows(table, size) // SMALLER)

if __name__ == "__main__":
    sys.exit(main(importlib.import_module(f"miniapps.{sys.argv[1]}").APP, sys.argv[2:]))
