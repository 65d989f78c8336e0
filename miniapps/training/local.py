"""Workers that learn alone for some steps, then add up how far each of them came: DiLoCo.

Douillard et al. 2023, arXiv 2311.08105, algorithm 1. A worker is a logical micro-batch, so there are as many on any
number of ranks. It has weights and an optimiser of its own, which see only its samples. After every
`training.local_steps` steps the contribution of a worker is the difference from the common weights to its own. Their
mean is the gradient of the outer optimiser, SGD with Nesterov's momentum, which changes the common weights; all workers
go on from these, and keep the states of their optimisers. The differences travel as gradients do otherwise: in the same
buckets, orderings and wires, with the same guarantees. So a wire carries 1 / local_steps of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniapps.learning.optimisers import optimiser
from miniapps.training.trainer import ModelTrainer


class LocalTrainer(ModelTrainer):
    """The trainer of workers. Between two exchanges `weights` are the common ones of the last exchange. Construction is
    collective."""

    def __init__(self, ctx):
        super().__init__(ctx)
        training = self.config.training
        # The network computes with the memory of `weights`: the common ones, or for a call those of a worker.
        self._common = [array.copy() for array in self.weights]
        self._workers = [optimiser(training, [array.copy() for array in self.weights]) for _ in self.own]
        self._velocity = [np.zeros_like(array) for array in self.weights]

    @property
    def shares(self) -> int:
        return int(self.config.training.blocks)

    def peek(self, block: int) -> np.ndarray | None:
        return self._common[block] if 0 <= block < len(self._common) else None

    def advance(self, step: int) -> None:
        tracer, training = self.tracer, self.config.training
        begin = tracer.clock()
        self._use(self._common)  # which a fault may have struck
        self.trace_weights()
        start, losses, rate = tracer.clock(), [], self.rate(step)
        for block, worker in zip(self.own, self._workers, strict=True):
            self._use(worker.weights)
            gradients = self._nothing()

            def take(tensor, gradient, block=block, gradients=gradients):
                if self.ctx.faults:
                    self.strike(block, tensor, gradient)
                gradients[tensor] = gradient.copy()

            losses += self._losses(step, [block], take)
            worker.step(gradients, 1.0 / training.micro, rate, step)
        self._use(self._common)
        tracer.event(self.name["gradient"], start)
        if step % training.local_steps and step < training.last:
            self.settle_losses(losses, True)
        else:
            self._meet(losses)
        tracer.event(self.name["step"], begin)

    def culprit(self, losses: list[float]) -> str:
        return "the loss or the weights of a worker are not finite"

    def _meet(self, losses: list[float]) -> None:
        """Add the differences of all workers, and change the common weights. Collective."""
        for row, worker in enumerate(self._workers):
            for tensor in reversed(range(len(self._common))):  # as gradients come
                self.exchange.put(row, tensor, self._common[tensor] - worker.weights[tensor])
        totals = self.exchange.finish()
        self.settle_losses(losses, all(np.isfinite(total).all() for total in totals))
        training, start = self.config.training, self.tracer.clock()
        momentum, rate = np.float32(training.outer_momentum), np.float32(training.outer_rate)
        for common, velocity, total in zip(self._common, self._velocity, totals, strict=True):
            slope = np.float32(self.after) * total
            velocity *= momentum
            velocity += slope
            common -= rate * (slope + momentum * velocity)
        self._use(self._common)
        for worker in self._workers:
            for own, common in zip(worker.weights, self._common, strict=True):
                own[...] = common
        self.tracer.event(self.name["update"], start)

    def _use(self, weights: Sequence[np.ndarray]) -> None:
        """Compute with these weights from now on."""
        for own, given in zip(self.weights, weights, strict=True):
            own[...] = given
