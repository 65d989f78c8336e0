"""Hashes of the totals of real reducers under MPI: the observations of `properties`.

Every rank of a communicator makes the same calls; then rank 0 collects the hashes of the others. Before every call each
rank sleeps for a random part of a millisecond, so that contributions arrive in another order each time.
"""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from mpi4py import MPI

from kernels.allreduce.execution.planning import plan
from kernels.allreduce.execution.reducer import Reducer
from kernels.allreduce.instruments.properties import (
    BLOCKS,
    COUNT,
    INTEGERS,
    PLACEMENT,
    RANK,
    RUN,
    SHORT,
    SIZE,
    Observation,
    assigned_blocks,
    digest,
    lengths_at,
    packed,
    scales,
    values,
)
from kernels.allreduce.reduction import Reduction
from kernels.guarantees import ChoiceError
from kernels.progress import Progress

STAGGER = 1e-3  # seconds: several times the time of a message
REPEATS = 4
IN_PLACE = "out" in inspect.signature(Reducer.__call__).parameters


def version() -> str:
    """The MPI library and its version, such as `MPICH Version: 5.0.2`."""
    return " ".join(MPI.Get_library_version().strip("\0 \n").splitlines()[0].partition(",")[0].split())


def caption(tried, dtypes, seeds, lengths, sizes) -> str:
    """The trials, for the caption of the table."""
    p, n, types = ", ".join(map(str, sizes)), ", ".join(lengths), ", ".join(dtypes)
    return f"{version()}; p = {p};\nn = {n}; {types}; {len(seeds)} set{'s' * (len(seeds) > 1)} of data."


def measure(
    world: MPI.Comm,
    tried: Sequence[Reduction],
    dtypes: Sequence[str],
    seeds: Sequence[int],
    lengths: Sequence[str],
    sizes: Iterable[int],
    quiet: bool = False,
) -> list[Observation] | None:
    """Observations of all orderings on communicators of `sizes` ranks; None except on rank 0.

    Collective over `world`. Communicators that fit into `world` together are measured at once. Shows progress on stderr
    unless `quiet`.
    """
    own: list[Observation] = []
    progress = Progress("properties") if world.rank == 0 and not quiet else None
    packs, trials = packed(sizes, world.size), list(itertools.product(dtypes, seeds, tried))
    for pack, together in enumerate(packs):
        ends = list(itertools.accumulate(together))
        group = next((i for i, end in enumerate(ends) if world.rank < end), MPI.UNDEFINED)
        comm = world.Split(group, world.rank)
        if comm != MPI.COMM_NULL:
            places = list(placements(comm))
            for trial, (dtype, seed, reduction) in enumerate(trials):
                if progress:  # rank 0 is in the first and largest communicator of every pack
                    text = f"{reduction.label}, {dtype}, seed {seed}, p = {comm.size}"
                    progress.show((pack + trial / len(trials)) / len(packs), text)
                mine = [n for n in lengths if seed == seeds[0] or n.startswith("p") or int(n) <= SHORT]
                if mine:
                    own += observe(Subject(comm, places, reduction, dtype, seed, mine))
            for _, other in places:
                other.Free()
            comm.Free()
    if progress:
        progress.clear()
    gathered = world.gather(own, 0)
    return gathered and list(itertools.chain(*gathered))


def placements(comm: MPI.Comm) -> Iterator[tuple[str, MPI.Comm]]:
    """The processes of `comm` numbered in other ways: backwards, and shuffled."""
    straight = np.arange(comm.size)
    for keys in (straight[::-1], np.random.default_rng(1).permutation(straight)):
        yield f"ranks numbered {keys.tolist()}", comm.Split(0, int(keys[comm.rank]))


@dataclass
class Subject:
    """One reduction, type and seed of the data on one communicator, with others of the same processes."""

    comm: MPI.Comm
    places: list[tuple[str, MPI.Comm]]
    reduction: Reduction
    dtype: str
    seed: int
    lengths: Sequence[str]
    stagger: np.random.Generator = field(init=False)
    kept: dict[tuple, Reducer] = field(default_factory=dict)

    def __post_init__(self):
        self.stagger = np.random.default_rng([self.seed, self.comm.rank])

    @property
    def needs(self) -> tuple[str, ...]:
        return self.reduction.entry.needs

    @property
    def ns(self) -> list[int]:
        return lengths_at(self.lengths, self.comm.size)

    def plan(self, n: int, blocks: list[list[int]], comm: MPI.Comm | None = None, **more) -> Reducer:
        """A reducer for vectors of n, with one contribution for each of the blocks of every rank."""
        comm = comm or self.comm
        own = blocks[comm.rank] if "owners" in self.needs else None
        return plan(comm, replace(self.reduction, shape=(n,), dtype=np.dtype(self.dtype), **more), blocks=own)

    def data(self, blocks: Sequence[int], n: int) -> np.ndarray:
        """Contributions of the blocks, (k, n): the first n elements of vectors that all lengths share."""
        longest = self.ns[-1]
        rows = [values(self.seed, block, longest, self.dtype)[:n] for block in blocks]
        return np.array(rows, self.dtype).reshape(len(rows), n)

    def call(self, reducer: Reducer, x: np.ndarray, **more) -> np.ndarray:
        """The total of contributions that arrive in a random order."""
        time.sleep(STAGGER * self.stagger.random())
        return reducer(x, **more)

    def once(
        self, x: np.ndarray, blocks: list[list[int]], comm: MPI.Comm | None = None, **more
    ) -> np.ndarray:
        """The total by a reducer that is kept for more calls; those of long vectors are not, to save memory."""
        n = x.shape[1]
        if n > SHORT:
            with self.plan(n, blocks, comm, **more) as reducer:
                return self.call(reducer, x).copy()
        key = n, comm and comm.handle, str(more), str(blocks) if "owners" in self.needs else None
        if key not in self.kept:
            self.kept[key] = self.plan(n, blocks, comm, **more)
        return self.call(self.kept[key], x).copy()

    def saw(self, property: str, total: np.ndarray, part: str, how: str, n: int | None = None) -> Observation:
        name, p = self.reduction.label, self.comm.size
        n = len(total) if n is None else n
        return Observation(name, property, self.dtype, self.seed, p, n, part, how, digest(total))


