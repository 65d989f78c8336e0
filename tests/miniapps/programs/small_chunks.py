"""An application whose trace is written every few rows and milliseconds, so that there is much to be cut off in:

mpirun -n P python small_chunks.py APP OPTIONS...
"""

import importlib
import sys

from miniapps.runner.main import main
from miniapps.trace import storage, writer

INTERVAL_S, EVENTS, ROWS = 0.04, 400, 48

writer.INTERVAL_NS, writer.BLOCK = int(INTERVAL_S * 1e9), EVENTS
rows = storage.chunk_rows
storage.chunk_rows = lambda table, size: min(ROWS, rows(table, size))

if __name__ == "__main__":
    sys.exit(main(importlib.import_module(f"miniapps.{sys.argv[1]}").APP, sys.argv[2:]))
