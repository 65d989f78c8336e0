"""The reducer over a lossy wire of two levels; `kernels.allreduce.levels` has the messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from kernels.allreduce.execution.coded import CodedReducer
from kernels.allreduce.levels import Levels, Range
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec


class TwoLevelReducer(CodedReducer):
    """Encodes contributions for the members of their groups, the sums of groups for the owners of parts, and the total
    once. All additions of a group, and of the total, are in the order of the contributions' numbers, of all ranks
    `numbers`."""

    def __init__(self, comm, reduction, name, numbers: Sequence[Sequence[int]], apart: bool):
        super().__init__(comm, reduction, name, [len(own) for own in numbers], apart)
        self._levels = levels = Levels(numbers, reduction.coding.group, len(self._cells))
        self._inner, rank, size = reduction.coding.inner, comm.rank, comm.size
        ranks = range(size)

        def inside(a: int, b: int) -> dict[tuple[int, int], Range]:
            return {(group, number): cells for group, number, cells in levels.inside(a, b)}

        def across(a: int, b: int) -> dict[tuple[int, int], Range]:
            return {(group, cells[0]): cells for group, cells in levels.across(a, b)}

        self._to = [_Pieces(self._inner, self._cells, inside(rank, q)) for q in ranks]
        self._from = [_Pieces(self._inner, self._cells, inside(q, rank)) for q in ranks]
        self._from[rank] = self._to[rank]
        self._sums_to = [_Pieces(self._codec, self._cells, across(rank, q)) for q in ranks]
        self._sums_from = [_Pieces(self._codec, self._cells, across(q, rank)) for q in ranks]
        self._sums_from[rank] = self._sums_to[rank]
        self._encoded = np.empty(self.nbytes, np.uint8)  # the total, as it comes
        self._mine = np.empty(
            self._codec.nbytes(self._cells.part(*levels.owned(rank))), np.uint8
        )  # sent to all
        self._row = {number: i for i, number in enumerate(numbers[rank])}
        self._ends = self._codec.offsets(self._cells)
        away = [q for q in ((rank + i) % size for i in range(1, size))]
        steps = (
            ([(q, self._to[q].data) for q in away], [(q, self._from[q].data) for q in away]),
            ([(q, self._sums_to[q].data) for q in away], [(q, self._sums_from[q].data) for q in away]),
            ([(q, self._of_mine(levels.back(rank, q))) for q in away],
             [(q, self._of_total(levels.back(q, rank))) for q in away]),
            ([(q, self._of_total(levels.onward(rank, q))) for q in away],
             [(q, self._of_total(levels.onward(q, rank))) for q in away]),
        )  # fmt: skip
        self._sends, self._receives = [], []
        for tag, (sends, receives) in enumerate(steps):
            self._sends.append({q: self._comm.Send_init(data, q, tag) for q, data in sends if data.size})
            self._receives.append(
                {q: self._comm.Recv_init(data, q, tag) for q, data in receives if data.size}
            )
            self._requests += [*self._sends[-1].values(), *self._receives[-1].values()]

    def _of_total(self, cells: Range) -> np.ndarray:
        return self._encoded[self._ends[cells[0]] : self._ends[cells[1]]]

    def _of_mine(self, cells: Range) -> np.ndarray:
        start = self._ends[self._levels.owned(self._comm.rank)[0]]
        return self._mine[self._ends[cells[0]] - start : self._ends[cells[1]] - start]

    def _stages(self, contributions, out):
        rank, levels = self._comm.rank, self._levels
        for receives in self._receives:
            self._calls.start([*receives.values()])
        for q in self._in_turn():
            for (_, number), (elements, cells, data) in self._to[q]:
                self._inner.encode(contributions[self._row[number]][elements], cells, data)
            self._start(0, q)
        yield [*self._receives[0].values()]
        for group in levels.own[rank]:
            self._encode_sum(group)
        for q in self._in_turn():
            self._start(1, q)
        yield [*self._receives[1].values()]
        self._encode_total_of_groups(out)
        for q in self._in_turn():
            self._start(2, q)
        yield [*self._receives[2].values()]
        for q in self._in_turn():
            self._start(3, q)
        yield [*self._receives[3].values()]
        self._codec.decode(self._encoded, self._cells, out)
        yield [request for sends in self._sends for request in sends.values()]

    def _in_turn(self) -> Iterable[int]:
        """The other ranks from the next one on, then this rank."""
        rank, size = self._comm.rank, self._comm.size
        return ((rank + i) % size for i in range(1, size + 1))

    def _start(self, step: int, q: int) -> None:
        if q in self._sends[step]:
            self._sends[step][q].Start()

    def _encode_sum(self, group: int) -> None:
        """Adds this rank's part of the sum of a group, and encodes it for the owners of the total."""
        came = {
            number: piece
            for pieces in self._from
            for (of, number), piece in pieces
            if of == group
        }  # fmt: skip
        first, stop = self._levels.part(group, self._comm.rank)
        start = int(self._cells.starts[first])
        decoded = np.empty((len(came), int(self._cells.starts[stop]) - start), np.float32)
        for row, number in zip(decoded, sorted(came), strict=True):
            _, cells, data = came[number]
            self._inner.decode(data, cells, row)
        total = np.empty(decoded.shape[1], np.float32)
        self._add(decoded, 1, total)
        for pieces in self._sums_to:
            for (of, _), (elements, cells, data) in pieces:
                if of == group:
                    here = slice(elements.start - start, elements.stop - start)
                    self._codec.encode(total[here], cells, data)

    def _encode_total_of_groups(self, out: np.ndarray) -> None:
        """Adds the sums of groups in the cells that this rank owns, and encodes the total; in `out` (n,)."""
        first, stop = self._levels.owned(self._comm.rank)
        start, end = int(self._cells.starts[first]), int(self._cells.starts[stop])
        places = {group: row for row, group in enumerate(self._levels.groups)}
        decoded = np.empty((len(places), end - start), np.float32)
        for (group, _), (elements, cells, data) in itertools.chain(*self._sums_from):
            self._codec.decode(
                data, cells, decoded[places[group], elements.start - start : elements.stop - start]
            )
        total = out[start:end]
        self._add(decoded, self.reduction.divisor, total)
        self._codec.encode(total, self._cells.part(first, stop), self._mine)
        kept = self._levels.back(self._comm.rank, self._comm.rank)
        np.copyto(self._of_total(kept), self._of_mine(kept))


class _Pieces:
    """The bytes `data` of one message, with encoded ranges of cells one after the other, each under a key."""

    def __init__(self, codec: Codec, cells: Cells, ranges: dict[tuple[int, int], Range]):
        parts = {key: cells.part(*at) for key, at in ranges.items()}
        ends = [0, *itertools.accumulate(codec.nbytes(part) for part in parts.values())]
        self.data = np.empty(ends[-1], np.uint8)
        self._listed = [
            (key, (slice(int(cells.starts[ranges[key][0]]), int(cells.starts[ranges[key][1]])), part, self.data[a:b]))
            for (key, part), (a, b) in zip(parts.items(), itertools.pairwise(ends), strict=True)
        ]  # fmt: skip

    def __iter__(self):
        return iter(self._listed)
