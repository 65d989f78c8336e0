"""The cut of tables and their placement on ranks, which depend only on the problem, the number of ranks and the names
of shardings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.guarantees import ChoiceError, known
from miniapps.layout.owners import contiguous_owner, shuffled
from miniapps.layout.rows import Rows

SHARDINGS = {
    "replicated": "every rank holds the table; the row numbers and gradients of all samples are sent to every rank",
    "table": "one rank holds the table; it receives row numbers and answers with sums of bags",
    "column": "every rank holds some columns of all rows; each answers with its columns of the sums of bags",
    "row": "ranks hold blocks of rows and answer with rows; the rank of the sample adds up the bag in order",
    "row-pooled": "like row, but ranks answer with sums of their parts of a bag, so the order depends on the cut",
}


@dataclass(frozen=True)
class Table:
    """A table of `rows` x `columns` float32 in `blocks` nearly equal blocks of rows, with `lookups` per sample."""

    name: str
    rows: int
    columns: int
    blocks: int
    lookups: float = 1.0

    @property
    def starts(self) -> np.ndarray:
        """int64 (blocks + 1,): the first row of every block."""
        count = min(self.blocks, self.rows)
        return np.arange(count + 1, dtype=np.int64) * self.rows // count

    @property
    def nbytes(self) -> int:
        """Bytes of the whole table."""
        return 4 * self.rows * self.columns


@dataclass(frozen=True)
class Sharding:
    """The sharding of one table. If one rank holds it, `rank` is that rank, or None if `place` chooses it."""

    name: str
    rank: int | None = None

    def __str__(self) -> str:
        return self.name if self.rank is None else f"{self.name}:rank={self.rank}"


@dataclass(frozen=True)
class Placed:
    """A table with its sharding and placement: for `table`, `row` and `row-pooled`, `owner` int32 (blocks,); for
    `column`, `bounds` int64 (ranks + 1,), where rank r has columns bounds[r] to bounds[r + 1]."""

    table: Table
    sharding: str
    size: int
    owner: np.ndarray | None = None
    bounds: np.ndarray | None = None

    @property
    def by_rows(self) -> bool:
        """Whether the rows of a bag may be on several ranks."""
        return self.sharding in ("row", "row-pooled")

    def rows(self, rank: int) -> Rows:
        """The rows that a rank holds."""
        if self.owner is None:
            return Rows(self.table.starts)
        return Rows(self.table.starts, self.size, rank, owner=self.owner)

    def columns(self, rank: int) -> slice:
        """The columns that a rank holds of these rows."""
        if self.bounds is None:
            return slice(0, self.table.columns)
        return slice(int(self.bounds[rank]), int(self.bounds[rank + 1]))

    def width(self, rank: int) -> int:
        """The number of columns that a rank holds."""
        columns = self.columns(rank)
        return columns.stop - columns.start

    def holders(self) -> list[int]:
        """The ranks that hold a part of the table, ascending."""
        if self.owner is not None:
            return np.unique(self.owner).tolist()
        return [rank for rank in range(self.size) if self.width(rank)]


def parse(text: str, tables: int, size: int) -> list[Sharding]:
    """The sharding of each of `tables` tables: one name for all, or one for each, separated by commas; `table:rank=N`
    names the rank. Raises ChoiceError with the option, the reason and the known names."""
    words = [word.strip() for word in text.split(",")]
    if len(words) not in (1, tables):
        raise ChoiceError(
            f"--sharding {text}: {len(words)} shardings for {tables} tables; give one for all, or one for each, "
            "separated by commas"
        )
    return [_parsed(word, size) for word in words] * (tables if len(words) == 1 else 1)


def _parsed(word: str, size: int) -> Sharding:
    name, _, parameter = word.partition(":")
    known("sharding", name, SHARDINGS)
    if not parameter:
        return Sharding(name)
    key, _, value = parameter.partition("=")
    digits = value.isascii() and value.isdigit() and len(value) < 10
    if name != "table" or key != "rank" or not digits or int(value) >= size:
        raise ChoiceError(
            f"--sharding {word}: only table takes a parameter, rank=N with N from 0 to {size - 1}; leave it out, or "
            "give such a rank"
        )
    return Sharding(name, int(value))


def place(
    tables: Sequence[Table], shardings: Sequence[Sharding], size: int, shuffle: int = 0
) -> list[Placed]:
    """The placement of `tables`. Each table that lies on one rank, largest first, is placed on the rank that has the
    fewest bytes of such tables so far. `shuffle` other than 0 permutes ranks and owners (for tests: no bit may depend
    on it)."""
    ranks = shuffled(np.arange(size), shuffle)
    held = np.zeros(size, np.int64)
    for table, sharding in zip(tables, shardings, strict=True):
        if sharding.rank is not None:
            held[sharding.rank] += table.nbytes
    chosen: dict[int, int] = {}
    for number in sorted(range(len(tables)), key=lambda number: (-tables[number].nbytes, number)):
        if shardings[number].name == "table":
            given = shardings[number].rank
            rank = int(ranks[np.argmin(held[ranks])]) if given is None else given
            held[rank] += tables[number].nbytes if given is None else 0
            chosen[number] = rank
    return [
        _placed(table, sharding.name, size, chosen.get(number, 0), shuffle)
        for number, (table, sharding) in enumerate(zip(tables, shardings, strict=True))
    ]


def _placed(table: Table, name: str, size: int, rank: int, shuffle: int) -> Placed:
    count = len(table.starts) - 1
    if name == "replicated":
        return Placed(table, name, size)
    if name == "table":
        return Placed(table, name, size, owner=np.full(count, rank, np.int32))
    if name == "column":
        widths = shuffled(np.bincount(contiguous_owner(table.columns, size), minlength=size), shuffle)
        return Placed(table, name, size, bounds=np.concatenate([[0], np.cumsum(widths)]))
    return Placed(table, name, size, owner=shuffled(contiguous_owner(count, size), shuffle))
