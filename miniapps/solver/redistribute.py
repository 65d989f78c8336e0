"""Sends entries of a matrix from the ranks that read them to the owners of their rows, and across the diagonal.

An error on one rank is raised on all ranks, with the same message.
"""

from collections.abc import Callable, Iterator

import numpy as np

from miniapps.layout.messages import exchange
from miniapps.layout.rows import Rows
from miniapps.solver.matrixfile import FileError

UPPER = 1 << 62  # added to the column of an entry that was read above the diagonal of a symmetric file
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows and columns, global, int64; values float64


def together(comm, work: Callable):
    """Returns (`work()` of this rank, whether it is not None on any rank). Raises FileError on all ranks if any does.

    Collective.
    """
    result = message = None
    try:
        result = work()
    except FileError as error:
        message = str(error)
        if isinstance(error.__cause__, OSError) and comm.rank > 0:
            message += f" (on rank {comm.rank}; every rank that reads must see the file)"
    of_all = comm.allgather((message, result is not None))
    for message, _ in of_all:
        if message is not None:
            raise FileError(message)
    return result, any(some for _, some in of_all)


def redistribute(comm, rows: Rows, pieces: Iterator[Triplets]) -> Triplets:
    """Sends the entries that this rank reads, piece by piece, to the owners of their rows; returns this rank's entries.

    They arrive in the order of the reading ranks and of their pieces, which is the order of the file for any number of
    reading ranks. No rank holds more than a piece of other ranks' entries. Collective.
    """
    received: list[list[np.ndarray]] = [[] for _ in range(comm.size)]
    empty = np.empty((0, 3), np.int64)
    reading = True
    while reading:
        piece, reading = together(comm, lambda: next(pieces, None))
        records = empty if piece is None else np.stack([piece[0], piece[1], piece[2].view(np.int64)], axis=1)
        for source, part in enumerate(exchange(comm, rows.owner_of(records[:, 0]), records)):
            if len(part):
                received[source].append(part)
    mine = np.concatenate([empty] + [part for parts in received for part in parts])
    return mine[:, 0], mine[:, 1], np.ascontiguousarray(mine[:, 2]).view(np.float64)


def expanded(symmetry: str, pieces: Iterator[Triplets]) -> Iterator[Triplets]:
    """Adds the other triangle to the pieces: the mirror image behind every entry off the diagonal. Columns of both have
    the bit UPPER if the entry was read above the diagonal."""
    if symmetry == "general":
        yield from pieces
        return
    for row, column, value in pieces:
        mirrored = -value if symmetry == "skew-symmetric" else value
        upper = np.where(row < column, UPPER, 0)
        kept = np.stack([np.ones(len(row), bool), row != column], axis=1).ravel()
        yield tuple(
            np.stack(both, axis=1).ravel()[kept]
            for both in ((row, column), (column | upper, row | upper), (value, mirrored))
        )


def assembled(rows: Rows, triplets: Triplets) -> tuple[Entries, tuple[int, int] | None]:
    """Returns ((indptr, global columns, data) of the own rows, sorted by column, with duplicates added in their order;
    a place (row, column) whose entries were read in both triangles, or None)."""
    row, column, value = rows.local_of(triplets[0]), triplets[1] & (UPPER - 1), triplets[2]
    order = np.lexsort((column, row))  # stable
    row, column, value, upper = row[order], column[order], value[order], triplets[1][order] >= UPPER
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    twice = np.flatnonzero(~first[1:] & (upper[1:] != upper[:-1]))[:1]
    place = (int(rows.global_rows()[row[twice[0]]]), int(column[twice[0]])) if len(twice) else None
    data = value[first]
    np.add.at(data, (np.cumsum(first) - 1)[~first], value[~first])  # in order
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[first], minlength=rows.m))])
    return (indptr, column[first], data), place


def symmetry(comm, rows: Rows, entries: Entries) -> tuple[int, int, float, float] | None:
    """The first (row, column, a_ij, a_ji), row < column, with a_ij != a_ji, or None; the same on all ranks.

    `entries`: of the own rows, in the form of Matrix; rows and columns are counted from 0, missing entries are 0.0.
    Sends every entry off the diagonal once to the owner of its mirror image. Collective.
    """
    indptr, column, value = entries
    row = np.repeat(rows.global_rows(), np.diff(indptr))
    off = row != column
    away = column[off], row[off], np.ascontiguousarray(value[off], np.float64)
    across, at, other = redistribute(comm, rows, iter([away]))
    mirrored = _values_at(rows, entries, across, at)
    differs = mirrored != other
    across, at, mirrored, other = across[differs], at[differs], mirrored[differs], other[differs]
    upper = across < at
    pairs = (
        np.where(upper, across, at),
        np.where(upper, at, across),
        np.where(upper, mirrored, other),
        np.where(upper, other, mirrored),
    )
    first = np.lexsort((pairs[1], pairs[0]))[:1]
    mine = [
        (int(i), int(j), float(a), float(b)) for i, j, a, b in zip(*(p[first] for p in pairs), strict=True)
    ]
    return min((pair for pairs in comm.allgather(mine) for pair in pairs), default=None)


def _values_at(rows: Rows, entries: Entries, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The values of the own rows at these places, 0.0 for missing entries, by merging two sorted lists."""
    indptr, columns, data = entries
    stored = np.repeat(np.arange(rows.m), np.diff(indptr)), columns
    asked = rows.local_of(row), column
    both = [np.concatenate(pair) for pair in zip(stored, asked, strict=True)]
    order = np.lexsort((both[1], both[0]))  # stable: stored entries come before requested places
    row, column = both[0][order], both[1][order]
    group = np.cumsum(
        np.concatenate([[0], (row[1:] != row[:-1]) | (column[1:] != column[:-1])])[: len(order)]
    )
    groups = np.empty(len(order), np.int64)
    groups[order] = group
    values = np.zeros(len(order))
    values[groups[: len(data)]] = data
    return values[groups[len(data) :]]
