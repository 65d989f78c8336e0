"""A step of training: gradients of this rank's micro-batches, their sum over all ranks, the update; evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from kernels.allreduce.coding import coding
from kernels.wires import PLAIN, quality
from miniapps.layout.owners import contiguous_owner, owner_of
from miniapps.learning.gradients.buckets import Lost, bucket_of, carried, encoded_bytes
from miniapps.learning.gradients.parallel import TEST_BLOCK, ParallelTrainer
from miniapps.learning.policies.choosing import candidates, chosen_for
from miniapps.learning.policies.judged import JudgedTrainer
from miniapps.learning.samples import images
from miniapps.learning.samples.batches import Batches, mask
from miniapps.learning.weights import sampled
from miniapps.runner import duplicates
from miniapps.runner.outcome import Check
from miniapps.trace.records import INPUT
from miniapps.trace.schema import COMPUTE, OTHER
from miniapps.training import models

if TYPE_CHECKING:
    from miniapps.runner.context import Context

SAMPLED = 256  # evenly spaced weights or outputs recorded as numbers
JUDGED = 8  # micro-batches whose encoding errors count
# Most held-out samples of a measurement. The poster on AdaPrec has 16 classes, for which ImageNet has 800 to validate.
LOOKED_AT = 1024


def classes(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes (n,) with the largest of outputs (n, classes), the first of equal ones, and their margins (n,): the
    distance of the largest from the second, relative to the larger magnitude of both."""
    largest = np.sort(outputs.astype(np.float64), axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        margins = (largest[:, 1] - largest[:, 0]) / np.abs(largest).max(axis=1)
    return outputs.argmax(1), margins


class ModelTrainer(ParallelTrainer, JudgedTrainer):
    """The trainer of a model of `miniapps.training.models`; every rank holds the same weights. Construction is
    collective."""

    def __init__(self, ctx: Context):
        config = ctx.config
        training, model = config.training, models.model(config.model.name)
        shapes = model.shapes(config.model, model.edge(config.data.name))
        plain = training.policy == "fixed" and training.wire == PLAIN and not training.local_steps
        regions = {"gradient": COMPUTE, "speculate": OTHER, "decide": OTHER}
        super().__init__(ctx, regions, shapes, chained=model.CHAINED and plain)
        given = model.load(config) if ctx.rank == 0 else None
        self.data = images.share(ctx.comm, given, ctx.comm.bcast(type(given)))
        if ctx.rank == 0:
            for name, array in self.data.inputs().items():
                self.tracer.array(f"{INPUT}{name}", 0, array)
        self.top = config.evaluation.top
        self.duplicates = duplicates.make_duplicates(ctx)
        moved = self.summed and self.config.output.shares == "auto"  # calls may get more micro-batches
        most = training.batch if moved else training.micro * max(map(len, self.calls))
        self.network = model.network(config, self.weights, self.data, max(TEST_BLOCK, most))
        held = images.held_out(config.data.name, len(self.data.labels)) & training.tries
        self.held, self.learned = np.flatnonzero(held), np.flatnonzero(~held)
        self.batches = Batches(len(self.learned), training.batch, training.micro, config.seeds.data)
        self.plan(candidates(config)[:1] * len(self.shapes))

    def plan(self, wires: Sequence[str] = ()) -> None:
        super().plan(wires)
        # Sums of integers do not depend on order.
        self._held_out = self.ctx.reducer("held out", (1,), by=("direct", "exact"), watched=False)
        self._correct = self.ctx.reducer("correct", (1,), "int64", by=("direct", "working"), watched=False)

    def redistribute(self, counts: list[int]) -> None:
        wires = self.wires
        self.ctx.release()
        self.own_blocks(owner_of(counts))
        self.plan(wires)

    def figures(self) -> dict[str, tuple[float, str]]:
        return {"accuracy": (self.accuracy, "")}

    def checks(self) -> list[Check]:
        return [] if self.duplicates is None else [self.duplicates.verdict()]

    def free(self) -> None:
        """Free the duplicates; the repeat frees the rest."""
        if self.duplicates is not None:
            self.duplicates.free()

    def advance(self, step: int) -> None:
        tracer = self.tracer
        begin = tracer.clock()
        self.trace_weights()
        if self.duplicates is not None:
            self.duplicates.begin(tracer.step, self.owner)
        self._step, losses = step, self._gradients(step)
        if self.duplicates is not None:
            self._compare(self.duplicates, step)
        totals = self.exchange.finish()
        self.settle_losses(losses, all(np.isfinite(total).all() for total in totals))
        start = tracer.clock()
        self.optimiser.step(totals, self.after, self.rate(step), step)
        tracer.event(self.name["update"], start)
        tracer.event(self.name["step"], begin)

    def evaluate(self, step: int) -> None:
        """Measure the accuracy on the test samples, and the effect of wires on the gradient of `step` with the current
        weights."""
        tracer, given = self.tracer, self.data
        start = tracer.clock()
        self.require_same_weights()
        correct = 0
        for own in self._own(np.arange(len(given.test_labels)), step):
            correct += self.network.correct(given.test_images[own], given.test_labels[own], self.top)
        self.accuracy = int(self._correct(np.array([[correct]]))[0]) / len(given.test_labels)
        tracer.event(self.name["evaluate"], start)
        if self.ctx.rank == 0:
            tracer.value("accuracy", self.accuracy)
            self._sample_weights()
            if step and any(map(coding, self.wires)):
                for tensor, x in enumerate(self._gradient(step, 0)):
                    measured = quality(x, carried(self.wires[tensor], x))
                    for name, value in zip(
                        ("wire_error", "wire_cosine", "wire_length"), measured, strict=True
                    ):
                        tracer.value(name, value, tensor)

    def record_outputs(self, step: int) -> None:
        """Record the outputs of a network with fixed samples, and the classes of all samples."""
        tracer, given = self.tracer, self.data
        start = tracer.clock()
        if not self.network.answers_at_once:
            for own in self._own(np.arange(len(given.test_labels)), step):
                tracer.decisions("class", own, *classes(self.network.outputs(given.test_images[own])))
        elif self.ctx.rank == 0:
            outputs = self.network.answers(step)
            chosen, margins = classes(outputs)
            for name, array in (("outputs", outputs), ("predictions", chosen)):
                tracer.array(name, 0, array)
            tracer.decisions("class", np.arange(len(chosen)), chosen, margins)
            count = outputs.size if self.config.evaluation.outputs == "all" else SAMPLED
            tracer.values("outputs", *sampled(outputs.reshape(-1), count))
        tracer.event(self.name["evaluate"], start)

    def _sample_weights(self) -> None:
        """Record some weights as numbers: fingerprints show that runs differ, numbers show how far."""
        _, weights = sampled(np.concatenate([array.reshape(-1) for array in self.weights]), SAMPLED)
        self.tracer.values("weights_sample", np.arange(len(weights)), weights)

    def held_out_loss(self) -> float:
        given, losses, held = self.data, 0.0, self._looked_at
        for own in self._own(held, self.tracer.step):
            losses += self.network.loss_alone(given.images[own], given.labels[own])
        return float(self._held_out(np.array([[losses]]))[0]) / len(held)

    def held_out_accuracy(self) -> float:
        given, correct, held = self.data, 0, self._looked_at
        for own in self._own(held, self.tracer.step):
            correct += self.network.correct(given.images[own], given.labels[own], self.top)
        return int(self._correct(np.array([[correct]]))[0]) / len(held)

    @property
    def _looked_at(self) -> np.ndarray:
        """At most LOOKED_AT of the held-out samples, evenly: trials are short, and all would take longer than these."""
        return self.held[:: -(-len(self.held) // LOOKED_AT)]

    def _own(self, samples: np.ndarray, step: int) -> Iterator[np.ndarray]:
        """This rank's part of `samples`, by blocks that are announced to the network as of `step`."""
        owner = contiguous_owner(-(-len(samples) // TEST_BLOCK), self.ctx.size)
        for block in np.flatnonzero(owner == self.ctx.rank).tolist():
            self.network.begin(step, block)
            yield samples[block * TEST_BLOCK : (block + 1) * TEST_BLOCK]

    # ---- for policies

    @property
    def tensors(self) -> list[tuple[int, ...]]:
        return list(self.shapes.values())

    def encoded(self) -> list[int]:
        return chosen_for(self.tensors)

    def nbytes(self, wire: str, tensor: int) -> int:
        return encoded_bytes(wire, self.tensors[tensor])

    def errors(self, step: int, tensors: Sequence[int], wires: Sequence[str]) -> np.ndarray | None:
        """Of the first micro-batches, on rank 0 alone, so that they do not depend on the number of ranks."""
        if self.ctx.rank:
            return None
        found = np.zeros((len(tensors), len(wires)))
        for block in range(min(JUDGED, self.config.training.blocks)):
            gradients = self._gradient(step, block)
            for i, tensor in enumerate(tensors):
                x = gradients[tensor]
                for c, wire in enumerate(wires):
                    apart = np.subtract(carried(wire, x), x, dtype=np.float64)
                    found[i, c] += np.sqrt(np.sum(apart * apart))  # no BLAS, whose bits depend on threads
        return found

    def all_reduce(self, tensors: Sequence[int], wire: str) -> Callable[[], np.ndarray]:
        values = np.concatenate([self.weights[tensor].ravel() for tensor in tensors])
        rows = np.repeat(values[None], len(self.calls), axis=0)
        return partial(self.reducer(bucket_of(tensors, self.tensors, wire)), rows)

    def lost(self) -> Lost:
        return self.exchange.lost()

    def restore_lost(self, lost: Lost | None) -> None:
        self.exchange.restore_lost(lost or {})

    def _gradient(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the current weights, scaled as for encoding, by tensor; not collective."""
        return [gradient * np.float32(self.before) for gradient in self._tensors(step, block)]

    def _nothing(self) -> list[np.ndarray]:
        """A list with a place for the gradient of each tensor."""
        return [np.empty(0)] * len(self.shapes)

    def _tensors(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the current weights, by tensor; not collective."""
        taken = self._nothing()

        def take(tensor, gradient):
            taken[tensor] = gradient.copy()

        self._losses(step, [block], take)
        return taken

    # ---- parts of a step

    def _gradients(self, step: int) -> list[float]:
        """Pass the gradients of every call to the buckets; returns the losses of the calls or micro-batches."""
        start = self.tracer.clock()
        self._twice = {block: self._nothing() for block in self.duplicates.own} if self.duplicates else {}
        losses = []
        for row, blocks in enumerate(self.calls):

            def take(tensor, gradient, row=row, block=blocks[0]):
                if self.ctx.faults:
                    self.strike(block, tensor, gradient)
                if block in self._twice:
                    self._twice[block][tensor] = gradient.copy()
                self.exchange.put(row, tensor, gradient)

            self._gather_ahead(step, row)
            losses += self._losses(step, blocks, take, partial(self.exchange.part, row))
        self.tracer.event(self.name["gradient"], start)
        return losses

    def _compare(self, twice: duplicates.Duplicates, step: int) -> None:
        """Compute the gradients of some micro-batches of other ranks with the same weights, and compare them."""

        def again(blocks, _):
            return [self._tensors(step, block) for block in blocks]

        twice.check("gradient", [], list(self._twice.values()), again)
        twice.settle()

    def strike(self, block: int, tensor: int, gradient: np.ndarray) -> None:
        """Flip a bit for an injected fault, in the tensor `call`, counted in the order of the gradient."""
        here = self.tracer.repeat, self.tracer.step, block, tensor
        for fault in self.ctx.faults:
            if fault.kind == "kernel-bit" and (fault.repeat, fault.step, fault.block, fault.call) == here:
                fault.spoil(gradient, f"the gradient of tensor {tensor} in a micro-batch")
                self.ctx.struck.add(fault.spec)

    def _gather_ahead(self, step: int, row: int) -> None:
        """Announce the next `training.depth` calls after call `row` of `step`, so that their fields are prepared."""
        for place in range(row + 1, row + 1 + self.config.training.depth):
            later, call = step + place // len(self.calls), self.calls[place % len(self.calls)]
            if later <= self.config.training.last:
                self.network.ahead(later, call[0], self.data.images[self._chosen(later, call)])

    def _chosen(self, step: int, blocks: list[int]) -> np.ndarray:
        """The numbers of the images in micro-batches of a step."""
        return self.learned[np.concatenate([self.batches.images(step, block) for block in blocks])]

    def _losses(self, step: int, blocks: list[int], take, room=None) -> list[float]:
        """`Network.losses` of micro-batches in one call."""
        given, config = self.data, self.config
        chosen = self._chosen(step, blocks)
        self.network.begin(step, blocks[0])
        dropped = self._dropped(step, blocks) if config.model.dropout > 0.0 else None
        return self.network.losses(given.images[chosen], given.labels[chosen], dropped, take, room)

    def _dropped(self, step: int, blocks: list[int]) -> np.ndarray:
        """The dropout masks of micro-batches of a step."""
        config = self.config
        seed, chance, hidden = config.seeds.dropout, config.model.dropout, config.model.hidden

        def drawn(block: int, rows: int) -> np.ndarray:
            return mask(seed, step, block, (rows, hidden), chance)

        return self.network.dropped(drawn, blocks, config.training.micro)

    def culprit(self, losses: list[float]) -> str:
        """A description of the first micro-batch, and its last layer, with a gradient that is not finite."""
        names = list(self.shapes)
        if self.summed:  # a call has several micro-batches: compute each again, with the same weights
            parts = [(block, self._tensors(self._step, block)) for block in self.own]
        else:
            tensors = range(len(names))
            parts = [
                (blocks[0], [self.exchange.part(row, t) for t in tensors])
                for row, blocks in enumerate(self.calls)
            ]
        bad = [
            (block, len(names) - tensor)
            for block, gradients in parts
            for tensor in reversed(range(len(names)))
            if not np.isfinite(gradients[tensor]).all()
        ]
        bad += [
            (block, len(names) + 1)
            for (block, _), loss in zip(parts, losses, strict=True)
            if not isfinite(loss)
        ]
        found = [first for first in self.ctx.comm.allgather(min(bad, default=None)) if first is not None]
        where = "the gradient, summed over all micro-batches,"
        if found:
            block, layer = min(found)
            what = "loss" if layer > len(names) else f"gradient of {names[len(names) - layer]}"
            where = f"the {what} in micro-batch {block} (rank {self.owner[block]})"
        return f"{where} is not finite"
