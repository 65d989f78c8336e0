"""The plans of a wrapped communicator: the first call of each signature makes one, and later calls use it."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction, operations, plan
from kernels.allreduce.errors import CallMismatch, by_rank
from kernels.allreduce.execution.reducer import Reducer, digest_of
from kernels.environment import guarded
from miniapps.programs.calls import Call
from miniapps.programs.forms import Signature
from miniapps.runner.replay import Replay

Place = tuple[Signature, int]  # a signature and its slot
PLANS = (
    64  # most plans of a communicator: each has its own communicator, and MPI libraries allow some thousands
)
SLOTS = 4  # pending reductions of one signature
KNOWN = 4096  # signatures remembered as agreed between ranks
PATIENCE_S = 10.0  # a rank with an error waits so long for the others to receive it


class Observer(Protocol):
    """A recorder of the reductions of a communicator; see `miniapps.programs.recording`."""

    def reducer(
        self, name: str, planned: Reducer, comm: MPI.Intracomm, blocks: tuple[int, ...] | None
    ) -> Any:
        """`planned`, or a reducer that replaces it, for one call."""


class Plans:
    """Plans for reductions over `comm`; `check`: verify at every call that all ranks make the same call."""

    def __init__(self, comm: MPI.Intracomm, check: bool, replay: Replay | None):
        self.comm, self.check, self.replay = comm, check, replay
        self.observer: Observer | None = None
        self.warned = False  # whether LayoutWarning was given
        self.compared = False  # whether the kinds of the ranks were compared
        self.kept: OrderedDict[Place, Reducer] = OrderedDict()
        self.under_way: list[Pending] = []  # in the order of their start
        self._own: MPI.Intracomm | None = None
        self.signatures: dict[Any, Signature | None] = {}  # by arguments of calls
        self._agreed: set[Any] = set()
        self._unheard: list[Any] = []  # agreements that other ranks may still join
        self._blocks: dict[Place, tuple[int, ...] | None] = {}  # of plans over blocks
        self._begun: dict[Signature, int] = {}  # how many of a signature were started

    @property
    def control(self) -> MPI.Intracomm:
        """A communicator for internal messages, separate from the program's calls; collective the first time."""
        if self._own is None:
            self._own = self.comm.Dup()
        return self._own

    def remember(self, key: Any, signature: Signature | None) -> None:
        """Keep the signature of calls with the arguments `key`."""
        if len(self.signatures) >= KNOWN:
            self.signatures.clear()
        self.signatures[key] = signature

    def knows(self, known: Any) -> bool:
        """Whether all ranks are known to make this call, so that they need no message about it."""
        return not self.check and known in self._agreed

    def agree(self, known: Any, asked: str, failure: Exception | None) -> None:
        """Verify that all ranks make the same call, or raise on all: `failure` if all ranks have it, else CallMismatch.

        Without `check`, ranks exchange messages only about new calls and errors."""
        if failure is None and self.knows(known):
            return
        if self.comm.size > 1:
            self._compare(asked, failure)
        if failure is not None:
            raise failure
        if len(self._agreed) >= KNOWN:
            self._agreed.clear()
        self._agreed.add(known)

    def _compare(self, asked: str, failure: Exception | None) -> None:
        """Raise CallMismatch on all ranks if they make different calls, with the calls by rank.

        If the others are in a call that was agreed before, a rank with an error raises alone after PATIENCE_S."""
        digest = digest_of(asked.encode())
        both = np.concatenate([digest, ~digest])
        most = np.empty_like(both)
        request = self.control.Iallreduce(
            both, most, MPI.MAX
        )  # nonblocking on all ranks, or none would match
        if failure is None:
            request.Wait()
        elif not _done(request, PATIENCE_S):
            self._unheard.append((request, both, most))
            raise failure
        same = (most[:2] == ~most[2:]).all()  # the MAX of ~x is the MIN of x
        if not same:
            raise CallMismatch(
                f"ranks make different calls: {by_rank(self.control.allgather(asked))}"
            ) from failure

    def reducer(self, signature: Signature, slot: int, call: Call) -> Any:
        """The plan of a signature; with an observer, the reducer that records it."""
        planned = self._planned(signature, slot, call)
        if self.observer is None:
            planned.drain_orders()  # nobody records them
            return planned
        return self.observer.reducer(record_name(signature, slot), planned, self.comm, call.blocks)

    def _planned(self, signature: Signature, slot: int, call: Call) -> Reducer:
        """The plan of a signature; the first call makes it, collectively, and may free the oldest plan."""
        place = (signature, slot)
        planned = self.kept.get(place)
        blocks = call.blocks if signature.ordering.partition(":")[0] == "block-tree" else None
        if planned is None:
            while len(self.kept) >= PLANS:
                old, oldest = self.kept.popitem(last=False)
                self.finish(len(self.under_way))
                self._blocks.pop(old, None)
                oldest.free()
            packing = orders = None
            if self.replay is not None and signature.ordering == self.replay.trees:
                packing = self.replay.packing(record_name(signature, slot), 0)
            elif self.replay is not None:
                orders = self.replay.order(record_name(signature, slot), 0)
            reduction = Reduction(
                signature.ordering, (signature.n,), signature.held, accumulation=signature.accumulation,
                operation=operations.get(signature.operation), collective=signature.collective, root=signature.root,
                bounds=signature.bounds, check=self.check, packing=packing,
            )  # fmt: skip
            planned = self.kept[place] = plan(
                self.control, reduction, name=call.name, blocks=blocks, replay=orders
            )
            self._blocks[place] = blocks
        elif blocks != self._blocks[place]:
            raise ValueError(
                f"{call.name}: blocks {blocks}, but earlier calls of this signature had {self._blocks[place]}; before "
                "blocks change their ranks, call comm.release() on all ranks"
            )
        self.kept.move_to_end(place)
        return planned

    def reduce(self, call: Call, signature: Signature) -> None:
        """Carry out a reduction."""
        reducer = self.reducer(signature, 0, call)
        contributions = _held(call, signature)
        direct = contributions is call.contributions and signature.collective == "allreduce"
        if direct and getattr(call.out.flags, "aligned", True):
            reducer(contributions, call.out)
            same_nan(call, call.out)
        else:
            self.store(call, signature, reducer(contributions))

    @guarded
    def store(self, call: Call, signature: Signature, total: Any) -> None:
        """Copy the total of a plan, or this rank's part of it, into the program's buffer."""
        if call.out is None:
            return
        call.out[...] = total.astype(call.out.dtype, copy=False)
        same_nan(call, call.out)

    def start(self, call: Call, signature: Signature) -> Pending:
        """Start a reduction in the next slot of its signature, which every rank takes in the same turn."""
        turn = self._begun.get(signature, 0)
        self._begun[signature] = turn + 1
        slot = 1 + turn % SLOTS
        busy = next((i for i, p in enumerate(self.under_way) if p.place == (signature, slot)), None)
        if busy is not None:
            self.finish(busy + 1)
        reducer = self.reducer(signature, slot, call)
        contributions = _held(call, signature)
        reducer.start(contributions)
        pending = Pending(self, (signature, slot), call, reducer, contributions)
        self.under_way.append(pending)
        return pending

    def finish(self, count: int) -> None:
        """Finish the `count` oldest pending reductions, in the order in which all ranks have started them, so that no
        two ranks wait for each other."""
        for _ in range(count):
            pending = self.under_way.pop(0)
            pending.done = True
            self.store(pending.call, pending.place[0], pending.reducer.finish())

    def release(self) -> None:
        """Wait for all pending reductions and free all plans. Collective."""
        self.finish(len(self.under_way))
        for reducer in self.kept.values():
            reducer.free()
        self.kept.clear()
        self._blocks.clear()
        self._begun.clear()
        self._agreed.clear()
        if self._own is not None:
            self._own.Free()
            self._own = None


