"""A communicator of mpi4py whose sums keep a guarantee: `wrap(comm, guarantee="layout")`.

The orderings of this suite (`kernels.allreduce`) carry out reductions of floating-point numbers, and the MPI library
everything else: sums of integers have the same bits in any order. Under a guarantee, a reduction of floating-point
numbers without such an ordering raises an error.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from miniapps.programs.unequal import caller, warn_of_kinds
from miniapps.programs.wrapped import Promise, Wrapped, wrapped_alike, wraps
from miniapps.runner.policy import resolve
from miniapps.runner.replay import Replay, read
from miniapps.system import kinds
from miniapps.system.world import require_launch

TRAP = (
    "{name} under guarantee {level!r}: every rank contributes one array. If a rank has added it up from its own rows "
    "or blocks, it is rounded already, and differently on another number of ranks: then the total still depends on the "
    "number of ranks. Pass the rows, not their sum: comm.{name}(rows, total, axis=0); every row, on any rank, is one "
    "contribution. If each rank's array is a block that does not depend on the number of ranks, pass its number: "
    "blocks=number"
)
IN_PLACE = -2  # stands for the number of elements of a rank that receives in place


class LayoutWarning(UserWarning):
    """The contributions to a sum under `layout` or `exact` may depend on the number of ranks."""


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
    """`comm` with reductions that keep `guarantee`; all other calls go to `comm` unchanged.

    `guarantee`: "none", "run", "layout" or "exact" (`kernels.guarantees`). `ordering`, `accumulation`: replace those of
    the guarantee, as for `kernels.allreduce.Reduction`. `check`: verify at every call that all ranks make the same
    call, and after it that they have the same bits. `replay`: a recorded run on the same number of ranks; with
    `ordering="arrival"` its orders of arrival are repeated, with `ordering="trees:links=FILE"` its trees. `exact_ops`:
    operations of the program that round nothing, so that any order has the same bits; the MPI library carries them out.

    **A sum over ranks of sums over rows depends on the number of ranks**, for any guarantee of the sum over ranks: a
    rank that first adds its own rows has rounded before it calls this communicator.

        comm.Allreduce(rows.sum(axis=0), total)       # before: other bits on another number of ranks
        comm.Allreduce(rows, total, axis=0)           # after: every row, on any rank, is one contribution

    Under `layout` and `exact`, a sum over several ranks without `axis` or `blocks` warns of this once (LayoutWarning).
    Before the first sum under a guarantee, KindsWarning tells ranks whose processors, libraries or settings differ.

    The first call of each signature makes a plan; the last 64 plans are kept. Raises TypeError unless `comm` is an
    intracommunicator, ChoiceError for an unknown choice or one that does not keep the guarantee.
    """
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        null = isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL
        what = "MPI.COMM_NULL" if null else type(comm).__name__
        raise TypeError(f"wrap takes an intracommunicator, such as MPI.COMM_WORLD, not {what}")
    known("guarantee", guarantee, LEVELS)
    if wrong := [each for each in exact_ops if not callable(each) or operation_of(each) is not None]:
        raise TypeError(f"exact_ops: {wrong[0]!r} is not an operation defined by the program")
    require_launch("fpna.wrap")
    record = None if replay is None else _recorded(replay, comm.size)
    replayed = None if record is None else record.trees or "arrival"
    policy = resolve(guarantee, ordering or replayed, accumulation)
    policy.check()
    if guarantee != "none" and (names := handles.loaded()):
        warnings.warn(handles.PAST.format(names=", ".join(names)), handles.HandleWarning, stacklevel=caller())
    wrapped: Communicator = wrapped_alike(comm, Promise(policy, check, record, tuple(exact_ops)))
    return wrapped


def _recorded(run: str | os.PathLike[str], size: int) -> Replay:
    """Reads the record of a run to replay. Raises ChoiceError if it cannot be replayed on `size` ranks."""
    try:
        record = read(str(run))
    except UsageError as error:
        raise ChoiceError(str(error).replace("--replay", "replay", 1)) from None
    if record.size != size:
        raise ChoiceError(f"replay {run}: it was recorded on {record.size} ranks, but this run has {size}")
    return record


@wraps(MPI.Intracomm, methods.REFUSED)
class Communicator(Wrapped, MPI.Intracomm):
    """An intracommunicator whose reductions keep a guarantee, from `wrap`. With a Cartesian or graph topology it is
    also a `MPI.Cartcomm`, `MPI.Graphcomm` or `MPI.Distgraphcomm`.

    `Allreduce`, `Reduce`, `Reduce_scatter_block` and `Reduce_scatter`, their nonblocking forms, `allreduce` and
    `reduce` take the arguments of mpi4py. All but the last two also take:

    `axis=0`  every row of the send buffer is one contribution, and the total has the shape of a row. The number of rows
              may be 0 and may differ between ranks.
    `blocks`  the global number of this rank's contribution, or a list of numbers, one for each row. Each block belongs
              to one rank. Orderings over blocks (`block-tree`) need them, and they must not change between calls.

    `plain` is the communicator without a guarantee. Communicators made from this one are wrapped with the same
    guarantee.
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
        """Start an `Allreduce`. Returns a Pending or a request of the MPI library; do not touch either buffer until its
        `Wait` or `Test` reports the end."""
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
        """Combine the contributions of all ranks by `op` into `recvbuf` on rank `root` only."""
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
        """Start a `Reduce`; returns as `Iallreduce`."""
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
        """Combine the contributions of all ranks by `op`; rank r gets the r-th of equal parts of the total."""
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
        """Start a `Reduce_scatter_block`; returns as `Iallreduce`."""
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
        """Combine the contributions of all ranks by `op`; rank r gets `recvcounts[r]` elements of the total."""
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
        """Start a `Reduce_scatter`; returns as `Iallreduce`."""
        return self._scattered("Ireduce_scatter", sendbuf, recvbuf, recvcounts, op, axis, blocks)

    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """The total of numbers of Python or NumPy, or of NumPy arrays, on all ranks. Some ranks may pass integers and
        others floats.

        Ranks also exchange the types, which costs another small message. Under a guarantee, other objects raise
        ChoiceError; without one they go to the MPI library."""
        return self._objects("allreduce", sendobj, op, None)

    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        """The total as `allreduce`, on rank `root`; None on other ranks."""
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
        """A reduce-scatter with `recvcounts`."""
        asked = Asked(name, sendbuf, recvbuf, op, self.rank, self.size, None, axis, blocks, "counted")
        if not self._leaves(asked):
            asked = replace(asked, counts=recvcounts)
            if recvcounts is None:
                asked = replace(asked, counts=self._gathered(asked))
        return self._carry_out(asked, "reduce-scatter", sendbuf, recvbuf, recvcounts, op)

    def _gathered(self, asked: Asked) -> tuple[int, ...] | None:
        """How many elements every rank receives, -1 for one without a valid buffer; None if some receive in place."""
        self._plans.agree((asked.name, "gathered"), f"{asked.name} without recvcounts", None)
        try:
            own = message(asked.recvbuf, f"{asked.name}: recvbuf").array.size
        except (TypeError, ValueError):
            own = -1
        everyone: list[int] = self._plans.control.allgather(IN_PLACE if asked.in_place else own)
        return None if IN_PLACE in everyone else tuple(everyone)

    def _carry_out(self, asked: Asked, collective: str, *arguments: Any) -> Any:
        """Carry out a reduction, by a plan or by the MPI library; returns the request of a nonblocking one."""
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
        """Whether the MPI library carries out a reduction for any buffers: no guarantee, or nothing is rounded."""
        if asked.axis is not None or asked.blocks is not None:
            return False
        if rounds_nothing(asked.op, self._promise.exact_ops):
            return True
        if self._promise.policy.of(1)[0] != "library" or self._promise.check:
            return False
        return self.observer is None or operation_of(asked.op) is None

    def _agreed(self, asked: Asked, collective: str) -> tuple[Call, Signature] | None:
        """The reduction on which all ranks agree; None if the MPI library carries it out. If one rank has an error, all
        raise."""
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
            return None  # the MPI library reports the error
        said = f"{asked.name}, {said_of(asked, call, failure)}"
        self._plans.agree(signature or said, said, failure)
        if not self._plans.compared:
            self._compare_ranks()
        return None if call is None or signature is None else (call, signature)

    def _compare_ranks(self) -> None:
        """Warn once if the ranks are of several kinds: then a contribution may have other bits on another rank.
        Collective."""
        self._plans.compared = True
        if self.size > 1 and self.guarantee != "none":
            apart = kinds.of_ranks(self._plans.control, kinds.here(), self.guarantee)
            promised = f"guarantee {self.guarantee!r} covers sums, not contributions that differ"
            warn_of_kinds("fpna.wrap", apart, self.rank, promised)

    def _signature(
        self, call: Call, collective: str, root: int, bounds: tuple[int, ...] | None
    ) -> Signature | None:
        """The signature of a reduction; None if the MPI library may carry it out. Gives LayoutWarning."""
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
                warnings.warn(text, LayoutWarning, stacklevel=caller())
        return signature

    def _pairs(self, asked: Asked, operation: str, library: Callable[[], Any]) -> Any:
        """A MAXLOC or MINLOC."""
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
        """`allreduce` (`root` None) and `reduce`."""
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
    """An intercommunicator made from a wrapped communicator. `Merge` gives a communicator with the same guarantee.

    Its reductions, from one group to the other, have no ordering here; if they round, they raise ChoiceError under a
    guarantee."""
