"""Samples of the sums of one array, by every variant, on all ranks, timed or emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from kernels import allreduce, exact
from kernels.guarantees import meets
from kernels.registry import Variant
from kernels.sums import emulated, worst
from kernels.sums.elements import accumulator
from miniapps.reductions import data, local
from miniapps.reductions.choice import EMULATED, choose, label
from miniapps.reductions.parts import Parts
from miniapps.reductions.validate import launch_shape
from miniapps.runner.context import Reducer

BATCH = 4096  # samples after which values are sent to rank 0 and written to the trace
RANK_SEEDS = 1 << 32  # an emulated order is that of seed = sample + rank * RANK_SEEDS


@dataclass
class Batch:
    """Samples first, first + 1, ... of one array, by label: values float64 (k,) and, of timed variants, seconds
    (k,)."""

    n: int
    array: int
    first: int
    last: bool  # no more samples of this array follow
    truth: float  # correctly rounded
    magnitude: float  # sum |x|, or sum |x y|
    values: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, np.ndarray] = field(default_factory=dict)
    worst: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # lowest, highest by label; in the first batch


@dataclass
class Timed:
    """A variant ready to be called on this rank's part of one array."""

    variant: Variant
    label: str
    event: int
    nbytes: int
    compute: Callable[[], np.ndarray]
    total: Callable[[np.ndarray], np.ndarray]
    empty: bool
    part_bits: bytes | None = None  # of the first sample
    total_bits: bytes | None = None


