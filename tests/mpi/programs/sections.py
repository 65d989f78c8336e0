"""Programs of sections: each yields what failed on this rank; rank 0 prints all of it as JSON, by section.

@section
def sums_are_sums():
    if ...:
        yield "what is wrong"

if __name__ == "__main__":
    report()
"""

import gc
import json
import random
import sys
import tempfile
import traceback
from collections.abc import Callable

from mpi4py import MPI

from kernels.allreduce import Reduction, orderings, plan
from kernels.allreduce.simulator import simulate

COMM = MPI.COMM_WORLD
# Orderings that need no blocks, and the accumulation of `direct` that has a reducer of its own.
LABELS = [*(o.name for o in orderings() if "owners" not in o.needs), "direct in exact"]
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


def pairs(*axes):
    """Cases, one value of each axis, in which every two values of two axes meet; others for every number of ranks."""
    draw = random.Random(COMM.size)
    missing = {
        (i, a, j, b)
        for j in range(len(axes)) for i in range(j) for a in range(len(axes[i])) for b in range(len(axes[j]))
    }  # fmt: skip

    def met(case):
        return {(i, case[i], j, case[j]) for j in range(len(case)) for i in range(j)} & missing

    while missing:
        i, a, j, b = min(missing)
        drawn = [[draw.randrange(len(axis)) for axis in axes] for _ in range(20)]
        for case in drawn:
            case[i], case[j] = a, b
        best = max(drawn, key=lambda case: len(met(case)))
        missing -= met(best)
        yield tuple(axis[k] for axis, k in zip(axes, best, strict=True))


def raised(error, call):
    """The message of the error of that class which `call()` raises, or '' with none."""
    try:
        call()
    except error as caught:
        return str(caught)
    return ""


def report_over_gloo():
    """`report` in a process group of torch over gloo, of the ranks of MPI; each computes on one thread."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{COMM.bcast(folder, 0)}/store", COMM.size)
        dist.init_process_group("gloo", store=store, rank=COMM.rank, world_size=COMM.size)
        report()
        gc.collect()
        COMM.Barrier()
        dist.destroy_process_group()


def report():
    """Run the sections on all ranks and print {name: failures}; any other error ends all ranks."""
    try:
        gc.collect()
        gc.freeze()  # sections that collect garbage then look at their own, not at all that was imported
        results = {}
        for run in _sections:
            failures = COMM.gather([f"rank {COMM.rank}: {failure}" for failure in run()], 0)
            results[run.__name__] = [failure for part in failures or [] for failure in part]
        gc.unfreeze()
        if COMM.rank == 0:
            print(json.dumps(results), flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
