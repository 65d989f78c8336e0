"""Records and faults between two records of the state: results of kernels, halos, contributions, totals.

`--record messages` records fingerprints of all of them by block, so that the first record in which two runs differ
names the kernel, exchange or all-reduce that made the difference. Faults of `miniapps.runner.faults.INSIDE` strike
there, before the record. A run with neither has no `Watch`.

| record | block | content |
|---|---|---|
| `computed:KERNEL` | of the result | the result of a local kernel |
| `node:VALUE` | of the problem | the result of an operation of a partitioned program, the same on any mesh |
| `sent:halo`, `received:halo` | each | a block before an exchange; its ghosts after it |
| `added:NAME` | each | its contribution to an all-reduce; of the whole rank where ranks contribute one |
| `total:NAME` | -1 | the result of an all-reduce, on all ranks |
| `left:NAME` | each | the state at the end of a step, before anything can change it |
| `input:NAME` | each | the inputs of a run (always recorded, without a Watch) |

The k-th such record of a step belongs to the k-th event KERNEL, `halo` or `allreduce.NAME` of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from kernels.allreduce.execution.handover import Stored
from miniapps.errors import UsageError
from miniapps.runner.faults import Fault
from miniapps.system.device import host
from miniapps.trace import Tracer
from miniapps.trace.records import ADDED, COMPUTED, RECEIVED, SENT, TOTAL


class Watch:
    """Records kernels, exchanges and all-reduces of one rank, and injects faults into them.

    `faults`: all of the launch; `struck` collects the specifications of those that struck. Kernels, exchanges and
    all-reduces are counted separately in each step of the tracer. All ranks make the same calls.
    """

    def __init__(self, comm, tracer: Tracer, faults: list[Fault], struck: set[str], recording: bool):
        self.comm, self.tracer, self.recording = comm, tracer, recording
        self._faults, self._struck = faults, struck
        self._now = (-1, -1)
        self._calls: dict[tuple[str, range | None], int] = {}

    def due(self, kind: str, of: range | None = None) -> list[Fault]:
        """The faults of this kind that strike at this call; counts the calls, separately for each range `of` blocks."""
        now = self.tracer.repeat, self.tracer.step
        if now != self._now:
            self._now, self._calls = now, {}
        call = self._calls.get((kind, of), 0)
        self._calls[kind, of] = call + 1
        here = [f for f in self._faults if (f.kind, f.repeat, f.step, f.call) == (kind, *now, call)]
        return [f for f in here if of is None or f.block in of]

    def done(self, fault: Fault, here: bool, missing: str) -> None:
        """Note that a fault struck; raises UsageError on all ranks if it struck on none (`here`). Collective."""
        if not self.comm.allreduce(int(here)):
            raise UsageError(f"--fault {fault.spec}: {missing}")
        self._struck.add(fault.spec)

    def record(self, name: str, blocks: Iterable[int], arrays: Iterable) -> None:
        """Record fingerprints of `arrays`, one for each of the global `blocks`, if the run asks for them."""
        if not self.recording:
            return
        if hasattr(arrays, "shape"):  # one array with a row for each block: three times as fast
            self.tracer.fingerprints(name, blocks, host(arrays))
            return
        for block, array in zip(blocks, arrays, strict=True):
            self.tracer.array(name, int(block), host(array))

    def kernel(
        self,
        name: str,
        blocks: Sequence[int],
        results: Sequence,
        prefix: str = COMPUTED,
        record: bool = True,
        of: range | None = None,
    ) -> None:
        """Take the `results` of a local kernel: one writable array for each of the own `blocks`. `record`: False where
        another rank has the same blocks and records them. `of`: the blocks of all ranks that this kernel covers, where
        separate calls compute the others. Collective where a fault is due."""
        for fault in self.due("kernel-bit", of):
            here = [result for block, result in zip(blocks, results, strict=True) if block == fault.block]
            for result in here:
                fault.spoil(result, f"the result of {name} in a block")
            self.done(fault, bool(here), f"no rank has a block {fault.block}; blocks count from 0")
        if record:
            self.record(prefix + name, blocks, results)

    def exchange(self, blocks: Sequence[int], planned: Exchange, field, exchange: Callable[[], None]) -> None:
        """Run an `exchange` of `field` and record its parts; `planned` knows them."""
        lost = self.due("lost-halo")
        self.record(SENT + "halo", blocks, planned.sent(field))
        before = field.copy() if lost else None
        exchange()
        self.arrived(blocks, planned, field, before, lost)

    def arrived(self, blocks, planned: Exchange, field, before, lost: list[Fault]) -> None:
        """Undo the `lost` messages with the contents of `field` from `before`; record the received parts."""
        for fault in lost:
            count = len(planned.senders) if fault.rank == self.comm.rank else None
            here = count is not None and fault.message < count
            if here:
                planned.restore(field, before, planned.senders[fault.message])
            counts = [n for n in self.comm.allgather(count) if n is not None]
            self.done(fault, here, f"rank {fault.rank} receives {counts[0]} messages; they count from 0")
        self.record(RECEIVED + "halo", blocks, planned.received(field))

    def reducer(self, reducer, comm, blocks: Sequence[int] | None) -> Any:
        """Wraps `reducer`; `blocks` of its contributions, None if they have no blocks."""
        return WatchedReducer(self, reducer, comm, blocks)


class Exchange(Protocol):
    """The interface of a planned halo exchange to Watch."""

    senders: list[int]  # ranks from which messages come, ascending

    def sent(self, field) -> Iterable[Any]:
        """The part of each own block that other blocks may need."""

    def received(self, field) -> Iterable[Any]:
        """The ghosts of each own block, in an order that does not depend on the layout."""

    def restore(self, field, before, sender: int) -> None:
        """Replace the message from `sender` in `field` by the values from `before`."""


class WatchedReducer:
    """A reducer of `miniapps.runner.context` whose contributions and totals are recorded; a fault may swap them."""

    def __init__(self, watch: Watch, reducer, comm, blocks: Sequence[int] | None):
        self._watch, self._inner, self._comm, self._blocks = watch, reducer, comm, blocks
        self.name = reducer.name
        self._calls = 0  # since orders were drained
        self._swapped: list[tuple[int, int, int]] = []  # (call, rank, other)
        self._given: Any = None
        self._added: Stored | None = None

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __call__(self, contributions, out=None):
        return self._total(self._inner(self._take(contributions), out))

    def start(self, contributions, out=None) -> None:
        """As the reducer's."""
        self._given = self._take(contributions)  # keeps a swapped copy alive until the end
        self._inner.start(self._given, out)

    def add(self, block: int, contribution) -> None:
        """As the reducer's, but keeps all contributions until the end, because a fault may swap them."""
        self._adding().add(block, contribution)

    def finish(self):
        """As the reducer's."""
        if self._given is None and self._blocks is not None:
            added = self._adding()
            added.require_all()
            total = self(added.contributions)
            added.reset()
            return total
        total, self._given = self._inner.finish(), None
        return self._total(total)

    def _adding(self) -> Stored:
        if self._added is None:
            blocks = () if self._blocks is None else sorted(map(int, self._blocks))
            reduction = self._inner.reduction
            self._added = Stored(f"reducer {self.name!r}", blocks, reduction.shape, reduction.dtype)
        return self._added

    def sum_words(self, words):
        """As the reducer's."""
        return self._total(self._inner.sum_words(self._take(words, by_block=False)))

    def drain_orders(self) -> list[np.ndarray]:
        """As the reducer's; swapped contributions appear under the rank that they came from."""
        orders = self._inner.drain_orders()
        for call, rank, other in self._swapped if orders else ():
            order = orders[call]
            orders[call] = np.where(order == rank, other, np.where(order == other, rank, order)).astype(
                order.dtype
            )
        self._calls, self._swapped = 0, []
        return orders

    def _take(self, contributions, by_block: bool = True):
        """Record the contributions of this rank; returns them, swapped with another rank's if a fault is due."""
        watch, tracer = self._watch, self._watch.tracer
        if watch.recording:
            if by_block and self._blocks is not None and len(self._blocks) == len(contributions):
                watch.record(ADDED + self.name, self._blocks, contributions)
            else:  # of a whole rank: comparable only with the same rank of equally many
                whose = f"{ADDED}{self.name} by rank {self._comm.rank} of {self._comm.size}"
                tracer.array(whose, -1, host(contributions))
        for fault in watch.due("swap-order"):
            contributions = self._swap(fault, contributions)
        self._calls += 1
        return contributions

    def _swap(self, fault: Fault, contributions):
        rank, other = (each for each in (fault.rank, fault.other) if each is not None)  # a swap has both
        comm, pair = self._comm, (rank, other)
        here = comm.rank in pair and max(pair) < comm.size
        if here:
            given, peer = host(contributions).copy(), sum(pair) - comm.rank
            theirs = comm.sendrecv(given, dest=peer, source=peer)
            common = min(len(given), len(theirs))
            given[:common] = theirs[:common]
            contributions = given
        self._swapped.append((self._calls, rank, other))
        self._watch.done(fault, here, f"{self.name} is summed over {comm.size} ranks; they count from 0")
        return contributions

    def _total(self, total):
        self._watch.record(TOTAL + self.name, [-1], [total])
        return total
