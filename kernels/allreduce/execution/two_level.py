"""The reducer over a lossy wire of two levels; `kernels.allreduce.levels` has the messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.allreduce.execution.coded import CodedReducer
from kernels.allreduce.levels import Levels, Range
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec


class TwoLevelReducer(CodedReducer):
    """Encodes contributions for the members of their groups, the sums of groups for the owners of parts, and the total
    once. A group, and the total, is added in the order of the contributions' `numbers`, which are those of all ranks.
    """

    def __init__(self, comm, reduction, name, numbers: Sequence[Sequence[int]], apart: bool):
        super().__init__(comm, reduction, name, [len(own) for own in numbers], apart)
        levels, rank, size = Levels(numbers, reduction.coding.group, len(self._cells)), comm.rank, comm.size
        inner, outer, cells = reduction.coding.inner, self._codec, self._cells
        self._inner, self._row = inner, {number: i for i, number in enumerate(numbers[rank])}
        self._ranks = [*((rank + i) % size for i in range(1, size)), rank]  # in turn, this one last

        def messages(codec: Codec, listed) -> tuple[dict[int, _Message], dict[int, _Message]]:
            to = {q: _Message(codec, cells, listed(rank, q)) for q in self._ranks}
            return to, {
                q: to[q] if q == rank else _Message(codec, cells, listed(q, rank)) for q in self._ranks
            }

        self._to, came = messages(inner, levels.inside)
        self._sums_to, sums_came = messages(outer, levels.across)
        self._sums = [
            _Sum(inner, cells, levels.part(group, rank), group, came.values()) for group in levels.own[rank]
        ]
        self._all = _Sum(outer, cells, levels.owned(rank), None, sums_came.values())
        self._encoded = np.empty(self.nbytes, np.uint8)  # the total, as it comes
        self._mine = np.empty(outer.nbytes(self._all.cells), np.uint8)  # the part that this rank adds
        self._adds_as_it_decodes = self._held.name == "working" and reduction.divisor == 1
        every = [self._all, *self._sums]
        self._decoded = np.empty(
            0 if self._adds_as_it_decodes else max(s.rows * s.n for s in every), np.float32
        )
        self._partial = np.empty(max(s.n for s in every), np.float32)
        ends = outer.offsets(cells)

        def of_total(at: Range) -> np.ndarray:
            return self._encoded[ends[at[0]] : ends[at[1]]]

        def of_mine(at: Range) -> np.ndarray:
            start = ends[levels.owned(rank)[0]]
            return self._mine[ends[at[0]] - start : ends[at[1]] - start]

        kept = levels.back(rank, rank)
        self._own_part = of_total(kept), of_mine(kept)
        steps = (
            lambda q: (self._to[q].data, came[q].data),
            lambda q: (self._sums_to[q].data, sums_came[q].data),
            lambda q: (of_mine(levels.back(rank, q)), of_total(levels.back(q, rank))),
            lambda q: (of_total(levels.onward(rank, q)), of_total(levels.onward(q, rank))),
        )
        self._sends, self._receives = [], []
        for tag, of in enumerate(steps):
            pairs = {q: of(q) for q in self._ranks if q != rank}
            self._sends.append({q: self._comm.Send_init(a, q, tag) for q, (a, _) in pairs.items() if a.size})
            self._receives.append([self._comm.Recv_init(b, q, tag) for q, (_, b) in pairs.items() if b.size])
            self._requests += [*self._sends[-1].values(), *self._receives[-1]]

    def _stages(self, contributions, out):
        for receives in self._receives:
            self._calls.start(receives)
        for q in self._ranks:
            for piece in self._to[q].pieces:
                self._inner.encode(
                    contributions[self._row[piece.term]][piece.elements], piece.cells, piece.data
                )
            self._start(0, q)
        yield self._receives[0]
        for group in self._sums:
            total = self._partial[: group.n]
            self._added(group, 1, total)
            for piece in (p for q in self._ranks for p in self._sums_to[q].pieces if p.group == group.group):
                self._codec.encode(total[group.place(piece)], piece.cells, piece.data)
        for q in self._ranks:
            self._start(1, q)
        yield self._receives[1]
        total = self._partial[: self._all.n]
        self._added(self._all, self.reduction.divisor, total)
        self._codec.encode(total, self._all.cells, self._mine)
        np.copyto(*self._own_part)
        for q in self._ranks:
            self._start(2, q)
        yield self._receives[2]
        for q in self._ranks:
            self._start(3, q)
        yield self._receives[3]
        self._codec.decode(self._encoded, self._cells, out)
        yield [request for sends in self._sends for request in sends.values()]

    def _start(self, step: int, q: int) -> None:
        if q in self._sends[step]:
            self._sends[step][q].Start()

    def _added(self, added: _Sum, divisor: int, total: np.ndarray) -> None:
        """Writes a sum, divided by `divisor`, to `total` (n,)."""
        if self._adds_as_it_decodes:
            total.fill(0)  # so that a sum of zeros is +0
            for _, piece in added.pieces:
                added.codec.decode_add(piece.data, piece.cells, total[added.place(piece)])
            return
        decoded = self._decoded[: added.rows * added.n].reshape(added.rows, added.n)
        for row, piece in added.pieces:
            added.codec.decode(piece.data, piece.cells, decoded[row, added.place(piece)])
        self._add(decoded, divisor, total)


@dataclass(frozen=True)
class _Piece:
    """Encoded cells in a message, at `elements` of the vector: of a `group`, or of its contribution `term`."""

    group: int
    term: int
    elements: slice
    cells: Cells
    data: np.ndarray


class _Message:
    """The bytes `data` of a message, one piece after the other, from (group, term, range of cells) of each."""

    def __init__(self, codec: Codec, cells: Cells, listed: Iterable[tuple[int, int, Range]]):
        parts = [(group, term, at, cells.part(*at)) for group, term, at in listed]
        self.data = np.empty(sum(codec.nbytes(part) for *_, part in parts), np.uint8)
        self.pieces, end = list[_Piece](), 0
        for group, term, (first, stop), part in parts:
            begin, end = end, end + codec.nbytes(part)
            elements = slice(int(cells.starts[first]), int(cells.starts[stop]))
            self.pieces.append(_Piece(group, term, elements, part, self.data[begin:end]))


class _Sum:
    """A sum of pieces that came, in the range `at` of cells, with `n` elements: of one group's contributions or, if
    `group` is None, of all groups. `pieces`: (row, piece) by ascending terms, `rows` of them."""

    def __init__(self, codec: Codec, cells: Cells, at: Range, group: int | None, came: Iterable[_Message]):
        self.codec, self.group, self.cells = codec, group, cells.part(*at)
        self._start, self.n = int(cells.starts[at[0]]), self.cells.n
        found = [p for message in came for p in message.pieces if group is None or p.group == group]
        row = {term: i for i, term in enumerate(sorted({p.term for p in found}))}
        self.rows, self.pieces = len(row), sorted(((row[p.term], p) for p in found), key=lambda pair: pair[0])

    def place(self, piece: _Piece) -> slice:
        """The place of a piece in this sum."""
        return slice(piece.elements.start - self._start, piece.elements.stop - self._start)
