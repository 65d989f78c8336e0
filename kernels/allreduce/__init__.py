"""All-reduce whose order of additions is chosen, stated, and the same wherever it is promised.

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
    """Make a reducer for one communicator; collective over `comm`, with the same description on all ranks.

    `plan(comm, Reduction("direct", (2,)))`, or in one `plan(comm, "direct", (2,))`: what is reduced and how is a
    `kernels.allreduce.Reduction`, or its arguments. Beside it, which may differ from rank to rank:

    `name`    appears in messages.
    `blocks`  the numbers of this rank's blocks, one for each contribution; block-tree and `add` need them.
    `replay`  (arrival only) iterates over recorded orders, one per call, each (size,); rank 0's is used, so other ranks
              may pass any iterable.

    `reducer(contributions)` combines `contributions` (k, *shape), those of this rank's k >= 0 blocks in ascending
    global block index, over all blocks of all ranks, and returns the total: (*shape,); None on other ranks than the
    root of a reduce; a rank's part of the flat total of a reduce-scatter; (size, *shape) of an allgather. The array
    belongs to the reducer and is valid until the next call, unless `out=` (C-contiguous, of the total's shape) is
    given, which may be the memory of the contribution: reduction in place. Contributions in GPU memory give a total
    there. No zero total is -0.0, but for library. `reducer.start(contributions, out=None)` returns at once;
    `reducer.finish()` gives the total, and `reducer.progress()` moves things on in between. Where `blocks` are given,
    `reducer.add(block, contribution)` of each, in any order, and `reducer.finish()` give the total too, without keeping
    all contributions where the order of additions allows it. `reducer.reduction` is the description. In accumulation
    exact, `reducer.sum_words(words)` sums what the callers accumulated exactly.

    Raises, on every rank alike, what `Reduction` does; ValueError for blocks or a communicator that do not fit;
    PlanMismatch where ranks ask for different things; ReplayError for a log that does not fit. The reducer raises
    ReplayError when its log is used up, TypeError and ValueError for contributions of another type or shape,
    RuntimeError after `free()`; with `check` CallMismatch on all ranks where they pass different things, else what does
    not fit raises on its rank alone, while the others wait for it, and RanksDisagree where they hold different bits.
    """
    from kernels.allreduce.execution.planning import plan as make  # loads mpi4py, which starts MPI

    return make(comm, *description, **more)
