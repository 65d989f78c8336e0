"""Loses its directory under mpirun, in one way after the other: OUT CASE...; ends with what the last run returned."""

import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

from miniapps.runner import main
from miniapps.trace import writer
from tests.miniapps.vanishing import Mishap, full, removed, unlinked


def killed(out):
    """Rank 1 is killed while the others are at work, and not waiting inside MPI."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


rank = MPI.COMM_WORLD.rank
CASES = {  # what happens, in which of 6 steps, where; whether rows are written in every step
    "end-one": (Mishap(lambda out: unlinked(out, 1), step=6, rank=1), False),
    "end-all": (Mishap(removed, step=6), False),
    "mid-one": (Mishap(lambda out: unlinked(out, 1), step=3, rank=1), True),
    "mid-all": (Mishap(removed, step=3), True),
    "full": (Mishap(full, step=3, rank=rank), True),
    "killed": (Mishap(killed, step=3, rank=rank), False),
}

out = Path(sys.argv[1])
for name in sys.argv[2:]:
    mishap, often = CASES[name]
    writer.INTERVAL_NS = -1 if often else 10**18
    code = main.main(mishap.app(), ["--out", str(out / name), "--log-level", "error"])
sys.exit(code)
