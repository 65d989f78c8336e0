"""A step of DLRM: the lookup of bags over all ranks, the gradients of this rank's micro-batches, and the update of
tables and perceptrons; also the evaluation by AUC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.dlrm import problem, ratings
from miniapps.dlrm.auc import area, twice_wins
from miniapps.dlrm.checkpoint import TABLE
from miniapps.dlrm.clicknet import ClickNetwork
from miniapps.dlrm.ratings import Ratings
from miniapps.embeddings.histogram import as_values, described
from miniapps.embeddings.sharding import Table
from miniapps.embeddings.tables import LOOKUP, MESSAGES, SCATTER, Tables
from miniapps.layout.owners import contiguous_owner
from miniapps.learning.gradients.parallel import TEST_BLOCK, ParallelTrainer
from miniapps.learning.samples.source import share_arrays
from miniapps.learning.weights import combined, fingerprints
from miniapps.trace import fingerprint
from miniapps.trace.records import INPUT
from miniapps.trace.schema import COMPUTE, EXCHANGE

if TYPE_CHECKING:
    from miniapps.runner.context import Context

LOADED = 8  # the first steps, whose lookups are counted
TEST_BLOCKS = 8  # calls of the evaluation whose samples are looked up together


class DlrmTrainer(ParallelTrainer):
    """Perceptrons that every rank holds, and tables that are cut over all ranks. Construction is collective."""

    REMEDY = "choose a smaller --rate, or a smaller embeddings.rate_ratio"

    def __init__(self, ctx: Context, given: Ratings | None = None, drawn: bool = True):
        """`given`: the ratings, if this rank has them. Without `drawn`, tables are zeros without memory (`Shard`)."""
        config = ctx.config
        training, embeddings = config.training, config.embeddings
        kinds = {"interact": COMPUTE, LOOKUP: COMPUTE, SCATTER: COMPUTE} | dict.fromkeys(MESSAGES, EXCHANGE)
        super().__init__(ctx, kinds, problem.shapes(config.data.name, config.model.hidden, embeddings))
        others = [rank for rank in range(ctx.size) if rank != ctx.rank]
        for region in MESSAGES:
            self.tracer.partners(region, others)
        self.samples = problem.Samples(config, given or self._given())
        self.numbers = _numbers(self.owner, training.micro, training.batch, ctx.size)
        self.placed = problem.placed(config, ctx.options, ctx.size)
        of_all = [of.table for of in self.placed]

        def draw(table: int, block: int) -> np.ndarray:
            return problem.drawn(of_all[table], table, block, config.seeds.init)

        self.tables = Tables(
            ctx.comm, self.placed, config.model.aggregate, draw if drawn else None, self._timed
        )
        if ctx.rank == 0:
            self._record_loads(of_all)
        most = max(TEST_BLOCK, training.micro * len(self.calls[0]))
        features = problem.features(config.data.name, embeddings)
        self.network = ClickNetwork(self.weights, features, len(of_all), embeddings.columns, most)
        self.plan()
        # Integers, whose sum does not depend on the order: `twice_wins`, correct answers, and liked samples.
        self._counts = ctx.reducer("ranked", (3,), "int64", by=("direct", "working"), watched=False)
        self.auc = float("nan")

    def peek(self, block: int) -> np.ndarray | None:
        """Weights of the perceptrons (the same on all ranks), then this rank's parts of tables."""
        if 0 <= block < len(self.weights):
            return self.weights[block]
        shards = self.tables.shards
        table = block - len(self.weights)
        return shards[table].weights if 0 <= table < len(shards) and shards[table].weights.size else None

    def advance(self, step: int) -> None:
        tracer = self.tracer
        begin = tracer.clock()
        every = self.config.embeddings.fingerprints
        self.trace_weights(step == 1 or (bool(every) and (step - 1) % every == 0))
        blocks, whole = self.drawn(step)
        pooled = self.tables.look_up(whole.bags, self.numbers)
        losses, gradients = self._gradients(blocks if self.per_block else [whole], pooled)
        totals = self.exchange.finish()
        self._given_back = gradients
        self.settle_losses(losses, self.sound([gradients, *totals]))
        rate = self.rate(step)
        self.tables.update(gradients, self.after, rate * self.config.embeddings.rate_ratio)
        start = tracer.clock()
        self.optimiser.step(totals, self.after, rate, step)
        tracer.event(self.name["update"], start)
        tracer.event(self.name["step"], begin)

    def evaluate(self, step: int) -> None:
        """AUC and accuracy on the test samples."""
        tracer, start = self.tracer, self.tracer.clock()
        self.require_same_weights()
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
        """Record the weights of the perceptrons and, with `tables`, of the tables: each block by a rank that has all
        its columns."""
        start = self.tracer.clock()
        self.record_weights()
        for shard in self.tables.shards if tables else ():
            name = f"{TABLE}{shard.placed.table.name}"
            for block, array in shard.by_blocks(self.ctx.comm):
                self.tracer.array(name, block, array)
        self.tracer.event(self.name["record"], start)

    def figures(self) -> dict[str, tuple[float, str]]:
        """The figures that a run reports."""
        return {"auc": (self.auc, ""), "accuracy": (self.accuracy, "")}

    def fingerprint(self) -> str:
        """The fingerprint of the perceptrons and all tables. Collective."""
        prints = fingerprints(self.weights)
        for shard in self.tables.shards:
            own = [(block, fingerprint(array)) for block, array in shard.by_blocks(self.ctx.comm)]
            prints += [print for _, print in sorted(chain.from_iterable(self.ctx.comm.allgather(own)))]
        return combined(prints)

    def buffers(self) -> dict[str, Any]:
        """The whole tables by name on rank 0; None on other ranks. Collective."""
        return {shard.placed.table.name: shard.whole(self.ctx.comm) for shard in self.tables.shards}

    def restore_buffers(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore the tables that `buffers` returned, under any sharding."""
        for shard in self.tables.shards:
            shard.take(arrays[shard.placed.table.name])

    def free(self) -> None:
        """Free the communicator; collective."""
        self.tables.free()

    # ---- parts

    def drawn(self, step: int) -> tuple[list[Ratings], Ratings]:
        """This rank's samples of a step: by micro-batch, and all together."""
        blocks = [self.samples.block(step, block) for block in self.own]
        return blocks, ratings.joined(blocks)

    def sound(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether all numbers of some arrays are finite."""
        return all(bool(np.isfinite(array).all()) for array in arrays)

    def _given(self) -> Ratings | None:
        """The ratings on every rank; None if samples are drawn. Collective."""
        if self.config.data.name != "ml-100k":
            return None
        given = None
        if self.ctx.rank == 0:
            given = ratings.load(self.config.data.dir)
            for name, array in problem.digests(given):
                self.tracer.array(f"{INPUT}{name}", 0, array)
        return ratings.of_arrays(share_arrays(self.ctx.comm, None if given is None else given.arrays()))

    def _record_loads(self, tables: Sequence[Table]) -> None:
        """Record the lookups of the first steps in each table, as the histogram that determines costs; it does not
        depend on the ranks."""
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
        """The losses of the calls, each for one of `blocks`, and the gradient of `pooled`; the gradients of weights are
        put into their buckets."""
        start = self.tracer.clock()
        losses, gradients = [], np.empty_like(pooled)
        for row, (part, sums, into) in enumerate(
            zip(blocks, _cut(pooled, blocks), _cut(gradients, blocks), strict=True)
        ):

            def take(tensor, gradient, row=row):
                self.exchange.put(row, tensor, gradient)

            loss, into[...] = self.network.learn(part.dense, sums, part.labels, take)
            losses.append(loss)
        if self.before != 1.0:
            gradients *= np.float32(self.before)
        self.tracer.event(self.name["interact"], start, gradients.nbytes)
        return losses, gradients

    def culprit(self, losses: list[float]) -> str:
        """The first micro-batch whose loss or gradient of a bag is not finite."""
        gradients = self._given_back
        per = len(gradients) // len(losses)
        bad = [
            blocks[0]
            for row, (blocks, loss) in enumerate(zip(self.calls, losses, strict=True))
            if not isfinite(loss) or not np.isfinite(gradients[row * per : (row + 1) * per]).all()
        ]
        found = [block for block in self.ctx.comm.allgather(min(bad, default=None)) if block is not None]
        where = f" in micro-batch {min(found)} (rank {self.owner[min(found)]})" if found else ""
        return f"the loss or a gradient is not finite{where}"

    def _judge(self, scores: np.ndarray, labels: np.ndarray) -> None:
        """Compute AUC and accuracy from the scores of this rank's test samples. Collective."""
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
    """The samples, of `count`, that each rank has, from the owners of blocks of `micro` (the last may be shorter)."""
    of_samples = np.repeat(owner, micro)[:count]
    return [np.flatnonzero(of_samples == rank) for rank in range(size)]


def _cut(array: np.ndarray, blocks: Sequence[Ratings]) -> list[np.ndarray]:
    """The parts of `array` (samples, ...) that belong to each block, as views."""
    return np.split(array, np.cumsum([len(block.labels) for block in blocks])[:-1]) if blocks else []
