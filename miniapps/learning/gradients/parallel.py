"""Data-parallel learning: every rank holds the same weights, and the gradients of all micro-batches are added."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kernels.allreduce import Reduction
from kernels.allreduce.execution.reducer import require_same_bits
from kernels.allreduce.schedules.block_tree import roots
from kernels.wires import PLAIN
from miniapps.layout.owners import contiguous_owner, shuffled
from miniapps.learning.course.trainer import Trainer
from miniapps.learning.gradients.buckets import Bucket, Exchange, cut
from miniapps.learning.gradients.network import aligned
from miniapps.learning.optimisers import optimiser, rate_at
from miniapps.learning.weights import combined, fingerprints, initial

if TYPE_CHECKING:
    from miniapps.runner.context import Context

TEST_BLOCK = 250  # samples per evaluation call: the same shape on any rank


class ParallelTrainer(Trainer):
    """A trainer with weights of `shapes`, the same on all ranks. Construction is collective.

    `own`: this rank's micro-batches of every step, ascending; `calls`: the micro-batches of each call of the network,
    whose gradients are one contribution. `chained`: whether one call can compute the sum over a subtree of the tree of
    block-tree; it then does, unless the run needs the gradient of each micro-batch.
    """

    def __init__(
        self,
        ctx: Context,
        regions: Mapping[str, str],
        shapes: dict[str, tuple[int, ...]],
        chained: bool = False,
    ):
        super().__init__(ctx, regions)
        training = self.config.training
        self.per_block = training.calls == "block"
        ordering, accumulation = ctx.options.policy.blocks
        summed = chained and self.per_block and Reduction(ordering, accumulation=accumulation).takes_sums
        self.summed = summed and not (ctx.faults or ctx.options.duplicate or ctx.watch)
        torch.set_num_threads(1 if self.per_block else ctx.options.threads)
        self.own_blocks(shuffled(contiguous_owner(training.blocks, ctx.size), ctx.options.shuffle_blocks))
        self.shapes = shapes
        weights = [aligned(shape, np.float32) for shape in shapes.values()]
        for array, drawn in zip(weights, initial(shapes, self.config.seeds.init), strict=True):
            array[...] = drawn
        self.optimiser = optimiser(training, weights)
        once = 1.0 / self.shares
        before = training.divide == "before"
        self.before, self.after = once if before else 1.0, 1.0 if before else once

    @property
    def shares(self) -> int:
        """The total of contributions is divided by this number: the samples of a step."""
        return int(self.config.training.batch)

    def own_blocks(self, owner: np.ndarray) -> None:
        """Set the owners of the micro-batches."""
        self.owner, self.own = owner, np.flatnonzero(owner == self.ctx.rank).tolist()
        if self.summed:
            found = roots((0, len(owner)), owner.tolist())
            self.calls = [list(range(*node)) for node in found if owner[node[0]] == self.ctx.rank]
        else:
            self.calls = [[block] for block in self.own] if self.per_block else [self.own]

    def plan(self, wires: Sequence[str] = ()) -> None:
        """Plan the reductions for this rank's micro-batches; without `wires` all tensors are sent plain. Collective."""
        self._planned: dict[Bucket, Any] = {}  # reducers
        self.wires: tuple[str, ...] = ()
        self.assign(wires or [PLAIN] * len(self.shapes))
        # The loss, and the number of ranks with a gradient that is not finite.
        self._sums = self.ctx.reducer("loss", (2,), blocks=self._numbers())

    def assign(self, wires: Sequence[str]) -> None:
        """Send the gradient of each tensor over its wire from the next step on. Collective."""
        if tuple(wires) == self.wires:
            return
        self.wires, training = tuple(wires), self.config.training
        buckets = cut(list(self.shapes.values()), training.bucket, wires)
        reducers = [self.reducer(bucket) for bucket in buckets]
        self.exchange = Exchange(buckets, reducers, len(self.calls), training.overlap, self.before)

    def reducer(self, bucket: Bucket):
        """The all-reduce of a bucket, planned once. Collective."""
        if bucket not in self._planned:
            name, shape = f"bucket{len(self._planned)}", (bucket.size,)
            self._planned[bucket] = self.ctx.reducer(
                name, shape, "float32", blocks=self._numbers(), tree=True, summed=self.summed, **bucket.over()
            )
        return self._planned[bucket]

    @property
    def weights(self) -> Sequence[np.ndarray]:
        """The weights of every tensor, float32."""
        return self.optimiser.weights

    def fingerprint(self) -> str:
        return combined(fingerprints(self.weights))

    def peek(self, block: int) -> np.ndarray | None:
        return self.weights[block] if 0 <= block < len(self.weights) else None

    def trace_weights(self) -> None:
        start = self.tracer.clock()
        self.record_weights()
        self.tracer.event(self.name["record"], start)

    def record_weights(self) -> None:
        """Record the weights, on rank 0, since all ranks have the same."""
        if self.ctx.rank == 0:
            for tensor, array in enumerate(self.weights):
                self.tracer.array("weights", tensor, array)

    @abstractmethod
    def culprit(self, losses: list[float]) -> str:
        """A description of the first value that is not finite. Collective."""

    # ---- parts of a step

    def rate(self, step: int) -> float:
        """The learning rate of a step of the problem."""
        training = self.config.training
        return rate_at(step, training.steps, training.rate, training.optimiser)

    def settle_losses(self, losses: list[float], sound: bool) -> None:
        """Compute the mean loss of the step from the losses of the own calls or micro-batches; `sound`: whether this
        rank's gradients are finite. Raises NotFinite on all ranks."""
        parts = np.zeros((len(losses), 2))
        parts[:, 0] = losses
        parts[0, 1] = not sound
        loss, spoiled = self._sums(parts).tolist()
        finite = not spoiled and isfinite(loss)
        self.settle(finite, loss / self.config.training.batch, lambda: self.culprit(losses))

    def require_same_weights(self) -> None:
        """Raise RanksDisagree if ranks hold different weights. Collective."""
        prints = np.frombuffer(b"".join(fingerprints(self.weights)), np.int64)
        require_same_bits(self.ctx.comm, prints, f"step {self.tracer.step}: weights")

    def _numbers(self) -> list[int]:
        """The blocks of this rank's contributions: its micro-batches, or the rank number for one contribution."""
        return self.own if self.per_block else [self.ctx.rank]
