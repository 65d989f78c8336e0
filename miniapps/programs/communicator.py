"""A communicator of mpi4py whose sums keep a promise: `wrap(comm, guarantee="layout")`.

Reductions of floating-point numbers are answered by our orderings (`kernels.allreduce`), everything else by the MPI
library: sums of integers have the same bits in any order. A reduction of floats that we have no form for is refused
rather than left to the library under a promise.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.guarantees import LEVELS, ChoiceError, known, meets
from miniapps.errors import UsageError
from miniapps.programs import handles, methods, objects, pairs
from miniapps.programs.calls import Asked, Blocks, Call, call_of, said_of
from miniapps.programs.forms import Signature, signature_of
from miniapps.programs.messages import message
from miniapps.programs.operations import operation_of, rounds_nothing
from miniapps.programs.wrapped import Promise, Wrapped, wrapped_alike, wraps
from miniapps.runner.policy import resolve
from miniapps.runner.replay import Replay, read
from miniapps.system.world import require_launch

TRAP = (
    "{name} under guarantee {level!r}: every rank brings one array. Where a rank has added it up from rows or blocks "
    "of its own, it has rounded already, and on another number of ranks it rounds otherwise: the total then still "
    "depends on the number of ranks. Pass what is added, not sums of it: comm.{name}(rows, total, axis=0), where every "
    "row, on whatever rank, is one contribution. Where each rank's array is a block that does not depend on the number "
    "of ranks, say which: blocks=number"
)
OWN = str(Path(__file__).parent)  # where calls are not the program's


IN_PLACE = -2  # elements that a rank receives in place


class LayoutWarning(UserWarning):
    """`layout` was asked for, and what ranks contribute may depend on their number."""


def wrap(
    comm: MPI.Intracomm,
    guarantee: str = "layout",
    *,
    ordering: str | None = None,
    accumulation: str | None = None,
    check: bool = False,
    replay: str | os.PathLike[str] | None = None,
    exact_ops: Sequence[Any] = (),
) -> Communicator:
    """`comm` with reductions that keep `guarantee`; all other calls are those of `comm`.

    `guarantee`: "none", "run", "layout" or "exact" (`kernels.guarantees`). `ordering`, `accumulation`: how to add,
    instead of as the guarantee says, as for `kernels.allreduce.Reduction`. `check`: verify at every call that all ranks
    ask for the same, and after it that they hold the same bits. `replay`: a recorded run of `ordering="arrival"` on as
    many ranks, whose orders of arrival are repeated, or of `ordering="trees:links=FILE"`, whose trees are. `exact_ops`:
    operations of the program's own that round nothing, so that any order has the same bits; the library does them.

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
    if wrong := [each for each in exact_ops if not callable(each) or operation_of(each) is not None]:
        raise TypeError(f"exact_ops: {wrong[0]!r} is no operation of the program's own")
    require_launch("fpna.wrap")
    record = None if replay is None else _recorded(replay, comm.size)
    replayed = None if record is None else record.trees or "arrival"
    policy = resolve(guarantee, ordering or replayed, accumulation)
    policy.check()
    if guarantee != "none" and (names := handles.loaded()):
        warnings.warn(
            handles.PAST.format(names=", ".join(names)), handles.HandleWarning, stacklevel=_caller()
        )
    wrapped: Communicator = wrapped_alike(comm, Promise(policy, check, record, tuple(exact_ops)))
    return wrapped


def _recorded(run: str | os.PathLike[str], size: int) -> Replay:
    """What a run to be replayed recorded. Raises ChoiceError where that cannot be replayed here."""
    try:
        record = read(str(run))
    except UsageError as error:
        raise ChoiceError(str(error).replace("--replay", "replay", 1)) from None
    if record.size != size:
        raise ChoiceError(f"replay {run}: it was recorded on {record.size} ranks, and here are {size}")
    return record