class Pending:
    """A pending reduction of a wrapped communicator. It has the methods of an MPI request but is none: wait for each
    one separately."""

    def __init__(self, plans: Plans, place: Place, call: Call, reducer: Any, contributions: Any):
        self.plans, self.place, self.call, self.reducer = plans, place, call, reducer
        self.contributions = contributions  # kept alive
        self.done = False
        # The same on all ranks: with rows on some of them, the others have to wait for their sums.
        self._moves = not call.rows and type(plans.kept[place])._progress is not Reducer._progress

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until the total is in the receive buffer; also finishes the reductions that were started before."""
        if not self.done:
            self.plans.finish(self.plans.under_way.index(self) + 1)
        return True

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether the total is in the receive buffer. If a rank has several rows, or the ordering cannot progress in
        steps, this call does all the work."""
        if self.done:
            return True
        before = self.plans.under_way[: self.plans.under_way.index(self) + 1]
        if all([pending.reducer.progress() or not pending._moves for pending in before]):
            self.Wait()
        return self.done

    wait, test = Wait, Test


def record_name(signature: Signature, slot: int) -> str:
    """The name of a reduction of this signature in a recording, unique for its communicator."""
    collective, operation = signature.collective, signature.operation
    words = [] if operation == "sum" else [operation]
    words.append(f"{signature.dtype.name}x{signature.n}")
    words += [f"root{signature.root}"] if collective == "reduce" else []
    bounds = signature.bounds
    words += ["parts" if bounds is None else f"parts{bounds[1:]}"] if collective == "reduce-scatter" else []
    return ".".join([*words, *([f"slot{slot}"] if slot else [])])


def same_nan(call: Call, out: Any) -> None:
    """Replace every NaN in the result of min or max by the same one; without it the order decides which NaN wins."""
    if call.operation in ("min", "max"):
        out[out != out] = np.nan


@guarded
def _held(call: Call, signature: Signature) -> Any:
    """The contributions in the type in which they are added."""
    return call.contributions.astype(signature.held, copy=False)


def _done(request: MPI.Request, seconds: float) -> bool:
    """Whether a request completes within so many seconds."""
    limit = time.monotonic() + seconds
    while not request.Test():
        if time.monotonic() > limit:
            return False
        time.sleep(0.0005)
    return True