class Study:
    """The variants, reducers and names that all arrays of a repeat share. Construction is collective."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.problem, self.method, self.options = ctx.config.problem, ctx.config.method, ctx.options
        self.policy = ctx.options.policy
        self.whole_arrays = self.method.split == "arrays"
        self.comm = MPI.COMM_SELF if self.whole_arrays else ctx.comm
        self.variants = self._agreed()
        self.reference = label(self.variants[0])
        self.dtype = accumulator(data.element_type(self.problem.dtype))
        self.ordering, self.accumulation = self.policy.scalars
        self._by_length: dict[
            int, Reducer
        ] = {}  # for orderings over blocks, since the blocks depend on the length
        if not self._over_blocks():
            self.reducer = ctx.reducer("total", (), self.dtype.name, self.comm)
        self._truth = ctx.reducer(
            "truth", (2,), self.dtype.name, self.comm, by=("direct", "exact"), watched=False
        )
        self._shape = launch_shape(ctx.config.launch)
        self.broken: dict[
            str, str
        ] = {}  # by variant that broke its promise on this rank: where that was observed
        ctx.tracer.attributes(promises={label(v): v.guarantee for v in self.variants})

    def parts(self, n: int) -> Parts:
        """The logical blocks of an array of `n` elements, with those that this rank owns."""
        shuffle = self.options.shuffle_blocks
        return Parts(n, self.problem.block, self.comm.size, self.comm.rank, shuffle)

    def batches(self, parts: Parts, array: int, vectors: list[np.ndarray]) -> Iterator[Batch]:
        """Sample the sums of one array, whose part on this rank is `vectors`; collective over `comm`."""
        n, samples = parts.n, self.method.samples
        pieces = local.pieces(vectors, parts.cuts, self.policy.per_block)
        if self._over_blocks():
            self.reducer = self._reducer_of(parts, len(pieces))
        truth, magnitude = self._true(local.pieces(vectors, parts.cuts, True))
        given = [local.put(vector, self.options.device) for vector in vectors]
        timed = [self._timed(v, parts, given) for v in self.variants if v.backend != EMULATED]
        if array == 0:
            self._check_order_free(timed, given, n)
        for run in timed:
            run.compute()  # warm-up
        for first in range(0, samples, BATCH):
            count = min(BATCH, samples - first)
            batch = Batch(n, array, first, first + count == samples, truth, magnitude)
            if self.method.worst and first == 0:
                self._search(batch, vectors)
            self._sample(timed, batch, count)
            for variant in self.variants:
                if variant.backend == EMULATED:
                    self._emulate(variant, batch, count, pieces)
            self.ctx.tracer.order("total", self.reducer.drain_orders())
            yield batch

    def _over_blocks(self) -> bool:
        return "owners" in allreduce.Reduction(self.ordering).entry.needs

    def _reducer_of(self, parts: Parts, count: int) -> Reducer:
        """The all-reduce over the blocks of arrays of one length, of which this rank has `count` partial sums: one per
        logical block, or one of its whole part."""
        if parts.n not in self._by_length:
            blocks: Sequence[int] | np.ndarray = parts.own
            if not self.policy.per_block:
                counts = self.comm.allgather(count)
                first = sum(counts[: self.comm.rank])
                blocks = range(first, first + count)
            name = f"total:{parts.n}"
            self._by_length[parts.n] = self.ctx.reducer(name, (), self.dtype.name, self.comm, blocks)
        return self._by_length[parts.n]

    def _agreed(self) -> list[Variant]:
        """The variants that rank 0 chose; raises ChoiceError on a rank that lacks one of them."""
        device, names = self.options.device, None
        operation, wanted = self.problem.operation, self.method.variants
        if self.ctx.rank == 0:
            chosen = choose(operation, wanted, self.method.reference, self.policy, device)
            names = [f"{v.name}@{v.backend}" for v in chosen]
        names = self.ctx.comm.bcast(names)
        return choose(operation, tuple(names), names[0], self.policy, device)

    def _true(self, pieces: list[tuple]) -> tuple[float, float]:
        """The correctly rounded sums over all ranks: of the terms, and of their absolute values."""
        words = exact.zeros((2,))
        for piece in pieces:
            local.accumulate(words[0], piece)
            local.magnitudes(words[1], piece)
        truth, magnitude = self._truth.sum_words(words).tolist()
        return truth, magnitude

    def _timed(self, variant: Variant, parts: Parts, given: list) -> Timed:
        """`variant` on this rank's part of an array; `given` holds the vectors in memory that the variant can read."""
        name = label(variant)
        exactly = variant.guarantee == "exact" and self.accumulation == "exact"
        pieces = local.pieces(given, parts.cuts, self.policy.per_block and not exactly)
        if exactly and self.comm.size > 1:
            compute = local.exact_words(variant, given, self.problem.dtype)
            total = self.reducer.sum_words
        else:
            compute = local.partial_sums(variant, pieces, self._parameters(variant), self.dtype)
            total = self.reducer
        event = self.ctx.tracer.name(f"{name}:{parts.n}")
        nbytes = sum(vector.nbytes for vector in given)
        return Timed(variant, name, event, nbytes, compute, total, not pieces)

    def _parameters(self, variant: Variant) -> dict:
        per_block, threads = self.policy.per_block, self.options.threads
        return local.parameters(variant, self._shape, per_block, threads, self.problem.dtype)

    def _sample(self, timed: list[Timed], batch: Batch, count: int) -> None:
        """Take `count` samples by every timed variant, whose order rotates from sample to sample."""
        tracer, repeat = self.ctx.tracer, self.ctx.repeat
        clock, event = tracer.clock, tracer.event
        values = np.empty((len(timed), count))
        spent = np.zeros((len(timed), count))
        for k in range(count):
            sample = batch.first + k
            tracer.at(repeat, sample)
            for i in range(len(timed)):
                turn = (i + sample) % len(timed)
                run = timed[turn]
                start = clock()
                part = run.compute()
                if not run.empty:
                    event(run.event, start, run.nbytes)
                    spent[turn, k] = clock() - start
                total = run.total(part)
                values[turn, k] = total
                self._compare(run, part, total, batch, sample)
        for run, row, nanoseconds in zip(timed, values, spent, strict=True):
            batch.values[run.label] = row
            batch.seconds[run.label] = 1e-9 * nanoseconds

    def _compare(self, run: Timed, part: np.ndarray, total: np.ndarray, batch: Batch, sample: int) -> None:
        """Record a variant whose partial sum promises to repeat but does not, or whose total differs under the
        guarantee run or higher."""
        where = f"n = {batch.n}, array {batch.array}, sample {sample}"
        if run.variant.guarantee != "none":
            bits = part.tobytes()
            if run.part_bits not in (None, bits):
                self.broken.setdefault(
                    run.label,
                    f"the partial sums on rank {self.ctx.rank} differ from earlier samples, {where}",
                )
            run.part_bits = bits
        if self.policy.level != "none":
            bits = total.tobytes()
            if run.total_bits not in (None, bits):
                self.broken.setdefault(run.label, f"the total differs from earlier samples, {where}")
            run.total_bits = bits

    def _emulate(self, variant: Variant, batch: Batch, count: int, pieces: list[tuple]) -> None:
        """Take `count` samples with orders of arrival that are drawn from a seed; they are not timed."""
        tracer, resident = self.ctx.tracer, self.ctx.config.launch.resident or 0
        first = batch.first + self.comm.rank * RANK_SEEDS
        start = tracer.clock()
        sums = np.empty((count, len(pieces)), self.dtype)
        for i, (x,) in enumerate(pieces):
            seeds = range(first, first + count)
            parameters = {"resident": resident, "threads": self.options.threads, **self._shape}
            sums[:, i] = emulated.samples(variant.name, x, seeds, **parameters)
        tracer.event(tracer.name("emulate"), start)
        values = batch.values[label(variant)] = np.empty(count)
        for k in range(count):
            tracer.at(self.ctx.repeat, batch.first + k)
            values[k] = self.reducer(sums[k])

    def _search(self, batch: Batch, vectors: list[np.ndarray]) -> None:
        """Search for the orders of arrival with the lowest and highest sum, on a rank that has the whole array."""
        tracer = self.ctx.tracer
        for variant in self.variants:
            if variant.name not in emulated.UNITS or not np.isfinite(batch.truth):
                continue
            start = tracer.clock()
            (x,) = vectors  # one vector: dot products are not searched
            numbers = emulated.units(variant.name, x, **self._shape)
            result = worst.search(numbers, emulated.UNITS[variant.name], seed=self.options.seed)
            tracer.event(tracer.name("worst"), start)
            extremes = float(result.lowest.value), float(result.highest.value)
            batch.worst[f"{variant.name}:{EMULATED}"] = extremes

    def _check_order_free(self, timed: list[Timed], given: list, n: int) -> None:
        """Record variants that promise independence of the order but return other bits for the reversed array."""
        part = [vector[: local.REVERSED] for vector in given]
        for run in timed:
            if run.empty or not meets(run.variant.guarantee, "layout"):
                continue
            parameters = self._parameters(run.variant)
            forward, backward = (
                self.dtype.type(run.variant(*(v[::step] for v in part), **parameters)) for step in (1, -1)
            )
            if forward.tobytes() != backward.tobytes():
                where = f"rank {self.ctx.rank}, n = {n}"
                self.broken.setdefault(run.label, f"other bits for the reversed array on {where}")
