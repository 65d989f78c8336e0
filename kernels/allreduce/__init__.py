"""All-reduce in an order of additions that the caller chooses, with a stated guarantee about its bits.

    reducer = plan(comm, ordering="direct", shape=(2,))
    total = reducer(contributions)      # (k, 2): the partial sums of this rank's k blocks
    reducer.free()

`python -m kernels.allreduce` lists the orderings. What they do and how to choose: docs/explanation/allreduce.md.
Importing this package does not load MPI; `plan` does.
"""

from __future__ import annotations

from kernels.allreduce.catalog import orderings
from kernels.allreduce.errors import CallMismatch, PlanMismatch, RanksDisagree, ReplayError, ScheduleError
from kernels.allreduce.operations import Operation
from kernels.allreduce.ordering import Ordering
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Message, Round, Schedule, Sum

__all__ = [
    "CallMismatch",
    "Message",
    "Operation",
    "Ordering",
    "PlanMismatch",
    "RanksDisagree",
    "Reduction",
    "ReplayError",
    "Round",
    "Schedule",
    "ScheduleError",
    "Sum",
    "orderings",
    "plan",
]


def plan(comm, *description, **more):
    """Returns a reducer for one communicator. Collective over `comm`; all ranks pass the same description.

    `plan(comm, Reduction("direct", (2,)))` and `plan(comm, "direct", (2,))` are the same: the description is a
    `kernels.allreduce.Reduction` or its arguments. The other arguments may differ from rank to rank:

    `name`    appears in messages.
    `blocks`  the numbers of this rank's blocks, one for each contribution; block-tree and `add` need them.
    `summed`  whether contributions are the sums over the largest subtrees of this rank's blocks, ascending, which the
              caller has added by the tree of block-tree (block-tree only).
    `replay`  (arrival only) iterates over recorded orders, one per call, each (size,). Only rank 0's is read: other
              ranks may pass any iterable.

    `reducer(contributions)` combines the contributions of all blocks of all ranks and returns the total. A rank passes
    `contributions` (k, *shape) of its k >= 0 blocks, in ascending block index. It gets the total (*shape,); of a reduce
    None, except at the root; of a reduce-scatter its part of the flat total; of an allgather (size, *shape).

    The reducer owns the returned array, which is valid until the next call. With `out=` (C-contiguous, of the total's
    shape) the total is written there; `out` may be the memory of the contribution (reduction in place). Contributions
    in GPU memory give a total there. A total of zero is +0.0, except from library.

    `reducer.start(contributions, out=None)` returns at once, `reducer.finish()` gives the total, and
    `reducer.progress()` advances the reduction in between. With `blocks`, `reducer.add(block, contribution)` takes
    single contributions in any order; then `reducer.finish()` gives the total. If the order of additions allows it,
    few contributions are kept. `reducer.reduction` is the description. In accumulation exact,
    `reducer.sum_words(words)` sums exact accumulators of the callers.

    Raises, on all ranks alike: the errors of `Reduction`; ValueError for blocks or a communicator that do not fit;
    PlanMismatch if ranks ask for different things; ReplayError for a log that does not fit. The reducer raises
    ReplayError when its log is used up, TypeError and ValueError for contributions of another type or shape, and
    RuntimeError after `free()`. With `check` it raises CallMismatch on all ranks if they pass different things, and
    RanksDisagree if they hold different bits. Without, a rank with a wrong argument raises alone, and the others wait.
    """
    from kernels.allreduce.execution.planning import plan as make  # loads mpi4py, which starts MPI

    return make(comm, *description, **more)
