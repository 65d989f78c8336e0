"""A step of DLRM: bags looked up over all ranks, gradients of this rank's micro-batches, the update of tables and
perceptrons; evaluation by AUC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import torch

from kernels.allreduce.execution.reducer import require_same_bits
from miniapps.embeddings.histogram import as_values, described
from miniapps.embeddings.sharding import Table
from miniapps.embeddings.tables import LOOKUP, MESSAGES, SCATTER, Tables
from miniapps.layout.owners import contiguous_owner, shuffled
from miniapps.learning.auc import area, twice_wins
from miniapps.learning.optimisers import restore, state_of
from miniapps.trace import fingerprint
from miniapps.trace.records import INPUT
from miniapps.trace.schema import COMPUTE, EXCHANGE, FILE, OTHER
from miniapps.training import data, dlrm_problem, ratings
from miniapps.training.buckets import Exchange, cut
from miniapps.training.checkpoint import TABLE, combined, fingerprints
from miniapps.training.clicknet import ClickNetwork
from miniapps.training.gradient import aligned
from miniapps.training.nonfinite import NotFinite
from miniapps.training.optimiser import initial, optimiser, rate_at
from miniapps.training.ratings import Ratings

LOADED = 8  # steps whose lookups are counted
TEST_BLOCK, TEST_BLOCKS = 250, 8  # samples of a call that evaluates; blocks that are looked up together


class DlrmTrainer:
    """Perceptrons that every rank holds, and tables that are cut over all ranks. Collective to make.

    `own`: this rank's micro-batches of every step, ascending.
    """

    wires: tuple[str, ...] = ()

    def __init__(self, ctx):
        config = ctx.config
        self.ctx, self.config, self.tracer = ctx, config, ctx.tracer
        training, embeddings = config.training, config.embeddings
        others = [rank for rank in range(ctx.size) if rank != ctx.rank]
        kinds = dict(
            step=OTHER, interact=COMPUTE, update=COMPUTE, evaluate=COMPUTE, checkpoint=FILE, record=OTHER
        )
        kinds |= {LOOKUP: COMPUTE, SCATTER: COMPUTE} | dict.fromkeys(MESSAGES, EXCHANGE)
        self.name = {name: self.tracer.name(name, kind) for name, kind in kinds.items()}
        for region in MESSAGES:
            self.tracer.partners(region, others)
        self.samples = dlrm_problem.Samples(config, self._given())

        owner = shuffled(contiguous_owner(training.blocks, ctx.size), ctx.options.shuffle_blocks)
        self.owner, self.own = owner, np.flatnonzero(owner == ctx.rank).tolist()
        self.numbers = _numbers(owner, training.micro, training.batch, ctx.size)
        self.per_block = training.calls == "block"
        torch.set_num_threads(1 if self.per_block else ctx.options.threads)

        self.placed = dlrm_problem.placed(config, ctx.options, ctx.size)
        of_all = [of.table for of in self.placed]
        self.tables = Tables(
            ctx.comm,
            self.placed,
            config.model.aggregate,
            lambda table, block: dlrm_problem.drawn(of_all[table], table, block, config.seeds.init),
            self._timed,
        )
        self.shapes = dlrm_problem.shapes(config.data.name, config.model.hidden, embeddings)
        weights = [aligned(shape, np.float32) for shape in self.shapes.values()]
        for array, first in zip(weights, initial(self.shapes, config.seeds.init), strict=True):
            array[...] = first
        self.optimiser = optimiser(training, weights)
        self.calls = [[block] for block in self.own] if self.per_block else [self.own]
        most = max(TEST_BLOCK, training.micro * len(self.calls[0]))
        if ctx.rank == 0:
            self._record_loads([of.table for of in self.placed])
        self.network = ClickNetwork(
            weights,
            dlrm_problem.features(config.data.name, embeddings),
            len(of_all),
            embeddings.columns,
            most,
        )
        numbers = self.own if self.per_block else [ctx.rank]
        buckets = cut(list(self.shapes.values()), training.bucket)
        reducers = [
            ctx.reducer(f"bucket{k}", (bucket.size,), "float32", blocks=numbers)
            for k, bucket in enumerate(buckets)
        ]
        before = training.divide == "before"
        once = 1.0 / training.batch
        self._before, self._after = once if before else 1.0, 1.0 if before else once
        self.exchange = Exchange(buckets, reducers, len(self.calls), training.overlap, self._before)
        # Loss, and how many ranks hold a gradient that is not finite.
        self._sums = ctx.reducer("loss", (2,), blocks=numbers)
        # Integers, whose sum has no order: pairs in the right order, twice; right answers; samples that were liked.
        self._counts = ctx.reducer("ranked", (3,), "int64", by=("direct", "working"), watched=False)
        self.loss = self.accuracy = self.auc = float("nan")

    @property
    def weights(self) -> Sequence[np.ndarray]:
        """Of both perceptrons."""
        return self.optimiser.weights

    def peek(self, block: int):
        """Where faults strike: weights of the perceptrons, on all ranks alike, then this rank's parts of tables."""
        if 0 <= block < len(self.weights):
            return self.weights[block]
        shards = self.tables.shards
        table = block - len(self.weights)
        return shards[table].weights if 0 <= table < len(shards) and shards[table].weights.size else None

    def advance(self, step: int) -> None:
        """Step `step` of the problem, recorded: the weights that enter it, its loss. Raises NotFinite on all ranks."""
        tracer, training = self.tracer, self.config.training
        begin = tracer.clock()
        every = self.config.embeddings.fingerprints
        self.trace_weights(step == 1 or (bool(every) and (step - 1) % every == 0))
        blocks = [self.samples.block(step, block) for block in self.own]
        pooled = self.tables.look_up(ratings.joined(blocks).bags, self.numbers)
        losses, gradients = self._gradients(blocks, pooled)
        totals = self.exchange.finish()
        self._settle(losses, totals, gradients)
        rate = rate_at(step, training.steps, training.rate, training.optimiser)
        self.tables.update(gradients, self._after, rate * self.config.embeddings.rate_ratio)
        start = tracer.clock()
        self.optimiser.step(totals, self._after, rate, step)
        tracer.event(self.name["update"], start)
        tracer.event(self.name["step"], begin)

    def evaluate(self, step: int) -> None:
        """AUC and accuracy on the test samples. Collective; raises RanksDisagree where ranks hold other weights."""
        tracer, start = self.tracer, self.tracer.clock()
        prints = np.frombuffer(b"".join(fingerprints(self.weights)), np.int64)
        require_same_bits(self.ctx.comm, prints, f"step {tracer.step}: weights")
        count, size = self.samples.tested, self.ctx.size
        scores, labels = [], []
        for first in range(0, count, TEST_BLOCK * TEST_BLOCKS):
            here = min(TEST_BLOCK * TEST_BLOCKS, count - first)
            owner = contiguous_owner(-(-here // TEST_BLOCK), size)
            numbers = _numbers(owner, TEST_BLOCK, here, size)
            own = numbers[self.ctx.rank]
            begins = own[::TEST_BLOCK].tolist()
            blocks = [self.samples.test(first + at, min(TEST_BLOCK, here - at)) for at in begins]
            every = ratings.joined(blocks or [self.samples.test(0, 0)])
            pooled = self.tables.look_up(every.bags, numbers, learn=False)
            for part, sums in zip(blocks, _cut(pooled, blocks), strict=True):
                scores.append(self.network.scores(part.dense, sums))
                labels.append(part.labels)
        self._judge(np.concatenate([np.empty(0, np.float32), *scores]), np.concatenate([_NO_LABELS, *labels]))
        tracer.event(self.name["evaluate"], start)
        if self.ctx.rank == 0:
            tracer.value("auc", self.auc)
            tracer.value("accuracy", self.accuracy)

    def trace_weights(self, tables: bool = True) -> None:
        """Record the weights that enter the current step, or, after the last, the final ones; with `tables` these, too,
        each block by a rank that can put it together. Collective."""
        start = self.tracer.clock()
        if self.ctx.rank == 0:
            for tensor, array in enumerate(self.weights):
                self.tracer.array("weights", tensor, array)
        for shard in self.tables.shards if tables else ():
            name = f"{TABLE}{shard.placed.table.name}"
            for block, array in shard.by_blocks(self.ctx.comm):
                self.tracer.array(name, block, array)
        self.tracer.event(self.name["record"], start)

    def figures(self) -> dict[str, tuple[float, str]]:
        """What a run reports."""
        return {"auc": (self.auc, ""), "accuracy": (self.accuracy, "")}

    def record_outputs(self, step: int) -> None:
        """There are none."""

    def fingerprint(self) -> str:
        """Of the perceptrons and all tables. Collective."""
        prints = fingerprints(self.weights)
        for shard in self.tables.shards:
            own = [(block, fingerprint(array)) for block, array in shard.by_blocks(self.ctx.comm)]
            prints += [print for _, print in sorted(chain.from_iterable(self.ctx.comm.allgather(own)))]
        return combined(prints)

    def state(self) -> list[Sequence[np.ndarray]]:
        """Weights of the perceptrons, and each state of the optimiser."""
        return state_of(self.optimiser)

    def take(self, state: list[list[np.ndarray]]) -> None:
        """Go on from what `state` gave."""
        restore(self.optimiser, state)

    def buffers(self) -> dict[str, Any]:
        """The tables, whole, by name, on rank 0; None on others. Collective."""
        return {shard.placed.table.name: shard.whole(self.ctx.comm) for shard in self.tables.shards}

    def take_buffers(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `buffers` gave, under any sharding."""
        for shard in self.tables.shards:
            shard.take(arrays[shard.placed.table.name])

    def free(self) -> None:
        """Give back the communicator; collective."""
        self.tables.free()

    # ---- parts

    def _given(self) -> Ratings | None:
        """The ratings on every rank, None where samples are drawn. Collective."""
        if self.config.data.name != "ml-100k":
            return None
        given = None
        if self.ctx.rank == 0:
            given = ratings.load(self.config.data.dir)
            for name, array in dlrm_problem.digests(given):
                self.tracer.array(f"{INPUT}{name}", 0, array)
        return ratings.of_arrays(data.share_arrays(self.ctx.comm, None if given is None else given.arrays()))

    def _record_loads(self, tables: Sequence[Table]) -> None:
        """Record what the first steps ask of each table: the histogram that costs depend on, the same on any ranks."""
        training = self.config.training
        steps = min(LOADED, max(1, training.steps))
        every = ratings.joined(
            [
                self.samples.block(step, block)
                for step in range(1, steps + 1)
                for block in range(training.blocks)
            ]
        )
        for table, bags in zip(tables, every.bags, strict=True):
            for name, array in as_values(described(table, training.batch, steps, bags.rows)).items():
                self.tracer.values(name, np.arange(len(array)), array)

    def _gradients(self, blocks: list[Ratings], pooled: np.ndarray) -> tuple[list[float], np.ndarray]:
        """The losses of the calls, and the gradient of `pooled`; those of weights go to their buckets."""
        start = self.tracer.clock()
        if not self.per_block:
            blocks = [ratings.joined(blocks)]
        losses, gradients = [], np.empty_like(pooled)
        for row, (part, sums, into) in enumerate(
            zip(blocks, _cut(pooled, blocks), _cut(gradients, blocks), strict=True)
        ):

            def take(tensor, gradient, row=row):
                self.exchange.put(row, tensor, gradient)

            loss, into[...] = self.network.learn(part.dense, sums, part.labels, take)
            losses.append(loss)
        if self._before != 1.0:
            gradients *= np.float32(self._before)
        self.tracer.event(self.name["interact"], start, gradients.nbytes)
        return losses, gradients

    def _settle(self, losses: list[float], totals: list[np.ndarray], gradients: np.ndarray) -> None:
        """The mean loss of the step; raises NotFinite on all ranks where a gradient is not finite."""
        parts = np.zeros((len(losses), 2))
        parts[:, 0] = losses
        sound = np.isfinite(gradients).all() and all(np.isfinite(total).all() for total in totals)
        parts[0, 1] = not sound
        loss, spoiled = self._sums(parts).tolist()
        if spoiled or not isfinite(loss):
            raise NotFinite(
                f"step {self.tracer.step}: the loss or a gradient is not finite{self._culprit(losses, gradients)}; the "
                "trace holds every step before. If no fault was injected, the rate is too large: choose a smaller "
                "--rate, or a smaller embeddings.rate_ratio"
            )
        self.loss = loss / self.config.training.batch
        if self.ctx.rank == 0:
            self.tracer.value("loss", self.loss)

    def _culprit(self, losses: list[float], gradients: np.ndarray) -> str:
        """The first micro-batch whose loss or gradient of a bag is not finite, in words. Collective."""
        per = len(gradients) // len(losses)
        bad = [
            blocks[0]
            for row, (blocks, loss) in enumerate(zip(self.calls, losses, strict=True))
            if not isfinite(loss) or not np.isfinite(gradients[row * per : (row + 1) * per]).all()
        ]
        found = [block for block in self.ctx.comm.allgather(min(bad, default=None)) if block is not None]
        return f" in micro-batch {min(found)} (rank {self.owner[min(found)]})" if found else ""

    def _judge(self, scores: np.ndarray, labels: np.ndarray) -> None:
        """AUC and accuracy from the scores of the own test samples. Collective."""
        liked = labels.astype(bool)
        positive = np.concatenate(self.ctx.comm.allgather(scores[liked]))
        own = [twice_wins(positive, scores[~liked]), int(((scores > 0) == liked).sum()), int(liked.sum())]
        wins, correct, positives = self._counts(np.array([own])).tolist()
        count = self.samples.tested
        self.auc, self.accuracy = area(wins, positives, count - positives), correct / count

    @contextmanager
    def _timed(self, region: str, nbytes: int) -> Iterator[None]:
        start = self.tracer.clock()
        yield
        self.tracer.event(self.name[region], start, nbytes)


_NO_LABELS = np.empty(0, np.uint8)


def _numbers(owner: np.ndarray, micro: int, count: int, size: int) -> list[np.ndarray]:
    """Which samples of `count` each rank has, by the owners of their blocks of `micro`, the last maybe shorter."""
    of_samples = np.repeat(owner, micro)[:count]
    return [np.flatnonzero(of_samples == rank) for rank in range(size)]


def _cut(array: np.ndarray, blocks: Sequence[Ratings]) -> list[np.ndarray]:
    """The parts of `array` (samples, ...) that belong to each block: views."""
    return np.split(array, np.cumsum([len(block.labels) for block in blocks])[:-1]) if blocks else []
