"""A step of training: gradients of this rank's micro-batches, their sum over all ranks, the update; evaluation."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch

from kernels.allreduce.coding import coding
from kernels.allreduce.execution.reducer import require_same_bits
from kernels.wires import quality
from miniapps.layout.owners import contiguous_owner, owner_of, shuffled
from miniapps.learning.optimisers import restore, state_of
from miniapps.runner import duplicates
from miniapps.trace.records import INPUT
from miniapps.trace.schema import COMPUTE, FILE, OTHER
from miniapps.training import data
from miniapps.training.batches import Batches, mask
from miniapps.training.buckets import Bucket, Exchange, carried, cut
from miniapps.training.checkpoint import combined, fingerprints
from miniapps.training.choosing import candidates
from miniapps.training.gradient import Network, aligned
from miniapps.training.graph import GraphNetwork
from miniapps.training.models import network
from miniapps.training.neighbours import Neighbours
from miniapps.training.nonfinite import NotFinite
from miniapps.training.optimiser import initial, optimiser, rate_at

TEST_BLOCK = 250  # images of a call that evaluates: one shape, whoever makes it
SAMPLED = 256  # weights, or outputs, evenly spaced, that are recorded by value


def sampled(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of `count` evenly spaced elements of `x` (n,), all where there are no more, and these as float64."""
    places = np.linspace(0, len(x) - 1, min(count, len(x))).astype(int)
    return places, x[places].astype(np.float64)


