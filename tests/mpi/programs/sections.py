"""Programs of sections: each yields what failed on this rank; rank 0 prints all of it as JSON, by section.

@section
def sums_are_sums():
    if ...:
        yield "what is wrong"

if __name__ == "__main__":
    report()
"""

import json
import sys
import traceback
from collections.abc import Callable

from mpi4py import MPI

COMM = MPI.COMM_WORLD
_sections: list[Callable] = []


def section(function):
    """Decorator: `function` is one of the program's sections. It is collective, and must not end early on a rank."""
    _sections.append(function)
    return function


def raised(error, call):
    """The message of the error of that class which `call()` raises, or '' with none."""
    try:
        call()
    except error as caught:
        return str(caught)
    return ""


def report(then: Callable[[], object] = lambda: None):
    """Run the sections on all ranks and print {name: failures}, then call `then`; any other error ends all ranks."""
    try:
        found = {}
        for run in _sections:
            failures = COMM.gather([f"rank {COMM.rank}: {failure}" for failure in run()], 0)
            found[run.__name__] = [failure for part in failures or [] for failure in part]
        if COMM.rank == 0:
            print(json.dumps(found), flush=True)
        then()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
