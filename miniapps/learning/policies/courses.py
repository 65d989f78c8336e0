"""Courses that choose the wires of gradients; every decision is a recorded choice."""

from __future__ import annotations

import time
from functools import partial
from math import prod

import numpy as np
from mpi4py import MPI

from kernels.learning import layerwise
from miniapps.learning.course.steps import Timed
from miniapps.learning.course.trainer import NotFinite
from miniapps.learning.policies.choosing import candidates, for_all
from miniapps.learning.policies.judged import JudgedTrainer

LGRECO_EVERY = 100  # steps between decisions
ROUNDS = 5  # timed all-reduces after a first one; the shortest counts


class OneWire(Timed):
    """One wire for all tensors, to the last step or the end of the time."""


class Judged(OneWire):
    """A course that chooses wires for the gradients of its trainer."""

    def __init__(self, trainer: JudgedTrainer, position: int):
        super().__init__(trainer, position)
        self.trainer = trainer


class Fastest(Judged):
    """For each kind of tensor (matrices, kernels of convolutions) the wire with the fastest all-reduce, by the clock of
    the slowest rank."""

    def decide(self) -> None:
        """Measure before the first step."""
        if self.position > self._first:
            return
        shapes, tensors, wires = self.trainer.tensors, self.trainer.encoded(), dict[int, str]()
        for kind in sorted({len(shapes[tensor]) for tensor in tensors}):
            alike = [tensor for tensor in tensors if len(shapes[tensor]) == kind]
            wire = self.ctx.choose("fastest", partial(self._fastest, alike), alike[0])
            wires |= dict.fromkeys(alike, wire)
        self.trainer.assign(for_all(shapes, wires, candidates(self.config)[0]))
        self.trainer.restore_lost(None)

    def _fastest(self, tensors: list[int]) -> tuple[str, float]:
        least = {}
        for wire in candidates(self.config):
            add = self.trainer.all_reduce(tensors, wire)
            times = []
            for _ in range(1 + ROUNDS):
                self.ctx.comm.Barrier()
                start = time.perf_counter()
                add()
                times.append(time.perf_counter() - start)
            least[wire] = self.ctx.comm.allreduce(min(times[1:]), MPI.MAX)
        wire = min(least, key=lambda wire: least[wire])
        return wire, least[wire]


class LGreco(Judged):
    """Chooses a wire per tensor that minimises bytes subject to `--wire`'s error. Errors are measured on contributions
    to gradients, whose bits the guarantee promises."""

    def decide(self) -> None:
        """Measure before the first step, and every LGRECO_EVERY steps."""
        if self.position % LGRECO_EVERY:
            return
        tensors, wires = self.trainer.encoded(), dict[int, str]()
        known: list[tuple[tuple[str, ...], float]] = []

        def wire_of(i: int) -> tuple[str, float]:
            if not known:  # the first call decides for all tensors
                known.append(self._decided(tensors))
            choice, bits = known[0]
            return choice[i], bits

        for i, tensor in enumerate(tensors):
            wires[tensor] = self.ctx.choose("lgreco", partial(wire_of, i), tensor, clock=False)
        self.trainer.assign(for_all(self.trainer.tensors, wires, self.config.training.wire))

    def _decided(self, tensors: list[int]) -> tuple[tuple[str, ...], float]:
        """Returns (wires of the tensors, mean bits per element), decided by rank 0. Raises NotFinite."""
        names, trainer = candidates(self.config), self.trainer
        errors, found = trainer.errors(self.position + 1, tensors, names), None
        if errors is not None and np.isfinite(errors).all():
            sizes = [[trainer.nbytes(wire, tensor) for wire in names] for tensor in tensors]
            choice = layerwise.choose(names, errors, sizes, self.config.training.wire)
            elements = sum(prod(trainer.tensors[tensor]) for tensor in tensors)
            found = choice.wires, 8 * choice.nbytes / elements
        if (found := self.ctx.comm.bcast(found)) is None:
            raise NotFinite(
                f"step {trainer.tracer.step}: a gradient from whose errors --policy lgreco chooses is not finite; "
                f"{trainer.REMEDY}"
            )
        return found
