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

from kernels.allreduce import Reduction, orderings, plan
from kernels.allreduce.simulator import simulate

COMM = MPI.COMM_WORLD
# Orderings that need no blocks, and those accumulations of `direct` that have reducers of their own.
LABELS = [o.name for o in orderings() if "owners" not in o.needs] + [
    "direct in fixed-point",
    "direct in exact",
]
_sections: list[Callable] = []


def section(function):
    """Decorator: `function` is one of the program's sections. It is collective, and must not end early on a rank."""
    _sections.append(function)
    return function


def labelled(label, shape=(), dtype="float64", *, name="", **axes):
    """The reducer of a label such as "ring in exact"."""
    return plan(COMM, Reduction.named(label, shape, dtype, **axes), name=name)


def simulated(label, contributions):
    """What that reducer returns on every rank, by the simulator."""
    reduction = Reduction.named(label)
    return simulate(reduction.ordering, contributions, accumulation=reduction.accumulation)


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
