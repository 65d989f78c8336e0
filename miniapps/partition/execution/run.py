"""Executes a plan on the ranks of a mesh, with tensors of torch on the CPU.

    program = Program(comm, plan, mesh, "layout", threads=1)
    values = [program.part(name, tensor) ...]           # this rank's parts of parameters, buffers, inputs
    loss, gradients, updates = program(values, number)  # `number` of the step, for random numbers
    program.free()

| guarantee | kernels | partial sums |
|---|---|---|
| none | torch's, on whole local arrays | the library's all-reduce |
| run | torch's | all-reduces in a fixed order of ranks |
| layout | with bits that do not depend on cuts (`compute`) | one per block, one tree over all blocks |
| exact | as layout | one per block, added exactly and rounded once |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from kernels.guarantees import LEVELS, known, meets
from kernels.wires import PLAIN
from miniapps.partition.cuts.axes import axes_of, whole
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import STAGE, Plan
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.block_vector import BlockVector
from miniapps.partition.execution.bound import Added, Moved
from miniapps.partition.execution.code import Writer
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.exchange import Exchange
from miniapps.partition.execution.given import constant_of, part_of
from miniapps.partition.execution.orderings import require_ordering
from miniapps.partition.execution.partners import (
    axes_along,
    axes_between,
    carriers_among,
    is_held,
    recuts,
    scattered,
)
from miniapps.partition.execution.place import Place
from miniapps.partition.execution.regions import region_of
from miniapps.partition.execution.relay import Relay, raw
from miniapps.partition.execution.totals import Total
from miniapps.partition.execution.wires import is_lossy, parted
from miniapps.partition.planning.early import gradient_sums

Coded = tuple[Total, BlockVector, tuple[str, ...]]  # a sum, its vector, and the values that are added
SHAPES = ("exact", "padded")  # local arrays: own blocks only; padded to the size on the rank with most


class Program:
    """The step of this rank; construction and calls are collective.

    `watch(name, tensor or tensors of blocks)` gets every value; `timed(region, kind, function, nbytes)` may wrap
    functions that compute or communicate; `reducers(comm, reduction, name, blocks)` plans all-reduces, and frees them.
    `anywhere`: kernels with the bits of any processor. `seed`: of the random numbers of the step.
    `wire`: over which sums of gradients travel, "as is" or a lossy one. `ordering`: of other reductions, instead of the
    guarantee's own (`orderings.reduction`).
    """

    def __init__(
        self,
        comm,
        plan: Plan,
        mesh: Mesh,
        level: str,
        threads: int = 1,
        shapes: str = "exact",
        watch: Callable | None = None,
        timed: Callable | None = None,
        reducers: Callable | None = None,
        anywhere: bool = False,
        seed: int = 0,
        wire: str = PLAIN,
        ordering: str = "",
    ):
        known("guarantee", level, LEVELS)
        require_ordering(ordering, level, mesh)
        self.ordering = ordering
        padded = known("shapes", shapes, SHAPES) == "padded"
        self.wire, self.wired = wire, gradient_sums(plan) if is_lossy(wire) else frozenset()
        plan = parted(plan, self.wired)
        self.comm, self.plan, self.mesh, self.level = comm, plan, mesh, level
        rank = 0 if comm is None else comm.rank
        layout = meets(level, "layout")
        torch.set_num_threads(1 if layout or anywhere else threads)
        self.bound = bind(
            plan, mesh, rank, by_block=layout, merge=level == "layout", padded=padded, apart=self.wired,
            watched=watch is not None,
        )  # fmt: skip
        self.place = self.bound.place
        self._place_of = cache(lambda other: Place(plan.axes, mesh, other, padded))
        self._comms = self._groups()
        self.relay = Relay(self._along_stages())
        self.exchanges: list[Exchange] = []
        self.totals: list[Total] = []
        self.coded: list[Coded] = []  # sums over lossy wires
        self._shared: dict[tuple | None, Total] = {}
        self._reducers = reducers
        writer = Writer(
            self.bound,
            Kernels(level, threads, anywhere),
            self._exchange,
            self._total,
            watch,
            timed,
            seed,
            self.relay,
            lambda step, function: region_of(step, function, self._among(axes_between(plan, step))[0]),
        )
        self.gradients, self.updates = self.bound.gradients, self.bound.updates
        self.text = writer.text(self.bound.leaving)
        self._step = writer.lines.compiled(self.text, f"<program of rank {rank}>")

    def part(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a whole source that it has."""
        return part_of(self.place, self.plan.values[name], tensor)

    def whole(self, name: str, part: torch.Tensor | None) -> torch.Tensor:
        """The whole value, which must not be partial, from the parts of all ranks; None on ranks of other stages, to
        which the first of its stages sends it. Collective."""
        value = self.plan.values[name]
        found = None
        if part is not None and self.bound.has(name):
            exchange = self._exchange(Moved("", (name,), (name,), (whole(value.shape),)))
            found = exchange(part)[0].clone()
            self.exchanges.remove(exchange)
            exchange.free()
        if self.relay.comm is None:
            assert found is not None
            return found
        if found is None:
            found = torch.empty(value.shape, dtype=getattr(torch, value.dtype))
        first = int(self.mesh.owners(self.plan.axis(STAGE))[self.plan.stages[name][0]])
        self.relay.comm.Bcast(raw(found), root=first)
        return found

    def sources(self, by_key: Mapping[tuple[str, str], torch.Tensor]) -> list[torch.Tensor | None]:
        """The parts of all sources, from whole tensors by (kind, key); constants are the plan's. None for sources of
        other ranks' stages."""
        found: list[torch.Tensor | None] = []
        for source in self.plan.sources:
            if not self.bound.has(source.tensor.name):
                found.append(None)
                continue
            if source.kind == "constant":
                tensor = constant_of(source)
            else:
                tensor = by_key[source.kind, source.key]
            found.append(self.part(source.tensor.name, tensor))
        return found

    def __call__(self, values: Sequence[torch.Tensor | None], number: int = 1):
        """Returns (loss, gradients, updates) for this rank's parts of the sources; `gradients` and `updates` name those
        of this rank's stages, in the order of the plan. Valid until the next call. `number`: of the step;
        `draws.EVALUATION` drops nothing."""
        with torch.no_grad():
            loss, *rest = self._step(values, number)
        self.relay.finish()
        n = len(self.gradients)
        return loss, rest[:n], rest[n:]

    def lost(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The encoding errors that wires with feedback keep, (contributions, total) of each reduction that has one; of
        others none. Collective."""
        return [total.reducer.lost() for total, *_ in self.feeding()]

    def restore_lost(self, kept: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Continue from the errors of `lost`."""
        for (total, *_), (contributions, of_total) in zip(self.feeding(), kept, strict=True):
            total.reducer.restore_lost(contributions, of_total)

    def feeding(self) -> list[Coded]:
        """The sums over wires that keep errors."""
        return [each for each in self.coded if each[0].reducer.feeds_back]

    def free(self) -> None:
        """Free requests and communicators. Collective."""
        for exchange in self.exchanges:
            exchange.free()
        for total in self.totals:
            total.free()
        for comm in self._comms.values():
            if comm is not None:
                comm.Free()
        self._comms.clear()
        if self.relay.comm is not None:
            self.relay.comm.Free()

    def _groups(self) -> dict[frozenset[str], Any]:
        """A communicator for each set of carriers over which values travel. Ranks of all stages make all of them, in
        the order of the plan, although a rank executes only the steps of its stages."""
        if self.comm is None:
            return {}
        found: dict[frozenset[str], Any] = {}
        held = [tuple(axes_of(self.plan.values[s.tensor.name].cut)) for s in self.plan.sources]
        for axes in (*held, *(axes for step in self.plan.steps for axes in axes_along(self.plan, step))):
            carriers = carriers_among(self.mesh, axes)
            if carriers and carriers not in found:
                group = self.mesh.group(axes, self.place.rank)
                found[carriers] = self.comm.Split(group[0], self.place.rank)
        return found

    def _along_stages(self):
        """The communicator of the ranks that differ only along the stages; None if there is one."""
        if not self.plan.stages or not carriers_among(self.mesh, (STAGE,)):
            return None
        group = self.mesh.group((STAGE,), self.place.rank)
        return self.comm.Split(group[0], self.place.rank)

    def _among(self, axes: Iterable[str]):
        """Returns the communicator of the ranks that together own all blocks of axes, and these ranks; (None, ()) if
        every rank owns them."""
        axes = tuple(axes)
        carriers = carriers_among(self.mesh, axes)
        if not carriers:
            return None, ()
        group = self.mesh.group(axes, self.place.rank)
        return self._comms[carriers], group

    def _exchange(self, step: Moved) -> Exchange:
        values = [self.plan.values[name] for name in step.operands]
        comm, group = (None, ()) if is_held(self.plan, step) else self._among(axes_of(values[0].cut))
        recut = recuts(self.plan, step.operands, step.wanted)
        exchange = Exchange(self._place_of, self.place.rank, comm, group, recut, values[0].dtype)
        self.exchanges.append(exchange)
        return exchange

    def _total(self, step: Added) -> Total:
        """The total of a reduction; micro-batches share that of one operation, and so its memory."""
        key = None if step.early else of_all(step)
        if key in self._shared:
            self._shared[key].copied = True
            return self._shared[key]
        comm, group = self._among(step.rows.axes)
        about = step.rows, step.combine, step.dtype, step.shapes, name_of(step)
        if self.wired.issuperset(step.operands):
            blocks = BlockVector(self.place, [self.plan.values[name].cut for name in step.operands])
            total = Total(comm, self.level, *about, self._reducers, None, self.wire, blocks)
            self.coded.append((total, blocks, step.operands))
        else:
            scatter = scattered(self.plan, step, self.place, self._place_of, group)
            total = Total(comm, self.level, *about, self._reducers, scatter, by=self.ordering)
            if key is not None:
                self._shared[key] = total
        self.totals.append(total)
        return total


def of_all(step: Added) -> tuple | None:
    """A key that is equal for reductions of one operation in each micro-batch (`graphs.repeat`); None for others."""
    node, *operands = (
        (name.partition("#")[0] if "#" in name else "") for name in (step.node, *step.operands)
    )
    if not node or not all(operands):
        return None
    return (
        node,
        tuple(operands),
        step.rows.axes,
        step.combine,
        step.dtype,
        step.shapes,
        step.wanted,
        step.merged,
    )


def name_of(step: Added) -> str:
    """The name of a reduction, in traces and in messages."""
    return f"{step.node}:{'*'.join(step.rows.axes)}"
