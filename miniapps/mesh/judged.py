"""Training over a mesh whose gradients travel over wires that a policy chooses.

The tensors of a policy are the sums that become gradients, in the order of the parameters. All decisions come from
numbers that all ranks share, or from rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.learning.gradients.buckets import carried, encoded_bytes
from miniapps.learning.policies.choosing import candidates, chosen_for, for_all
from miniapps.learning.policies.judged import JudgedTrainer
from miniapps.mesh.trainer import TESTED, MeshTrainer
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.execution.block_vector import BlockVector
from miniapps.partition.execution.partners import is_first
from miniapps.partition.execution.place import Place
from miniapps.partition.planning.early import summed_gradients
from miniapps.trace.schema import OTHER

if TYPE_CHECKING:
    from miniapps.runner.context import Context


class JudgedMeshTrainer(MeshTrainer, JudgedTrainer):
    """A MeshTrainer for policies. Construction is collective."""

    def __init__(self, ctx: Context):
        super().__init__(ctx, {"speculate": OTHER, "decide": OTHER})
        self.first = candidates(self.config)[0]
        self.names = summed_gradients(self.plan)
        self.wires = (self.first,) * len(self.names)

    @property
    def tensors(self) -> list[tuple[int, ...]]:
        return [self.plan.values[name].shape for name in self.names]

    def encoded(self) -> list[int]:
        return [k for k, blocks in enumerate(self._blocks) if chosen_for(blocks)]

    def nbytes(self, wire: str, tensor: int) -> int:
        return sum(encoded_bytes(wire, block) for block in self._blocks[tensor])

    def assign(self, wires: Sequence[str]) -> None:
        self.wires = tuple(wires)
        chosen = {self.names[k]: wires[k] for k in self.encoded()}
        for sums, _, names in self.program.coded:
            own = {k: chosen[name] for k, name in enumerate(names) if name in chosen}
            shapes = [self.plan.values[name].shape for name in names]
            sums.reducer.assign(for_all(shapes, own, own[min(own)] if own else self.first))

    def errors(self, step: int, tensors: Sequence[int], wires: Sequence[str]) -> np.ndarray | None:
        """Of all contributions to the gradient, which the ranks compute for it, and compute again in the step."""
        self.contribute(step)
        number = {self.names[tensor]: i for i, tensor in enumerate(tensors)}
        own = []  # (tensor, contribution, squares of the errors of a block on each wire)
        for sums, blocks, names in self.program.coded:
            rows = sums.rows.numbers if sums.exact else [self.ctx.rank]
            for k, name in enumerate(names):
                if name not in number or not is_first(self.plan, self.mesh, self.ctx.rank, name):
                    continue
                for row, vector in zip(rows, sums.buffer, strict=True):
                    for block in blocks.views(k, vector):
                        own.append((number[name], row, [_squares(wire, block) for wire in wires]))
        gathered = self.ctx.comm.gather(own)
        if gathered is None:
            return None
        squares: dict[tuple[int, int], list[list[float]]] = {}
        for tensor, row, of_block in (each for of_rank in gathered for each in of_rank):
            squares.setdefault((tensor, row), []).append(of_block)
        lengths: list[list[list[float]]] = [[] for _ in tensors]
        for (tensor, _), of_blocks in squares.items():
            lengths[tensor].append([sqrt(fsum(column)) for column in zip(*of_blocks, strict=True)])
        # Exact sums do not depend on the order of ranks.
        return np.array([[fsum(column) for column in zip(*rows, strict=True)] for rows in lengths])

    def all_reduce(self, tensors: Sequence[int], wire: str) -> Callable[[], Any]:
        """With all other gradients, over the wires that they have."""
        wires = dict(enumerate(self.wires)) | dict.fromkeys(tensors, wire)
        self.assign([wires[k] for k in range(len(wires))])

        def add() -> None:
            for sums, *_ in self.program.coded:
                sums.total()

        return add

    def held_out_loss(self) -> float:
        count = -(-self.inputs.held // self.config.training.batch)
        return self.mean_loss(map(self.inputs.held_out, range(min(TESTED, count))))

    def contribute(self, step: int) -> None:
        """Compute the contributions to the gradient of a step, and add them, but keep no error of a wire."""
        kept = self.program.lost()
        self.learner.give(self.inputs.at(step))
        self.program(self.learner.values, step)
        self.program.restore_lost(kept)

    def lost(self) -> Any:
        return self.program.lost()

    def restore_lost(self, lost: Any) -> None:
        if lost is None:
            lost = [(np.zeros_like(rows), np.zeros_like(total)) for rows, total in self.program.lost()]
        self.program.restore_lost(lost)

    def copied(self) -> Any:
        values = self.learner.values
        return super().copied(), {k: values[k].clone() for k in self.learner.buffers}

    def go_back(self, copied: Any) -> None:
        learned, buffers = copied
        super().go_back(learned)
        for k, x in buffers.items():
            self.learner.values[k] = x.clone()

    @cached_property
    def _blocks(self) -> list[list[tuple[int, ...]]]:
        """The shapes of the blocks of each tensor, on whatever ranks."""
        alone = Place(self.plan.axes, Mesh((("all", 1),)), 0)
        return [BlockVector(alone, [self.plan.values[name].cut]).tensors[0] for name in self.names]


def _squares(wire: str, block: np.ndarray) -> float:
    """The sum of the squares of a block's encoding errors, without BLAS, whose bits depend on threads."""
    apart = np.subtract(carried(wire, block), block, dtype=np.float64)
    return float(np.sum(apart.reshape(-1) ** 2))
