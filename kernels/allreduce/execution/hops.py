"""The reducer that encodes all messages: the rounds of any schedule, over cells.

All ranks use the decoded value of a part that was sent, and of a finished total
(`kernels.allreduce.coding`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from kernels.allreduce.execution.coded import CodedReducer
from kernels.allreduce.execution.reducer import require_blocks
from kernels.allreduce.schedule import OWN, TOTAL, Message, Schedule, transfers
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec


class HopReducer(CodedReducer):
    """Runs the rounds of a schedule over cells. A rank replaces values that it sends by their decoded values and, at
    the end, the parts of the total that it never sent."""

    def __init__(self, comm, reduction, name, schedule: Schedule):
        super().__init__(comm, reduction, name)
        self._blocks = len(schedule.leaves(comm.rank)) if "owners" in reduction.entry.needs else None
        rounds = schedule.program(comm.rank)
        self._bind(_Memory(self, schedule), rounds)

    def _bind(self, memory: _Memory, rounds) -> None:
        self._memory = memory
        known: set[tuple[int, int]] = set()  # (slot, chunk) whose bytes encode its value
        self._steps = []
        for current in rounds:
            before = [
                partial(self._replace, *memory.at(slot, chunk))
                for slot, chunk in dict.fromkeys((m.slot, m.chunk) for m in current.sends)
                if (slot, chunk) not in known and memory.nonempty(chunk)
            ]
            requests = [
                make(memory.bytes(t.slot, t.start, t.stop), t.peer, t.tag)
                for make, listed in (
                    (self._comm.Recv_init, current.receives),
                    (self._comm.Send_init, current.sends),
                )
                for t in transfers(listed, memory.bounds)
            ]
            known |= {(m.slot, m.chunk) for m in (*current.sends, *current.receives)}
            after: list[Callable[[], None]] = [
                memory.decoding(m, self._codec) for m in current.receives if memory.nonempty(m.chunk)
            ]
            for s in current.sums:
                if memory.nonempty(s.chunk):
                    sources = [memory.at(slot, s.chunk)[0] for slot in s.sources]
                    after.append(self._held.operation.prepared(sources, memory.at(s.into, s.chunk)[0]))
                known.discard((s.into, s.chunk))
            self._requests += requests
            self._steps.append((before, requests, after))
        last = [
            partial(self._replace, *memory.at(TOTAL, chunk))
            for chunk in range(memory.schedule.chunks)
            if (TOTAL, chunk) not in known and memory.nonempty(chunk)
        ]
        self._steps.append((last, [], []))

    def _fitting(self, contributions, out):
        x = super()._fitting(contributions, out)
        require_blocks(self, self._blocks, x)
        return x

    def _rows(self, contributions):
        return np.ascontiguousarray(contributions).reshape(len(contributions), self._cells.n)

    def _stages(self, contributions, out):
        require_blocks(self, self._blocks, contributions)
        if self._blocks is None:
            self._held.load(contributions, self._memory.own[0])
        else:
            np.copyto(self._memory.own[: self._blocks], contributions)
        for before, requests, after in self._steps:
            for encode in before:
                encode()
            if requests:
                self._calls.start(requests)
                yield requests
            for combine in after:
                combine()
        np.copyto(out, self._memory.total)


class _Memory:
    """Values and encoded bytes of one rank's slots, as far as rounds use them; chunks are ranges of cells."""

    def __init__(self, reducer: HopReducer, schedule: Schedule):
        self.schedule, self._cells = schedule, reducer._cells
        self._offsets = reducer._codec.offsets(self._cells)
        rank, n = reducer._comm.rank, self._cells.n
        spans: dict[int, tuple[int, int]] = {}
        everything = 0, len(self._cells)
        for current in schedule.program(rank):
            places = [(m.slot, m.chunk) for m in (*current.sends, *current.receives)]
            for slot, chunk in places + [(s.into, s.chunk) for s in current.sums]:
                start, stop = self.bounds(chunk) if slot > TOTAL else everything
                first, end = spans.get(slot, (start, stop))
                spans[slot] = min(first, start), max(end, stop)
        count = max(len(schedule.leaves(rank)), 1)
        self.own = np.zeros((count, n), np.float32)
        self.total = np.zeros(n, np.float32)
        self._values = {TOTAL: (self.total, 0)} | {OWN - i: (row, 0) for i, row in enumerate(self.own)}
        self._bytes = {slot: (np.empty(int(self._offsets[-1]), np.uint8), 0) for slot in self._values}
        starts = self._cells.starts
        for slot, (first, end) in spans.items():
            if slot > TOTAL:
                self._values[slot] = (
                    np.empty(int(starts[end] - starts[first]), np.float32),
                    int(starts[first]),
                )
                length = int(self._offsets[end] - self._offsets[first])
                self._bytes[slot] = np.empty(length, np.uint8), int(self._offsets[first])

    def bounds(self, chunk: int) -> tuple[int, int]:
        """The cells [first, stop) of a chunk."""
        return self.schedule.bounds(len(self._cells), chunk)

    def nonempty(self, chunk: int) -> bool:
        first, stop = self.bounds(chunk)
        return first < stop

    def at(self, slot: int, chunk: int) -> tuple[np.ndarray, Cells, np.ndarray]:
        """The values of a chunk in a slot, its cells, and its bytes."""
        first, stop = self.bounds(chunk)
        values, begin = self._values[slot]
        starts = self._cells.starts
        x = values[int(starts[first]) - begin : int(starts[stop]) - begin]
        return x, self._cells.part(first, stop), self.bytes(slot, first, stop)

    def bytes(self, slot: int, first: int, stop: int) -> np.ndarray:
        """The bytes of a range of cells in a slot."""
        data, begin = self._bytes[slot]
        return data[int(self._offsets[first]) - begin : int(self._offsets[stop]) - begin]

    def decoding(self, message: Message, codec: Codec) -> Callable[[], None]:
        """Returns a function that decodes a received message."""
        x, cells, data = self.at(message.slot, message.chunk)
        return partial(codec.decode, data, cells, x)
