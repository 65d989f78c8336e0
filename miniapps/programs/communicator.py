"""A communicator of mpi4py whose sums keep a promise: `wrap(comm, guarantee="layout")`.

Reductions of floating-point numbers are answered by our orderings (`kernels.allreduce`), everything else by the MPI
library: sums of integers have the same bits in any order. A reduction of floats that we have no form for is refused
rather than left to the library under a promise.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction, plan
from kernels.allreduce.errors import CallMismatch, by_rank
from kernels.allreduce.execution.reducer import Reducer, agree, digest_of
from kernels.environment import guarded
from kernels.guarantees import LEVELS, ChoiceError, known, meets
from miniapps.errors import UsageError
from miniapps.programs.buffers import buffer
from miniapps.programs.calls import Blocks, Call, call_of, floating, operation_of
from miniapps.programs.objects import Agreed, agreed
from miniapps.runner.policy import Policy, resolve
from miniapps.runner.replay import Replay, read
from miniapps.system.world import require_launch

Key = tuple[Any, ...]  # the signature of a reduction
Place = tuple[Key, int]  # and its slot
PLANS = 64  # kept by a communicator: each has a communicator of its own, of which MPI libraries have some thousands
SLOTS = 4  # reductions of one signature that can be under way at once
WIDE = (np.dtype(np.float64), np.dtype(np.float32))  # which the library and every accumulation take

TRAP = (
    "{name} under guarantee {level!r}: every rank brings one array. Where a rank has added it up from rows or blocks "
    "of its own, it has rounded already, and on another number of ranks it rounds otherwise: the total then still "
    "depends on the number of ranks. Pass what is added, not sums of it: comm.{name}(rows, total, axis=0), where every "
    "row, on whatever rank, is one contribution. Where each rank's array is a block that does not depend on the number "
    "of ranks, say which: blocks=number"
)


class LayoutWarning(UserWarning):
    """`layout` was asked for, and what ranks contribute may depend on their number."""


class Observer(Protocol):
    """Who wants to know of the reductions of a communicator; see `miniapps.programs.recording`."""

    def reducer(
        self, name: str, planned: Reducer, comm: MPI.Intracomm, blocks: tuple[int, ...] | None
    ) -> Any:
        """`planned`, or what stands in for it, for one call."""


def wrap(
    comm: MPI.Intracomm,
    guarantee: str = "layout",
    *,
    ordering: str | None = None,
    accumulation: str | None = None,
    check: bool = False,
    replay: str | os.PathLike[str] | None = None,
) -> Communicator:
    """`comm` with reductions that keep `guarantee`; all other calls are those of `comm`.

    `guarantee`: "none", "run", "layout" or "exact" (`kernels.guarantees`). `ordering`, `accumulation`: how to add,
    instead of as the guarantee says, as for `kernels.allreduce.Reduction`. `check`: verify at every call that all ranks
    ask for the same, and after it that they hold the same bits. `replay`: a recorded run of `ordering="arrival"` on as
    many ranks, whose orders of arrival are repeated, or of `ordering="trees:links=FILE"`, whose trees are.

    **A sum over ranks of sums over rows depends on the number of ranks**, whatever the guarantee of the sum over ranks:
    a program that first adds its own rows has rounded before this communicator sees anything.

        comm.Allreduce(rows.sum(axis=0), total)       # before: other bits on another number of ranks
        comm.Allreduce(rows, total, axis=0)           # after: every row, on whatever rank, is one contribution

    Under `layout` and `exact`, a sum over several ranks without `axis` or `blocks` warns of this once (LayoutWarning).

    A plan is made by the first call of each signature; the last 64 are kept. Raises TypeError for what is no
    intracommunicator, ChoiceError for what cannot be chosen or promises less than the guarantee.
    """
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        null = isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL
        what = "MPI.COMM_NULL" if null else type(comm).__name__
        raise TypeError(f"wrap takes an intracommunicator, such as MPI.COMM_WORLD, not {what}")
    known("guarantee", guarantee, LEVELS)
    require_launch("fpna.wrap")
    record = None if replay is None else _recorded(replay, comm.size)
    replayed = None if record is None else record.trees or "arrival"
    policy = resolve(guarantee, ordering or replayed, accumulation)
    policy.check()
    return Communicator(comm, policy, check, record)


def _recorded(run: str | os.PathLike[str], size: int) -> Replay:
    """What a run to be replayed recorded. Raises ChoiceError where that cannot be replayed here."""
    try:
        record = read(str(run))
    except UsageError as error:
        raise ChoiceError(str(error).replace("--replay", "replay", 1)) from None
    if record.size != size:
        raise ChoiceError(f"replay {run}: it was recorded on {record.size} ranks, and here are {size}")
    return record


class Communicator(MPI.Intracomm):
    """An intracommunicator whose reductions keep a promise; made by `wrap`.

    `Allreduce`, `Iallreduce`, `Reduce`, `Reduce_scatter_block`, `Reduce_scatter`, `allreduce` and `reduce` take what
    those of mpi4py take; all but the last two also:

    `axis=0`  every row of the send buffer is one contribution, and the total has the shape of a row. The number of rows
              may be 0 and may differ between ranks.
    `blocks`  the global number of this rank's contribution; or a list of them, for as many rows. Each belongs to one
              rank. Orderings over blocks (`block-tree`) need them, and there they stay the same from call to call.

    `plain` is the communicator as MPI has it. Communicators made from this one are wrapped alike.
    """

    def __new__(
        cls, comm: MPI.Intracomm, policy: Policy, check: bool = False, replay: Replay | None = None
    ) -> Self:
        return super().__new__(cls, comm)

    def __init__(
        self, comm: MPI.Intracomm, policy: Policy, check: bool = False, replay: Replay | None = None
    ):
        self.plain: MPI.Intracomm = comm.plain if isinstance(comm, Communicator) else comm
        self.observer: Observer | None = None
        self._policy, self._check, self._replay = policy, check, replay
        self._plans: OrderedDict[Place, Reducer] = OrderedDict()
        self._blocks: dict[Place, tuple[int, ...] | None] = {}  # of plans over blocks
        self._begun: dict[Key, int] = {}  # how many of a signature were started
        self._under_way: list[Pending] = []  # in the order in which they were started
        self._warned = False

    def __getattr__(self, name: str) -> Any:
        """What other kinds of intracommunicators have, such as the grid of a Cartcomm."""
        if name == "plain":  # not set yet
            raise AttributeError(name)
        return getattr(self.plain, name)

    @property
    def guarantee(self) -> str:
        """The level that is promised."""
        return self._policy.level

    @property
    def policy(self) -> Policy:
        """How reductions add."""
        return self._policy

    def Allreduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> None:
        """Combine the contributions of all ranks by `op` into `recvbuf` on each."""
        call = self._call("Allreduce", sendbuf, recvbuf, op, axis, blocks)
        if call is None or (key := self._key(call, "allreduce")) is None:
            return self.plain.Allreduce(sendbuf, recvbuf, op)
        self._reduce(call, key)

    def Iallreduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> Any:
        """As `Allreduce`, under way when it returns: leave both buffers alone until `Wait` or `Test` of what it returns
        say that it is done. Returns a Pending, or the library's request."""
        call = self._call("Iallreduce", sendbuf, recvbuf, op, axis, blocks)
        if call is None or (key := self._key(call, "allreduce")) is None:
            return self.plain.Iallreduce(sendbuf, recvbuf, op)
        return self._start(call, key)

    def Reduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> None:
        """As `Allreduce`, into `recvbuf` of rank `root` alone."""
        received = recvbuf if self.plain.rank == root else None
        if self.plain.rank == root and recvbuf is None:
            raise TypeError("Reduce: recvbuf is None on the root; pass the array that takes the total")
        call = self._call("Reduce", sendbuf, received, op, axis, blocks)
        if call is None or (key := self._key(call, "reduce", root)) is None:
            return self.plain.Reduce(sendbuf, recvbuf, op, root)
        self._reduce(call, key)

    def Reduce_scatter_block(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> None:
        """As `Allreduce`, rank r getting the r-th of equal parts of the total."""
        call = self._call("Reduce_scatter_block", sendbuf, recvbuf, op, axis, blocks, parts=True)
        if call is not None and call.out.size * self.plain.size != call.n:
            raise ValueError(
                f"Reduce_scatter_block: {self.plain.size} parts of {call.out.size} elements, and a contribution of "
                f"{call.n}"
            )
        if call is None or (key := self._key(call, "reduce-scatter")) is None:
            return self.plain.Reduce_scatter_block(sendbuf, recvbuf, op)
        self._reduce(call, key)

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> None:
        """As `Allreduce`, rank r getting `recvcounts[r]` elements of the total."""
        call = self._call("Reduce_scatter", sendbuf, recvbuf, op, axis, blocks, parts=True)
        if call is None:
            return self.plain.Reduce_scatter(sendbuf, recvbuf, recvcounts, op)
        counts = np.asarray(self.plain.allgather(call.out.size) if recvcounts is None else recvcounts)
        if recvcounts is not None and call.out.dtype != buffer(recvbuf, "Reduce_scatter: recvbuf").dtype:
            counts = 2 * counts  # complex numbers are taken as their parts
        if (key := self._key(call, "reduce-scatter", bounds=(0, *np.cumsum(counts).tolist()))) is None:
            return self.plain.Reduce_scatter(sendbuf, recvbuf, recvcounts, op)
        self._reduce(call, key)

    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """The lower-case call, of Python's and NumPy's numbers and NumPy's arrays; ranks may pass integers where others
        pass floats. Types are exchanged beside, which costs another small message. Under a guarantee other objects are
        refused; without one they go to the library."""
        return self._objects("allreduce", sendobj, op, None)

    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        """As `allreduce`, for rank `root` alone; None elsewhere."""
        return self._objects("reduce", sendobj, op, root)

    def release(self) -> None:
        """Wait for what is under way and free all plans. Collective; the communicator can be used on."""
        self._finish(len(self._under_way))
        for reducer in self._plans.values():
            reducer.free()
        self._plans.clear()
        self._blocks.clear()
        self._begun.clear()

    def Free(self) -> None:
        """Free the plans, and the communicator."""
        self.release()
        self.plain.Free()

    def _call(
        self,
        name: str,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op,
        axis: int | None,
        blocks: Blocks,
        parts: bool = False,
    ) -> Call | None:
        """What is asked for; None where the library may do it. In checked mode all ranks raise where one does."""
        if self.guarantee == "none" and axis is None and blocks is None and operation_of(op) is None:
            return None
        if not self._check:
            return call_of(name, sendbuf, recvbuf, op, axis, blocks, parts=parts)
        failure: Exception | None = None
        call = None
        try:
            call = call_of(name, sendbuf, recvbuf, op, axis, blocks, parts=parts)
            asked = (
                "no floats" if call is None else f"{call.operation} of {call.contributions.dtype} x {call.n}"
            )
        except (TypeError, ValueError) as error:  # a ChoiceError is a ValueError
            failure, asked = error, f"{type(error).__name__}: {error}"
        if not agree(self.plain, digest_of(f"{name} {asked}".encode())):
            raise CallMismatch(
                f"ranks ask for different things: {by_rank(self.plain.allgather(f'{name}, {asked}'))}"
            ) from failure
        if failure is not None:
            raise failure
        return call

    def _key(
        self, call: Call, collective: str, root: int = 0, bounds: tuple[int, ...] | None = None
    ) -> Key | None:
        """The signature of a reduction; None where the library may do it. Warns of what the program may have added."""
        label = self._label(call, collective)
        if label is None:
            return None
        if (
            not self._warned and not call.rows and call.blocks is None and call.operation == "sum"
            and meets(self.guarantee, "layout") and self.plain.size > 1
        ):  # fmt: skip
            self._warned = True
            if self.plain.rank == 0:
                warnings.warn(TRAP.format(name=call.name, level=self.guarantee), LayoutWarning, stacklevel=3)
        return (*label, collective, call.operation, call.contributions.dtype, call.n, root, bounds)

    def _label(self, call: Call, collective: str) -> tuple[str, str] | None:
        """(ordering, accumulation) of a call; None where the library does it without a promise."""
        ordering, accumulation = self._policy.of(call.n)
        wide = call.contributions.dtype in WIDE
        if ordering == "library":
            if collective == "allreduce" and wide:
                return ordering, accumulation
            return ("direct", "working") if call.rows else None
        if call.operation in ("min", "max"):
            return "direct", "working"  # which rounds nothing
        if accumulation == "exact" and call.operation == "prod":
            raise ChoiceError(
                f"{call.name}: a product has no form that is free of order, as guarantee {self.guarantee!r} would "
                "need; add logarithms, or wrap the communicator with guarantee 'run'"
            )
        return ordering, accumulation

    def _reducer(self, key: Key, slot: int, call: Call) -> Any:
        """The plan of a signature, made by its first call; collective then, and where an older one makes room."""
        ordering, accumulation, collective, operation, dtype, n, root, bounds = key
        place = (key, slot)
        planned = self._plans.get(place)
        blocks = call.blocks if ordering.partition(":")[0] == "block-tree" else None
        if planned is None:
            while len(self._plans) >= PLANS:
                old, oldest = self._plans.popitem(last=False)
                self._finish(len(self._under_way))
                self._blocks.pop(old, None)
                oldest.free()
            packing = orders = None
            if self._replay is not None and ordering == self._replay.trees:
                packing = self._replay.packing(_record_name(key, slot), 0)
            elif self._replay is not None:
                orders = self._replay.order(_record_name(key, slot), 0)
            reduction = Reduction(
                ordering, (n,), dtype, accumulation=accumulation, operation=operation, collective=collective,
                root=root, bounds=bounds, check=self._check, packing=packing,
            )  # fmt: skip
            planned = self._plans[place] = plan(
                self.plain, reduction, name=call.name, blocks=blocks, replay=orders
            )
            self._blocks[place] = blocks
        elif blocks != self._blocks[place]:
            raise ValueError(
                f"{call.name}: blocks {blocks}, and {self._blocks[place]} in earlier calls of this signature: where "
                "blocks change hands, call comm.release() on all ranks first"
            )
        self._plans.move_to_end(place)
        if self.observer is None:
            planned.drain_orders()  # which nobody records
            return planned
        return self.observer.reducer(_record_name(key, slot), planned, self.plain, call.blocks)

    def _reduce(self, call: Call, key: Key) -> None:
        reducer = self._reducer(key, 0, call)
        if key[2] == "allreduce":
            reducer(call.contributions, call.out)
            _same_nan(call, call.out)
        else:
            self._store(call, reducer(call.contributions))

    @guarded
    def _store(self, call: Call, total: Any) -> None:
        if call.out is not None:
            call.out[...] = total.astype(call.out.dtype, copy=False)
            _same_nan(call, call.out)

    def _start(self, call: Call, key: Key) -> Pending:
        """Start a reduction in the next slot of its signature, which every rank takes in the same turn."""
        turn = self._begun.get(key, 0)
        self._begun[key] = turn + 1
        slot = 1 + turn % SLOTS
        busy = next((i for i, p in enumerate(self._under_way) if p.place == (key, slot)), None)
        if busy is not None:
            self._finish(busy + 1)
        reducer = self._reducer(key, slot, call)
        reducer.start(call.contributions)
        pending = Pending(self, (key, slot), call, reducer)
        self._under_way.append(pending)
        return pending

    def _finish(self, count: int) -> None:
        """Finish the `count` oldest of the reductions under way: in the order in which all ranks have started them, so
        that no two ranks wait for each other."""
        for pending in self._under_way[:count]:
            self._store(pending.call, pending.reducer.finish())
            pending.done = True
        del self._under_way[:count]

    def _objects(self, name: str, sendobj: Any, op: Any, root: int | None) -> Any:
        """The lower-case calls."""
        plain = functools.partial(getattr(self.plain, name), sendobj, op, *(() if root is None else (root,)))
        if self._policy.of(1)[0] == "library":
            return plain()
        common: Agreed | None = agreed(self.plain, name, sendobj, op)
        if common is None:
            return plain()
        contribution = _numbers(sendobj, common.dtype)
        total = np.empty_like(contribution)
        if root is None:
            self.Allreduce(contribution, total, op)
        else:
            self.Reduce(contribution, total, op, root)
        return common.like_given(total) if root in (None, self.plain.rank) else None


class Pending:
    """A reduction under way, of `Communicator.Iallreduce`. It has the methods of a request of MPI and is none: wait for
    each one by itself."""

    def __init__(self, comm: Communicator, place: Place, call: Call, reducer: Any):
        self.comm, self.place, self.call, self.reducer = (
            comm,
            place,
            call,
            reducer,
        )  # the call keeps its array alive
        self.done = False
        # The same on all ranks: with rows on some of them, the others have to wait for their sums.
        self._moves = not call.rows and type(comm._plans[place])._progress is not Reducer._progress

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until the total is in the receive buffer; those that were started before are finished, too."""
        if not self.done:
            self.comm._finish(self.comm._under_way.index(self) + 1)
        return True

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether the total is in the receive buffer. Of several rows on a rank, and where the ordering has no steps to
        go on by, the work is done here."""
        if self.done:
            return True
        before = self.comm._under_way[: self.comm._under_way.index(self) + 1]
        if all([pending.reducer.progress() or not pending._moves for pending in before]):
            self.Wait()
        return self.done

    wait, test = Wait, Test


def _record_name(key: Key, slot: int) -> str:
    """What a recording calls a reduction of this signature, unique among those of a communicator."""
    _, _, collective, operation, dtype, n, root, bounds = key
    words = [] if operation == "sum" else [operation]
    words.append(f"{dtype.name}x{n}")
    words += [f"root{root}"] if collective == "reduce" else []
    words += ["parts" if bounds is None else f"parts{bounds[1:]}"] if collective == "reduce-scatter" else []
    return ".".join([*words, *([f"slot{slot}"] if slot else [])])


@guarded
def _numbers(sendobj: Any, dtype: np.dtype) -> np.ndarray:
    """An object of a lower-case call as an array of the type that all ranks agreed on."""
    return np.asarray(sendobj, dtype)


def _same_nan(call: Call, out: Any) -> None:
    """Make every NaN of a least or greatest number the same one: the order decides which of several is met first."""
    if call.operation in ("min", "max"):
        out[out != out] = np.nan


def _wrapped(name: str) -> Callable[..., Any]:
    """The method `name` of a communicator, its result wrapped like the communicator it was called on."""

    @functools.wraps(getattr(MPI.Intracomm, name))
    def made(self: Communicator, *arguments: Any, **named: Any) -> Any:
        comm = getattr(self.plain, name)(*arguments, **named)
        return comm if comm == MPI.COMM_NULL else Communicator(comm, self._policy, self._check)

    return made


def _unpromised(name: str) -> Callable[..., Any]:
    """The method `name`, a reduction that we have no form for: refused under a guarantee where it rounds."""

    @functools.wraps(getattr(MPI.Intracomm, name))
    def left(self: Communicator, *arguments: Any, **named: Any) -> Any:
        if self.guarantee != "none" and _rounds(name, arguments, named):
            raise ChoiceError(
                f"{name}: its order is the MPI library's, and the communicator is to keep guarantee "
                f"{self.guarantee!r}; ours are Allreduce, Iallreduce, Reduce, Reduce_scatter(_block), allreduce and "
                f"reduce. Without a promise: comm.plain.{name}"
            )
        return getattr(self.plain, name)(*arguments, **named)

    return left


def _rounds(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a reduction may give other bits in another order, by what is passed."""
    given = [*arguments, *named.values()]
    if any(isinstance(each, MPI.Op) and operation_of(each) in ("min", "max") for each in given):
        return False
    sent = given[1] if given and given[0] is MPI.IN_PLACE else given[0] if given else None
    if name[0].islower():
        return not isinstance(sent, int | np.integer | np.bool_)
    return sent is not None and floating(buffer(sent, name).dtype)


for _name in ("Dup", "Clone", "Split", "Split_type", "Create", "Create_group", "Create_cart", "Create_graph",
              "Create_dist_graph", "Create_dist_graph_adjacent"):  # fmt: skip
    setattr(Communicator, _name, _wrapped(_name))
for _name in ("Scan", "Exscan", "Iscan", "Iexscan", "Ireduce", "Ireduce_scatter", "Ireduce_scatter_block", "scan",
              "exscan", "Allreduce_init", "Reduce_init", "Reduce_scatter_init", "Reduce_scatter_block_init",
              "Scan_init", "Exscan_init"):  # fmt: skip
    setattr(Communicator, _name, _unpromised(_name))
