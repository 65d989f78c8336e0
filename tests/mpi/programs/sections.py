"""Programs of sections: each yields what failed on this rank; rank 0 prints all of it as JSON."""

import json
import sys
import traceback

from mpi4py import MPI

COMM = MPI.COMM_WORLD


def raised(error, call):
    """The message of the error of that class which `call()` raises, or '' with none."""
    try:
        call()
    except error as caught:
        return str(caught)
    return ""


def report(sections):
    """Run the sections on all ranks and print {name: failures}; any other error ends all ranks."""
    try:
        found = {}
        for run in sections:
            failures = COMM.gather([f"rank {COMM.rank}: {failure}" for failure in run()], 0)
            found[run.__name__] = [failure for part in failures or [] for failure in part]
        if COMM.rank == 0:
            print(json.dumps(found), flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
