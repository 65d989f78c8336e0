"""One rank's program without the other ranks: its parts, and its messages, which nobody receives. No MPI."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import cycle
from typing import Any

from kernels.guarantees import meets
from kernels.wires import PLAIN
from miniapps.partition.cuts.axes import axes_of
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import STAGE, Plan
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.block_vector import BlockVector
from miniapps.partition.execution.bound import Added, Moved, Operation, Outgoing
from miniapps.partition.execution.exchange import Exchange
from miniapps.partition.execution.partners import axes_between, carriers_among, is_held, recuts, scattered
from miniapps.partition.execution.place import Place
from miniapps.partition.execution.scatter_layout import ScatterLayout
from miniapps.partition.execution.wires import is_lossy, parted
from miniapps.partition.planning.early import gradient_sums


class Nobody:
    """A communicator, and its requests, for messages that are planned and never sent."""

    size = 2  # more than this rank

    @staticmethod
    def Startall(requests) -> None:
        """Nothing."""

    Waitall = Testall = Startall

    def Dup(self) -> Nobody:
        """Itself."""
        return self

    def Send_init(self, buffer, dest) -> Nobody:
        """A request."""
        return self

    def Isend(self, buffer, dest, tag) -> Nobody:
        """A request."""
        return self

    def Recv(self, buffer, source, tag) -> None:
        """Zeros in the buffer."""
        buffer[...] = 0

    def Test(self) -> bool:
        """Whether the message has left."""
        return True

    def Recv_init(self, buffer, source) -> Nobody:
        """A request, with zeros in its buffer."""
        buffer[...] = 0
        return self


class Others(Nobody):
    """A communicator whose other ranks send zeros: `answers`, one after the other, from the first again after the
    last."""

    def __init__(self, answers: Sequence[Any]):
        self._answers = cycle([pickle.dumps(each) for each in answers])

    def allgather(self, mine: Any) -> list[Any]:
        """This rank's object and an answer, packed and unpacked as objects of mpi4py are."""
        pickle.dumps(mine)
        return [mine, pickle.loads(next(self._answers))]


class Alone:
    """The `bound` program of `rank` of a mesh, and the exchanges and reductions in which it takes part. `wire`: over
    which sums of gradients travel."""

    def __init__(self, plan: Plan, mesh: Mesh, rank: int, level: str, wire: str = PLAIN):
        self.wired = gradient_sums(plan) if is_lossy(wire) else frozenset()
        plan = parted(plan, self.wired)
        self.plan, self.mesh, self.rank, self.wire = plan, mesh, rank, wire
        self.bound = bind(
            plan, mesh, rank, by_block=meets(level, "layout"), merge=level == "layout", apart=self.wired
        )
        self.place_of = cache(lambda other: Place(plan.axes, mesh, other))

    def group(self, axes: Iterable[str]) -> Sequence[int]:
        """The ranks that together own all blocks of `axes`; none if every rank owns them."""
        axes = tuple(axes)
        return self.mesh.group(axes, self.rank) if carriers_among(self.mesh, axes) else ()

    def exchange(self, step: Moved) -> tuple[Exchange, Sequence[int]]:
        """The exchange of a step, and its group."""
        values = [self.plan.values[name] for name in step.operands]
        group = () if is_held(self.plan, step) else self.group(axes_of(values[0].cut))
        comm = Nobody() if group else None
        changed = recuts(self.plan, step.operands, step.wanted)
        return Exchange(self.place_of, self.rank, comm, group, changed, values[0].dtype), group

    def between(self, step: Operation) -> Sequence[int]:
        """The ranks whose blocks of a manual region send each other messages; none if this rank has all."""
        return self.group(axes_between(self.plan, step))

    def peer(self, step: Outgoing) -> int:
        """The rank to which a message between stages goes, or from which it comes."""
        return self.mesh.group((STAGE,), self.rank)[step.peer]

    def scatter(self, step: Added) -> tuple[Sequence[int], ScatterLayout | None]:
        """The group of a reduction, and the layout of its reduce-scatter, if it is one."""
        group = self.group(step.rows.axes)
        if self.wired.issuperset(step.operands):
            return group, None
        return group, scattered(self.plan, step, self.bound.place, self.place_of, group)

    def blocks(self, step: Added) -> BlockVector | None:
        """The vector in which a reduction travels over the wire; None for others."""
        if not self.wired.issuperset(step.operands):
            return None
        return BlockVector(self.bound.place, [self.plan.values[name].cut for name in step.operands])
