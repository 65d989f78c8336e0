"""Verifies blocks on a second rank and names the rank that computes wrong bits (`--duplicate FRACTION`).

In every step SHA-256(seed, step) draws some blocks. A second rank computes them again from the same inputs. Both
fingerprints must be equal, so the kernels' bits must not depend on the rank that computes a block (`layout`). If they
differ, a third rank computes the block too, and the majority names the wrong rank. In a run of two ranks both compute
it again, which names a rank whose fault was transient. Launcher, files and messages are trusted, and ranks report
fingerprints honestly: this finds faulty processors, not liars, so there is no agreement protocol.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from miniapps.errors import UsageError
from miniapps.runner.outcome import Check
from miniapps.trace.records import WRONG
from miniapps.trace.schema import OTHER

if TYPE_CHECKING:
    from miniapps.runner.context import Context
    from miniapps.runner.options import RunOptions

Inputs = Sequence[np.ndarray]
# (numbers of n blocks, their inputs, each (n, ...)) -> results of every block, each a sequence of arrays
Compute = Callable[[Sequence[int], Inputs], Sequence[Sequence[np.ndarray]]]


@dataclass(frozen=True)
class Drawn:
    """A block to verify: its owner, the `other` rank that computes it again, and the `third` that decides where they
    differ (the owner itself in a run of two ranks)."""

    block: int
    owner: int
    other: int
    third: int


def require_duplicable(options: RunOptions, size: int) -> None:
    """Raise UsageError where two ranks cannot compute a block with the same bits."""
    if not options.duplicate:
        return
    name = f"--duplicate {options.duplicate:g}"
    if size < 2:
        raise UsageError(f"{name}: another rank computes blocks again, and there is one; start 2 or more")
    if not options.policy.per_block:
        raise UsageError(
            f"{name}: under --guarantee {options.guarantee} the bits of a block depend on the rank that computes it; "
            "choose --guarantee layout"
        )
    if options.device != "cpu":
        raise UsageError(f"{name}: only the CPU can compute blocks again; choose --device cpu")


def draw(seed: int, step: int, owner: np.ndarray, size: int, fraction: float) -> list[Drawn]:
    """The blocks of `step` to verify, each with probability `fraction`; `owner`: rank of each block, (blocks,).

    Systematic sampling, rank by rank: of the n blocks of a rank it draws `fraction` n, rounded up or down, because all
    ranks wait for the one with most. Verifiers are assigned round-robin, at the same distances from every owner, so the
    load stays even where all ranks own equally many blocks.
    """
    digest = hashlib.sha256(f"{seed} {step}".encode()).digest()
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    reached = np.floor(np.arange(len(owner) + 1) * fraction + rng.random())
    blocks = np.sort(order[np.diff(reached) > 0])
    turn, count, drawn = int(rng.integers(size)), [0] * size, []
    for block, two in zip(blocks.tolist(), rng.random(len(blocks)).tolist(), strict=True):
        first = int(owner[block])
        other = (first + 1 + (turn + count[first]) % (size - 1)) % size
        count[first] += 1
        rest = [rank for rank in range(size) if rank not in (first, other)]
        drawn.append(Drawn(block, first, other, rest[int(two * len(rest))] if rest else first))
    return drawn


class Duplicates:
    """The blocks that this rank verifies for others, and those that others verify for it. Construction is collective;
    call `free()` at the end. All ranks make the same calls."""

    def __init__(self, ctx: Context):
        self._ctx, self._comm = ctx, ctx.comm.Dup()
        self._fraction, self._region = ctx.options.duplicate, ctx.tracer.name("duplicate", OTHER)
        self._drawn: list[Drawn] = []
        self._digests: dict[tuple[str, int], bytes] = {}
        self._kept: dict[tuple[str, int], Inputs] = {}  # inputs of the drawn blocks, until `settle`
        self._compute: dict[str, Compute] = {}
        self._local: dict[int, int] = {}
        self.computed, self.wrong = 0, list[str]()

    def free(self) -> None:
        """Free the communicator. Collective."""
        self._comm.Free()

    def begin(self, step: int, owner: np.ndarray) -> None:
        """Draw the blocks of `step`; `owner`: current rank of each block, (blocks,)."""
        ctx = self._ctx
        self._drawn = draw(ctx.seed, step, owner, ctx.size, self._fraction)
        own = np.flatnonzero(owner == ctx.rank).tolist()
        self._local = {block: k for k, block in enumerate(own)}

    @property
    def own(self) -> list[int]:
        """The blocks of this rank that another rank verifies in this step."""
        return [each.block for each in self._drawn if each.owner == self._ctx.rank]

    def check(
        self, name: str, inputs: Inputs, results: Sequence[Sequence[np.ndarray]], compute: Compute
    ) -> None:
        """Hash this rank's results of the kernel `name`, and compute the blocks that this rank verifies. Collective.

        `results`: a sequence of arrays for each block of `own`; `inputs`: arrays (blocks of this rank, ...)."""
        if not self._drawn:
            return
        start = self._ctx.tracer.clock()
        self._compute[name] = compute
        for block, result in zip(self.own, results, strict=True):
            self._digests[name, block] = _digest(result)
        blocks, given = self._exchanged(name, inputs)
        for block, result in zip(blocks, compute(blocks, given) if blocks else (), strict=True):
            self._digests[name, block] = _digest(result)
        self._ctx.tracer.event(self._region, start)

    def settle(self) -> None:
        """Compare all results computed twice so far in this step. Collective."""
        if not self._digests and not self._drawn:
            return
        start = self._ctx.tracer.clock()
        gathered = self._comm.allgather(self._digests)
        by_block = {each.block: each for each in self._drawn}
        for name, block in sorted({key for digests in gathered for key in digests}):
            each = by_block[block]
            votes = {r: gathered[r][name, block] for r in (each.owner, each.other)}
            self.computed += 1
            if len(set(votes.values())) > 1:
                self._resolve(name, each, votes)
        self._digests, self._kept = {}, {}
        self._ctx.tracer.event(self._region, start)

    def verdict(self) -> Check:
        """The check of a finished repeat, the same on all ranks."""
        if self.wrong:
            return Check("duplicates", False, "; ".join(self.wrong))
        return Check("duplicates", True, f"{self.computed} results computed by two ranks, all equal")

    def _exchanged(self, name: str, inputs: Inputs) -> tuple[list[int], Inputs]:
        """Exchange inputs; returns the blocks that this rank computes for others, and their inputs."""
        rank, requests, sent = self._ctx.rank, [], []
        mine = [each for each in self._drawn if each.owner == rank]
        theirs = [each for each in self._drawn if each.other == rank]
        for each in mine:
            self._kept[name, each.block] = [array[[self._local[each.block]]] for array in inputs]
        # One message per input and pair of ranks, in the order of the inputs.
        for peer in sorted({each.other for each in mine}):
            places = [self._local[each.block] for each in mine if each.other == peer]
            for array in inputs:
                sent.append(np.ascontiguousarray(array[places]))
                requests.append(self._comm.Isend(sent[-1], peer))
        received: dict[int, list[np.ndarray]] = {}
        for peer in sorted({each.owner for each in theirs}):
            count = sum(each.owner == peer for each in theirs)
            received[peer] = [np.empty((count, *array.shape[1:]), array.dtype) for array in inputs]
            requests += [self._comm.Irecv(array, peer) for array in received[peer]]
        for request in requests:
            request.Wait()
        theirs.sort(key=lambda each: each.owner)  # stable: within an owner as they were sent
        given = [np.concatenate(parts) for parts in zip(*received.values(), strict=True)]
        for k, each in enumerate(theirs):
            self._kept[name, each.block] = [array[k : k + 1] for array in given]
        return [each.block for each in theirs], given

    def _resolve(self, name: str, each: Drawn, votes: dict[int, bytes]) -> None:
        """Name the rank whose fingerprint differs, by a third rank or by repeating. Collective."""
        ctx, key = self._ctx, (name, each.block)
        asked = [each.third] if each.third != each.owner else [each.owner, each.other]
        if ctx.rank == each.other and asked == [each.third]:
            self._comm.send(self._kept[key], each.third)
        if ctx.rank == each.third != each.owner:
            self._kept[key] = self._comm.recv(source=each.other)
        again = None
        if ctx.rank in asked:
            again = _digest(self._compute[name]([each.block], self._kept[key])[0])
        opinions = [digest for digest in self._comm.allgather(again) if digest is not None]
        counted = Counter([*votes.values(), *opinions])
        (most, count), *rest = counted.most_common()
        where = f"step {ctx.tracer.step}, {name} of block {each.block}"
        wrong = [rank for rank, digest in votes.items() if digest != most]
        if (rest and rest[0][1] == count) or len(wrong) != 1:
            ranks = sorted({each.owner, each.other, each.third})
            self.wrong.append(
                f"{where}: ranks {', '.join(map(str, ranks))} disagree, and no majority names one"
            )
            wrong = []
        else:
            by = "when both repeated it" if len(opinions) == 2 else f"and rank {each.third}"
            right = each.other if wrong[0] == each.owner else each.owner
            self.wrong.append(f"{where}: rank {wrong[0]} computed other bits than rank {right} {by}")
        if ctx.rank == 0:
            ctx.log.warning("--duplicate: %s", self.wrong[-1])
            ctx.tracer.value(WRONG, float(wrong[0]) if wrong else -1.0, each.block)


def _digest(result: Sequence[np.ndarray]) -> bytes:
    """The hash of the bits of all arrays of one block; both ranks know their types and shapes."""
    hashed = xxhash.xxh3_128()
    for array in result:
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.digest()


def make_duplicates(ctx: Any) -> Duplicates | None:
    """The Duplicates of a run, None without `--duplicate`. Collective."""
    return Duplicates(ctx) if ctx.options.duplicate else None
