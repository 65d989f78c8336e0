"""Courses that choose the wires of gradients; every decision is a recorded choice."""

from __future__ import annotations

import time
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kernels.learning import layerwise
from miniapps.learning.course.steps import Timed
from miniapps.learning.gradients.buckets import bucket_of, carried, encoded_bytes
from miniapps.training.policies.choosing import candidates, chosen_for, for_all

if TYPE_CHECKING:
    from miniapps.training.policies.judged import JudgedTrainer

LGRECO_EVERY, LGRECO_BLOCKS = 100, 8  # steps between decisions; micro-batches for the errors
ROUNDS = 5  # timed all-reduces after a first one; the shortest counts


class OneWire(Timed):
    """One wire for all tensors, to the last step or the end of the time."""

    def __init__(self, trainer: JudgedTrainer, position: int):
        super().__init__(trainer, position)
        self.trainer = trainer


class Fastest(OneWire):
    """For each kind of tensor (matrices, kernels of convolutions) the wire with the fastest all-reduce, by the clock of
    rank 0."""

    def decide(self) -> None:
        """Measure before the first step."""
        if self.position > self._first:
            return
        shapes = list(self.trainer.shapes.values())
        tensors, wires = chosen_for(shapes), dict[int, str]()
        for kind in sorted({len(shapes[tensor]) for tensor in tensors}):
            alike = [tensor for tensor in tensors if len(shapes[tensor]) == kind]
            wire = self.ctx.choose("fastest", partial(self._fastest, alike), alike[0])
            wires |= dict.fromkeys(alike, wire)
        self.trainer.assign(for_all(shapes, wires, candidates(self.config)[0]))

    def _fastest(self, tensors: list[int]) -> tuple[str, float]:
        least = {}
        values = np.concatenate([self.trainer.weights[tensor].ravel() for tensor in tensors])
        rows = np.repeat(values[None], len(self.trainer.calls), axis=0)
        shapes = list(self.trainer.shapes.values())
        for wire in candidates(self.config):
            reducer = self.trainer.reducer(bucket_of(tensors, shapes, wire))
            times = []
            for _ in range(1 + ROUNDS):
                self.ctx.comm.Barrier()
                start = time.perf_counter()
                reducer(rows)
                times.append(time.perf_counter() - start)
            least[wire] = min(times[1:])
        least = self.ctx.comm.bcast(least)
        wire = min(least, key=lambda wire: least[wire])
        return wire, least[wire]


class LGreco(OneWire):
    """Chooses a wire per tensor that minimises bytes subject to `--wire`'s error. Rank 0 measures errors on
    gradients of micro-batches, whose bits the guarantee promises."""

    def decide(self) -> None:
        """Measure before the first step, and every LGRECO_EVERY steps."""
        if self.position % LGRECO_EVERY:
            return
        shapes = list(self.trainer.shapes.values())
        tensors, wires = chosen_for(shapes), dict[int, str]()
        known: list[tuple[tuple[str, ...], float]] = []

        def wire_of(i: int) -> tuple[str, float]:
            if not known:  # the first call decides for all tensors
                known.append(self.ctx.comm.bcast(self._decided(tensors) if self.ctx.rank == 0 else None))
            choice, bits = known[0]
            return choice[i], bits

        for i, tensor in enumerate(tensors):
            wires[tensor] = self.ctx.choose("lgreco", partial(wire_of, i), tensor, clock=False)
        self.trainer.assign(for_all(shapes, wires, self.config.training.wire))

    def _decided(self, tensors: list[int]) -> tuple[tuple[str, ...], float]:
        """Returns (wires of the tensors, mean bits per element)."""
        names, shapes = candidates(self.config), list(self.trainer.shapes.values())
        errors, sizes = np.zeros((len(tensors), len(names))), np.zeros((len(tensors), len(names)), np.int64)
        for block in range(min(LGRECO_BLOCKS, self.config.training.blocks)):
            gradients = self.trainer.gradient(self.position + 1, block)
            for i, tensor in enumerate(tensors):
                x = gradients[tensor]
                for c, wire in enumerate(names):
                    apart = np.subtract(carried(wire, x), x, dtype=np.float64)
                    errors[i, c] += np.sqrt(np.sum(apart * apart))  # no BLAS, whose bits depend on threads
        for i, tensor in enumerate(tensors):
            sizes[i] = [encoded_bytes(wire, shapes[tensor]) for wire in names]
        choice = layerwise.choose(names, errors, sizes, self.config.training.wire)
        return choice.wires, 8 * choice.nbytes / sum(prod(shapes[tensor]) for tensor in tensors)