class Trainer:
    """The network on this rank; every rank holds the same weights. Collective to make.

    `own`: this rank's micro-batches of every step, ascending.
    """

    def __init__(self, ctx):
        config = ctx.config
        self.ctx, self.config, self.tracer = ctx, config, ctx.tracer
        training = config.training
        kinds = dict(step=OTHER, gradient=COMPUTE, update=COMPUTE, evaluate=COMPUTE, checkpoint=FILE, record=OTHER,
                     speculate=OTHER)  # fmt: skip
        self.name = {name: self.tracer.name(name, kind) for name, kind in kinds.items()}

        given = None
        if ctx.rank == 0:
            given = data.load(config.data.name, config.data.dir, config.seeds.data, config.data.features)
        self.data = data.share(ctx.comm, given)
        self._record_data()
        self.per_block = training.calls == "block"
        self._own(shuffled(contiguous_owner(training.blocks, ctx.size), ctx.options.shuffle_blocks))
        torch.set_num_threads(1 if self.per_block else ctx.options.threads)

        edge = data.EDGE[config.data.name]
        model = network(config.model.name)
        self.shapes = model.shapes(config.model, edge)
        weights = [aligned(shape, np.float32) for shape in self.shapes.values()]
        for array, drawn in zip(weights, initial(self.shapes, config.seeds.init), strict=True):
            array[...] = drawn
        self.optimiser = optimiser(training, weights)
        self.duplicates = duplicates.made(ctx)
        most = max(TEST_BLOCK, training.micro * len(self.calls[0]))
        self.network: Network
        if self.data.graph is None:
            self.network = Network(model.forward, weights, (edge, edge), most, self.data.largest)
        else:
            how = config.model.aggregate, config.seeds.order, self._neighbours(self.data.graph)
            inference = config.model.aggregate_inference
            self.network = GraphNetwork(model.forward, weights, most, self.data.graph, *how, inference)
        held = data.held_out(config.data.name) & config.training.tries
        self.held, self.learned = np.flatnonzero(held), np.flatnonzero(~held)
        self.batches = Batches(len(self.learned), training.batch, training.micro, config.seeds.data)
        once = 1.0 / training.batch
        before = training.divide == "before"
        self._before, self._after = once if before else 1.0, 1.0 if before else once
        self._plan(candidates(config)[:1] * len(self.shapes))
        self.loss = self.accuracy = float("nan")

    def _own(self, owner: np.ndarray) -> None:
        """Take these owners of the micro-batches."""
        self.owner, self.own = owner, np.flatnonzero(owner == self.ctx.rank).tolist()
        # A call computes the whole of these blocks, and contributes the sum of their gradients.
        self.calls = [[block] for block in self.own] if self.per_block else [self.own]

    def _plan(self, wires: Sequence[str]) -> None:
        """Plan the reductions of what this rank owns. Collective."""
        self._planned: dict[Bucket, Any] = {}  # reducers
        self.wires: tuple[str, ...] = ()
        self.assign(wires)
        # Loss, and how many ranks hold a gradient that is not finite.
        self._sums = self.ctx.reducer("loss", (2,), blocks=self._numbers())
        # Integers, whose sum has no order.
        self._held_out = self.ctx.reducer("held out", (1,), by=("direct", "exact"), watched=False)
        self._correct = self.ctx.reducer("correct", (1,), "int64", by=("direct", "working"), watched=False)

    def deal(self, counts: list[int]) -> None:
        """Give every rank a contiguous run of so many micro-batches. Collective."""
        wires = self.wires
        self.ctx.release()
        self._own(owner_of(counts))
        self._plan(wires)

    @property
    def weights(self) -> Sequence[np.ndarray]:
        """Of every tensor, float32."""
        return self.optimiser.weights

    def figures(self) -> dict[str, tuple[float, str]]:
        """What a run reports."""
        return {"accuracy": (self.accuracy, "")}

    def fingerprint(self) -> str:
        """Of all weights."""
        return combined(fingerprints(self.weights))

    def state(self) -> list[Sequence[np.ndarray]]:
        """Weights, and each state of the optimiser, in the order of the tensors."""
        return state_of(self.optimiser)

    def take(self, state: list[list[np.ndarray]]) -> None:
        """Go on from what `state` gave."""
        restore(self.optimiser, state)

    def free(self) -> None:
        """Free what computes blocks twice; the repeat frees the rest. Collective."""
        if self.duplicates is not None:
            self.duplicates.free()

    def assign(self, wires: Sequence[str]) -> None:
        """Let the gradient of each tensor go over its own of `wires` from the next step on. Collective."""
        if tuple(wires) == self.wires:
            return
        self.wires, training = tuple(wires), self.config.training
        buckets = cut(list(self.shapes.values()), training.bucket, wires)
        reducers = [self.reducer(bucket) for bucket in buckets]
        self.exchange = Exchange(buckets, reducers, len(self.calls), training.overlap, self._before)

    def reducer(self, bucket: Bucket):
        """The all-reduce of a bucket, planned once. Collective."""
        if bucket not in self._planned:
            self._planned[bucket] = self.ctx.reducer(
                f"bucket{len(self._planned)}",
                (bucket.size,),
                "float32",
                blocks=self._numbers(),
                **bucket.over(),
            )
        return self._planned[bucket]

    def peek(self, block: int):
        """Writable weights of a tensor, else None: where faults strike, on all ranks alike."""
        return self.weights[block] if 0 <= block < len(self.weights) else None

    def advance(self, step: int) -> None:
        """Step `step` of the problem, recorded: the weights that enter it, its loss. Raises NotFinite on all ranks."""
        tracer, training = self.tracer, self.config.training
        begin = tracer.clock()
        self.trace_weights()
        if self.duplicates is not None:
            self.duplicates.begin(tracer.step, self.owner)
        losses = self._gradients(step)
        if self.duplicates is not None:
            self._compare(self.duplicates, step)
        totals = self.exchange.finish()
        self._settle_loss(losses, totals)
        start = tracer.clock()
        rate = rate_at(step, training.steps, training.rate, training.optimiser)
        self.optimiser.step(totals, self._after, rate, step)
        tracer.event(self.name["update"], start)
        tracer.event(self.name["step"], begin)

    def evaluate(self, step: int) -> None:
        """Accuracy on the test images, and what wires do to the gradient of the last `step` of the problem, with the
        weights that it led to. Collective; raises RanksDisagree where ranks hold other weights."""
        tracer, given = self.tracer, self.data
        start = tracer.clock()
        prints = np.frombuffer(b"".join(fingerprints(self.weights)), np.int64)
        require_same_bits(self.ctx.comm, prints, f"step {tracer.step}: weights")
        count = len(given.test_labels)
        owner = contiguous_owner(-(-count // TEST_BLOCK), self.ctx.size)
        correct = 0
        for block in np.flatnonzero(owner == self.ctx.rank).tolist():
            part = slice(block * TEST_BLOCK, (block + 1) * TEST_BLOCK)
            self.network.begin(step, block)
            correct += self.network.correct(given.test_images[part], given.test_labels[part])
        self.accuracy = int(self._correct(np.array([[correct]]))[0]) / count
        tracer.event(self.name["evaluate"], start)
        if self.ctx.rank == 0:
            tracer.value("accuracy", self.accuracy)
            self._sample_weights()
            if step and any(map(coding, self.wires)):
                for tensor, x in enumerate(self.gradient(step, 0)):
                    measured = quality(x, carried(self.wires[tensor], x))
                    for name, value in zip(
                        ("wire_error", "wire_cosine", "wire_length"), measured, strict=True
                    ):
                        tracer.value(name, value, tensor)

    def record_outputs(self, step: int) -> None:
        """Record what the network answers for every node of a graph, after `step` of the problem; for images nothing.

        Rank 0 asks for all nodes in one call, which takes less than calls for their overlapping fields would.
        """
        if self.ctx.rank or not isinstance(self.network, GraphNetwork) or self.data.graph is None:
            return
        tracer, start = self.tracer, self.tracer.clock()
        nodes = np.arange(len(self.data.graph.features))
        self.network.begin(step, len(nodes))  # no block of an evaluation has this number
        outputs = self.network.outputs(nodes)
        predictions = outputs.argmax(1)
        for name, array in (("outputs", outputs), ("predictions", predictions)):
            tracer.array(name, 0, array)
        tracer.values("predictions", nodes, predictions)
        count = outputs.size if self.config.evaluation.outputs == "all" else SAMPLED
        tracer.values("outputs", *sampled(outputs.reshape(-1), count))
        tracer.event(self.name["evaluate"], start)

    def _sample_weights(self) -> None:
        """Record some weights by value: fingerprints tell that runs part, and these how far."""
        _, weights = sampled(np.concatenate([array.reshape(-1) for array in self.weights]), SAMPLED)
        self.tracer.values("weights_sample", range(len(weights)), weights)

    def held_out_loss(self) -> float:
        """The mean loss of the images that are held out. Collective."""
        given, count = self.data, len(self.held)
        losses = np.zeros((1, 1))
        owner = contiguous_owner(-(-count // TEST_BLOCK), self.ctx.size)
        for block in np.flatnonzero(owner == self.ctx.rank).tolist():
            chosen = self.held[block * TEST_BLOCK : (block + 1) * TEST_BLOCK]
            self.network.begin(self.tracer.step, block)
            losses += self.network.loss_alone(given.images[chosen], given.labels[chosen])
        return float(self._held_out(losses)[0]) / count

    def gradient(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the present weights as it is encoded, of each tensor; not collective."""
        return [gradient * np.float32(self._before) for gradient in self._tensors(step, block)]

    def _nothing(self) -> list[np.ndarray]:
        """A place for the gradient of each tensor."""
        return [np.empty(0)] * len(self.shapes)

    def _tensors(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the present weights, of each tensor; not collective."""
        taken = self._nothing()

        def take(tensor, gradient):
            taken[tensor] = gradient.copy()

        self._loss(step, [block], take)
        return taken

    def trace_weights(self) -> None:
        """Record the weights that enter the current step, or, after the last, the final ones."""
        start = self.tracer.clock()
        if self.ctx.rank == 0:
            for tensor, array in enumerate(self.weights):
                self.tracer.array("weights", tensor, array)
        self.tracer.event(self.name["record"], start)

    # ---- parts of a step

    def _numbers(self) -> list[int]:
        """The blocks of this rank's contributions: its micro-batches, or itself where it sums over these."""
        return self.own if self.per_block else [self.ctx.rank]

    def _gradients(self, step: int) -> list[float]:
        """Hand the gradient of every call to the buckets; the losses of the calls."""
        start = self.tracer.clock()
        self._twice = {block: self._nothing() for block in self.duplicates.own} if self.duplicates else {}
        losses = []
        for row, blocks in enumerate(self.calls):

            def take(tensor, gradient, row=row, block=blocks[0]):
                if self.ctx.faults:
                    self._strike(block, tensor, gradient)
                if block in self._twice:
                    self._twice[block][tensor] = gradient.copy()
                self.exchange.put(row, tensor, gradient)

            self._gather_ahead(step, row)
            losses.append(self._loss(step, blocks, take))
        self.tracer.event(self.name["gradient"], start)
        return losses

    def _compare(self, twice: duplicates.Duplicates, step: int) -> None:
        """Compute the gradients of some micro-batches of other ranks, with the same weights, and compare."""

        def again(blocks, _):
            return [self._tensors(step, block) for block in blocks]

        twice.check("gradient", [], list(self._twice.values()), again)
        twice.settle()

    def _strike(self, block: int, tensor: int, gradient: np.ndarray) -> None:
        """Flip a bit where an injected fault wants it: of the tensor `call`, counted in the order of the gradient."""
        here = self.tracer.repeat, self.tracer.step, block, tensor
        for fault in self.ctx.faults:
            if fault.kind == "kernel-bit" and (fault.repeat, fault.step, fault.block, fault.call) == here:
                fault.spoil(gradient, f"the gradient of tensor {tensor} in a micro-batch")
                self.ctx.struck.add(fault.spec)

    def _neighbours(self, graph) -> Neighbours | None:
        """What draws the neighbours that are learned from; None: all are."""
        config, model = self.config, self.config.model
        if not (model.neighbours or model.second_neighbours):
            return None
        most = model.neighbours or len(graph.neighbours), model.second_neighbours or len(graph.neighbours)
        steps = max(1, len(self.data.labels) // config.training.batch)
        return Neighbours(graph, most, config.seeds.neighbours, steps)

    def _gather_ahead(self, step: int, row: int) -> None:
        """Let the fields of the calls after call `row` of `step` be gathered, `training.depth` of them."""
        if not isinstance(self.network, GraphNetwork):
            return
        for place in range(row + 1, row + 1 + self.config.training.depth):
            later, call = step + place // len(self.calls), self.calls[place % len(self.calls)]
            if later <= self.config.training.last:
                self.network.ahead(later, call[0], self.data.images[self._chosen(later, call)])

    def _chosen(self, step: int, blocks: list[int]) -> np.ndarray:
        """The images of micro-batches of a step, by their numbers."""
        return self.learned[np.concatenate([self.batches.images(step, block) for block in blocks])]

    def _loss(self, step: int, blocks: list[int], take) -> float:
        """The sum of the losses of micro-batches, in one call, whose gradients `take` gets."""
        given, config = self.data, self.config
        chosen = self._chosen(step, blocks)
        self.network.begin(step, blocks[0])
        dropped = self._dropped(step, blocks) if config.model.dropout > 0.0 else None
        return self.network.loss(given.images[chosen], given.labels[chosen], dropped, take)

    def _dropped(self, step: int, blocks: list[int]) -> np.ndarray:
        """What is dropped of each image, or of each node of the graph: fields overlap, and it is the same in all."""
        config = self.config
        seed, chance, hidden = config.seeds.dropout, config.model.dropout, config.model.hidden
        if self.data.graph is not None:
            return mask(seed, step, 0, (len(self.data.graph.features), hidden), chance)
        shape = (config.training.micro, hidden)
        return np.concatenate([mask(seed, step, block, shape, chance) for block in blocks])

    def _settle_loss(self, losses: list[float], totals: list[np.ndarray]) -> None:
        """The mean loss of the step; raises NotFinite on all ranks where the gradient is not finite."""
        parts = np.zeros((len(losses), 2))
        parts[:, 0] = losses
        parts[0, 1] = not all(np.isfinite(total).all() for total in totals)
        loss, spoiled = self._sums(parts).tolist()
        if spoiled or not isfinite(loss):
            self._refuse_nonfinite(losses)
        self.loss = loss / self.config.training.batch
        if self.ctx.rank == 0:
            self.tracer.value("loss", self.loss)

    def _refuse_nonfinite(self, losses: list[float]):
        """Name the first micro-batch and the last layer whose gradient is not finite; raises NotFinite everywhere."""
        names = list(self.shapes)
        bad = [
            (block, len(names) - tensor)
            for row, blocks in enumerate(self.calls)
            for tensor in reversed(range(len(names)))
            for block in blocks[:1]
            if not np.isfinite(self.exchange.part(row, tensor)).all()
        ]
        bad += [
            (blocks[0], len(names) + 1)
            for blocks, loss in zip(self.calls, losses, strict=True)
            if not isfinite(loss)
        ]
        found = [first for first in self.ctx.comm.allgather(min(bad, default=None)) if first is not None]
        where = "the gradient, summed over all micro-batches,"
        if found:
            block, layer = min(found)
            what = "loss" if layer > len(names) else f"gradient of {names[len(names) - layer]}"
            where = f"the {what} in micro-batch {block} (rank {self.owner[block]})"
        raise NotFinite(
            f"step {self.tracer.step}: {where} is not finite; the trace holds every step before. If no fault was "
            "injected, the rate is too large: choose a smaller --rate"
        )

    def _record_data(self) -> None:
        if self.ctx.rank == 0:
            for name in ("images", "labels"):
                self.tracer.array(f"{INPUT}{name}", 0, getattr(self.data, name))
            if self.data.graph is not None:
                for name in ("features", "starts", "neighbours"):
                    self.tracer.array(f"{INPUT}{name}", 0, getattr(self.data.graph, name))