def observe(subject: Subject) -> list[Observation]:
    """All observations, on the communicator's rank 0; none elsewhere, and none for an unsupported type."""
    try:
        subject.plan(1, assigned_blocks(subject.comm.size, subject.comm.size)).free()
    except ChoiceError:
        return []
    trials = (repeats, windows, moved, reassigned, integers)
    seen = [observation for trial in trials for observation in trial(subject)]
    for reducer in subject.kept.values():
        reducer.free()
    digests = subject.comm.gather(b"".join(o.digest for o in seen), 0)
    if digests is None:
        return []
    return seen + [other for rank, own in enumerate(digests) for other in disagreeing(seen, rank, own)]


def disagreeing(seen: list[Observation], rank: int, digests: bytes) -> Iterator[Observation]:
    """Pairs of observations, of rank 0 and `rank`, for every total whose bits differ between the two."""
    width = len(seen[0].digest) if seen else 0
    for i, o in enumerate(seen):
        own = digests[i * width : (i + 1) * width]
        if own != o.digest:
            for how, hashed in (("rank 0", o.digest), (f"rank {rank}", own)):
                part = f"{o.part}, {o.how}"
                yield Observation(o.ordering, RANK, o.dtype, o.seed, o.p, o.n, part, how, hashed)


def repeats(s: Subject) -> Iterator[Observation]:
    """The same contributions again: by the same reducer, in place, by a new one."""
    blocks = assigned_blocks(s.comm.size, s.comm.size)
    for n in s.ns:
        x = s.data(blocks[s.comm.rank], n)
        with s.plan(n, blocks) as reducer:
            for repeat in range(REPEATS if n <= SHORT else 2):
                yield s.saw(RUN, s.call(reducer, x), "the total", f"call {repeat + 1}")
            if IN_PLACE:
                own = x.copy()
                yield s.saw(RUN, s.call(reducer, own, out=own[0]), "the total", "in place")
        with s.plan(n, blocks) as reducer:
            yield s.saw(RUN, s.call(reducer, x), "the total", "by a new reducer")


def windows(s: Subject) -> Iterator[Observation]:
    """Elements of a long vector alone, and the long vector rotated: all elements at another place."""
    for longest in sorted({s.ns[-1], *(n for n in s.ns if n == SHORT)}):
        # Several blocks per rank for short vectors: local sums must not depend on the length either.
        blocks = assigned_blocks(BLOCKS if longest <= SHORT else s.comm.size, s.comm.size)
        x = s.data(blocks[s.comm.rank], longest) * scales(s.seed, longest, s.dtype)
        whole = s.once(x, blocks)
        turn = longest // 3
        turned = np.roll(s.once(np.roll(x, turn, axis=1), blocks), -turn)
        for how, total in (("as it is", whole), (f"turned by {turn}", turned)):
            yield s.saw(SIZE, total, f"elements 0:{longest} of {longest}", how)
        for n in s.ns:
            for start in {0, 2 * (longest - n) // 3}:
                part = f"elements {start}:{start + n} of {longest}"
                if n < longest:
                    alone = s.once(np.ascontiguousarray(x[:, start : start + n]), blocks)
                    yield s.saw(SIZE, whole[start : start + n], part, "in the vector", longest)
                    yield s.saw(SIZE, alone, part, "alone")


def moved(s: Subject) -> Iterator[Observation]:
    """The same contribution of every rank, with ranks on other processes, or with other given nodes."""
    p = s.comm.size
    blocks = assigned_blocks(p, p)
    ranks = np.arange(p)
    maps = (ranks * 0, ranks, ranks // 2, ranks % 2) if "nodes" in s.needs else ()
    for n in s.ns:
        for how, comm in [("ranks as they are", s.comm), *s.places]:
            yield s.saw(PLACEMENT, s.once(s.data(blocks[comm.rank], n), blocks, comm), "the total", how)
        for nodes in maps:
            total = s.once(s.data(blocks[s.comm.rank], n), blocks, nodes=nodes.tolist())
            yield s.saw(PLACEMENT, total, "the total", f"nodes {nodes.tolist()}")


def reassigned(s: Subject) -> Iterator[Observation]:
    """The same blocks assigned in order, and at random; other numbers of ranks get the same blocks."""
    for n in sorted(int(n) for n in s.lengths if not n.startswith("p")):
        for seed in (None, s.seed):
            blocks = assigned_blocks(BLOCKS, s.comm.size, seed)
            how = f"{BLOCKS} blocks {'in order' if seed is None else 'shuffled'}"
            yield s.saw(COUNT, s.once(s.data(blocks[s.comm.rank], n), blocks), "the total", how)


def integers(s: Subject) -> Iterator[Observation]:
    """Sums of integers, which have no error, and the true sums."""
    blocks = assigned_blocks(BLOCKS, s.comm.size)
    for n in s.ns if s.dtype == "int64" else ():
        total = s.once(s.data(blocks[s.comm.rank], n), blocks)
        yield s.saw(INTEGERS, total, "the total", "as reduced")
        yield s.saw(INTEGERS, s.data(range(BLOCKS), n).sum(axis=0), "the total", "as it should be")