def _caller() -> int:
    """The stacklevel, seen from the caller of this function, of the program's line that called us."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
        frame, level = frame.f_back, level + 1
    return level


@wraps(MPI.Intracomm, methods.REFUSED)
class Communicator(Wrapped, MPI.Intracomm):
    """An intracommunicator whose reductions keep a promise; made by `wrap`. One of a Cartesian grid or a graph is also
    a `MPI.Cartcomm`, `MPI.Graphcomm` or `MPI.Distgraphcomm`.

    `Allreduce`, `Reduce`, `Reduce_scatter_block` and `Reduce_scatter`, their nonblocking forms, `allreduce` and
    `reduce` take what those of mpi4py take; all but the last two also:

    `axis=0`  every row of the send buffer is one contribution, and the total has the shape of a row. The number of rows
              may be 0 and may differ between ranks.
    `blocks`  the global number of this rank's contribution; or a list of them, for as many rows. Each belongs to one
              rank. Orderings over blocks (`block-tree`) need them, and there they stay the same from call to call.

    `plain` is the communicator as MPI has it. Communicators made from this one are wrapped alike.
    """

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
        asked = Asked("Allreduce", sendbuf, recvbuf, op, self.rank, self.size, axis=axis, blocks=blocks)
        self._carry_out(asked, "allreduce", sendbuf, recvbuf, op)

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
        asked = Asked("Iallreduce", sendbuf, recvbuf, op, self.rank, self.size, axis=axis, blocks=blocks)
        return self._carry_out(asked, "allreduce", sendbuf, recvbuf, op)

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
        asked = Asked("Reduce", sendbuf, recvbuf, op, self.rank, self.size, root, axis, blocks)
        self._carry_out(asked, "reduce", sendbuf, recvbuf, op, root)

    def Ireduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> Any:
        """`Reduce`, under way when it returns, as `Iallreduce`."""
        asked = Asked("Ireduce", sendbuf, recvbuf, op, self.rank, self.size, root, axis, blocks)
        return self._carry_out(asked, "reduce", sendbuf, recvbuf, op, root)

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
        asked = Asked(
            "Reduce_scatter_block", sendbuf, recvbuf, op, self.rank, self.size, None, axis, blocks, "equal"
        )
        self._carry_out(asked, "reduce-scatter", sendbuf, recvbuf, op)

    def Ireduce_scatter_block(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> Any:
        """`Reduce_scatter_block`, under way when it returns, as `Iallreduce`."""
        asked = Asked(
            "Ireduce_scatter_block", sendbuf, recvbuf, op, self.rank, self.size, None, axis, blocks, "equal"
        )
        return self._carry_out(asked, "reduce-scatter", sendbuf, recvbuf, op)

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
        self._scattered("Reduce_scatter", sendbuf, recvbuf, recvcounts, op, axis, blocks)

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: MPI.Op = MPI.SUM,
        *,
        axis: int | None = None,
        blocks: Blocks = None,
    ) -> Any:
        """`Reduce_scatter`, under way when it returns, as `Iallreduce`."""
        return self._scattered("Ireduce_scatter", sendbuf, recvbuf, recvcounts, op, axis, blocks)

    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """The lower-case call, of Python's and NumPy's numbers and NumPy's arrays; ranks may pass integers where others
        pass floats. Types are exchanged beside, which costs another small message. Under a guarantee other objects are
        refused; without one they go to the library."""
        return self._objects("allreduce", sendobj, op, None)

    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        """As `allreduce`, for rank `root` alone; None elsewhere."""
        return self._objects("reduce", sendobj, op, root)

    def _scattered(
        self,
        name: str,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any,
        op: Any,
        axis: int | None,
        blocks: Blocks,
    ) -> Any:
        """A reduce-scatter in parts that are counted."""
        asked = Asked(name, sendbuf, recvbuf, op, self.rank, self.size, None, axis, blocks, "counted")
        if not self._leaves(asked):
            asked = replace(asked, counts=recvcounts)
            if recvcounts is None:
                asked = replace(asked, counts=self._gathered(asked))
        return self._carry_out(asked, "reduce-scatter", sendbuf, recvbuf, recvcounts, op)

    def _gathered(self, asked: Asked) -> tuple[int, ...] | None:
        """How many elements every rank receives, -1 where its buffer is none; None where some receive in place."""
        self._plans.agree((asked.name, "gathered"), f"{asked.name} without recvcounts", None)
        try:
            own = message(asked.recvbuf, f"{asked.name}: recvbuf").array.size
        except (TypeError, ValueError):
            own = -1
        everyone: list[int] = self._plans.control.allgather(IN_PLACE if asked.in_place else own)
        return None if IN_PLACE in everyone else tuple(everyone)

    def _carry_out(self, asked: Asked, collective: str, *arguments: Any) -> Any:
        """Do what is asked for, by a plan or by the library; nonblocking calls return what is under way."""
        begun = asked.name[0] == "I"
        library = functools.partial(getattr(self.plain, asked.name), *arguments)
        if self._leaves(asked):
            return library()
        if (pairwise := pairs.pairwise(asked.op)) is not None and asked.parts == "" and not begun:
            return self._pairs(asked, pairwise, library)
        found = self._agreed(asked, collective)
        if found is None:
            return library()
        call, signature = found
        if begun:
            return self._plans.start(call, signature)
        self._plans.reduce(call, signature)
        return None

    def _leaves(self, asked: Asked) -> bool:
        """Whether the library does it, whatever the buffers are: it was not promised, or rounds nothing."""
        if asked.axis is not None or asked.blocks is not None:
            return False
        if rounds_nothing(asked.op, self._promise.exact_ops):
            return True
        if self._promise.policy.of(1)[0] != "library" or self._promise.check:
            return False
        return self.observer is None or operation_of(asked.op) is None

    def _agreed(self, asked: Asked, collective: str) -> tuple[Call, Signature] | None:
        """What is asked for, the same on all ranks; None where the library does it. Where a rank refuses, all raise."""
        failure: Exception | None = None
        call = signature = None
        try:
            call = call_of(asked)
            bounds = None if asked.parts == "equal" else call.bounds
            if call.operation:
                signature = self._signature(call, collective, asked.root or 0, bounds)
                if signature is not None and self._plans.knows(signature):
                    return call, signature
        except (TypeError, ValueError, OverflowError) as error:  # a ChoiceError is a ValueError
            failure = error
        if failure is not None and self.guarantee == "none" and not (asked.rows or self._promise.check):
            return None  # and the library says what it thinks of it
        said = f"{asked.name}, {said_of(asked, call, failure)}"
        self._plans.agree(signature or said, said, failure)
        return None if call is None or signature is None else (call, signature)

    def _signature(
        self, call: Call, collective: str, root: int, bounds: tuple[int, ...] | None
    ) -> Signature | None:
        """The signature of a reduction; None where the library may do it. Warns of what the program may have added."""
        observed, plans, dtype = self.observer is not None, self._plans, call.contributions.dtype
        key = (collective, call.operation, dtype, call.n, root, bounds, call.rows, observed)
        if key in plans.signatures:
            signature = plans.signatures[key]
        else:
            signature = signature_of(call, collective, root, bounds, self._promise.policy, observed)
            plans.remember(key, signature)
        if signature is None:
            return None
        if (
            not plans.warned and not call.rows and call.blocks is None and call.operation == "sum"
            and self.size > 1 and meets(self.guarantee, "layout")
        ):  # fmt: skip
            plans.warned = True
            if self.rank == 0:
                text = TRAP.format(name=call.name, level=self.guarantee)
                warnings.warn(text, LayoutWarning, stacklevel=_caller())
        return signature

    def _pairs(self, asked: Asked, operation: str, library: Callable[[], Any]) -> Any:
        """A greatest or least number with its index."""
        failure, found, said = None, None, "whole numbers with an index"
        try:
            found = pairs.pairs_of(asked)
            said = said if found is None else f"{found[0].dtype['value']} with an index x {found[0].size}"
        except (TypeError, ValueError) as error:
            failure, said = error, f"{type(error).__name__}: {error}"
        said = f"{asked.name}, {operation} of {said}"
        self._plans.agree((said, asked.root), said, failure)
        if found is None:
            return library()
        return pairs.reduce_pairs(self._plans.control, *found, operation)

    def _objects(self, name: str, sendobj: Any, op: Any, root: int | None) -> Any:
        """The lower-case calls."""
        plain = functools.partial(getattr(self.plain, name), sendobj, op, *(() if root is None else (root,)))
        if self._promise.policy.of(1)[0] == "library" or rounds_nothing(op, self._promise.exact_ops):
            return plain()
        if (pairwise := pairs.pairwise(op)) is not None:
            given = objects.agreed_pairs(self._plans.control, name, sendobj)
            return pairs.of_objects(given, pairwise) if root in (None, self.rank) else None
        common = objects.agreed(self._plans.control, name, sendobj, op)
        if common is None:
            return plain()
        contribution = common.array(sendobj)
        total = np.empty_like(contribution)
        if root is None:
            self.Allreduce(contribution, total, op)
        else:
            self.Reduce(contribution, total, op, root)
        return common.like_given(total) if root in (None, self.rank) else None


@wraps(MPI.Intercomm, (*methods.REFUSED, *methods.OURS))
class Intercommunicator(Wrapped, MPI.Intercomm):
    """An intercommunicator made from a wrapped communicator: what is merged from it is wrapped alike. Its reductions,
    from one group to the other, have no form here and are refused under a guarantee where they round."""
