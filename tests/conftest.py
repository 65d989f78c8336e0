"""Settings common to all tests: the checkout importable from any directory, and one thread per process."""

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# Before anything loads OpenMP: idle threads of a busy machine would only slow the tests down.
os.environ.setdefault("OMP_NUM_THREADS", "1")
